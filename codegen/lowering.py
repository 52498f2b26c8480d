"""How a tile program becomes the instructions of one kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..absence import NOWHERE, ZERO, Kinds, absence_of, identity_kinds
from ..axes import Axis
from ..notation import pretty
from ..plan import Dim3
from ..terms import subterms
from .affine import linear
from .atoms import Atom, atom
from .builder import Builder
from .context import Context
from .contraction import contract
from .expression import compute, real
from .folds import fold_rows, inner_fold
from .frames import Frame, Side, column_offsets, lane_steps, repeat, row_offsets
from .memory import store_values
from .operands import select
from .ptx import Entry, Param, Register, Special
from .tile import Contract, Fill, InnerFold, Loop, Map, RowFold, Store, TileProgram, walk
from .values import Value


@dataclass(frozen=True)
class Lowered:
    """A kernel's entry, its grid and block, the arrays that it takes, and its shared bytes.

    `instructions` are those that a warp executes, by class.
    """

    entry: Entry
    grid: Dim3
    block: Dim3
    arrays: tuple[str, ...]
    shared_bytes: int
    instructions: Mapping[str, int]


@dataclass(frozen=True)
class Limits:
    """What the assembler is told: the most registers a thread, the fewest blocks an SM."""

    registers: int
    min_blocks: int


def lower(program: TileProgram, absent: Mapping[str, Kinds], limits: Limits) -> Lowered:
    """The instructions of a tile program. `absent` tells which buffers hold masked elements."""
    return _Kernel(program, absent).finish(limits)


class _Kernel:
    def __init__(self, program: TileProgram, absent: Mapping[str, Kinds]) -> None:
        self.program, self.roles = program, program.roles
        self.arrays = _arrays(program)
        self.ctx = Context(
            Builder(),
            pointers={name: f"p_{name}" for name in self.arrays},
            absent={array: absent.get(name, NOWHERE) for name, array in self.arrays.items()},
        )
        self.warps = max(program.inner.warps, program.outer.warps)
        self.accumulators = program.outer if self.roles.fold is not None else program.inner
        self.tiles = self._grid()

    @property
    def builder(self) -> Builder:
        return self.ctx.builder

    # ---- the grid and the frames -----------------------------------------------------------------

    def _grid(self) -> tuple[int, int, int]:
        """(row tiles, column tiles, product of the batch axes); binds this block's indices."""
        geometry = self.accumulators
        with self.builder.of("the block's place in the grid"):
            rows = self._tiles(self.roles.row, self._row_extent())
            columns = self._tiles(
                self.roles.column,
                atom(geometry.atom).columns * geometry.column_atoms * geometry.column_warps,
            )
            rest: Any = self.builder.op("mov_special", Special("ctaid.x"))
            self.row_tile, rest = self._digit(rest, rows)
            self.column_tile, rest = self._digit(rest, columns)
            total = 1
            for axis in reversed(self.roles.batch):
                index, rest = self._digit(rest, axis.size)
                self.ctx.grid[axis] = Value("scalar", "s32", (index,), 0)
                total *= axis.size
        return rows, columns, total

    def _row_extent(self) -> int:
        inner = self.program.inner
        return atom(inner.atom).rows * inner.row_atoms * inner.row_warps

    @staticmethod
    def _tiles(axis: Axis | None, extent: int) -> int:
        return -(-axis.size // extent) if axis is not None else 1

    def _digit(self, number: Register, base: int) -> tuple[Any, Register]:
        """The last digit of a mixed-radix number, and the rest; 0 where there is one value."""
        if base <= 1:
            return 0, number
        return (
            self.builder.op("rem_u32", number, base),
            self.builder.op("div_u32", number, base),
        )

    def _origin(self, tile: Any, extent: int) -> Register | None:
        if not isinstance(tile, Register):
            return None
        return self.ctx.once(("origin", tile), lambda: self.builder.op("mul_lo_s32", tile, extent))

    def row_side(self) -> Side:
        geometry = self.program.inner
        kind = atom(geometry.atom)
        extent = self._row_extent()
        size = self.roles.row.size if self.roles.row is not None else 1
        return Side(
            axis=self.roles.row,
            offsets=repeat(row_offsets(kind.c), geometry.row_atoms, kind.rows),
            lane_steps=lane_steps(kind.c, 0),
            warp_step=kind.rows * geometry.row_atoms,
            warps=geometry.row_warps,
            origin=self._origin(self.row_tile, extent),
            bound=size if size % extent else None,
        )

    def column_side(self) -> Side:
        geometry = self.accumulators
        kind = atom(geometry.atom)
        warp_step = kind.columns * geometry.column_atoms
        extent = warp_step * geometry.column_warps
        size = self.roles.column.size if self.roles.column is not None else 1
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
            bound=size if size % extent else None,
        )

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
            load.head == "Load" and linear(load).coefficient(column) == 1 for load in along
        )
        return math.gcd(atoms, 8) if wide and along else 1

    def fold_side(self, moving: Register | int, block: int, bound: int | None) -> Side:
        geometry = self.program.inner
        kind = atom(geometry.atom)
        return Side(
            axis=self.roles.fold,
            offsets=repeat(column_offsets(kind.c), geometry.column_atoms, kind.columns),
            lane_steps=lane_steps(kind.c, 1),
            moving=moving,
            moving_step=block,
            bound=bound,
        )

    # ---- operations ------------------------------------------------------------------------------

    def finish(self, limits: Limits) -> Lowered:
        self.outer = Frame(self.row_side(), self.column_side())
        self.inner = self.outer
        for op in self.program.ops:
            self.emit(op)
        self.builder.put("ret")
        block = (32 * self.warps, 1, 1)
        entry = Entry(
            name=self.program.name,
            params=tuple(Param("u64", name) for name in self.ctx.pointers.values()),
            body=tuple(self.builder.statements()),
            reqntid=block,
            maxnreg=limits.registers,
            minnctapersm=limits.min_blocks,
        )
        grid = self.tiles[0] * self.tiles[1] * self.tiles[2]
        return Lowered(
            entry,
            grid=(grid, 1, 1),
            block=block,
            arrays=tuple(self.arrays),
            shared_bytes=self.shared_bytes,
            instructions=dict(self.builder.root.executed()),
        )

    @property
    def shared_bytes(self) -> int:
        """One slab, which every handed-over tile uses in turn."""
        geometry = self.program.inner
        kind = atom(geometry.atom)
        through_slab = any(
            isinstance(op, Contract) and op.handoff is not None and kind.on_tensor_cores
            for op in walk(self.program.ops)
        )
        return self._row_extent() * kind.columns * geometry.column_atoms * 2 if through_slab else 0

    def emit(self, op: Any) -> None:
        with self.builder.of(_title(op)):
            getattr(self, f"_{type(op).__name__.lower()}")(op)

    def frame(self, shape: str) -> Frame:
        return self.outer if shape == "outer" else self.inner

    def _fill(self, op: Fill) -> None:
        rows = len(self.outer.row.offsets)
        count = rows if op.shape == "rows" else rows * len(self.outer.column.offsets)
        words = self.builder.many("f32", count)
        for word in words:
            self.builder.move(word, op.value)
        kind = "rows" if op.shape == "rows" else "tile"
        self.ctx.bind(op.into, Value(kind, "f32", tuple(words), self.builder.depth))  # type: ignore[arg-type]
        self.ctx.absent[op.into] = identity_kinds(op.value)  # until something is folded in

    def _map(self, op: Map) -> None:
        frame = self.frame(op.shape)
        value = real(self.ctx, compute(self.ctx, op.expr, frame), frame)
        inside = self.ctx.inside(frame.column) if op.masked is not None else None
        if inside is not None and op.masked is not None:
            test = Value("columns", "pred", inside.words, inside.depth)
            value = select(self.ctx, test, value, op.masked, frame)
        self.ctx.bind(op.into, _spread(value, op.shape, frame))
        self.ctx.absent[op.into] = absence_of(op.expr, self.ctx.absent)

    def _innerfold(self, op: InnerFold) -> None:
        self.ctx.bind(op.into, inner_fold(self.ctx, op.red, self.inner))
        self.ctx.absent[op.into] = absence_of(op.red, self.ctx.absent)

    def _rowfold(self, op: RowFold) -> None:
        self.ctx.bind(op.into, fold_rows(self.ctx, op.monoid, self.ctx.bound[op.tile], self.inner))
        self.ctx.absent[op.into] = self.ctx.absent[op.tile]
        if op.monoid == "Max":
            self.ctx.upper.add(op.into)

    def _contract(self, op: Contract) -> None:
        axis = op.contraction.depth
        if op.shape == "outer":
            depth, frame = self._operand_depth(self.inner.column, op), self.outer
        else:
            kind = atom(op.geometry.atom)
            whole = -(-axis.size // kind.depth) * kind.depth
            bound = axis.size if whole != axis.size else None
            depth = Side(axis, tuple(range(whole)), (), bound=bound)
            frame = self.inner
        self.ctx.bind(op.into, contract(self.ctx, op, frame, depth, self.inner))
        known = self.ctx.absent
        sides = (op.contraction.left, op.contraction.right)
        products = frozenset().union(*(absence_of(side, known) for side in sides))
        held = known[op.start] if op.start is not None else ZERO
        known[op.into] = held & products & ZERO  # zero where all that it sums is

    def _operand_depth(self, side: Side, op: Contract) -> Side:
        block = max(side.offsets) + 1 + sum(side.lane_steps)
        return replace(side, offsets=tuple(range(block)), lane_steps=())

    def _loop(self, op: Loop) -> None:
        if op.rounds > 1:
            counter = self.builder.new("b32")
            self.ctx.moving[counter] = self.builder.depth + 1
            self.inner = Frame(self.outer.row, self.fold_side(counter, op.block, None))
            with self.builder.loop(counter, 0, op.rounds * op.block, op.block):
                self._deepen(op, self.builder.depth)
                self._body(op.body, op)
            self.ctx.leave(self.builder.depth)
            self._deepen(op, self.builder.depth)
        elif op.rounds == 1:
            self.inner = Frame(self.outer.row, self.fold_side(0, op.block, None))
            self._body(op.body, op)
        if op.rest:
            start = op.rounds * op.block
            self.inner = Frame(self.outer.row, self.fold_side(start, op.block, op.axis.size))
            self._body(op.rest, op)
        if op.rounds or op.rest:
            for old, new in op.carried:
                self.ctx.absent[old] = self.ctx.absent[new]

    def _body(self, ops: Iterable[Any], loop: Loop) -> None:
        for op in ops:
            self.emit(op)
        with self.builder.of("the new state"):
            for old, new in loop.carried:
                into, value = self.ctx.bound[old], self.ctx.bound[new]
                for register, word in zip(into.words, value.words, strict=True):
                    self.builder.move(register, word)
        self.ctx.forget({old for old, _ in loop.carried} | {new for _, new in loop.carried})

    def _deepen(self, op: Loop, depth: int) -> None:
        """Inside a loop, its carried tiles are values of that depth."""
        for old, _ in op.carried:
            self.ctx.bound[old] = replace(self.ctx.bound[old], depth=depth)
        self.ctx.forget({old for old, _ in op.carried})

    def _store(self, op: Store) -> None:
        frame = self.frame(op.shape)
        value = real(self.ctx, compute(self.ctx, op.expr, frame), frame)
        axes = op.target.axes
        only = self._only(axes)
        store_values(self.ctx, op.target.array, axes, value, frame, only)

    def _only(self, axes: tuple[Axis, ...]) -> Any:
        """Of the threads that hold an element, the one that stores it; None where one holds it."""
        b, zero = self.builder, []
        row, column = self.outer.row, self.outer.column
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


def _spread(value: Value, shape: str, frame: Frame) -> Value:
    """A map's value with a word for each element of its shape."""
    rows, columns = len(frame.row.offsets), len(frame.column.offsets)
    if shape == "rows":
        words = tuple(value.at(row, 0, columns) for row in range(rows))
        return Value("rows", value.type, words, value.depth)
    return Value(
        "tile",
        value.type,
        tuple(value.at(row, column, columns) for row in range(rows) for column in range(columns)),
        value.depth,
    )


def _arrays(program: TileProgram) -> dict[str, Any]:
    """The arrays that a program reads and writes, by name, in order of first appearance."""
    found: dict[str, Any] = {}
    for op in walk(program.ops):
        for expr in _expressions(op):
            for node in subterms(expr):
                if node.head == "Array":
                    found.setdefault(node.args[0], node)
        if isinstance(op, Store):
            found.setdefault(op.target.name, op.target.array)
    return found


def _expressions(op: Any) -> tuple[Any, ...]:
    if isinstance(op, Contract):
        return (op.contraction.left, op.contraction.right)
    if isinstance(op, InnerFold):
        return (op.red,)
    return (op.expr,) if isinstance(op, Map | Store) else ()


def _title(op: Any) -> str:
    return f"loop over {pretty(op.axis)}" if isinstance(op, Loop) else str(op)
