"""What a simulated run counted, launch by launch and in total; no figure depends on timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ..codegen.isa import COUNTERS, ROWS


@dataclass
class SharedTraffic:
    """One instruction's shared memory traffic; `line` is its place in the PTX text.

    A wavefront serves each of the 32 four-byte banks once; `conflicts` are the wavefronts beyond
    the least that the width of the access allows.
    """

    line: int
    text: str
    requests: int = 0
    wavefronts: int = 0
    conflicts: int = 0


@dataclass
class Counts:
    """Counts of one launch, or of several added up; instructions are counted per warp.

    `copies` are threads' cp.async, whose wavefronts in shared memory stand apart from those of
    loads and stores; `tma_bytes` is what bulk copies wrote to shared memory, fill included;
    `atomics` are threads' turns at words of global memory, whose traffic is in no other count.
    """

    warps: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    global_bytes_read: int = 0
    global_bytes_written: int = 0
    global_sectors_read: int = 0
    global_sectors_written: int = 0
    shared_wavefronts: int = 0
    shared_conflicts: int = 0
    copies: int = 0
    copy_wavefronts: int = 0
    copy_conflicts: int = 0
    tma_copies: int = 0
    tma_bytes: int = 0
    atomics: int = 0
    barrier_waits: int = 0
    mbarrier_waits: int = 0
    steps: int = 0

    @property
    def instructions(self) -> int:
        return sum(self.rows.values())

    @property
    def classes(self) -> dict[str, int]:
        """Instructions by class, in the order of the instruction table's classes."""
        counts = dict.fromkeys(COUNTERS, 0)
        for name, count in self.rows.items():
            counts[ROWS[name].counter] += count
        return counts

    @property
    def mma(self) -> int:
        return self.classes["mma"]

    @property
    def lsu(self) -> int:
        """Load and store instructions, of global and shared memory, cp.async among them."""
        classes = self.classes
        return classes["lsu_global"] + classes["lsu_shared"] + classes["copy"]

    def add(self, other: Counts) -> None:
        self.rows += other.rows
        for name in (
            "warps",
            "global_bytes_read",
            "global_bytes_written",
            "global_sectors_read",
            "global_sectors_written",
            "shared_wavefronts",
            "shared_conflicts",
            "copies",
            "copy_wavefronts",
            "copy_conflicts",
            "tma_copies",
            "tma_bytes",
            "atomics",
            "barrier_waits",
            "mbarrier_waits",
            "steps",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def as_dict(self) -> dict[str, object]:
        plain = asdict(self)
        plain["rows"] = dict(sorted(self.rows.items()))
        plain["classes"] = self.classes
        plain |= {"instructions": self.instructions, "mma": self.mma, "lsu": self.lsu}
        return plain


@dataclass
class LaunchCounts(Counts):
    """Counts of one launch, with its name and the shared traffic of each of its lines."""

    launch: str = ""
    shared: dict[int, SharedTraffic] = field(default_factory=dict)


@dataclass
class Counters:
    """Counts of a plan's launches, in order."""

    launches: list[LaunchCounts] = field(default_factory=list)

    @property
    def total(self) -> Counts:
        total = Counts()
        for launch in self.launches:
            total.add(launch)
        return total

    def as_dict(self) -> Mapping[str, object]:
        return {
            "total": self.total.as_dict(),
            "launches": [launch.as_dict() for launch in self.launches],
        }
