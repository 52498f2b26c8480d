"""Where threads wait for each other: block barriers by number, and barriers of one warp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .batch import LANES, Array, Batch, Rows
from .clocks import Clocks
from .exchange import lanes_of
from .operands import Source
from .where import Where, objection


@dataclass
class _Barrier:
    """One barrier number of every block: who waits, for how many threads."""

    waiting: Array  # [warps]
    expected: Array  # [blocks] threads, 0 while nobody waits
    where: dict[int, Where] = field(default_factory=dict)  # by warp


class Barriers:
    """The numbered barriers (0 … 15) of a batch's blocks."""

    def __init__(self, batch: Batch, clocks: Callable[[], Clocks], limit: int) -> None:
        self.batch = batch
        self.clocks = clocks
        self.limit = limit
        self.barriers: dict[int, _Barrier] = {}
        self.resume = np.zeros(batch.capacity, np.int64)

    def arrive(
        self, rows: Rows, number: Any, threads: Any, after: int, where: Where
    ) -> list[tuple[int, Array]]:
        """Warps arrive and wait; returns who may go on: (block to run, True per warp)."""
        batch = self.batch
        warps = np.arange(batch.capacity)[rows]
        numbers = np.broadcast_to(number, (warps.size, LANES))[:, 0]
        counts = np.broadcast_to(threads, (warps.size, LANES))[:, 0]
        self.resume[warps] = after
        released: list[tuple[int, Array]] = []
        for each in np.unique(numbers):
            chosen = numbers == each
            released += self._arrive(int(each), warps[chosen], counts[chosen], where)
        return released

    def _arrive(
        self, number: int, warps: Array, counts: Array, where: Where
    ) -> list[tuple[int, Array]]:
        batch = self.batch
        if number >= self.limit:
            raise objection(where, f"barrier number {number}, wants 0 to {self.limit - 1}")
        barrier = self.barriers.setdefault(
            number, _Barrier(np.zeros(batch.capacity, np.bool_), np.zeros_like(batch.block_ids))
        )
        block = batch.block_of_warp[warps]
        expected = barrier.expected[block]
        wrong = (expected != 0) & (expected != counts)
        full = batch.warps_per_block * LANES
        if wrong.any() or (counts % LANES).any() or (counts > full).any() or (counts == 0).any():
            index = int(np.flatnonzero(wrong)[0]) if wrong.any() else 0
            raise objection(
                where,
                f"barrier {number}: thread count {int(counts[index])}, wants a multiple of 32 up "
                f"to the block's {full}, the same for all who meet "
                f"(others said {int(expected[index]) or 'nothing'})",
                batch.name(int(warps[index])),
            )
        barrier.expected[block] = counts
        again = barrier.waiting[warps]
        assert not again.any(), "a waiting warp does not run"
        barrier.waiting[warps] = True
        for warp in warps if barrier.where or not self._completes(barrier) else ():
            barrier.where[int(warp)] = where
        return self._release(number, barrier, where)

    def _threads(self, barrier: _Barrier) -> Array:
        per_block = barrier.waiting.reshape(-1, self.batch.warps_per_block).sum(axis=1)
        threads: Array = per_block * LANES
        return threads

    def _completes(self, barrier: _Barrier) -> bool:
        return bool((self._threads(barrier) == barrier.expected).all())

    def _release(self, number: int, barrier: _Barrier, where: Where) -> list[tuple[int, Array]]:
        batch = self.batch
        arrived = self._threads(barrier)
        if (arrived > barrier.expected).any():
            raise objection(where, f"barrier {number}: more threads arrive than it counts")
        complete = (arrived == barrier.expected) & (barrier.expected > 0)
        if not complete.any():
            return []
        free = barrier.waiting & complete[batch.block_of_warp]
        barrier.waiting &= ~free
        barrier.expected[complete] = 0
        if barrier.where:
            for warp in np.flatnonzero(free):
                barrier.where.pop(int(warp), None)
        clocks = self.clocks()
        blocks = clocks.now.shape[0]
        clocks.meet(free.reshape(-1, batch.warps_per_block)[:blocks])
        targets = np.unique(self.resume[free])
        return [(int(target), free & (self.resume == target)) for target in targets]

    def waiting(self) -> Array:
        """True for every warp that waits at some barrier."""
        waits = np.zeros(self.batch.capacity, np.bool_)
        for barrier in self.barriers.values():
            waits |= barrier.waiting
        return waits

    def deadlock(self) -> None:
        """Nobody can run: object, with what each kind of warp does."""
        for number, barrier in self.barriers.items():
            if not barrier.waiting.any():
                continue
            warp = int(np.flatnonzero(barrier.waiting)[0])
            block = self.batch.block_of_warp[warp]
            mates = np.flatnonzero(self.batch.block_of_warp == block)
            absent = [int(each) for each in mates if not barrier.waiting[each]]
            exited = [each for each in absent if not self.batch.alive[each].any()]
            doing = "have exited" if len(exited) == len(absent) else "wait at another barrier"
            names = ", ".join(str(int(self.batch.warp_in_block[each])) for each in absent)
            raise objection(
                barrier.where.get(warp),
                f"deadlock: barrier {number} waits for {int(barrier.expected[block])} threads, "
                f"has {int(self._threads(barrier)[block])}; warps {names} {doing}",
                self.batch.name(warp),
            )


def warp_barrier(
    batch: Batch, clocks: Callable[[], Clocks], where: Where, mask: Source
) -> Callable[[Rows, Array | None], None]:
    """The step of `bar.warp.sync`; a mask of only some living lanes orders nothing here."""

    def step(rows: Rows, active: Array | None) -> None:
        alive = batch.alive[rows]
        running = alive if active is None else active
        members = lanes_of(np.broadcast_to(mask[rows], alive.shape))
        whole = (running == alive).all(axis=1) & (members | ~alive).all(axis=1)
        clocks().meet_in_warp(batch, rows, whole)

    return step
