"""Which shared-memory accesses race: who last wrote and read each cell, and when.

A cell is the smallest piece that any instruction of the entry accesses. For each cell the last
writer is kept as (clock, agent, lane), and for each warp its last read as (clock, lane): as in
FastTrack, an access races with an earlier one unless its lane knows the other's clock (clocks.py)
or both are one thread's. Lane 32 stands for a whole warp, as in ldmatrix.

What a copy writes is written by an agent of its own from the moment that the copy starts, so any
access that does not come before that moment, or after a wait for the copy, races with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .batch import LANES, Array, Batch, Rows
from .clocks import Clocks
from .where import Where, objection

WARP_SHIFT, CLOCK_SHIFT = 6, 18  # tag = clock << 18 | agent << 6 | lane
AGENT = (1 << CLOCK_SHIFT - WARP_SHIFT) - 1
LANE_MASK = (1 << WARP_SHIFT) - 1
THREAD = (1 << CLOCK_SHIFT) - 1
ANY_LANE = LANES


@dataclass(frozen=True)
class Copying:
    """Whose write a copy's is: agent and clock of each of its rows; `bulk` in the other proxy."""

    agent: Array  # [rows]
    clock: Array
    bulk: bool = False


class RaceLog:
    """Last accesses of every cell of every block of a batch."""

    def __init__(self, batch: Batch, clocks: Clocks, cells_per_block: int, cell_bytes: int) -> None:
        self.batch = batch
        self.clocks = clocks
        self.cell_bytes = cell_bytes
        blocks = batch.block_ids.size
        self.written = np.zeros(blocks * cells_per_block, np.int64)
        self.writer = np.zeros(blocks * cells_per_block, np.int32)
        self.read = np.zeros((blocks * cells_per_block, batch.warps_per_block), np.int32)
        self.places: list[Where] = []
        self.copied_lanes: Array | None = None  # [warps, 32]: the clock of copies waited for

    def place(self, where: Where) -> int:
        """A small number for an instruction, to name the writer of a cell by."""
        self.places.append(where)
        return len(self.places) - 1

    def reset(self) -> None:
        self.written[:] = 0
        self.read[:] = 0

    def cells(self, flat: Array, size_bytes: int) -> Array:
        """Cells of accesses at byte offsets `[rows, n]` of the arena: `[rows, n, cells]`."""
        cells: Array = (flat // self.cell_bytes)[..., None] + np.arange(
            size_bytes // self.cell_bytes
        )
        return cells

    def check_read(
        self, cells: Array, rows: Rows, active: Array | None, lane: Array, where: Where
    ) -> None:
        """Log reads of `[rows, n, cells]` by `lane` `[n]`; object to those that race."""
        self._check_writers(cells, rows, active, lane, where, "read", None)
        warp = self.batch.warp_in_block[rows][:, None, None]
        now = self.clocks.now[self.batch.block_of_warp[rows], self.batch.warp_in_block[rows]]
        mine = (now[:, None, None] << WARP_SHIFT | lane[None, :, None]).astype(np.int32)
        if active is not None:
            chosen = np.broadcast_to(active[..., None], cells.shape)
            cells, warp, mine = (
                np.broadcast_to(each, chosen.shape)[chosen] for each in (cells, warp, mine)
            )
        held = self.read[cells, warp]
        self.read[cells, warp] = mine
        others = self.read[cells, warp] != mine  # several lanes of this instruction
        others |= (held >> WARP_SHIFT == mine >> WARP_SHIFT) & (held != mine)
        if others.any():
            many = mine & -(1 << WARP_SHIFT) | ANY_LANE
            cells, warp, many = (
                np.broadcast_to(each, others.shape)[others] for each in (cells, warp, many)
            )
            self.read[cells, warp] = many

    def check_write(
        self, cells: Array, rows: Rows, active: Array | None, lane: Array, where: Where, place: int,
        copying: Copying | None = None,
    ) -> None:  # fmt: skip
        """Log writes of `[rows, n, cells]` by `lane` `[n]`; object to those that race.

        A copy's write is checked as its thread's, and logged as its own agent's.
        """
        self._check_writers(cells, rows, active, lane, where, "write", copying)
        bulk = copying is not None and copying.bulk
        self._check_readers(cells, rows, active, lane, where, bulk)
        block, warp = self.batch.block_of_warp[rows], self.batch.warp_in_block[rows]
        if copying is None:
            tag = self.clocks.now[block, warp] << CLOCK_SHIFT | warp << WARP_SHIFT
        else:
            tag = copying.clock << CLOCK_SHIFT | copying.agent << WARP_SHIFT
        mine = np.broadcast_to(tag[:, None, None] | lane[None, :, None], cells.shape)
        if active is not None:
            chosen = np.broadcast_to(active[..., None], cells.shape)
            cells, mine = cells[chosen], mine[chosen]
        self.written[cells] = mine
        self.writer[cells] = place
        stale = self.written[cells] ^ mine
        if copying is None:
            stale >>= WARP_SHIFT
        if stale.any():  # two warps wrote one cell in this very step
            who = "warps write" if copying is None else "copies write"
            raise objection(where, f"race in shared memory: two {who} the same bytes")

    def _check_writers(
        self, cells: Array, rows: Rows, active: Array | None, lane: Array, where: Where, verb: str,
        copying: Copying | None,
    ) -> None:  # fmt: skip
        tags = self.written[cells]
        clocks = self.clocks
        bulk = copying is not None and copying.bulk
        if clocks.agents.plain:
            if int(tags.max()) >> CLOCK_SHIFT <= clocks.floor:
                return
        elif not bulk:
            floors = clocks.floors
            if (tags >> CLOCK_SHIFT <= floors[tags >> WARP_SHIFT & AGENT]).all():
                return
        block, warp = self.batch.block_of_warp[rows], self.batch.warp_in_block[rows]
        who, clock = tags >> WARP_SHIFT & AGENT, tags >> CLOCK_SHIFT
        block, warp, lane = block[:, None, None], warp[:, None, None], lane[None, :, None]
        known = clocks.knows(block, warp, lane, who)
        me = warp << WARP_SHIFT | lane
        bad = clock > known
        if bulk:
            bad &= ~self._own(tags, block, warp, lane)
            bad |= self._unfenced(tags, block, warp, lane)
        else:
            bad &= tags & THREAD != me
            if not clocks.agents.plain and bad.any():
                bad &= ~self._own(tags, block, warp, lane)
        if active is not None:
            bad &= active[..., None]
        if bad.any():
            row, column, cell = np.argwhere(bad)[0]
            tag = int(tags[row, column, cell])
            by = self.places[int(self.writer[cells[row, column, cell]])]
            agent = tag >> WARP_SHIFT & AGENT
            writer = clocks.agents.name(agent, tag & LANE_MASK)
            if agent >= clocks.warps:
                missing = "a wait for"
            elif bulk and clock[row, column, cell] <= known[row, column, cell]:
                missing = "a fence.proxy.async after the write by"
            else:
                missing = "a barrier after the write by"
            self._object(
                rows, bad, where,
                f"race in shared memory: {verb} without {missing} {writer} "
                f"in line {by.line} ({by.text})",
            )  # fmt: skip

    def _own(self, tags: Array, block: Array, warp: Array, lane: Array) -> Array:
        """Writes that the accessing thread knows of although its warp does not know the clock."""
        clocks = self.clocks
        agents = clocks.agents
        who, clock, wrote = tags >> WARP_SHIFT & AGENT, tags >> CLOCK_SHIFT, tags & LANE_MASK
        own: Array = who << WARP_SHIFT | wrote == warp << WARP_SHIFT | lane
        if agents.copies and self.copied_lanes is not None:
            flat = block * self.batch.warps_per_block + warp
            waited = self.copied_lanes[flat, np.minimum(lane, LANES - 1)]
            own |= (who == agents.copies + warp) & (wrote == lane) & (clock <= waited)
        if agents.voices:
            speaker = np.minimum(who, clocks.warps - 1)
            heard = clocks.knows(block, warp, lane, agents.voices + speaker)
            spoke = clocks.voice[block, speaker] == wrote
            own |= (who < clocks.warps) & spoke & (clock <= heard)
        return own

    def _unfenced(self, tags: Array, block: Array, warp: Array, lane: Array) -> Array:
        """Writes through the generic proxy that no fence lies after, on the way to this lane."""
        clocks = self.clocks
        who, clock = tags >> WARP_SHIFT & AGENT, tags >> CLOCK_SHIFT
        generic = (who < clocks.agents.first_barrier) & (clock > 0)
        fenced = clock <= clocks.knows(block, warp, lane, who, fenced=True)
        mine = tags & THREAD == warp << WARP_SHIFT | lane
        fenced |= mine & (clock <= clocks.own_fence[block, warp, lane])
        unfenced: Array = generic & ~fenced
        return unfenced

    def _check_readers(
        self, cells: Array, rows: Rows, active: Array | None, lane: Array, where: Where, bulk: bool
    ) -> None:
        """Object to writes that race with reads; those of bulk copies need a fence between, too."""
        reads = self.read[cells]  # [rows, n, cells, warps]
        clocks = self.clocks
        if not bulk and int(reads.max()) >> WARP_SHIFT <= clocks.floor:
            return
        block, warp = self.batch.block_of_warp[rows], self.batch.warp_in_block[rows]
        late = unordered = self._unordered(reads, block, warp, lane, fenced=False)
        if bulk:
            late = unordered | self._unordered(reads, block, warp, lane, fenced=True)
        if active is not None:
            late = late & active[..., None, None]
        if late.any():
            row, column, cell, reader = np.argwhere(late)[0]
            read_by = int(reads[row, column, cell, reader]) & LANE_MASK
            who = f", lane {read_by}" if read_by < LANES else ""
            ordered = not unordered[row, column, cell, reader]
            missing = "a fence.proxy.async" if ordered else "a barrier"
            self._object(
                rows, np.asarray(late.any(axis=3)), where,
                f"race in shared memory: write without {missing} after the read by warp "
                f"{int(reader)}{who}",
            )  # fmt: skip

    def _unordered(
        self, reads: Array, block: Array, warp: Array, lane: Array, *, fenced: bool
    ) -> Array:
        """Which reads `[rows, n, cells, warps]` these lanes do not know to be done; or, `fenced`,
        to lie before a fence between the proxies."""
        clocks = self.clocks
        reader = np.arange(self.batch.warps_per_block)
        at = (block[:, None, None, None], warp[:, None, None, None], lane[None, :, None, None])
        clock, by = reads >> WARP_SHIFT, reads & LANE_MASK
        own = (reader == at[1]) & (by == at[2])
        if fenced:
            own &= clock <= clocks.own_fence[at[:3]]
        late: Array = (clock > clocks.knows(*at, reader, fenced)) & ~own
        if clocks.agents.voices and late.any():
            heard = clocks.knows(*at, clocks.agents.voices + reader, fenced)
            spoke = clocks.voice[at[0], reader] == by
            late &= ~(spoke & (clock <= heard))
        return late

    def _object(self, rows: Rows, bad: Array, where: Where, problem: str) -> None:
        lanes = np.asarray(bad.any(axis=2))
        if lanes.shape[1] == LANES:
            raise objection(where, problem, self.batch.thread_name(rows, lanes))
        warp = int(np.arange(self.batch.capacity)[rows][np.argwhere(lanes)[0][0]])
        raise objection(where, problem, self.batch.name(warp))
