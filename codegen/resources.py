"""How many registers a geometry needs, before anything is emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..choices import Choices
from ..knobs import Tile
from .atoms import Atom, atom
from .frames import column_offsets, row_offsets

OVERHEAD_REGISTERS = 40  # addresses, indices, predicates and scalars that are live throughout
STAGED_OVERHEAD_REGISTERS = 44  # the same where operands come from slots
STAGED_ROW_REGISTERS = 4
SLACK_REGISTERS = 24  # what the assembler has been seen to save, at the cost of some spills
LAID_OUT_REGISTERS = 32  # the same where nothing is contracted
ROW_REGISTERS = 6  # for each row that a thread holds: old and new channels, and their factors


@dataclass(frozen=True)
class Demand:
    """What of a stage decides its registers.

    `depths` are the tiles of contractions in the body, with all their depth steps in `steps`;
    `from_slots` says whether streamed operands come from shared memory, `has_after` whether a fold
    over the accumulators' columns follows.
    """

    inner: Tile
    outer: Tile
    depths: Sequence[Tile]
    steps: Sequence[int]
    has_inner: bool
    has_outer: bool
    handoff: bool
    from_slots: bool
    has_after: bool
    choices: Choices


def words(kind: Atom, row_atoms: int, column_atoms: int) -> int:
    """Accumulator words a thread holds for that many atoms."""
    return row_atoms * len(row_offsets(kind.c)) * column_atoms * len(column_offsets(kind.c))


def registers(demand: Demand) -> int:
    """An estimate of the registers of a thread.

    Three moments of a round are weighed: the contractions of the body with the operands of one
    slab; the tile as it was folded, as it becomes at the new bases, and rounded to pairs; and the
    contraction over the fold. What is started `_early` lives beside the block in hand. A fold over
    columns has a value for each row and the place of each column beside the accumulators, in whose
    registers stands what becomes of them.
    """
    inner, outer, choices = demand.inner, demand.outer, demand.choices
    kind = atom(inner.atom)
    held = words(atom(outer.atom), outer.row_atoms, outer.column_atoms) if demand.has_outer else 0
    own = demand.has_inner or not demand.has_outer
    tile = words(kind, inner.row_atoms, inner.column_atoms) if own else 0
    rounded = -(-tile // 2) if demand.handoff and kind.on_tensor_cores else 0
    beside = _early(demand, tile)
    kept = 0
    if choices.hoist == "registers" and kind.on_tensor_cores:
        kept = sum(kind.a.elements // 2 * inner.row_atoms * steps for steps in demand.steps)
    rows = inner.row_atoms * len(row_offsets(kind.c))
    if demand.from_slots:
        # fragments come late and leave early: a few suffice, whatever the slab
        few = kind.b.elements * 2 + kind.a.elements // 2 * inner.row_atoms
        least = held + tile + beside + kept + few + STAGED_ROW_REGISTERS * rows
        after = held + ROW_REGISTERS * rows + _places(outer) if demand.has_after else 0
        return STAGED_OVERHEAD_REGISTERS + max(least, after)
    if kind.instruction is None:  # what is loaded turns into what is folded, element by element
        return LAID_OUT_REGISTERS + ROW_REGISTERS * rows + tile + tile // 2 + beside
    moments = [held + 2 * tile + rounded]
    moments += [held + tile + _slab(kind, each, not kept) for each in demand.depths]
    if demand.has_outer:
        moments.append(held + (rounded or tile) + _slab(kind, outer, not demand.handoff))
    return OVERHEAD_REGISTERS + ROW_REGISTERS * rows + max(moments) + beside + kept


def _early(demand: Demand, tile: int) -> int:
    """Words of later blocks' tiles that live beside the one in hand.

    A skew makes the next one's early. Where several blocks stand in a row, the assembler starts the
    next one, of whose tile half is there when most is live. In a block of one warp no barrier keeps
    it from starting all that it can, each with its tile and what becomes of it.
    """
    several = max((staging.steps for _, staging in demand.choices.stage), default=1) - 1
    skewed = demand.choices.skew != "off"
    if max(demand.inner.warps, demand.outer.warps) == 1:
        return 2 * tile * (several + skewed)
    return tile if skewed else tile // 2 if several else 0


def _places(tile: Tile) -> int:
    """The columns that a thread holds."""
    return tile.column_atoms * len(column_offsets(atom(tile.atom).c))


def _slab(kind: Atom, tile: Tile, left: bool) -> int:
    """Registers for the operands of one slab of depth steps.

    Fragments of tensor cores are loaded before the first atom that uses them; the CUDA cores'
    operands are used up one by one.
    """
    if not kind.on_tensor_cores:
        return 8 + tile.row_atoms
    each = kind.b.elements // 2 * tile.column_atoms
    each += kind.a.elements // 2 * tile.row_atoms if left else 0
    return tile.depth_steps * each
