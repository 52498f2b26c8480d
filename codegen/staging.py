"""How operands come to shared memory: what is fetched once, and slot after slot of each ring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..axes import Axis
from ..dtypes import DTYPES
from ..roles import Roles
from ..terms import make, rewrite
from .arena import Arena, Placed
from .boxes import Box, Boxes, boxes_of
from .context import Context
from .copies import Copier, Slot
from .expression import compute
from .frames import Frame, Side
from .ptx import Address, Register
from .stepping import stepping

Moving = Register | int


@dataclass(frozen=True)
class Position:
    """Where along the fold a tile begins: `moving + ahead`, in elements."""

    moving: Moving
    ahead: int = 0


@dataclass
class Staging:
    """The copies of one kernel: its arena, and how its blocks and threads are laid out.

    `threads` copy by loads and cp.async; one thread at a time issues tensor copies. What lies along
    the fold is copied as far as memory has it: elements past `end` are no reason to copy fewer at
    a time.
    """

    ctx: Context
    arena: Arena
    roles: Roles
    frame: Frame
    warps: int
    role: str
    end: Register | int | None  # of the fold's elements, if some block reaches past it
    end_of_memory: Register | int | None  # of all that there are, if some block reaches past it
    policy: Register | None = None

    @property
    def threads(self) -> int:
        return 32 * self.warps

    # ---- one tile --------------------------------------------------------------------------------

    def copy(self, placed: Placed, at: Position, slot: Slot, transport: str) -> None:
        """This thread's share of a tile, by loads or cp.async."""
        across, along = (self.side(axis, at) for axis in (placed.across, placed.along))
        size = DTYPES[placed.load.args[0].args[1]].size_bytes
        if placed.along is self.roles.fold:
            along = replace(along, bound=self.end_of_memory)
        elif self._ends_inside(placed.along, placed.layout.row_bytes // size):
            along = replace(along, bound=self.ctx.length(placed.along))
        Copier(self.ctx, self.threads, self.ctx.thread, transport, self.policy).copy(
            placed, across, along, slot
        )

    def send(self, placed: Placed, at: Position, slot: Slot, barrier: Address) -> None:
        """The whole tile, by tensor copies of one thread; their bytes count at the barrier."""
        boxes = boxes_of(placed)
        places = [self._coordinates(placed, boxes, box, at) for box in boxes.boxes]
        for box, coordinates in zip(boxes.boxes, places, strict=True):
            self._send_box(boxes, box, coordinates, slot, barrier)

    def _send_box(
        self, boxes: Boxes, box: Box, coordinates: list[Register], slot: Slot, barrier: Address
    ) -> None:
        b = self.ctx.builder
        base = self.ctx.shared
        if slot.register is not None:
            base = b.op("add_s32", base, slot.register)
        operands: dict[str, Any] = {
            "a": Address(base, slot.offset_bytes + box.offset_bytes),
            "map": self.ctx.map_address(boxes.map),
            "at": coordinates,
            "bar": barrier,
        }
        row = f"cp_async_bulk_tensor_{len(coordinates)}d"
        if self.policy is not None:
            row += "_hint"
            operands["policy"] = self.policy
        b.put(row, **operands)

    def _coordinates(self, placed: Placed, boxes: Boxes, box: Box, at: Position) -> list[Register]:
        firsts = {
            axis: self._first(axis, at, first)
            for axis, first in ((placed.across, box.row), (placed.along, box.element))
        }
        found = []
        for index in boxes.dims:
            form = stepping(index, placed.across)
            assert form is not None, "a box moves with its rows in steps"
            if form.run:
                found.append(self._found(index, placed.across, at, box.row))
            else:
                found.append(self._coordinate(index, firsts))
        return found

    def _first(self, axis: Axis, at: Position, first: int) -> Any:
        b = self.ctx.builder
        if axis is self.roles.fold:
            if isinstance(at.moving, Register):
                fixed = at.ahead + first
                return b.op("add_s32", at.moving, fixed) if fixed else at.moving
            return at.moving + at.ahead + first
        origin = self.side(axis, at).origin
        if origin is None:
            return first
        return b.op("add_s32", origin, first) if first else origin

    def _coordinate(self, index: Any, firsts: dict[Axis, Any]) -> Register:
        """An index of the map at the box's first element, in a register."""
        b = self.ctx.builder
        mine = [axis for axis in firsts if axis in index.axes]
        rest = rewrite(index, {make("Idx", axis): make("Num", 0.0) for axis in mine})
        word = compute(self.ctx, rest, self.frame).words[0]
        total = firsts[mine[0]] if mine else 0
        if not isinstance(word, Register):
            word, total = total, int(word)
        if not isinstance(word, Register):
            register = b.new("b32")
            b.put("mov_s32", d=register, a=word + total)
            return register
        return b.op("add_s32", word, total) if total != 0 else word

    def _found(self, index: Any, axis: Axis, at: Position, row: int) -> Register:
        """An index that a run of rows has in common, or that begins at 0 with each; where rows
        end before the box, one that no array has, so that zeros come."""
        side = self.side(axis, at)
        side = replace(side, offsets=(0,), lane_steps=(), warps=1, ahead=side.ahead + row)
        on_rows = axis is self.frame.row.axis
        frame = Frame(side, self.frame.column) if on_rows else Frame(self.frame.row, side)
        word: Register = compute(self.ctx, index, frame).words[0]
        inside = self.ctx.inside(side)
        if inside is not None:
            word = self.ctx.builder.op("selp_s32", word, -1, inside.words[0])
        return word

    # ---- sides -----------------------------------------------------------------------------------

    def side(self, axis: Axis, at: Position) -> Side:
        """A side of a tile before threads are dealt out: origin, moving part and bound."""
        row, column, fold = self.roles.row, self.roles.column, self.roles.fold
        if axis is fold:
            assert fold is not None
            step = 8
            return Side(
                fold, (0,), (), moving=at.moving, moving_step=step, ahead=at.ahead, bound=self.end
            )
        for mine, own in ((self.frame.row, row), (self.frame.column, column)):
            if axis is own:
                return mine
        inside = self._ends_inside(axis, 16)  # an inner contraction's depth, or columns
        return Side(axis, (0,), (), bound=self.ctx.length(axis) if inside else None)

    def _ends_inside(self, axis: Axis, row: int) -> bool:
        """Whether the axis may end inside of a row of so many elements."""
        return axis.extent.head == "Symbol" or axis.size % row != 0

    def elected(self) -> Register:
        """Whether this is the first thread of the block."""
        b = self.ctx.builder
        return self.ctx.once("first thread", lambda: b.op("setp_eq_s32", self.ctx.thread, 0))


def bytes_of(slabs: Sequence[Placed]) -> int:
    return sum(placed.layout.size_bytes for placed in slabs)


@contextmanager
def only(ctx: Context, predicate: Register, *, uniform: bool = False) -> Iterator[None]:
    """Code of the threads whose predicate holds; what it computed is forgotten after it."""
    depth, slots = ctx.builder.depth, dict(ctx.slots)
    with ctx.builder.when(predicate, uniform=uniform):
        yield
    ctx.leave(depth)
    ctx.slots = slots
