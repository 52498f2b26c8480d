"""How many registers and shared bytes a geometry needs, before anything is emitted."""

from __future__ import annotations

from dataclasses import dataclass

from ..knobs import Tile
from .atoms import Atom, atom
from .frames import column_offsets, row_offsets

OVERHEAD_REGISTERS = 28  # addresses, indices, predicates and scalars that are live throughout


@dataclass(frozen=True)
class Resources:
    """What one block needs: registers a thread (an estimate from below), and shared bytes."""

    registers: int
    shared_bytes: int


def words(kind: Atom, row_atoms: int, column_atoms: int) -> int:
    """Accumulator words a thread holds for that many atoms."""
    return row_atoms * len(row_offsets(kind.c)) * column_atoms * len(column_offsets(kind.c))


def plan(inner: Tile, outer: Tile, *, has_inner: bool, has_outer: bool, handoff: bool) -> Resources:
    """The resources of a stage with tiles in the body (`inner`) and accumulators (`outer`).

    Live at once: the accumulators, the tile of the body and its operands of one depth step, and
    two words a row for each of up to three channels.
    """
    kind = atom(inner.atom)
    rows = inner.row_atoms * len(row_offsets(kind.c))
    registers = OVERHEAD_REGISTERS + 6 * rows
    if has_outer:
        registers += words(atom(outer.atom), outer.row_atoms, outer.column_atoms)
    if has_inner or not has_outer:
        registers += words(kind, inner.row_atoms, inner.column_atoms)
    operands = 4 * inner.row_atoms + 2 if kind.on_tensor_cores else 2 * inner.row_atoms
    slab = kind.rows * inner.row_atoms * inner.row_warps * kind.columns * inner.column_atoms * 2
    through_slab = handoff and kind.on_tensor_cores
    return Resources(registers + operands, slab if through_slab else 0)
