"""What slots of shared memory that are filled and freed in turn have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .arena import Placed, RingPlan
from .copies import Slot
from .drains import Held
from .ptx import Register
from .staging import Position, Staging, only
from .tile import Pipe


@dataclass(frozen=True)
class Extent:
    """How the loop moves: `stride` elements of the fold a group, `block` a block."""

    block: int
    stride: int


@dataclass(frozen=True)
class Course:
    """Between which elements of the fold a sweep's groups lie, in registers: whole groups."""

    begin: Register
    end: Register


class Ring:
    """What all transports share: where the slot of a group is.

    Groups before the loop's end are in slots that registers name (`slot` in bytes, and what else
    a transport needs); groups after it, and all groups where there is no loop, are numbers. In a
    sweep, which has a `course`, every group is in a slot that registers name.
    """

    def __init__(
        self, staging: Staging, plan: RingPlan, pipe: Pipe, extent: Extent, course: Course | None
    ) -> None:
        self.staging, self.plan, self.pipe, self.extent = staging, plan, pipe, extent
        self.course = course
        self.ctx, self.b = staging.ctx, staging.ctx.builder
        self.depth, self.groups = pipe.staging.depth, pipe.groups
        self.leads = {slab.load: slab.lead for slab in pipe.slabs}
        self.counter: Register | None = None
        self.rounds = 0
        self.index: Register | None = None  # of the slot
        self.start = self.own_start()

    def own_start(self) -> Register | None:
        """Where this warp's own slots begin, where each warp has slots of its own."""
        if self.staging.role != "each":
            return None
        size = self.staging.arena.private_bytes
        return self.ctx.once("own ring", lambda: self.b.op("mul_lo_s32", self.ctx.warp, size))

    def acquire(self, group: int | None) -> None:
        """Wait until the group's slot is full, and see to it that a later one will be."""
        raise NotImplementedError

    def release(self, group: int | None) -> None:
        """The block's warps are done with the group's slot."""
        raise NotImplementedError

    # ---- the loop --------------------------------------------------------------------------------

    def enter(self, counter: Register, rounds: int = 0) -> None:
        """The loop begins: registers say which slot is in turn. Called before its first round.

        `rounds` is how many there are; a sweep's loops do not know.
        """
        self.counter, self.rounds = counter, rounds
        if self.depth > 1:
            self.index = self.b.new("b32")
            self.b.move(self.index, 0)

    def advance(self) -> None:
        """A round of the loop ends: the next slot is in turn."""
        if self.index is not None:
            self.b.move(self.index, self.next_index(self.index))
        self.ctx.slots.clear()

    def next_index(self, index: Register) -> Register:
        after = self.b.op("add_s32", index, 1)
        last = self.b.op("setp_eq_s32", after, self.depth)
        self.on_wrap(last)
        return self.b.op("selp_s32", 0, after, last)

    def on_wrap(self, last: Register) -> None:
        """The next round is the slots' next turn."""

    def leave(self) -> None:
        self.counter = self.index = None
        self.ctx.slots.clear()

    # ---- places ----------------------------------------------------------------------------------

    def hold(self, group: int | None, step: int) -> None:
        """The fragments of the pipe's operands now come from this group's slot, block `step`."""
        slot = self.slot(group)
        fold = self.staging.roles.fold
        for placed in self.plan.slabs:
            moved = Slot(slot.offset_bytes + placed.offset_bytes, slot.register)
            self.ctx.held[placed.load] = Held(
                placed.layout,
                placed.across,
                placed.along,
                moved,
                fold,
                step * self.extent.block,
                goes_on=self.pipe.staging.transport == "tma" or placed.along is fold,
                lanes=placed.lanes,
            )

    def slot(self, group: int | None) -> Slot:
        if group is None and self.index is not None:
            return Slot(self.plan.offset_bytes, self.in_loop(self.index))
        number = 0 if group is None else group % self.depth
        return Slot(self.plan.offset_bytes + number * self.plan.slot_bytes, self.start)

    def in_loop(self, index: Register) -> Register:
        """The bytes from the first slot to this one."""
        name = ("slot of", index)
        if name not in self.ctx.slots:
            bytes_ = self.b.op("mul_lo_s32", index, self.plan.slot_bytes)
            if self.start is not None:
                bytes_ = self.b.op("add_s32", bytes_, self.start)
            self.ctx.slots[name] = bytes_
        return self.ctx.slots[name]

    def position(self, group: int | None, ahead: int, load: Any) -> Position:
        """Where along the fold the tile of an operand begins, `ahead` groups after this one."""
        shift = self.leads[load] * self.extent.block
        if group is None:
            assert self.counter is not None
            return Position(self.counter, ahead * self.extent.stride + shift)
        return Position((group + ahead) * self.extent.stride + shift)

    def guard(self, ahead: int) -> Register | None:
        """Whether, in the loop, the group that is `ahead` exists; None where it always does."""
        assert self.counter is not None
        if self.course is not None:
            return self.b.op("setp_lt_s32", self.counter, self.end(ahead)) if ahead else None
        if self.rounds - 1 + ahead < self.groups:
            return None
        end = (self.groups - ahead) * self.extent.stride
        return self.b.op("setp_lt_s32", self.counter, end)

    # ---- a sweep ---------------------------------------------------------------------------------

    def end(self, ahead: int) -> Register:
        """Where a sweep's groups end that have one `ahead` of them."""
        assert self.course is not None
        end, shift = self.course.end, -ahead * self.extent.stride
        name = ("end of the course", end, shift)
        return self.ctx.once(name, lambda: self.b.op("add_s32", end, shift)) if shift else end

    @contextmanager
    def first_group(self, number: int, *, uniform: bool) -> Iterator[Position | None]:
        """Code for one of the first groups: where it begins in a sweep that has one, in others
        None. `uniform`: all of a warp are here."""
        if self.course is None:
            yield None
            return
        begin = self.course.begin
        at = Position(begin, number * self.extent.stride)
        if number == 0:
            yield at
            return
        exists = self.b.op("setp_lt_s32", begin, self.end(number))
        with only(self.ctx, exists, uniform=uniform):
            yield at

    def tile_at(self, at: Position | None, group: int, load: Any) -> Position:
        """Where one of the first groups has the tile of an operand."""
        if at is None:
            return self.position(group, 0, load)
        return Position(at.moving, at.ahead + self.leads[load] * self.extent.block)


def hold_once(ctx: Any, placed: Placed, slot: Slot) -> None:
    """The fragments of an operand come from what was fetched once."""
    moved = Slot(slot.offset_bytes + placed.offset_bytes, slot.register)
    ctx.held[placed.load] = Held(placed.layout, placed.across, placed.along, moved)
