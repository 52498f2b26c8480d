"""Who acts within a block beside its warps: which column of a vector clock belongs to whom."""

from __future__ import annotations

from ..codegen.ptx import Entry

SPARE = 8  # columns for barriers that an entry initialises; more are made when they are needed


class Agents:
    """Columns: the warps, then, where an entry needs them, those of clocks.py and barriers.py."""

    def __init__(self, warps: int, entry: Entry, named_barriers: int) -> None:
        rows = [instruction.row for instruction in entry.instructions()]
        counters = {row.counter for row in rows}
        self.warps = warps
        self.bulk = "tma" in counters
        self.mbarriers = "mbarrier" in counters
        arrives = any(row.flow == "arrive" for row in rows)
        self.columns = warps
        self.voices = self._take(warps) if self.mbarriers else 0
        self.steps = self._take(warps) if self.mbarriers else 0
        self.copies = self._take(warps) if "copy" in counters else 0
        self.meetings = self._take(named_barriers) if arrives else 0
        self.first_barrier = self.columns
        self.used = self.columns
        self.columns += SPARE if self.mbarriers else 0

    def _take(self, columns: int) -> int:
        first = self.columns
        self.columns += columns
        return first

    @property
    def plain(self) -> bool:
        """Only warps ever write shared memory."""
        return self.columns == self.warps

    def reset(self) -> None:
        self.used = self.first_barrier

    def barrier(self) -> tuple[int, bool]:
        """A column for one more mbarrier, and whether the tables are too narrow for it."""
        column = self.used
        self.used += 1
        narrow = self.used > self.columns
        if narrow:
            self.columns += self.columns - self.first_barrier
        return column, narrow

    def name(self, column: int, lane: int) -> str:
        """A writer in words."""
        lane_text = f", lane {lane}" if lane < 32 else ""
        if column < self.warps:
            return f"warp {column}{lane_text}"
        if self.copies and self.copies <= column < self.copies + self.warps:
            return f"an asynchronous copy of warp {column - self.copies}{lane_text}"
        return "a bulk copy"
