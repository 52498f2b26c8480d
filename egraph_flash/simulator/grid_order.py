"""What happened before what between blocks of a launch: what atomics and fences of the GPU carry.

Within a block, clocks.py tells. Between blocks, a thread releases by an acq_rel atomic, or by a
relaxed one after a fence of its own: then the word tells up to which clock the accesses of each
thread of its block come before, and what that thread had learnt. It tells so, beside what it told
before, as long as only atomics write it. A thread learns what a word tells by an acq_rel atomic, or
by a fence of its own after a relaxed one; others of its block know it if they know of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .batch import LANES, Array, Batch, Rows
from .clocks import Clocks

WARP_SHIFT, BLOCK_SHIFT, CLOCK_SHIFT = 6, 12, 38  # tag = clock << 38 | block << 12 | warp … | lane
LANE = (1 << WARP_SHIFT) - 1
WARP = (1 << BLOCK_SHIFT - WARP_SHIFT) - 1
BLOCK = (1 << CLOCK_SHIFT - BLOCK_SHIFT) - 1
THREAD = (1 << CLOCK_SHIFT) - 1
SOME_THREAD = (1 << BLOCK_SHIFT) - 1  # the warp and lane of several threads of one block
SEVERAL = -1  # the tag of threads of several blocks
EACH_LANE = np.arange(LANES)


def block_of(tags: Array) -> Array:
    """The block of each access, as the grid numbers it."""
    blocks: Array = tags >> BLOCK_SHIFT & BLOCK
    return blocks


def named(tag: int) -> tuple[str, str]:
    """The block of an access in words, and its thread there, where it was one alone."""
    if tag == SEVERAL:
        return "several blocks", ""
    warp, lane = tag >> WARP_SHIFT & WARP, tag & LANE
    thread = f" (warp {warp}, lane {lane})" if lane < LANES else ""
    return f"block {tag >> BLOCK_SHIFT & BLOCK}", thread


@dataclass(frozen=True, eq=False)
class Told:
    """What one release added to what a word tells."""

    block: int
    clocks: Array  # [warps, 32]: for each thread of the block
    learnt: tuple[Told, ...]
    before: Told | None

    @cached_property
    def table(self) -> Table:
        return Table(self)

    def all(self) -> Iterator[Told]:
        """This and all that it stands on, each once."""
        found, left = {self}, [self]
        while left:
            told = left.pop()
            yield told
            more = {*told.learnt, *([] if told.before is None else [told.before])} - found
            found |= more
            left += more


class Table:
    """All that is told, as one array."""

    def __init__(self, told: Told) -> None:
        clocks: dict[int, Array] = {}
        for each in told.all():
            held = clocks.get(each.block)
            clocks[each.block] = each.clocks if held is None else np.maximum(held, each.clocks)
        self.blocks = np.array(sorted(clocks))
        self.clocks = np.stack([clocks[int(block)] for block in self.blocks])

    def covers(self, tags: Array) -> Array:
        """Which accesses it tells of; of those that several threads made, none."""
        alone = (tags >= 0) & (tags & LANE < LANES)
        tags = np.where(alone, tags, 0)
        place = np.minimum(np.searchsorted(self.blocks, block_of(tags)), len(self.blocks) - 1)
        upto = self.clocks[place, tags >> WARP_SHIFT & WARP, tags & LANE]
        known: Array = (self.blocks[place] == block_of(tags)) & (tags >> CLOCK_SHIFT <= upto)
        return alone & known


@dataclass(eq=False)
class Word:
    """A word that atomics change: what it tells, and the tag of the last of them."""

    told: Told | None = None
    last: int = 0


class Learnt(NamedTuple):
    """What a thread of a block learnt at its clock."""

    warp: int
    lane: int
    clock: int
    told: Told


class GridOrder:
    """What the threads of a batch's blocks know of other blocks."""

    def __init__(
        self, batch: Batch, clocks: Callable[[], Clocks], rng: np.random.Generator | None
    ) -> None:
        self.batch = batch
        self.clocks = clocks
        self.rng = rng
        self.reset()

    def reset(self) -> None:
        """New blocks start."""
        batch = self.batch
        running = batch.block_ids[: batch.warps // batch.warps_per_block]
        self.place = {int(block): place for place, block in enumerate(running)}
        self.learnt: dict[int, list[Learnt]] = {}  # by place in the batch
        self.seen: dict[tuple[int, int], dict[Word, Told]] = {}  # by warp of the batch and lane
        self.fenced: Array | None = None  # [capacity, 32, warps]: what each lane knew at its fence
        self.fence_clock = np.zeros((batch.capacity, LANES), np.int64)

    def tags(self, rows: Rows) -> Array:
        """The tags of what these warps access now, `[rows, 32]`."""
        batch = self.batch
        block, warp = batch.block_of_warp[rows], batch.warp_in_block[rows]
        whole = self.clocks().now[block, warp] << CLOCK_SHIFT
        whole = whole | batch.block_ids[block] << BLOCK_SHIFT | warp << WARP_SHIFT
        tags: Array = whole[:, None] | EACH_LANE
        return tags

    def knows(self, mine: Array, theirs: Array) -> Array:
        """Which accesses of other blocks, `[n]`, come before mine, `[n]`."""
        known = np.zeros(mine.shape, np.bool_)
        blocks = block_of(mine)
        for block in np.unique(blocks):
            place = self.place[int(block)]
            chosen = blocks == block
            warp, lane = mine[chosen] >> WARP_SHIFT & WARP, mine[chosen] & LANE
            for each in self.learnt.get(place, ()):
                heard = self.clocks().knows(place, warp, lane, each.warp) >= each.clock
                heard |= (warp == each.warp) & (lane == each.lane)
                if heard.any():
                    known[chosen] |= heard & each.told.table.covers(theirs[chosen])
        return known

    def turns(self, lanes: Array) -> Array:
        """The order in which threads that are True in `[rows, 32]` have their turns: `[n, 2]`."""
        waiting = np.argwhere(lanes)
        return waiting if self.rng is None else self.rng.permutation(waiting)

    def fence(self, rows: Rows, active: Array | None) -> None:
        """Lanes learn what their relaxed atomics read; what they know, their next ones tell."""
        batch, clocks = self.batch, self.clocks()
        warps = np.arange(batch.capacity)[rows]
        block, warp = batch.block_of_warp[warps], batch.warp_in_block[warps]
        lanes = np.ones((len(warps), LANES), np.bool_) if active is None else active
        for row, lane in np.argwhere(lanes) if self.seen else ():
            for told in self.seen.pop((int(warps[row]), int(lane)), {}).values():
                self._learn(int(warps[row]), int(lane), told)
        if self.fenced is None:
            self.fenced = np.zeros((batch.capacity, LANES, clocks.warps), np.int64)
        known = self._known(block[:, None, None], warp[:, None, None], EACH_LANE[:, None])
        self.fenced[warps] = np.where(lanes[..., None], known, self.fenced[warps])
        now = clocks.now[block, warp][:, None]
        self.fence_clock[warps] = np.where(lanes, now, self.fence_clock[warps])
        self.step(rows)

    def step(self, rows: Rows) -> None:
        """What these warps access from now on is not part of what they told."""
        block, warp = self.batch.block_of_warp[rows], self.batch.warp_in_block[rows]
        self.clocks().now[block, warp] += 1

    def update(self, warp: int, lane: int, word: Word, tag: int, acq_rel: bool) -> None:
        """A thread's turn at a word; `warp` is one of the batch."""
        if word.told is not None:
            if acq_rel:
                self._learn(warp, lane, word.told)
            else:
                self.seen.setdefault((warp, lane), {})[word] = word.told
        told = self._tell(warp, lane, word.told, acq_rel)
        word.told, word.last = told or word.told, tag

    def _learn(self, warp: int, lane: int, told: Told) -> None:
        place, within = int(self.batch.block_of_warp[warp]), int(self.batch.warp_in_block[warp])
        clock = int(self.clocks().now[place, within])
        self.learnt.setdefault(place, []).append(Learnt(within, lane, clock, told))

    def _tell(self, warp: int, lane: int, before: Told | None, acq_rel: bool) -> Told | None:
        """What a thread's atomic releases; None where no fence of its own stands before it."""
        place, within = int(self.batch.block_of_warp[warp]), int(self.batch.warp_in_block[warp])
        if acq_rel:
            known = self._known(place, within, lane)
            clock = int(self.clocks().now[place, within])
        elif self.fenced is not None and self.fence_clock[warp, lane]:
            known, clock = self.fenced[warp, lane], int(self.fence_clock[warp, lane])
        else:
            return None
        clocks = np.repeat(known[:, None], LANES, axis=1)
        clocks[within, lane] = clock
        learnt = dict.fromkeys(
            each.told
            for each in self.learnt.get(place, ())
            if each.clock <= clocks[each.warp, each.lane]
        )
        return Told(int(self.batch.block_ids[place]), clocks, tuple(learnt), before)

    def _known(self, place: int | Array, warp: int | Array, lane: int | Array) -> Array:
        """The clock of each warp of its block that a lane knows, `[…, warps]`."""
        clocks = self.clocks()
        return clocks.knows(place, warp, lane, np.arange(clocks.warps))
