"""Which shared-memory accesses race: who last wrote and read each cell, and when.

A cell is the smallest piece that any instruction of the entry accesses. For each cell the last
writer is kept as (clock, warp, lane), and for each warp its last read as (clock, lane): as in
FastTrack, an access races with an earlier one unless its warp knows the other's clock (clocks.py)
or both are one thread's. Lane 32 stands for a whole warp, as in ldmatrix.
"""

from __future__ import annotations

import numpy as np

from .batch import LANES, Array, Batch, Rows
from .clocks import Clocks
from .where import Where, objection

WARP_SHIFT, CLOCK_SHIFT = 6, 12  # tag = clock << 12 | warp << 6 | lane
ANY_LANE = LANES


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
        self._check_writers(cells, rows, active, lane, where, "read")
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
        self, cells: Array, rows: Rows, active: Array | None, lane: Array, where: Where, place: int
    ) -> None:
        """Log writes of `[rows, n, cells]` by `lane` `[n]`; object to those that race."""
        self._check_writers(cells, rows, active, lane, where, "write")
        self._check_readers(cells, rows, active, lane, where)
        block, warp = self.batch.block_of_warp[rows], self.batch.warp_in_block[rows]
        tag = self.clocks.now[block, warp] << CLOCK_SHIFT | warp << WARP_SHIFT
        mine = np.broadcast_to(tag[:, None, None] | lane[None, :, None], cells.shape)
        if active is not None:
            chosen = np.broadcast_to(active[..., None], cells.shape)
            cells, mine = cells[chosen], mine[chosen]
        self.written[cells] = mine
        self.writer[cells] = place
        stale = (self.written[cells] ^ mine) >> WARP_SHIFT != 0
        if stale.any():  # two warps wrote one cell in this very step
            raise objection(where, "race in shared memory: two warps write the same bytes")

    def _check_writers(
        self, cells: Array, rows: Rows, active: Array | None, lane: Array, where: Where, verb: str
    ) -> None:
        tags = self.written[cells]
        if int(tags.max()) >> CLOCK_SHIFT <= self.clocks.floor:
            return
        block, warp = self.batch.block_of_warp[rows], self.batch.warp_in_block[rows]
        other = tags >> WARP_SHIFT & (1 << WARP_SHIFT) - 1
        known = self.clocks.known[block[:, None, None], warp[:, None, None], other]
        me = warp[:, None, None] << WARP_SHIFT | lane[None, :, None]
        bad = (tags >> CLOCK_SHIFT > known) & (tags & (1 << CLOCK_SHIFT) - 1 != me)
        if active is not None:
            bad &= active[..., None]
        if bad.any():
            row, column, cell = np.argwhere(bad)[0]
            tag = int(tags[row, column, cell])
            by = self.places[int(self.writer[cells[row, column, cell]])]
            self._object(
                rows, bad, where,
                f"race in shared memory: {verb} without a barrier after the write by warp "
                f"{tag >> WARP_SHIFT & 63}, lane {tag & 63} in line {by.line} ({by.text})",
            )  # fmt: skip

    def _check_readers(
        self, cells: Array, rows: Rows, active: Array | None, lane: Array, where: Where
    ) -> None:
        reads = self.read[cells]  # [rows, n, cells, warps]
        if int(reads.max()) >> WARP_SHIFT <= self.clocks.floor:
            return
        block, warp = self.batch.block_of_warp[rows], self.batch.warp_in_block[rows]
        known = self.clocks.known[block, warp][:, None, None, :]
        late = reads >> WARP_SHIFT > known
        own_warp = np.arange(self.batch.warps_per_block) == warp[:, None, None, None]
        own = own_warp & (reads & (1 << WARP_SHIFT) - 1 == lane[None, :, None, None])
        bad = late & ~own
        if active is not None:
            bad &= active[..., None, None]
        if bad.any():
            row, column, cell, reader = np.argwhere(bad)[0]
            read_by = int(reads[row, column, cell, reader]) & 63
            who = f", lane {read_by}" if read_by < LANES else ""
            self._object(
                rows, bad.any(axis=3), where,
                f"race in shared memory: write without a barrier after the read by warp "
                f"{int(reader)}{who}",
            )  # fmt: skip

    def _object(self, rows: Rows, bad: Array, where: Where, problem: str) -> None:
        raise objection(where, problem, self.batch.thread_name(rows, np.asarray(bad.any(axis=2))))
