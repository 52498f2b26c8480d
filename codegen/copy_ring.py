"""Slots that all threads fill, with loads and stores or cp.async; a block barrier frees them."""

from __future__ import annotations

from .copies import Slot
from .rings import Ring
from .staging import only


class CopyRing(Ring):
    """Filled by all threads, with loads and stores or with cp.async; freed by a block barrier."""

    @property
    def transport(self) -> str:
        return self.pipe.staging.transport

    def prime(self) -> None:
        self.committed = self.depth - 2  # the latest group that a copy group was committed for
        for group in range(self.depth - 1):
            if self.course is not None or group < self.groups:
                with self.first_group(group, uniform=True) as at:
                    for placed in self.plan.slabs:
                        place = self.tile_at(at, group, placed.load)
                        self.staging.copy(placed, place, self.slot(group), self.transport)
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
