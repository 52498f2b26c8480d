"""How many registers and shared bytes a geometry needs, before anything is emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..knobs import Tile
from .atoms import Atom, atom
from .frames import column_offsets, row_offsets

OVERHEAD_REGISTERS = 46  # addresses, indices, predicates and scalars that are live throughout
ROW_REGISTERS = 6  # for each row that a thread holds: old and new channels, and their factors


@dataclass(frozen=True)
class Resources:
    """What one block needs: registers a thread (an estimate), and shared bytes."""

    registers: int
    shared_bytes: int


def words(kind: Atom, row_atoms: int, column_atoms: int) -> int:
    """Accumulator words a thread holds for that many atoms."""
    return row_atoms * len(row_offsets(kind.c)) * column_atoms * len(column_offsets(kind.c))


def plan(
    inner: Tile,
    outer: Tile,
    depths: Sequence[Tile],
    *,
    has_inner: bool,
    has_outer: bool,
    handoff: bool,
) -> Resources:
    """The resources of a stage with tiles in the body (`inner`) and accumulators (`outer`).

    `depths` are the tiles of contractions in the body. Three moments of a round are weighed: the
    contractions of the body with the operands of one slab; the tile as it was folded, as it
    becomes at the new bases, and rounded to pairs; and the contraction over the fold.
    """
    kind = atom(inner.atom)
    held = words(atom(outer.atom), outer.row_atoms, outer.column_atoms) if has_outer else 0
    tile = words(kind, inner.row_atoms, inner.column_atoms) if has_inner or not has_outer else 0
    rounded = -(-tile // 2) if handoff and kind.on_tensor_cores else 0
    moments = [held + 2 * tile + rounded]
    moments += [held + tile + _slab(kind, each, True) for each in depths]
    if has_outer:
        moments.append(held + (rounded or tile) + _slab(kind, outer, not handoff))
    rows = inner.row_atoms * len(row_offsets(kind.c))
    registers = OVERHEAD_REGISTERS + ROW_REGISTERS * rows + max(moments)
    slab = kind.rows * inner.row_atoms * inner.row_warps * kind.columns * inner.column_atoms * 2
    through_slab = handoff and kind.on_tensor_cores
    return Resources(registers, slab if through_slab else 0)


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
