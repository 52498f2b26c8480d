"""How a scheduled plan becomes one PTX module with a launch for each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..absence import Kinds, absence_of
from ..axes import extent_of
from ..dtypes import DTYPES
from ..errors import ScheduleError
from ..joining import common_axes
from ..layouts import alignment_of, strides_of
from ..machines import machine
from ..open_plan import OpenBuffer, OpenLaunch, OpenPlan
from ..plan import Role
from ..searching import Scheduled
from ..terms import subterms
from .arena import Arena, arena
from .last_block import Following, counter_of
from .lowering import Lowered, lower
from .ptx import PTX_VERSION, Module
from .ptx_text import emit
from .residency import Residency
from .tile import TileProgram
from .tiling import tile_program


@dataclass(frozen=True)
class Generated:
    """The plan that runs, and the tile programs that it was made of."""

    plan: OpenPlan
    tiles: tuple[TileProgram, ...]


def generate(stages: Sequence[Scheduled], inputs: Sequence[Any], target: str) -> Generated:
    """The PTX module and launches of the stages, which read `inputs` (their `Array` terms)."""
    absent: dict[str, Kinds] = {}
    programs = [_program(index, each) for index, each in enumerate(stages)]
    lowered: list[Lowered] = []
    counters: list[Any] = []
    for index, each in enumerate(stages):
        residency = _residency(each, target)
        if each.stage.followed:
            name = _fresh(f"arrived{index}", stages, inputs)
            after = _following(each, stages[index + 1], programs[index + 1], name)
            counters.append(after.counter)
            _note(absent, each, stages)
            lowered.append(lower(programs[index], _arena(each), absent, residency, after))
        else:
            if not each.stage.joins:
                lowered.append(lower(programs[index], _arena(each), absent, residency))
            _note(absent, each, stages)
    _check_shared(lowered, target)
    module = Module(PTX_VERSION, target, tuple(each.entry for each in lowered))
    buffers = (
        *(_buffer(array, "input") for array in inputs),
        *(
            _buffer(made.array, "output" if made.is_output else "workspace")
            for each in stages
            for made in each.stage.targets
        ),
        *(_buffer(array, "counter") for array in counters),
    )
    plan = OpenPlan(
        emit(module), target, tuple(map(_launch, lowered)), buffers, _hints(stages, inputs)
    )
    return Generated(plan, tuple(programs))


def _program(index: int, each: Scheduled) -> TileProgram:
    inner, outer = each.candidate.inner, each.candidate.outer
    steps = each.candidate.depth_steps
    return tile_program(each.stage, f"stage{index}", inner, outer, steps, each.choices)


def _arena(each: Scheduled) -> Arena:
    return arena(each.stage, each.candidate.inner, each.candidate.outer, each.choices)


def _following(each: Scheduled, then: Scheduled, program: TileProgram, name: str) -> Following:
    """What the last blocks of a stage do, with the counter that tells them."""
    common = common_axes(each.stage, then.stage)
    return Following(program, _arena(then), common, counter_of(name, common))


def _fresh(name: str, stages: Sequence[Scheduled], inputs: Sequence[Any]) -> str:
    """A name that no array has."""
    taken = {str(array.args[0]) for array in inputs}
    taken |= {made.name for each in stages for made in each.stage.targets}
    while name in taken:
        name += "_"
    return name


def _note(absent: dict[str, Kinds], each: Scheduled, stages: Sequence[Scheduled]) -> None:
    """What a mask removed of what a stage stores."""
    for made in each.stage.targets:
        known = {
            t.array: absent[t.name] for s in stages for t in s.stage.targets if t.name in absent
        }
        absent[made.name] = absence_of(made.expr, known)


def _check_shared(lowered: Sequence[Lowered], target: str) -> None:
    """Two stages of one launch have shared memory side by side."""
    most = machine(target).shared_bytes_per_cta
    for each in lowered:
        if each.shared_bytes > most:
            raise ScheduleError(
                f"{each.entry.name}: it needs {each.shared_bytes} shared bytes with what its last "
                f"block does, more than the {most} that a block of {target} may have; the nearest "
                "legal value is REDUCE without /last"
            )


def _residency(each: Scheduled, target: str) -> Residency:
    chip = machine(target)
    return Residency(
        resident_blocks=each.cost.resident_ctas * chip.sms,
        registers=chip.registers,
        reassigns=chip.reassigns,
    )


def _launch(each: Lowered) -> OpenLaunch:
    return OpenLaunch(
        entry=each.entry.name,
        tiles=each.tiles,
        block=each.block,
        shared_bytes=each.shared_bytes,
        arguments=each.arguments,
        instructions=each.instructions,
    )


def _buffer(array: Any, role: Role) -> OpenBuffer:
    name, dtype, extents, *_ = array.args
    shape = tuple(map(extent_of, extents))
    return OpenBuffer(name, shape, DTYPES[dtype], role, strides_of(array), alignment_of(array))


def _hints(stages: Sequence[Scheduled], inputs: Sequence[Any]) -> dict[str, int]:
    """Typical lengths, by the name of the extent that a call gives."""
    targets = [target for stage in stages for target in stage.stage.targets]
    nodes = subterms(
        *(axis for target in targets for axis in target.axes), *(t.expr for t in targets)
    )
    extents = [node.args[1] for node in nodes if node.head == "Ax"]
    arrays = [*(node for node in nodes if node.head == "Array"), *inputs]
    extents += [extent for array in arrays for extent in array.args[2]]
    return {extent.args[0]: extent.args[1] for extent in extents if extent.head == "Symbol"}
