"""How slots of shared memory are filled and freed in turn: one protocol for each transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .arena import BARRIER_BYTES, Placed, RingPlan
from .copies import Slot
from .drains import Held
from .ptx import Address, Register
from .staging import Position, Staging, bytes_of, only
from .tile import Pipe


@dataclass(frozen=True)
class Extent:
    """How the loop moves: `stride` elements of the fold a group, `block` a block."""

    block: int
    stride: int


class Ring:
    """What all transports share: where the slot of a group is.

    Groups before the loop's end are in slots that registers name (`slot` in bytes, and what else
    a transport needs); groups after it, and all groups where there is no loop, are numbers.
    """

    def __init__(self, staging: Staging, plan: RingPlan, pipe: Pipe, extent: Extent) -> None:
        self.staging, self.plan, self.pipe, self.extent = staging, plan, pipe, extent
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

    def enter(self, counter: Register, rounds: int) -> None:
        """The loop begins: registers say which slot is in turn. Called before its first round."""
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
                placed.layout, placed.across, placed.along, moved, fold, step * self.extent.block
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
        if self.rounds - 1 + ahead < self.groups:
            return None
        assert self.counter is not None
        end = (self.groups - ahead) * self.extent.stride
        return self.b.op("setp_lt_s32", self.counter, end)


class CopyRing(Ring):
    """Filled by all threads, with loads and stores or with cp.async; freed by a block barrier."""

    @property
    def transport(self) -> str:
        return self.pipe.staging.transport

    def prime(self) -> None:
        self.committed = self.depth - 2  # the latest group that a copy group was committed for
        for group in range(self.depth - 1):
            if group < self.groups:
                self.fill(group, 0, self.slot(group))
            self.commit()

    def commit(self) -> None:
        if self.transport == "cp":
            self.b.put("cp_async_commit_group")

    def acquire(self, group: int | None) -> None:
        if self.depth == 1:
            self.barrier()
            self.fill(group, 0, self.slot(group))
            self.commit()
            self.settle(0)
            self.barrier()
            return
        ahead = self.depth - 1
        if group is None:
            self.settle(self.depth - 2)
            self.barrier()
            guard = self.guard(ahead)
            if guard is None:
                self.fill(None, ahead, self.slot_before())
            else:
                with only(self.ctx, guard, uniform=True):
                    self.fill(None, ahead, self.slot_before())
            self.commit()
            self.committed = self.rounds - 1 + ahead
            return
        self.settle(min(self.committed, self.groups - 1 + ahead) - group)
        self.barrier()
        if group + ahead < self.groups:
            self.fill(group, ahead, self.slot(group + ahead))
            self.commit()
            self.committed = group + ahead

    def release(self, group: int | None) -> None:
        """A later acquire frees the slot: its barrier is behind the last use."""

    def barrier(self) -> None:
        self.ctx.barrier()

    def settle(self, pending: int) -> None:
        if self.transport == "cp":
            self.b.put("cp_async_wait_group", n=pending)

    def fill(self, group: int | None, ahead: int, slot: Slot) -> None:
        for placed in self.plan.slabs:
            at = self.position(group, ahead, placed.load)
            self.staging.copy(placed, at, slot, self.transport)

    def slot_before(self) -> Slot:
        """The slot before the one in turn: the next to be filled."""
        assert self.index is not None
        first = self.b.op("setp_eq_s32", self.index, 0)
        before = self.b.op("selp_s32", self.depth - 1, self.b.op("add_s32", self.index, -1), first)
        return Slot(self.plan.offset_bytes, self.in_loop(before))


class BoxRing(Ring):
    """Filled by tensor copies of one thread; barriers say when slots are full and when empty.

    The role says whose thread it is: `one` thread of the block, one of each warp in turn
    (`rotate`), one of a warp that does nothing else (`producer`), or one of each warp for slots
    of its own (`each`).
    """

    def __init__(self, staging: Staging, plan: RingPlan, pipe: Pipe, extent: Extent) -> None:
        super().__init__(staging, plan, pipe, extent)
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
        for group in range(min(self.depth - 1, self.groups)):
            self.fill(group, 0, group % self.depth, self.slot(group))

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

    def enter(self, counter: Register, rounds: int) -> None:
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
        """Every warp says that it is done with the slot, where it will be filled again."""
        if group is not None and group + self.depth >= self.groups:
            return
        index, _ = self.place(group)
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
        stride = self.extent.stride
        with self.b.loop(counter, 0, self.groups * stride, stride):
            index, parity = self.place(None)
            assert isinstance(parity, Register)
            flipped = self.b.op("xor_b32", parity, 1)
            wait_for(self.ctx, self.barrier(self.plan.empty, index), flipped)
            self.fill(None, 0, index, self.slot(None))
            self.advance()
        self.ctx.leave(self.b.depth)
        self.leave()

    def fill(self, group: int | None, ahead: int, index: Register | int, slot: Slot) -> None:
        barrier = self.barrier(self.plan.full, index)
        self.b.put("mbarrier_arrive_expect_tx", a=barrier, n=bytes_of(self.plan.slabs))
        for placed in self.plan.slabs:
            self.staging.send(placed, self.position(group, ahead, placed.load), slot, barrier)


def wait_for(ctx: Any, barrier: Address, parity: Register | int) -> None:
    """Wait until the phase of that parity is complete."""
    with ctx.builder.until() as done:
        ctx.builder.put("mbarrier_try_wait_parity", p=done, a=barrier, parity=parity)


def hold_once(ctx: Any, placed: Placed, slot: Slot) -> None:
    """The fragments of an operand come from what was fetched once."""
    moved = Slot(slot.offset_bytes + placed.offset_bytes, slot.register)
    ctx.held[placed.load] = Held(placed.layout, placed.across, placed.along, moved)
