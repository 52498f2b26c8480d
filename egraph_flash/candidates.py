"""Which geometries a stage may have: every legal combination of its tiles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .axes import Axis
from .carriers import lift_of
from .choices import Choices
from .codegen import resources
from .codegen.atoms import ATOMS, Atom, atom
from .dtypes import DTYPES
from .knobs import Tile
from .once import hashed_once
from .roles import Contraction
from .shapes import loads_of, shape_of
from .stages import Stage


@hashed_once
@dataclass(frozen=True)
class Candidate:
    """One geometry of a stage: `tiles` as they are printed, by the axis that names them.

    `inner` lays out the tiles of the fold's body (of the whole stage in a map), `outer` the
    accumulators of contractions over the fold.
    """

    inner: Tile
    outer: Tile
    tiles: tuple[tuple[Axis, Tile], ...]

    @property
    def depth_steps(self) -> dict[Any, int]:
        return {axis: tile.depth_steps for axis, tile in self.tiles}

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.inner.row_atoms * self.inner.row_warps * atom(self.inner.atom).rows

    @property
    def warps(self) -> int:
        """The warps of a block that compute."""
        return max(self.inner.warps, self.outer.warps)

    @property
    def block(self) -> int:
        """Elements of the fold axis in one round of the loop."""
        return self.inner.column_atoms * self.inner.column_warps * atom(self.inner.atom).columns


ROW_WARPS, ROW_ATOMS = (1, 2, 4, 8), (1, 2, 4)
COLUMN_WARPS = (1, 2, 4, 8)  # that share the columns of accumulators that a fold goes over
FOLD_WARPS = (1, 4, 8, 16)  # warps along a fold that contracts nothing
BLOCKS = {"tensor": (16, 32, 64, 128), "fma": (4, 8, 16)}
COLUMN_ATOMS = {"map": (1, 2, 4, 8), "rows": (8, 16, 32)}  # of a tile that is only laid out
WIDEST_BYTES = 16  # that a lane can load at a time
MOST_ELEMENTS, MOST_WARPS = 64, 16  # of a lane, and of a block, whose tile is only laid out
DEPTH_STEPS = {"tensor": 4, "fma": 8}


def legal_atoms(stage: Stage) -> tuple[Atom, ...]:
    """The atoms that compute every contraction of a stage, or that lay out one without any."""
    sums = shape_of(stage)
    if not sums.contractions:
        return tuple(row for row in ATOMS.values() if row.instruction is None)
    return tuple(
        row
        for row in ATOMS.values()
        if row.instruction is not None and all(takes(row, found) for found in sums.contractions)
    )


def takes(row: Atom, found: Contraction) -> bool:
    """Whether an atom keeps what is loaded: it rounds computed operands, never a loaded one."""
    return not row.on_tensor_cores or found.dtypes == (row.operand,)


def family(row: Atom) -> str:
    if row.instruction is None:
        return "map" if row.columns > 1 else "rows"
    return "tensor" if row.on_tensor_cores else "fma"


def candidates(stage: Stage, seeds: Sequence[Tile] = ()) -> list[Candidate]:
    """Every geometry of the usual sizes, and of those that the seeds ask for, that can be laid out.

    Whether its registers and shared memory suffice depends on how it is realized.
    """
    return [c for c in unchecked(stage, seeds) if why_not(stage, c) is None]


def unchecked(stage: Stage, seeds: Sequence[Tile] = ()) -> list[Candidate]:
    """The same, those that cannot be laid out included."""
    kinds = [kind for kind in legal_atoms(stage) if _is_tried(stage, kind, seeds)]
    return list(dict.fromkeys(c for kind in kinds for c in _of_atom(stage, kind, seeds)))


def _is_tried(stage: Stage, kind: Atom, seeds: Sequence[Tile]) -> bool:
    """Lanes fold rows of their own where few blocks have many rows to fold, or where asked to."""
    return family(kind) != "rows" or stage.joins or any(seed.atom == kind.name for seed in seeds)


def _of_atom(stage: Stage, kind: Atom, seeds: Sequence[Tile]) -> Iterator[Candidate]:
    mine = [seed for seed in seeds if seed.atom == kind.name]
    return (_laid_out if kind.instruction is None else _contracting)(stage, kind, mine)


def _laid_out(stage: Stage, kind: Atom, mine: Sequence[Tile]) -> Iterator[Candidate]:
    """Tiles that contract nothing: warps down the rows, or along them, whose folds are merged."""
    axis = stage.roles.inner_columns
    length = axis.size if axis is not None else 1
    lane = kind.c.elements
    usual, least = lane in (1, _widest(stage)), COLUMN_ATOMS[family(kind)][0]
    for rows, warps, atoms, columns in itertools.product(
        _with(ROW_WARPS, (seed.row_warps for seed in mine)),
        _with(FOLD_WARPS, (seed.column_warps for seed in mine)),
        _with(ROW_ATOMS, (seed.row_atoms for seed in mine)),
        _with(COLUMN_ATOMS[family(kind)], (seed.column_atoms for seed in mine)),
    ):
        tile = Tile(kind.name, rows, warps, atoms, columns, 1)
        block = kind.columns * columns * warps
        many = rows * warps > MOST_WARPS or lane * atoms * columns > MOST_ELEMENTS
        apart = warps > 1 and max(rows, atoms) > 1
        empty = block >= 2 * length and max(lane, warps) * columns > least
        if any(seed == tile for seed in mine) or (usual and not (many or apart or empty)):
            outer = replace(tile, column_atoms=1, depth_steps=block)
            yield _candidate(stage, tile, outer, {})


def _widest(stage: Stage) -> int:
    """How many elements a lane can load at a time, of the narrowest array of a stage."""
    arrays = [load.args[0] for target in stage.targets for load in loads_of(target.expr)]
    arrays += [load.args[0] for c in stage.channels for load in loads_of(lift_of(c))]
    sizes = [DTYPES[array.args[1]].size_bytes for array in arrays]
    return WIDEST_BYTES // min((size for size in sizes if size > 1), default=4)


def _contracting(stage: Stage, kind: Atom, mine: Sequence[Tile]) -> Iterator[Candidate]:
    sums, roles = shape_of(stage), stage.roles
    row_warps = _with(ROW_WARPS, (seed.row_warps for seed in mine))
    row_atoms = _with(ROW_ATOMS, (seed.row_atoms for seed in mine))
    blocks = _with(
        BLOCKS[family(kind)],
        (
            n
            for seed in mine
            for n in (seed.column_atoms * kind.columns, seed.depth_steps * kind.depth)
        ),
    )
    columns = _column_choices(stage, kind, mine)
    depths = {
        axis: _depth_choices(axis, kind, mine) for axis in sums.depths if axis is not roles.fold
    }
    for warps, atoms, block, (column_warps, column_atoms) in itertools.product(
        row_warps, row_atoms, blocks, columns
    ):
        if block % kind.columns or block % kind.depth:
            continue
        inner = Tile(kind.name, warps, 1, atoms, block // kind.columns, 1)
        outer = Tile(kind.name, warps, column_warps, atoms, column_atoms, block // kind.depth)
        for steps in itertools.product(*depths.values()):
            yield _candidate(stage, inner, outer, dict(zip(depths, steps, strict=True)))


def _with(usual: tuple[int, ...], seeded: Any) -> tuple[int, ...]:
    return tuple(sorted({*usual, *seeded}))


def _depth_choices(axis: Axis, kind: Atom, seeds: Sequence[Tile]) -> tuple[int, ...]:
    """Depth steps a slab: the usual number, what the seeds ask for, and as near as is legal."""
    steps = max(-(-axis.size // kind.depth), 1)
    wanted = [seed.depth_steps for seed in seeds]
    return _with(
        (min(DEPTH_STEPS[family(kind)], steps),), [*wanted, *(min(w, steps) for w in wanted)]
    )


def _column_choices(stage: Stage, kind: Atom, seeds: Sequence[Tile]) -> list[tuple[int, int]]:
    """(column warps, column atoms) of the accumulators: all columns at once, or some powers; the
    fewest that hold all of them, where a fold goes over them."""
    sums, column = shape_of(stage), stage.roles.column
    if stage.fold is None or column is None or not sums.outer:
        return [(1, 1)]
    whole = max(-(-column.size // kind.columns), 1)
    if stage.columns is not None:
        held = {(warps, -(-whole // warps)) for warps in COLUMN_WARPS if warps <= whole}
        return sorted(held | {(seed.column_warps, seed.column_atoms) for seed in seeds})
    atoms = {whole, *(n for n in (4, 8, 16) if n < whole and family(kind) == "tensor")}
    atoms |= {n for n in (32, 64) if n < whole and family(kind) == "fma"}
    atoms |= {seed.column_atoms for seed in seeds if seed.column_atoms <= whole}
    warps = {1, *(seed.column_warps for seed in seeds)}
    if not sums.inner and not sums.plain and not sums.serial:
        warps |= {2, 4}
    return sorted(itertools.product(warps, atoms))


def _candidate(stage: Stage, inner: Tile, outer: Tile, steps: dict[Axis, int]) -> Candidate:
    """The geometry with its tiles by name: an inner contraction's by its depth, that over the
    fold by the fold; a stage without either names its tile by the axis that it runs along."""
    roles = stage.roles
    tiles = {axis: replace(inner, depth_steps=count) for axis, count in steps.items()}
    if shape_of(stage).outer and roles.fold is not None:
        tiles[roles.fold] = outer
    along = roles.fold or roles.column or roles.row
    if not tiles and along is not None:
        tiles[along] = inner
    return Candidate(inner, outer, tuple(tiles.items()))


def why_not(stage: Stage, candidate: Candidate) -> str | None:
    """Why a geometry cannot be laid out, or None where it can."""
    sums = shape_of(stage)
    inner, outer = candidate.inner, candidate.outer
    for axis, tile in candidate.tiles:
        steps = -(-axis.size // atom(tile.atom).depth)
        if axis is not stage.fold and tile.depth_steps > max(steps, 1):
            return f"axis {axis} has {steps} depth steps, fewer than k{tile.depth_steps}"
    folded = stage.columns.fold.size if stage.columns and stage.columns.fold else 0
    columns = atom(outer.atom).columns * outer.column_atoms * outer.column_warps
    if columns < folded:
        return f"a block has {columns} columns, fewer than the {folded} that it folds"
    warps = max(inner.warps, outer.warps)
    if warps * 32 > 1024:
        return f"{warps} warps are more than the 32 that a block may have"
    shared = sums.inner or sums.plain or sums.serial
    if outer.column_warps > 1 and shared and inner.column_warps == 1:
        return "column warps would share rows whose folds are not combined across warps"
    return None


def columns_of(stage: Stage, candidate: Candidate) -> int:
    """Columns of a block."""
    tile = candidate.outer if stage.fold is not None else candidate.inner
    return atom(tile.atom).columns * tile.column_atoms * tile.column_warps


@lru_cache(maxsize=8192)
def registers_of(stage: Stage, candidate: Candidate, choices: Choices) -> int:
    """An estimate of the registers of a thread."""
    return resources.registers(demand(stage, candidate, choices))


def demand(stage: Stage, candidate: Candidate, choices: Choices) -> resources.Demand:
    """What of a stage decides how many registers it needs."""
    sums = shape_of(stage)
    inner = {found.depth for _, found in sums.inner}
    depths = [(axis, tile) for axis, tile in candidate.tiles if axis in inner]
    kind = atom(candidate.inner.atom)
    return resources.Demand(
        inner=candidate.inner,
        outer=candidate.outer,
        depths=[tile for _, tile in depths],
        steps=[-(-axis.size // kind.depth) for axis, _ in depths],
        has_inner=bool(sums.inner or sums.serial or sums.plain),
        has_outer=bool(sums.outer),
        handoff=sums.hands_over,
        from_slots=any(each.depth for _, each in choices.stage),
        has_after=stage.columns is not None,
        choices=choices,
    )
