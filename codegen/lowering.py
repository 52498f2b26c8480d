"""How a tile program becomes the instructions of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ..absence import NOWHERE, ZERO, Kinds, absence_of, folded_kinds, identity_kinds
from ..axes import Axis
from ..notation import pretty
from ..open_plan import OpenArgument, Tiles
from ..plan import Dim3, Pointer
from ..tensor_map import MAP_ALIGNMENT_BYTES, MAP_BYTES
from ..terms import make
from .arena import Arena
from .atoms import atom
from .builder import Builder
from .context import Context
from .contraction import contract
from .expression import compute, real, truth
from .folds import combine_of, fold_across, fold_lanes, fold_rows, inner_fold
from .frames import Frame, Side
from .last_block import Following, Remaining, following_offset, only_the_last
from .layout import NONE, Layout
from .merging import publish, receive
from .operands import select
from .peephole import paired
from .ptx import Entry, Param
from .rebase import rebase
from .residency import PRODUCER_THREADS, Residency
from .stores import store_values
from .streaming import Stream
from .sweeping import sweep
from .tile import (
    AcrossLanes,
    Columns,
    Contract,
    Fill,
    FirstColumn,
    InnerFold,
    LaneFold,
    Loop,
    Map,
    Publish,
    Rebase,
    Receive,
    RowFold,
    Store,
    Sweep,
    TileProgram,
)
from .tiles import Pair, Persistent, TilesInTurn
from .turns import begin_turns, own_turn
from .values import Value
from .walking import arrays_of

NOTHING: Mapping[str, int] = MappingProxyType({})
NOT_LAST = "not_last"  # where blocks go that others come after


@dataclass(frozen=True)
class Lowered:
    """A kernel's entry, its grid and block, its arguments, and its shared bytes.

    `instructions` are those that a warp executes, by class.
    """

    entry: Entry
    tiles: Tiles
    block: Dim3
    arguments: tuple[OpenArgument, ...]
    shared_bytes: int
    instructions: Mapping[str, float]


def lower(
    program: TileProgram,
    arena: Arena,
    absent: Mapping[str, Kinds],
    residency: Residency,
    after: Following | None = None,
) -> Lowered:
    """The instructions of a tile program, its shared memory laid out as `arena` says.

    `absent` tells which buffers hold masked elements. What comes `after` it, the last of the
    blocks that belong together does.
    """
    kernel = _Kernel(program, arena, absent, residency)
    kernel.emit_all()
    if after is None:
        return kernel.finish()
    kernel.ctx.pointers[after.counter_name] = f"p_{after.counter_name}"
    known = only_the_last(kernel.ctx, kernel.layout, after, NOT_LAST)
    before = kernel.builder.root.executed()
    last = _Kernel(after.program, after.arena, absent, residency, kernel, known)
    last.emit_all()
    kernel.builder.mark(NOT_LAST)
    return kernel.finish(last, before)


class _Kernel:
    """A tile program being lowered; one that a last block works on comes after `first`."""

    def __init__(
        self,
        program: TileProgram,
        arena: Arena,
        absent: Mapping[str, Kinds],
        residency: Residency,
        first: _Kernel | None = None,
        known: Mapping[Axis, Value] = NONE,
    ) -> None:
        self.program, self.roles, self.arena = program, program.roles, arena
        self.residency = residency
        self.choices = program.choices
        self.arrays = arrays_of(program.ops)
        self.ctx = Context(
            Builder() if first is None else first.builder,
            stored_now=first is not None,
            choices=program.choices,
            pointers={name: f"p_{name}" for name in self.arrays},
            absent={array: absent.get(name, NOWHERE) for name, array in self.arrays.items()},
            arena=arena,
        )
        if first is not None:
            self.ctx.given, self.ctx.maps = first.ctx.given, first.ctx.maps
            if arena.size_bytes:
                offset = following_offset(first.arena, arena)
                self.ctx.parts["shared"] = self.builder.op("add_u32", first.ctx.shared, offset)
        self.published: dict[Any, int] = {}
        self.let_go: Callable[[], None] = lambda: None
        self.at_end: Callable[[], None] = lambda: None
        begin_turns(self.ctx, program.warps)
        self.tiles = self.in_turn() if first is None else Remaining(self.ctx)
        self.layout = Layout(self.ctx, program, known)
        if self.choices.roles == "producer":
            self.ctx.barrier_threads = 32 * self.layout.warps
        self.upper_half = self.ctx.half if self.choices.drain.matrices == 4 else None

    def in_turn(self) -> TilesInTurn | None:
        """The loop over the tiles of a block, where it has several."""
        if self.choices.grid == "persistent":
            return Persistent(self.ctx)
        return Pair(self.ctx) if self.choices.order == "pair" else None

    @property
    def builder(self) -> Builder:
        return self.ctx.builder

    # ---- operations ------------------------------------------------------------------------------

    def emit_all(self) -> None:
        """All operations, and the way to the next tile."""
        with self.builder.of("the block's first row and column"):
            self.outer = Frame(self.layout.row_side(), self.layout.column_side())
        self.inner = self.outer
        self.ones = Frame(self.outer.row, self.layout.ones_side())
        for op in self.program.ops:
            self.emit(op)
        if self.tiles is not None:
            self.tiles.next(self.layout, self.let_go, self.at_end)

    def finish(self, last: _Kernel | None = None, before: Mapping[str, int] = NOTHING) -> Lowered:
        """The kernel; `before` a `last` stage, all blocks execute so many instructions."""
        self.builder.put("ret")
        for each in (self, last):
            if each is not None and each.upper_half is not None:
                paired(self.builder, each.upper_half)
        threads = self.threads
        block = (threads, 1, 1)
        pointers, shared_bytes = dict(self.ctx.pointers), self.arena.size_bytes
        if last is not None:
            pointers |= last.ctx.pointers
            shared_bytes = following_offset(self.arena, last.arena) + last.arena.size_bytes
        maps = [
            Param("b8", name, MAP_BYTES, MAP_ALIGNMENT_BYTES) for name in self.ctx.maps.values()
        ]
        entry = Entry(
            name=self.program.name,
            params=(
                *(Param("u64", name) for name in pointers.values()),
                *self.ctx.given.values(),
                *maps,
            ),
            body=tuple(self.builder.statements()),
            reqntid=block,
            maxnreg=self.most_registers(threads),
            minnctapersm=self.choices.regs.min_blocks,
        )
        return Lowered(
            entry,
            tiles=self.grid(),
            block=block,
            arguments=(*map(Pointer, pointers), *self.ctx.given, *self.ctx.maps),
            shared_bytes=shared_bytes,
            instructions=self.executed(threads, last, before),
        )

    @property
    def threads(self) -> int:
        """All threads of a block, those that only copy included."""
        copying = PRODUCER_THREADS if self.choices.roles == "producer" else 0
        return 32 * self.layout.warps + copying

    def executed(
        self, threads: int, last: _Kernel | None, before: Mapping[str, int]
    ) -> dict[str, float]:
        """What a warp executes on average; warps that only copy execute next to nothing."""
        counted: dict[str, float] = dict(self.builder.root.executed())
        if last is not None:  # of a last block's work, each of those that came has a part
            parts = max(last.roles.fold.size if last.roles.fold is not None else 1, 1)
            counted = {
                name: before.get(name, 0) + (count - before.get(name, 0)) / parts
                for name, count in counted.items()
            }
        share = 32 * self.layout.warps / threads
        return {name: count * share if share < 1 else count for name, count in counted.items()}

    def most_registers(self, threads: int) -> int | None:
        """None where warps change how many they have: the block's threads then bound them."""
        consumers = 32 * self.layout.warps
        changes = threads > consumers and self.residency.reassigned(consumers) is not None
        return None if changes else self.choices.regs.most

    def grid(self) -> Tiles:
        persistent = self.choices.grid == "persistent"
        most = self.residency.resident_blocks if persistent else None
        return Tiles(self.layout.factors, most)

    def emit(self, op: Any) -> None:
        with self.builder.of(_title(op)):
            getattr(self, f"_{type(op).__name__.lower()}")(op)

    def frame(self, shape: str) -> Frame:
        return {"outer": self.outer, "ones": self.ones}.get(shape, self.inner)

    def _fill(self, op: Fill) -> None:
        rows = len(self.outer.row.offsets)
        count = rows if op.shape == "rows" else rows * len(self.frame(op.shape).column.offsets)
        words = self.builder.many("f32", count)
        for word in words:
            self.builder.move(word, op.value)
        kind = "rows" if op.shape == "rows" else "tile"
        self.ctx.bind(op.into, Value(kind, "f32", tuple(words), self.builder.depth))  # type: ignore[arg-type]
        self.ctx.absent[op.into] = identity_kinds(op.value)  # until something is folded in
        self.ctx.state.add(op.into)

    def _map(self, op: Map) -> None:
        frame = self.frame(op.shape)
        value = real(self.ctx, compute(self.ctx, op.expr, frame), frame)
        inside = self.ctx.inside(frame.column) if op.masked is not None else None
        if inside is not None and op.masked is not None:
            test = Value("columns", "pred", inside.words, inside.depth)
            value = select(self.ctx, test, value, op.masked, frame)
        self.ctx.bind(op.into, _spread(value, op.shape, frame))
        self.ctx.absent[op.into] = absence_of(op.expr, self.ctx.absent)
        parts = op.expr.args if op.expr.head == "Max2" else (op.expr,)
        if any(map(self._bounds, parts)):
            self.ctx.upper.add(op.into)

    def _bounds(self, term: Any) -> bool:
        """Whether the term bounds from above what it was folded from, up to a positive factor."""
        if term.head == "Mul":
            return any(
                factor.head == "Num" and factor.args[0] > 0 and self._bounds(other)
                for factor, other in (term.args, reversed(term.args))
            )
        return term in self.ctx.upper

    def _innerfold(self, op: InnerFold) -> None:
        self.ctx.bind(op.into, inner_fold(self.ctx, op.red, self.inner))
        self.ctx.absent[op.into] = absence_of(op.red, self.ctx.absent)

    def _rowfold(self, op: RowFold) -> None:
        self.fold(op.into, fold_rows, op.monoid, op.tile)

    def _lanefold(self, op: LaneFold) -> None:
        self.fold(op.into, fold_lanes, op.monoid, op.tile)

    def _acrosslanes(self, op: AcrossLanes) -> None:
        self.fold(op.into, fold_across, op.monoid, op.part)

    def fold(self, into: Any, by: Callable[..., Value], monoid: str, of: Any) -> None:
        combine = combine_of(self.ctx, monoid, self.inner, self.ctx.absent[of])
        value = by(self.ctx, combine, self.ctx.bound[of], self.inner)
        self.folded(into, value, monoid, of)

    def _publish(self, op: Publish) -> None:
        publish(self.ctx, [self.ctx.bound[tile] for tile in op.tiles])
        self.published = {tile: place for place, tile in enumerate(op.tiles)}

    def _receive(self, op: Receive) -> None:
        rows = len(self.outer.row.offsets)
        first = self.published[op.tile] * rows
        words = rows * len(self.published)
        warps = self.program.inner.row_warps
        value = receive(self.ctx, range(first, first + rows), words, warps, op.place)
        self.ctx.bind(op.into, value)
        nothing = identity_kinds(op.empty) if op.empty is not None else NOWHERE
        self.ctx.absent[op.into] = self.ctx.absent[op.tile] | nothing

    def _firstcolumn(self, op: FirstColumn) -> None:
        tile, columns = self.ctx.bound[op.tile], len(self.ones.column.offsets)
        words = tuple(tile.at(row, 0, columns) for row in range(len(self.ones.row.offsets)))
        self.folded(op.into, Value("rows", "f32", words, tile.depth), "Sum", op.tile)

    def folded(self, into: Any, value: Value, monoid: str, of: Any) -> None:
        self.ctx.bind(into, value)
        self.ctx.absent[into] = folded_kinds(monoid, self.ctx.absent[of])
        if monoid == "Max":
            self.ctx.upper.add(into)

    def _rebase(self, op: Rebase) -> None:
        rebase(self.ctx, op, self.frame)

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
        with own_turn(self.ctx, op, self.layout.warps):
            value, ones = contract(self.ctx, op, frame, depth, self.inner, self.ones)
        self.ctx.bind(op.into, value)
        known = self.ctx.absent
        if op.ones is not None and ones is not None:
            self.ctx.bind(op.ones[0], ones)
            known[op.ones[0]] = known[op.ones[1]] & absence_of(op.contraction.left, known) & ZERO
        sides = (op.contraction.left, op.contraction.right)
        products = frozenset().union(*(absence_of(side, known) for side in sides))
        held = known[op.start] if op.start is not None else ZERO
        known[op.into] = held & products & ZERO  # zero where all that it sums is

    def _operand_depth(self, side: Side, op: Contract) -> Side:
        block = max(side.offsets) + 1 + sum(side.lane_steps)
        return replace(side, offsets=tuple(range(block)), lane_steps=())

    def _loop(self, op: Loop) -> None:
        Stream(self, op).run()
        self.ctx.upper.clear()

    def _sweep(self, op: Sweep) -> None:
        sweep(self, op)
        self.ctx.upper.clear()

    def _columns(self, op: Columns) -> None:
        self.inner = self.outer
        for each in op.ops:
            self.emit(each)

    def _store(self, op: Store) -> None:
        frame = self.frame(op.shape)
        value = real(self.ctx, compute(self.ctx, op.expr, frame), frame)
        target = op.target
        only = self.layout.only(target.axes, frame if op.shape == "inner" else self.outer)
        holds = None
        if target.where is not None:
            holds = truth(self.ctx, compute(self.ctx, target.where, frame), frame)
        load = make("Load", target.array, target.at)
        store_values(self.ctx, load, value, frame, only, holds)


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


def _title(op: Any) -> str:
    return (
        f"loop over {pretty(op.axis)}" if isinstance(op, Loop | Sweep) else str(op).splitlines()[0]
    )
