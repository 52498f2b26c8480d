"""Where threads wait for each other: block barriers by number, and barriers of one warp.

A warp may arrive without waiting (bar.arrive): what it knew then, those who wait learn. Its next
arrival at the same barrier must come after the meeting that it counted in, or it could count twice;
so, in an entry that does this, a warp's knowledge of a barrier's meetings is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .batch import LANES, Array, Batch, Rows
from .clocks import Clocks, Vector, widened
from .exchange import lanes_of
from .operands import Source
from .where import Where, objection


@dataclass
class _Barrier:
    """One barrier number of every block: who waits, for how many threads."""

    waiting: Array  # [warps]
    passing: Array  # [warps] arrived without waiting
    expected: Array  # [blocks] threads, 0 while nobody waits
    meetings: Array  # [blocks] how many are over
    before: Vector | None  # what those know that arrived without waiting, [blocks, agents]
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
        self, rows: Rows, number: Any, threads: Any, after: int, where: Where, waits: bool = True
    ) -> list[tuple[int, Array]]:
        """Warps arrive, and wait or not; (block to run, True per warp) of those who may go on."""
        batch = self.batch
        warps = np.arange(batch.capacity)[rows]
        numbers = np.broadcast_to(number, (warps.size, LANES))[:, 0]
        counts = np.broadcast_to(threads, (warps.size, LANES))[:, 0]
        if waits:
            self.resume[warps] = after
        released: list[tuple[int, Array]] = []
        for each in np.unique(numbers):
            chosen = numbers == each
            barrier = self._at(int(each), where)
            self._arrive(int(each), barrier, warps[chosen], counts[chosen], where, waits)
            released += self._release(int(each), barrier, where)
        return released

    def _at(self, number: int, where: Where) -> _Barrier:
        if number >= self.limit:
            raise objection(where, f"barrier number {number}, wants 0 to {self.limit - 1}")
        if number not in self.barriers:
            warps, blocks = np.zeros(self.batch.capacity, np.bool_), self.batch.block_ids
            self.barriers[number] = _Barrier(
                warps, warps.copy(), np.zeros_like(blocks), np.zeros_like(blocks), None
            )
        return self.barriers[number]

    def _arrive(
        self, number: int, barrier: _Barrier, warps: Array, counts: Array, where: Where, waits: bool
    ) -> None:
        batch = self.batch
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
        assert not barrier.waiting[warps].any(), "a waiting warp does not run"
        self._check_known(number, barrier, warps, where)
        if waits:
            barrier.waiting[warps] = True
        else:
            self._pass(barrier, warps)
        for warp in warps if barrier.where or not self._completes(barrier) else ():
            barrier.where[int(warp)] = where

    def _check_known(self, number: int, barrier: _Barrier, warps: Array, where: Where) -> None:
        """Warps know that the meetings before this one are over."""
        clocks = self.clocks()
        if not clocks.agents.meetings:
            return
        block, warp = self.batch.block_of_warp[warps], self.batch.warp_in_block[warps]
        known = clocks.known[block, warp, clocks.agents.meetings + number]
        wrong = (known < barrier.meetings[block]) | barrier.passing[warps]
        if wrong.any():
            raise objection(
                where,
                f"barrier {number}: a warp arrives that need not know that the meeting before is "
                "over: it could count twice in one and miss the next",
                self.batch.name(int(warps[np.flatnonzero(wrong)[0]])),
            )

    def _pass(self, barrier: _Barrier, warps: Array) -> None:
        """Warps arrive without waiting."""
        clocks = self.clocks()
        block, warp = self.batch.block_of_warp[warps], self.batch.warp_in_block[warps]
        alive = self.batch.alive[warps]
        told = clocks.tell(block, warp, alive, alive)
        columns = told.known.shape[1]
        shape = (len(clocks.now), columns)
        if barrier.before is None:
            barrier.before = Vector(np.zeros(shape, np.int64), np.zeros(shape, np.int64))
        barrier.before = Vector(*(widened(table, columns) for table in barrier.before))
        for table, learnt in zip(barrier.before, told, strict=True):
            np.maximum.at(table, block, learnt)
        barrier.passing[warps] = True

    def _threads(self, barrier: _Barrier) -> Array:
        there = barrier.waiting | barrier.passing
        per_block = there.reshape(-1, self.batch.warps_per_block).sum(axis=1)
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
        barrier.passing &= ~complete[batch.block_of_warp]
        barrier.expected[complete] = 0
        barrier.meetings[complete] += 1
        if barrier.where:
            for warp in np.flatnonzero(free):
                barrier.where.pop(int(warp), None)
        blocks = self.clocks().now.shape[0]
        taking_part = free.reshape(-1, batch.warps_per_block)[:blocks]
        self._meet(number, barrier, taking_part, complete[:blocks])
        targets = np.unique(self.resume[free])
        return [(int(target), free & (self.resume == target)) for target in targets]

    def _meet(self, number: int, barrier: _Barrier, taking_part: Array, complete: Array) -> None:
        clocks = self.clocks()
        if not clocks.agents.meetings:
            clocks.meet(taking_part)
            return
        shape = (len(taking_part), clocks.agents.columns)
        before = barrier.before or Vector(np.zeros(shape, np.int64), np.zeros(shape, np.int64))
        known, fenced = (widened(table, shape[1]) for table in before)
        known[:, clocks.agents.meetings + number] = barrier.meetings[: len(taking_part)]
        clocks.meet(taking_part, Vector(known, fenced))
        if barrier.before is not None:
            over = complete[:, None]
            barrier.before = Vector(np.where(over, 0, known), np.where(over, 0, fenced))

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
