"""How a tile program becomes the instructions of one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..absence import NOWHERE, ZERO, Kinds, absence_of, identity_kinds
from ..notation import pretty
from ..plan import Dim3
from ..terms import subterms
from .atoms import atom
from .builder import Builder
from .context import Context
from .contraction import contract
from .expression import compute, real
from .folds import fold_rows, inner_fold
from .frames import Frame, Side
from .layout import Layout
from .memory import store_values
from .operands import select
from .ptx import Entry, Param
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
        self.layout = Layout(self.ctx, program)

    @property
    def builder(self) -> Builder:
        return self.ctx.builder

    # ---- operations ------------------------------------------------------------------------------

    def finish(self, limits: Limits) -> Lowered:
        with self.builder.of("the block's first row and column"):
            self.outer = Frame(self.layout.row_side(), self.layout.column_side())
        self.inner = self.outer
        for op in self.program.ops:
            self.emit(op)
        self.builder.put("ret")
        block = (32 * self.layout.warps, 1, 1)
        entry = Entry(
            name=self.program.name,
            params=tuple(Param("u64", name) for name in self.ctx.pointers.values()),
            body=tuple(self.builder.statements()),
            reqntid=block,
            maxnreg=limits.registers,
            minnctapersm=limits.min_blocks,
        )
        return Lowered(
            entry,
            grid=(self.layout.blocks, 1, 1),
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
        return (
            self.layout.row_extent * kind.columns * geometry.column_atoms * 2 if through_slab else 0
        )

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
            self.inner = Frame(self.outer.row, self.layout.fold_side(counter, op.block, None))
            with self.builder.loop(counter, 0, op.rounds * op.block, op.block):
                self._deepen(op, self.builder.depth)
                self._body(op.body, op)
            self.ctx.leave(self.builder.depth)
            self._deepen(op, self.builder.depth)
        elif op.rounds == 1:
            self.inner = Frame(self.outer.row, self.layout.fold_side(0, op.block, None))
            self._body(op.body, op)
        if op.rest:
            start = op.rounds * op.block
            self.inner = Frame(self.outer.row, self.layout.fold_side(start, op.block, op.axis.size))
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
        only = self.layout.only(axes, self.outer)
        store_values(self.ctx, op.target.array, axes, value, frame, only)


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
