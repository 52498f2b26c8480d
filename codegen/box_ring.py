"""Slots that tensor copies of one thread fill; barriers say when they are full and empty."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from .arena import BARRIER_BYTES, RingPlan
from .copies import Slot
from .ptx import Address, Register
from .rings import Course, Extent, Ring
from .staging import Position, Staging, bytes_of, only
from .tile import Pipe


class BoxRing(Ring):
    """Filled by tensor copies of one thread; barriers say when slots are full and when empty.

    The role says whose thread it is: `one` thread of the block, one of each warp in turn
    (`rotate`), one of a warp that does nothing else (`producer`), or one of each warp for slots
    of its own (`each`).
    """

    def __init__(
        self, staging: Staging, plan: RingPlan, pipe: Pipe, extent: Extent, course: Course | None
    ) -> None:
        super().__init__(staging, plan, pipe, extent, course)
        self.parity: Register | None = None
        self.turn: Register | None = None
        self.role = staging.role
        self.private = self.role == "each"  # lane 0 knows of itself when its warp is done

    @property
    def lane_zero(self) -> Register:
        return self.ctx.once("lane zero", lambda: self.b.op("setp_eq_s32", self.ctx.lane, 0))

    def first(self) -> Register:
        """Whether this thread starts what the loop continues."""
        return self.lane_zero if self.role == "each" else self.staging.elected()

    def initialise(self) -> None:
        """The barriers, by the thread that then fences them; a block barrier must follow."""
        for slot in range(self.depth):
            self.b.put("mbarrier_init", a=self.barrier(self.plan.full, slot), n=1)
            if not self.private:
                warps = self.staging.warps
                self.b.put("mbarrier_init", a=self.barrier(self.plan.empty, slot), n=warps)

    def addresses(self) -> list[Address]:
        """Those of all its barriers."""
        arrays = (self.plan.full,) if self.private else (self.plan.full, self.plan.empty)
        return [self.barrier(array, slot) for slot in range(self.depth) for array in arrays]

    def prime(self) -> None:
        """The first groups, all but the last slot."""
        count = self.depth - 1
        for group in range(count if self.course is not None else min(count, self.groups)):
            with self.first_group(group, uniform=False) as at:
                places = [self.tile_at(at, group, placed.load) for placed in self.plan.slabs]
                self.send(group % self.depth, self.slot(group), places)

    def barrier(self, array: int, index: Register | int) -> Address:
        """The address of a slot's barrier."""
        base = self.ctx.shared
        if self.role == "each":
            size = self.depth * BARRIER_BYTES
            base = self.ctx.once(
                ("own barriers", size),
                lambda: self.b.op("mad_lo_s32", self.ctx.warp, size, self.ctx.shared),
            )
        if isinstance(index, int):
            return Address(base, array + index * BARRIER_BYTES)
        name = ("barrier of", index, base)
        if name not in self.ctx.slots:
            self.ctx.slots[name] = self.b.op("mad_lo_s32", index, BARRIER_BYTES, base)
        return Address(self.ctx.slots[name], array)

    # ---- the loop --------------------------------------------------------------------------------

    def enter(self, counter: Register, rounds: int = 0) -> None:
        super().enter(counter, rounds)
        self.parity = self.b.new("b32")
        self.b.move(self.parity, 0)
        if self.role == "rotate":
            self.turn = self.b.new("b32")
            self.b.move(self.turn, 0)

    def on_wrap(self, last: Register) -> None:
        assert self.parity is not None
        flipped = self.b.op("xor_b32", self.parity, 1)
        self.b.move(self.parity, self.b.op("selp_s32", flipped, self.parity, last))

    def advance(self) -> None:
        super().advance()
        if self.index is None and self.parity is not None:
            self.b.move(self.parity, self.b.op("xor_b32", self.parity, 1))
        if self.turn is not None:
            after = self.b.op("add_s32", self.turn, 1)
            last = self.b.op("setp_eq_s32", after, self.staging.warps)
            self.b.move(self.turn, self.b.op("selp_s32", 0, after, last))

    def leave(self) -> None:
        super().leave()
        self.parity = self.turn = None

    def acquire(self, group: int | None) -> None:
        refills = self.role != "producer"
        if refills and self.depth == 1:
            self.refill(group)
        self.await_full(group)
        if refills and self.depth > 1:
            self.refill(group)

    def await_full(self, group: int | None) -> None:
        index, parity = self.place(group)
        wait_for(self.ctx, self.barrier(self.plan.full, index), parity)

    def place(self, group: int | None) -> tuple[Register | int, Register | int]:
        """The slot of a group and the parity of its turn."""
        if group is None:
            assert self.parity is not None
            return (self.index if self.index is not None else 0), self.parity
        turn, slot = divmod(group, self.depth)
        return slot, turn & 1

    def release(self, group: int | None) -> None:
        """Every warp says that it is done with the slot, where it will be filled again.

        An arrival does not wait for loads in flight, and a tensor copy does not queue behind them
        as another warp's stores would: the fence between the proxies does both.
        """
        if group is not None and group + self.depth >= self.groups:
            return
        index, _ = self.place(group)
        self.b.put("fence_proxy_async")
        self.ctx.warp_barrier()
        if self.private:
            return
        self.b.put("mbarrier_arrive", guard=self.lane_zero, a=self.barrier(self.plan.empty, index))

    def issuer(self, group: int | None) -> Register:
        """Whether this thread fills the next slot."""
        if self.role == "each":
            return self.lane_zero
        if self.role != "rotate":
            return self.staging.elected()
        turn: Any = self.turn if group is None else group % self.staging.warps
        mine = self.b.op("setp_eq_s32", self.ctx.warp, turn)
        return self.b.op("and_pred", mine, self.lane_zero)

    def refill(self, group: int | None) -> None:
        """The group that is one slot short of a whole turn ahead, by the thread whose turn it is.

        Its slot is the one before; that slot is free once all warps have let go of it.
        """
        ahead = self.depth - 1
        if group is None:
            issuer, guard = self.issuer(None), self.guard(ahead)
            if guard is not None:
                issuer = self.b.op("and_pred", issuer, guard)
            with only(self.ctx, issuer):
                index, parity = self.before()
                if not self.private:
                    wait_for(self.ctx, self.barrier(self.plan.empty, index), parity)
                slot = Slot(self.plan.offset_bytes, self.start)
                if isinstance(index, Register):
                    slot = Slot(self.plan.offset_bytes, self.in_loop(index))
                self.fill(None, ahead, index, slot)
        elif group + ahead < self.groups:
            later = group + ahead
            turn, number = divmod(later, self.depth)
            with only(self.ctx, self.issuer(group)):
                if turn > 0 and not self.private:
                    wait_for(self.ctx, self.barrier(self.plan.empty, number), (turn - 1) & 1)
                self.fill(group, ahead, number, self.slot(later))

    def before(self) -> tuple[Register | int, Register]:
        """The slot before the one in turn, and the parity of its turn before the next."""
        assert self.parity is not None
        flipped = self.b.op("xor_b32", self.parity, 1)
        if self.index is None:
            return 0, flipped
        at_start = self.b.op("setp_eq_s32", self.index, 0)
        index = self.b.op(
            "selp_s32", self.depth - 1, self.b.op("add_s32", self.index, -1), at_start
        )
        return index, self.b.op("selp_s32", flipped, self.parity, at_start)

    def produce(self) -> None:
        """All that a producer does: each slot in turn, as soon as it is free."""
        counter = self.b.new("b32")
        self.ctx.moving[counter] = self.b.depth + 1
        self.enter(counter, self.groups)
        with self.groups_in_turn(counter):
            index, parity = self.place(None)
            assert isinstance(parity, Register)
            flipped = self.b.op("xor_b32", parity, 1)
            wait_for(self.ctx, self.barrier(self.plan.empty, index), flipped)
            self.fill(None, 0, index, self.slot(None))
            self.advance()
        self.ctx.leave(self.b.depth)
        self.leave()

    def groups_in_turn(self, counter: Register) -> AbstractContextManager[None]:
        """A loop over all groups."""
        stride = self.extent.stride
        if self.course is None:
            return self.b.loop(counter, 0, self.groups * stride, stride)
        begin, end = self.course.begin, self.course.end
        return self.b.sweep(counter, begin, end, stride, self.groups, uniform=False)

    def fill(self, group: int | None, ahead: int, index: Register | int, slot: Slot) -> None:
        places = [self.position(group, ahead, placed.load) for placed in self.plan.slabs]
        self.send(index, slot, places)

    def send(self, index: Register | int, slot: Slot, places: Sequence[Position]) -> None:
        """All tiles of a slot, their bytes expected at its barrier."""
        barrier = self.barrier(self.plan.full, index)
        self.b.put("mbarrier_arrive_expect_tx", a=barrier, n=bytes_of(self.plan.slabs))
        for placed, at in zip(self.plan.slabs, places, strict=True):
            self.staging.send(placed, at, slot, barrier)


def wait_for(ctx: Any, barrier: Address, parity: Register | int) -> None:
    """Wait until the phase of that parity is complete."""
    with ctx.builder.until() as done:
        ctx.builder.put("mbarrier_try_wait_parity", p=done, a=barrier, parity=parity)
