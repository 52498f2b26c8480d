"""What the lowering of one kernel shares: the builder, the thread's place, and known values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..absence import Kinds
from ..axes import Axis
from ..choices import PLAIN, Choices
from ..free import free
from ..layouts import strides_of
from ..open_plan import BufferMap, Length, Stride
from ..tensor_map import TensorMap
from ..terms import Term, fill
from .arena import Arena
from .builder import Builder
from .frames import Frame, Side
from .ptx import Address, Param, Register, Special, Symbol
from .values import Value, kind_of


@dataclass
class Context:
    """One kernel being lowered.

    `grid` gives the block's index of each batch axis; `bound` the values of variables and of
    terms that operations computed; `moving` the loop depth of each loop counter; `absent` says
    of variables and buffers whether they may hold what a mask removed; `upper` are variables
    that bound from above whatever is subtracted from them. `memo` and `parts` hold what was
    emitted already, `sides` what is known of terms.
    """

    builder: Builder
    choices: Choices = PLAIN
    arena: Arena | None = None
    stored_now: bool = False  # whether what it loads may be stored in the same launch
    barrier_threads: int | None = None
    tile_number: Register | None = None
    second_of_pair: Register | None = None  # 1 while a block works on the second of two row tiles
    met: bool = True  # whether the block's warps met since a handed-over tile was last read
    warp_met: bool = True  # whether this warp's lanes did
    pointers: dict[str, str] = field(default_factory=dict)
    given: dict[Length | Stride, Param] = field(default_factory=dict)
    grid: dict[Axis, Value] = field(default_factory=dict)
    bound: dict[Any, Value] = field(default_factory=dict)
    moving: dict[Register, int] = field(default_factory=dict)
    absent: dict[Any, Kinds] = field(default_factory=dict)
    upper: set[Any] = field(default_factory=set)
    memo: dict[Any, Value] = field(default_factory=dict)
    sides: dict[Any, tuple[bool, bool]] = field(default_factory=dict)
    parts: dict[Any, Register] = field(default_factory=dict)
    slots: dict[Any, Register] = field(default_factory=dict)
    maps: dict[TensorMap | BufferMap, str] = field(default_factory=dict)
    held: dict[Any, Any] = field(default_factory=dict)
    fragments: dict[Any, dict[tuple[int, int], list[Register]]] = field(default_factory=dict)
    state: set[Any] = field(default_factory=set)
    kept: dict[Any, dict[str, Value]] = field(default_factory=dict)

    def block_number(self) -> Register:
        """Which tile is in hand: the block's number, or one of those that it takes in turn."""
        if self.tile_number is None:
            return self.builder.op("mov_special", Special("ctaid.x"))
        return self.tile_number

    def barrier(self) -> None:
        """All warps of the block that compute meet."""
        self.met = self.warp_met = True
        if self.barrier_threads is None:
            self.builder.put("bar_sync", a=0)
        else:
            self.builder.put("bar_sync_count", a=1, b=self.barrier_threads)

    def warp_barrier(self) -> None:
        """The lanes of the warp meet."""
        self.warp_met = True
        self.builder.put("bar_warp_sync", mask=0xFFFFFFFF)

    # ---- the thread's place ----------------------------------------------------------------------

    def once(self, name: Any, emit: Any) -> Register:
        """A register computed before every loop, once for each name."""
        if name not in self.parts:
            with self.builder.at(0):
                self.parts[name] = emit()
        return self.parts[name]

    @property
    def thread(self) -> Register:
        return self.once("thread", lambda: self.builder.op("mov_special", Special("tid.x")))

    @property
    def shared(self) -> Register:
        """The address of shared memory."""
        return self.once("shared", lambda: self.builder.op("mov_symbol", Symbol("smem")))

    @property
    def lane(self) -> Register:
        return self.once("lane", lambda: self.builder.op("and_b32", self.thread, 31))

    @property
    def half(self) -> Register:
        """1 in the upper half of the warp, 0 in the lower."""
        return self.once("half", lambda: self.builder.op("shr_u32", self.lane, 4))

    @property
    def warp(self) -> Register:
        return self.once("warp", lambda: self.builder.op("shr_u32", self.thread, 5))

    def warp_place(self, warps: int, stride: int) -> Register:
        """The warp's place among `warps` whose members are `stride` warps apart."""

        def emit() -> Register:
            b = self.builder
            place = self.warp if stride == 1 else b.op("div_u32", self.warp, stride)
            return b.op("rem_u32", place, warps)

        return self.once(("warp", warps, stride), emit)

    def pointer(self, array: str) -> Register:
        """The global address of an array's first element."""

        def emit() -> Register:
            b = self.builder
            given = b.op("ld_param_u64", Address(Symbol(self.pointers[array])))
            return b.op("cvta_to_global_u64", given)

        return self.once(("pointer", array), emit)

    def length(self, axis: Axis) -> Register | int:
        """How many elements an axis has: a number, or a register where the call says."""
        extent = axis.extent
        if extent.head == "Known":
            return axis.size
        name = str(extent.args[0])
        given = self.given.setdefault(Length(name), Param("s32", f"n_{name}"))
        return self.once(
            ("length", name), lambda: self.builder.op("ld_param_s32", Address(Symbol(given.name)))
        )

    def stride_bytes(self, array: Any, dim: int) -> Register:
        """The bytes between neighbours along a dimension, which the call says."""
        name = str(array.args[0])
        assert strides_of(array)[dim] is None, f"{name} has a number for stride {dim}"
        given = self.given.setdefault(Stride(name, dim), Param("s64", f"s_{name}_{dim}"))
        return self.once(
            ("stride", name, dim),
            lambda: self.builder.op("ld_param_s64", Address(Symbol(given.name))),
        )

    def map_address(self, tensor_map: TensorMap | BufferMap) -> Register:
        """The generic address of a tensor map, which is a parameter of the kernel."""
        others = sum(known.buffer == tensor_map.buffer for known in self.maps)
        number = f"_{others}" if others else ""
        name = self.maps.setdefault(tensor_map, f"t_{tensor_map.buffer}{number}")

        def emit() -> Register:
            b = self.builder
            return b.op("cvta_param_u64", b.op("mov_param", Symbol(name)))

        return self.once(("map", name), emit)

    def base(self, side: Side) -> Register:
        """The coordinate of the side's offset 0, its moving part aside."""
        return self.once(("side", side.placing), lambda: self._base(side, side.origin))

    def local_base(self, side: Side) -> Register:
        """The same, counted from the block's own first coordinate."""
        name = ("local", side.lane_steps, side.warp_step, side.warps, side.warp_stride)
        return self.once(name, lambda: self._base(side, None))

    def _base(self, side: Side, origin: Register | None) -> Register:
        b = self.builder
        total: Register | None = side.own
        for shift, mask, step in lane_runs(side.lane_steps) if side.own is None else ():
            part = b.op("shr_u32", self.lane, shift) if shift else self.lane
            part = b.op("and_b32", part, mask)
            part = b.op("mul_lo_s32", part, step) if step > 1 else part
            total = part if total is None else b.op("add_s32", total, part)
        if side.warps > 1 and side.own is None:
            place = self.warp_place(side.warps, side.warp_stride)
            part = b.op("mul_lo_s32", place, side.warp_step)
            total = part if total is None else b.op("add_s32", total, part)
        if origin is not None:
            total = origin if total is None else b.op("add_s32", total, origin)
        if total is None:
            total = b.new("b32")
            b.move(total, 0)
        return total

    def coordinates(self, side: Side) -> Value:
        """The side's coordinates, a word for each register index."""
        name = ("coordinates", side.placing, side.offsets, side.moving, side.ahead)
        if name not in self.memo:
            depth = self.moving.get(side.moving, 0) if isinstance(side.moving, Register) else 0
            with self.builder.at(depth):
                base, fixed = self.base(side), side.ahead
                if isinstance(side.moving, Register):
                    base = self.builder.op("add_s32", base, side.moving)
                else:
                    fixed += side.moving
                words = tuple(
                    self.builder.op("add_s32", base, fixed + offset) if fixed + offset else base
                    for offset in side.offsets
                )
            self.memo[name] = Value("rows", "s32", words, depth)
        return self.memo[name]

    def inside(self, side: Side) -> Value | None:
        """Whether each coordinate lies before the side's bound; None where all do."""
        if side.bound is None:
            return None
        name = ("inside", side.placing, side.offsets, side.moving, side.ahead, side.bound)
        if name not in self.memo:
            at = self.coordinates(side)
            with self.builder.at(at.depth):
                words = tuple(self.builder.op("setp_lt_s32", w, side.bound) for w in at.words)
            self.memo[name] = Value("rows", "pred", words, at.depth)
        return self.memo[name]

    # ---- known values ----------------------------------------------------------------------------

    def uses(self, term: Any, frame: Frame) -> tuple[bool, bool]:
        """Whether a term's value differs between rows, and between columns, of a frame."""
        name = (term, frame.row.axis, frame.column.axis)
        if name not in self.sides:
            self.sides[name] = self._uses(term, frame)
        return self.sides[name]

    def _uses(self, term: Any, frame: Frame) -> tuple[bool, bool]:
        if term in self.bound:
            kind = self.bound[term].kind
            return kind in ("rows", "tile"), kind in ("columns", "tile")
        if term.head == "Idx":
            return term.args[0] is frame.row.axis, term.args[0] is frame.column.axis
        if term.head == "Red":
            axes = free(term)
            return frame.row.axis in axes, frame.column.axis in axes
        below = [self.uses(child, frame) for child in term.children if child.sort == "Expr"]
        return any(row for row, _ in below), any(column for _, column in below)

    def name_of(self, term: Any, frame: Frame) -> Any:
        """What a term's value in a frame depends on: the term, and the sides that it uses."""
        row, column = self.uses(term, frame)
        sides = tuple(
            (side.placing, side.offsets, side.moving, side.ahead, side.bound) if used else None
            for side, used in ((frame.row, row), (frame.column, column))
        )
        return term, kind_of(row, column), sides

    def bind(self, term: Any, value: Value) -> None:
        """Give a variable its value; what was computed from an earlier one is forgotten."""
        if term in self.bound:
            self.forget({term})
        self.bound[term] = value

    def unbind(self, term: Any) -> None:
        del self.bound[term]
        self.forget({term})

    def forget(self, terms: set[Any]) -> None:
        """Drop what was computed from these terms, or found out about them."""
        stale: dict[Any, bool] = {}  # the memos share most of their terms: each is looked at once

        def mentions(name: Any) -> bool:
            return any(fill(part, stale, is_stale) for part in name if isinstance(part, Term))

        def is_stale(term: Any) -> bool:
            return term in terms or any(stale[part] for part in term.children)

        self.memo = {name: value for name, value in self.memo.items() if not mentions(name)}
        self.sides = {name: value for name, value in self.sides.items() if not mentions(name)}

    def leave(self, depth: int) -> None:
        """Drop what was computed in loops deeper than `depth`."""
        self.memo = {name: value for name, value in self.memo.items() if value.depth <= depth}


def lane_runs(steps: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Runs of lane bits whose steps double, as (shift, mask, step).

    >>> lane_runs((2, 4, 0, 0, 0)), lane_runs((0, 0, 1, 2, 4))
    ([(0, 3, 2)], [(2, 7, 1)])
    """
    runs: list[tuple[int, int, int]] = []
    bit = 0
    while bit < len(steps):
        end = bit + 1
        while end < len(steps) and steps[bit] and steps[end] == 2 * steps[end - 1]:
            end += 1
        if steps[bit]:
            runs.append((bit, (1 << end - bit) - 1, steps[bit]))
        bit = end
    return runs
