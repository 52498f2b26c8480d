"""Whether a realization is legal: the precondition of each knob, shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .axes import Axis, size_of
from .candidates import Candidate, registers_of
from .carriers import bases_of, monoid_of
from .choices import LEAST_REGISTERS, Choices
from .codegen.arena import Arena, arena
from .codegen.atoms import atom
from .codegen.boxes import boxes_of
from .codegen.residency import PRODUCER_THREADS
from .codegen.resources import SLACK_REGISTERS
from .codegen.slabs import CHUNK_BYTES
from .errors import ScheduleError
from .gauge import tells_the_base
from .indices import bounds
from .knobs import Tile
from .machines import Machine
from .shapes import free_base, multiple_of, riders, shape_of, tiles_of
from .skipping import scan_of, skips, uneven
from .stages import Stage

LEAST_COPY_BYTES = 4


@dataclass(frozen=True)
class Refusal:
    """The knob whose precondition fails, why, and how many others held before it."""

    knob: str
    why: str
    held: int = 0


def why_not(
    stage: Stage, candidate: Candidate, choices: Choices, machine: Machine
) -> Refusal | None:
    """The knob whose precondition fails and the reason with the nearest legal value, or None."""
    for held, (knob, check) in enumerate(_CHECKS):
        reason = check(stage, candidate, choices)
        if reason is not None:
            return Refusal(knob, reason, held)
    refusal = _resources(stage, candidate, choices, machine)
    return replace(refusal, held=len(_CHECKS) + 1) if refusal is not None else None


def _resources(
    stage: Stage, candidate: Candidate, choices: Choices, machine: Machine
) -> Refusal | None:
    """Shared memory, copies and registers."""
    refusal = _memory(stage, candidate.inner, candidate.outer, choices.movement, machine)
    return refusal or _registers(stage, candidate, choices, machine)


@lru_cache(maxsize=8192)
def _memory(
    stage: Stage, inner: Tile, outer: Tile, movement: Choices, machine: Machine
) -> Refusal | None:
    """Shared memory and copies, which no form of the algebra changes."""
    try:
        made = arena(stage, inner, outer, movement)
    except ScheduleError as error:
        return Refusal("STAGE", str(error))
    if made.size_bytes > machine.shared_bytes_per_cta:
        return Refusal(
            "STAGE",
            f"it needs {made.size_bytes} shared bytes, more than the "
            f"{machine.shared_bytes_per_cta} that a block of {machine.target} may have"
            f"{_fewer(made, movement, machine)}",
        )
    return _copies(made, movement) or _ends(made, stage.roles.fold)


def _copies(made: Arena, choices: Choices) -> Refusal | None:
    """Whether every operand can be copied as its transport copies."""
    by_tma = any(ring.staging.transport == "tma" for ring in made.rings)
    once = "tma" if by_tma else "cp"
    copied = [
        (f"STAGE@{placed.name}", placed, ring.staging.transport)
        for ring in made.rings
        for placed in (*ring.slabs, *ring.lead)
    ]
    for knob, placed, transport in [*copied, *(("HOIST", placed, once) for placed in made.kept)]:
        if transport == "cp" and placed.run_bytes < LEAST_COPY_BYTES:
            return Refusal(
                knob,
                f"cp.async takes 4, 8 or 16 aligned bytes, rows of {placed.name} have runs of "
                f"{placed.run_bytes}; the nearest legal transport is sync",
            )
        if transport == "cp" and choices.cache != "none" and placed.run_bytes < CHUNK_BYTES:
            return Refusal(
                "CACHE",
                f"cp.async takes a hint where it copies {CHUNK_BYTES} bytes, rows of {placed.name} "
                f"have runs of {placed.run_bytes}; the nearest legal value is none",
            )
        if transport == "tma":
            try:
                boxes_of(placed)
            except ScheduleError as error:
                return Refusal(knob, str(error))
    return None


def _ends(made: Arena, fold: Axis | None) -> Refusal | None:
    """Whether rows that lie along the fold end where a part of it does: threads copy as far as the
    part goes, while tensor copies know where memory ends."""
    copied = ((ring.staging, placed) for ring in made.rings for placed in ring.slabs)
    for staging, placed in copied:
        if fold is None or staging.transport == "tma" or placed.along is not fold:
            continue
        if _may_pass(placed.load, fold):
            return Refusal(
                f"STAGE@{placed.name}",
                f"parts of {fold} that blocks share reach past the ends of rows of {placed.name}; "
                "the nearest legal value is d0",
            )
    return None


def _may_pass(load: Any, fold: Axis) -> bool:
    """Whether some index along the fold may lie past the end of its dimension."""
    dims = zip(load.args[1], load.args[0].args[2], strict=True)
    return any(
        fold in index.axes
        and index is not fold.index
        and (extent.head != "Known" or bounds(index)[1] >= size_of(extent))
        for index, extent in dims
    )


def _registers(
    stage: Stage, candidate: Candidate, choices: Choices, machine: Machine
) -> Refusal | None:
    need = registers_of(stage, candidate, choices)
    warps = max(candidate.inner.warps, candidate.outer.warps)
    producers = PRODUCER_THREADS // 32 if choices.roles == "producer" else 0
    if need > machine.registers_per_thread + SLACK_REGISTERS:
        return Refusal(
            "TILE",
            f"it needs about {need} registers a thread, "
            f"more than the {machine.registers_per_thread} of {machine.target}",
        )
    most = machine.resident(warps + producers, LEAST_REGISTERS)
    if choices.regs.min_blocks > most:
        return Refusal(
            "REGS",
            f"an SM of {machine.target} holds at most {most} blocks of {warps + producers} warps; "
            f"the nearest legal value is {replace(choices.regs, min_blocks=most)}",
        )
    each = min(need, machine.registers_per_thread, choices.regs.limit(warps + producers))
    total = machine.registers_of(warps, each, producers)
    if total > machine.registers:
        return Refusal(
            "TILE",
            f"its {warps + producers} warps need about {total} registers, "
            f"more than the {machine.registers} of an SM of {machine.target}",
        )
    return None


def _fewer(made: Arena, choices: Choices, machine: Machine) -> str:
    """The nearest legal depth of the deepest ring."""
    over = made.size_bytes - machine.shared_bytes_per_cta
    for ring in sorted(made.rings, key=lambda r: -r.staging.depth):
        depth = ring.staging.depth - -(-over // max(ring.slot_bytes, 1))
        if depth >= 1:
            return f"; the nearest legal depth is d{depth}"
    return ""


def _stage(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    staged = [each for _, each in choices.stage if each.depth]
    if not staged:
        return None
    if stage.joins and any(each.transport == "tma" for each in staged):
        return "tensor copies read nothing that their launch stores; the nearest legal value is d0"
    if not atom(candidate.inner.atom).on_tensor_cores:
        return f"the atom {candidate.inner.atom} takes no operands from shared memory; d0 is legal"
    if len({each.steps for each in staged}) > 1:
        return "slots of different numbers of blocks in one loop; the same for all is legal"
    return None


def _slab(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    if choices.slab == "pad16" and any(s.transport == "tma" for _, s in choices.stage):
        return "tensor copies fill rows end to end; the nearest legal value is xor"
    return None


def _handoff(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    kind = atom(candidate.inner.atom)
    if choices.handoff == "repack" and kind.on_tensor_cores and kind.a.lane != kind.c.lane:
        return f"lanes of {kind.name} hold other places of an operand; shared is legal"
    if choices.handoff == "shared/warp" and candidate.outer.column_warps > 1:
        return "column warps share rows of the slab; the nearest legal value is shared"
    return None


def _hoist(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    fold = stage.roles.fold
    still = [
        side
        for found in shape_of(stage).contractions
        for side in (found.left, found.right)
        if side.head == "Load" and fold not in side.axes
    ]
    if choices.hoist != "none" and not still:
        return "every operand varies along the fold; the nearest legal value is none"
    if choices.hoist == "shared" and not atom(candidate.inner.atom).on_tensor_cores:
        return f"the atom {candidate.inner.atom} takes no operands from shared memory"
    return None


def _drain(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    sums, depth = shape_of(stage), atom(candidate.inner.atom).depth
    reach = [found.depth.size for _, found in sums.inner]
    reach += [candidate.block] if sums.outer else []
    if choices.drain.ahead and max(reach, default=0) <= depth:
        return (
            "every contraction has one depth step, so none has a next one; "
            f"the nearest legal value is x{choices.drain.matrices}"
        )
    return None


def _exp(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    tile = candidate.outer if stage.columns is not None else candidate.inner
    kind = atom(tile.atom)
    words = kind.rows * tile.row_atoms * kind.columns * tile.column_atoms // 32
    if choices.exp.share > words:
        return f"a lane holds {words} words of a tile; the nearest legal value is poly{words}"
    return None


def _sum(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    rows = [c for c in shape_of(stage).plain if monoid_of(c) == "Sum"]
    if choices.sum != "block" and not rows:
        return "the stage has no sum with one value a row; the nearest legal value is block"
    if choices.sum == "ones" and not riders(stage):
        return "no contraction has the sum's weights as its operand; lane is legal"
    if choices.sum == "ones" and not atom(candidate.inner.atom).on_tensor_cores:
        return f"columns of ones cost {candidate.inner.atom} as much as others; lane is legal"
    return None


def _base(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    if choices.base == "max":
        return None
    if not any(free_base(stage, base) for base in stage.channels):
        return "no channel is kept relative to a base that is free; the nearest legal value is max"
    telling = tells_the_base(stage) if choices.base == "lazy" else None
    if telling is not None:
        return f"{telling} depends on which base is kept; the nearest legal value is vote"
    return None


def _start(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    bases = {base for c in stage.channels for base in bases_of(c)}
    none = all(multiple_of(stage, base) is None for base in bases)
    if choices.start == "base" and none:
        return (
            "no base is a fold of positive multiples of one contraction; "
            "the nearest legal value is zero"
        )
    return None


def _skew(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    sums = shape_of(stage)
    staged = {name for name, each in choices.stage if each.depth}
    tiles = [load for load in tiles_of(stage) if str(load.args[0].args[0]) in staged]
    if choices.skew != "off" and tiles:
        return f"{tiles[0]} is staged, and read early and late; the nearest legal value is off"
    early = {side for _, found in sums.inner for side in (found.left, found.right)}
    late = {side for _, found in sums.outer for side in (found.left, found.right)}
    both = [load for load in early & late if load.head == "Load"]
    if choices.skew != "off" and any(str(load.args[0].args[0]) in staged for load in both):
        return f"{both[0]} is staged, and read early and late; the nearest legal value is off"
    if choices.skew != "off" and not (sums.inner or sums.serial):
        return "every part of the body depends on the carried state; the nearest legal value is off"
    return None


def _skip(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    if choices.skip == "none":
        return None
    by_index = stage.fold is not None and skips(stage)
    by_data = stage.fold is not None and scan_of(stage) is not None
    if choices.skip == "index" and not by_index:
        nearest = "data" if by_data else "none"
        return f"no index arithmetic masks a part of the fold; the nearest legal value is {nearest}"
    if choices.skip == "data" and not by_data:
        nearest = "index" if by_index else "none"
        return (
            f"no mask compares data of rows and of the fold; the nearest legal value is {nearest}"
        )
    return None


def _order(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    if choices.order == "rows":
        return None
    if choices.order == "pair" and (stage.followed or stage.joins):
        return f"{_COUNTED}; the nearest legal value is heavy"
    if choices.skip == "none" or not skips(stage) or not uneven(stage, candidate.rows):
        return "every row tile has as much to do; the nearest legal value is rows"
    if choices.order == "pair" and choices.grid == "persistent":
        return "blocks that take tiles in turn take no pairs; the nearest legal value is heavy"
    return None


def _roles(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    transports = {s.transport for _, s in choices.stage if s.depth}
    if choices.roles == "producer" and (stage.followed or stage.joins):
        return "threads that only copy end before the last block goes on; one is legal"
    if choices.roles == "all":
        return (
            "tensor copies are issued by one thread; one is legal" if "tma" in transports else None
        )
    if transports != {"tma"} or len({s for _, s in choices.stage if s.depth}) > 1:
        return "it takes one ring filled by tma; the nearest legal value is all"
    return None


def _grid(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    if choices.grid != "tiles" and (stage.followed or stage.joins):
        return f"{_COUNTED}; the nearest legal value is tiles"
    return None


def _cache(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    if choices.cache != "none" and any(s.transport == "sync" for _, s in choices.stage):
        return "the loads of sync take no hint; the nearest legal transport is cp"
    return None


def _turns(stage: Stage, candidate: Candidate, choices: Choices) -> str | None:
    rows = candidate.inner.row_warps
    columns = max(candidate.inner.column_warps, candidate.outer.column_warps)
    if choices.turns != "off" and (columns > 1 or rows % 2):
        return (
            f"{rows} row warps and {columns} column warps are no two halves of rows; "
            "the nearest legal value is off"
        )
    return None


_COUNTED = "the last block is found by counting blocks, of which each has one tile"
_CHECKS = (
    ("STAGE", _stage),
    ("SLAB", _slab),
    ("HANDOFF", _handoff),
    ("HOIST", _hoist),
    ("DRAIN", _drain),
    ("EXP", _exp),
    ("SUM", _sum),
    ("BASE", _base),
    ("START", _start),
    ("SKEW", _skew),
    ("SKIP", _skip),
    ("ORDER", _order),
    ("ROLES", _roles),
    ("GRID", _grid),
    ("CACHE", _cache),
    ("TURNS", _turns),
)
