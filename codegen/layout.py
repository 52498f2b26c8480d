"""Where a kernel's blocks, warps and lanes stand: its grid, and the sides of its tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..axes import Axis, extent_of
from ..expressions import maximum, minimum
from ..open_plan import Extent
from .affine import linear
from .atoms import Atom, atom
from .context import Context
from .expression import compute, whole
from .frames import ALONE, Frame, Side, column_offsets, lane_steps, repeat, row_offsets
from .ptx import Register
from .tile import Contract, TileProgram
from .values import Value
from .walking import walk

NONE: Mapping[Axis, Value] = MappingProxyType({})


class Layout:
    """The grid of a tile program: row tiles, column tiles and batch axes, rows fastest.

    Making one emits this block's place in the grid, and binds its index of each batch axis but
    those `known`, of which the grid has none.
    """

    def __init__(
        self, ctx: Context, program: TileProgram, known: Mapping[Axis, Value] = NONE
    ) -> None:
        self.ctx, self.builder, self.program = ctx, ctx.builder, program
        self.roles = program.roles
        self.warps = program.warps
        self.accumulators = program.outer if self.roles.fold is not None else program.inner
        batch = tuple(reversed(self.roles.batch))
        parts = [(self.roles.row, self.row_extent), (self.roles.column, self.column_extent)]
        parts += [(axis, 1) for axis in batch]
        self.factors: tuple[tuple[Extent, int], ...] = tuple(
            (extent_of(axis.extent), per) for axis, per in parts if axis is not None
        )
        self.order = program.choices.order
        if self.order == "pair" and self.factors:
            extent, per = self.factors[0]
            self.factors = ((extent, 2 * per), *self.factors[1:])
        with self.builder.of("the block's place in the grid"):
            self.counted = [
                (axis, 1 if axis in known else self._tiles(axis, per)) for axis, per in parts
            ]
            self.counts = [count for _, count in self.counted]
            self.row_tile, self.column_tile, *indices = self._place(self.counts)
        for axis, index in zip(batch, indices, strict=True):
            self.ctx.grid[axis] = known.get(axis) or Value("scalar", "s32", (index,), 0)

    def blocks(self) -> Register | int:
        """How many tiles there are in all."""
        known = math.prod(count for count in self.counts if isinstance(count, int))
        total: Register | int = known
        for count in self.counts:
            if isinstance(count, Register):
                total = count if total == 1 else self.builder.op("mul_lo_s32", count, total)
        return total

    @property
    def column_extent(self) -> int:
        """How many columns of accumulators a block has."""
        geometry = self.accumulators
        return atom(geometry.atom).columns * geometry.column_atoms * geometry.column_warps

    @property
    def row_extent(self) -> int:
        """How many rows a block has."""
        inner = self.program.inner
        return atom(inner.atom).rows * inner.row_atoms * inner.row_warps

    def _tiles(self, axis: Axis | None, per: int) -> Register | int:
        """How many tiles an axis has."""
        length = self.ctx.length(axis) if axis is not None else 1
        if isinstance(length, int):
            return -(-length // per)
        if per == 1:
            return length
        return self.builder.op("div_u32", self.builder.op("add_s32", length, per - 1), per)

    def _place(self, counts: list[Register | int]) -> list[Any]:
        """The tile that the block works on: its row tile, its column tile, its batch indices."""
        rows, *others = counts
        if self.order == "rows":
            return self._digits(counts)
        if self.order == "pair":
            row, *rest = self._digits([self._half(rows), *others])
            light, heavy = row, self._from_end(row, rows)
            if not self.heavy_last:
                light, heavy = heavy, light
            b = self.builder
            second = b.op("setp_eq_s32", self.ctx.second_of_pair, 1)
            self.opposite = self._either(second, heavy, light)
            return [self._either(second, light, heavy), *rest]
        *rest, row = self._digits([*others, rows])
        return [self._from_end(row, rows) if self.heavy_last else row, *rest]

    @property
    def heavy_last(self) -> bool:
        """Whether row tiles grow heavier with their number."""
        return self.program.heavy_last

    def _half(self, rows: Register | int) -> Register | int:
        if isinstance(rows, int):
            return -(-rows // 2)
        return self.builder.op("shr_u32", self.builder.op("add_s32", rows, 1), 1)

    def _from_end(self, tile: Any, count: Register | int) -> Any:
        """The tile as far from the last as this one is from the first."""
        if isinstance(tile, int) and isinstance(count, int):
            return count - 1 - tile
        last = count - 1 if isinstance(count, int) else self.builder.op("add_s32", count, -1)
        return self.builder.op("sub_s32", last, tile)

    def _either(self, test: Register, one: Any, other: Any) -> Register:
        return self.builder.op("selp_s32", one, other, test)

    def _number(self) -> Register:
        """Which tile is the block's, the heaviest first: in a fold, blocks after the first half
        take the lightest tiles, so that one of them joins each heavy one on an SM."""
        number = self.ctx.block_number()
        if self.order != "fold":
            return number
        b, total = self.builder, self.blocks()
        half = self._half(total)
        first = b.op("setp_lt_s32", number, half)
        # the second half counts down from the last tile
        end = total - 1 + half if isinstance(total, int) and isinstance(half, int) else None
        last = end if end is not None else b.op("add_s32", b.op("add_s32", total, half), -1)
        return b.op("selp_s32", number, b.op("sub_s32", last, number), first)

    def _digits(self, bases: list[Register | int]) -> list[Any]:
        """The digits of the block's number, the lowest first; 0 where a base has one value."""
        moving = [
            place for place, base in enumerate(bases) if isinstance(base, Register) or base > 1
        ]
        digits: list[Any] = [0] * len(bases)
        rest = self._number() if moving else None
        for place in moving:
            if place == moving[-1]:
                digits[place] = rest
                continue
            digits[place] = self.builder.op("rem_u32", rest, bases[place])
            rest = self.builder.op("div_u32", rest, bases[place])
        return digits

    def _origin(self, tile: Any, extent: int) -> Register | None:
        if not isinstance(tile, Register):
            return None
        return self.ctx.once(("origin", tile), lambda: self.builder.op("mul_lo_s32", tile, extent))

    def row_side(self) -> Side:
        geometry = self.program.inner
        kind = atom(geometry.atom)
        extent = self.row_extent
        return Side(
            axis=self.roles.row,
            offsets=repeat(row_offsets(kind.c), geometry.row_atoms, kind.rows),
            lane_steps=lane_steps(kind.c, 0),
            warp_step=kind.rows * geometry.row_atoms,
            warps=geometry.row_warps,
            origin=self._origin(self.row_tile, extent),
            bound=self._bound(self.roles.row, extent, self.program.end_of_rows),
        )

    def column_side(self) -> Side:
        geometry = self.accumulators
        kind = atom(geometry.atom)
        warp_step = kind.columns * geometry.column_atoms
        extent = self.column_extent
        turns = self._interleave(kind, geometry.column_atoms)
        return Side(
            axis=self.roles.column,
            offsets=repeat(column_offsets(kind.c), geometry.column_atoms, kind.columns, turns),
            lane_steps=lane_steps(kind.c, 1, turns),
            interleave=turns,
            warp_step=warp_step,
            warps=geometry.column_warps,
            warp_stride=geometry.row_warps,
            origin=self._origin(self.column_tile, extent),
            bound=self._bound(self.roles.column, extent, self.program.end_of_columns),
        )

    def _bound(self, axis: Axis | None, extent: int, end: Any | None) -> Register | int | None:
        """Where an axis ends, or what of it counts, if its last tile may reach past that."""
        if end is not None:
            assert axis is not None, "what ends is an axis"
            within = minimum(maximum(end, 0), axis.length)
            (word,) = whole(compute(self.ctx, within, ALONE)).words
            return word if isinstance(word, Register) else int(word)
        length = self.ctx.length(axis) if axis is not None else 1
        return None if isinstance(length, int) and length % extent == 0 else length

    def _interleave(self, kind: Atom, atoms: int) -> int:
        """How many column atoms take turns: as many as make a lane's columns one wide load.

        It pays where a right operand lies along the columns and each lane would load single
        elements of it.
        """
        along = [
            op.contraction.right
            for op in walk(self.program.ops)
            if isinstance(op, Contract) and op.shape == "outer"
        ]
        column = self.roles.column
        wide = kind.on_tensor_cores and all(
            load.head == "Load"
            and linear(load).coefficient(column) == 1
            and not self.program.choices.staging(str(load.args[0].args[0])).depth
            for load in along
        )
        return math.gcd(atoms, 8) if wide and along else 1

    def ones_side(self) -> Side:
        """One atom of columns that are all alike."""
        kind = atom(self.accumulators.atom)
        return Side(axis=None, offsets=column_offsets(kind.c), lane_steps=(0,) * 5)

    def fold_side(
        self, moving: Register | int, block: int, bound: Register | int | None, ahead: int = 0
    ) -> Side:
        geometry = self.program.inner
        kind = atom(geometry.atom)
        return Side(
            axis=self.roles.fold,
            offsets=repeat(column_offsets(kind.c), geometry.column_atoms, kind.columns),
            lane_steps=lane_steps(kind.c, 1),
            warp_step=kind.columns * geometry.column_atoms,
            warps=geometry.column_warps,
            warp_stride=geometry.row_warps,
            moving=moving,
            moving_step=block,
            ahead=ahead,
            bound=bound,
        )

    def only(self, axes: tuple[Axis, ...], frame: Frame) -> Any:
        """Of the threads that hold an element, the one that stores it; None where one holds it."""
        b, zero = self.builder, []
        row, column = frame.row, frame.column
        for side, tile in ((row, self.row_tile), (column, self.column_tile)):
            if side.axis is not None and side.axis in axes:
                continue
            other = column if side is row else row
            shared = sum(1 << bit for bit in other.sharing_bits)
            if shared:
                zero.append(b.op("and_b32", self.ctx.lane, shared))
            if side.warps > 1:
                zero.append(self.ctx.warp_place(side.warps, side.warp_stride))
            if isinstance(tile, Register):
                zero.append(tile)
        zero += [
            self.ctx.grid[axis].words[0]
            for axis in self.roles.batch
            if axis not in axes and isinstance(self.ctx.grid[axis].words[0], Register)
        ]
        if not zero:
            return None
        total = zero[0]
        for part in zero[1:]:
            total = b.op("or_b32", total, part)
        return b.op("setp_eq_s32", total, 0)
