"""What is under way towards an mbarrier, and in which order it arrives: as late as can be."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from .mbarriers import Mbarrier
from .where import Where, objection


@dataclass(frozen=True, eq=False)
class Flight:
    """One instruction's copies, or its arrivals after copies, towards one barrier."""

    barrier: Mbarrier
    where: Where
    land: Callable[[], None]


class Flights:
    """All that is under way; `rng` picks the order, without it what started first lands first."""

    def __init__(self, rng: np.random.Generator | None) -> None:
        self.rng = rng
        self.waiting: list[Flight] = []

    def reset(self) -> None:
        self.waiting.clear()

    def start(self, flight: Flight) -> None:
        self.waiting.append(flight)

    def land_one(self, awaited: Collection[int]) -> bool:
        """Something that a barrier at one of these offsets awaits lands; False if nothing can."""
        able = [i for i, each in enumerate(self.waiting) if each.barrier.offset in awaited]
        if not able:
            return False
        chosen = able[0] if self.rng is None else int(self.rng.choice(able))
        self.waiting.pop(chosen).land()
        return True

    def check_end(self) -> None:
        for each in self.waiting:
            raise objection(
                each.where,
                f"mbarrier at offset {each.barrier.offset}: the kernel ends before the bytes or "
                "arrivals of this copy have come",
            )
