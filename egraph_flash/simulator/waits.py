"""Who waits for a phase of an mbarrier, and what lands when nobody else can go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .batch import LANES, Array, Batch, Rows
from .copies import CopyGroups
from .landing import Flights
from .mbarriers import Mbarriers
from .operands import Source
from .shared_memory import BASE, SharedMemory
from .where import Where

Evaluation = Callable[[Rows, "Array | None"], Array]


@dataclass(frozen=True)
class Wait:
    """A wait of the program: what it finds for lanes, and where they say what they wait for.

    `parks`: a lane that would be told "not yet" waits until it can be told "yes"; else it is told
    "not yet" once before it does.
    """

    where: Where
    finds: Evaluation
    address: Source
    parity: Source
    parks: bool


class Waits:
    """All that makes lanes wait beside the numbered barriers; one for each launch."""

    def __init__(
        self, batch: Batch, shared: SharedMemory, depth: int, rng: np.random.Generator | None
    ) -> None:
        self.batch = batch
        self.shared = shared
        self.groups = CopyGroups(batch, shared, depth)
        self.mbarriers = Mbarriers(batch, shared)
        self.flights = Flights(rng)
        self.parked: dict[int, Array] = {}  # lanes [warps, 32] by the block that a wait ends
        self.told = np.zeros((batch.capacity, LANES), np.bool_)  # "not yet", once

    def reset(self) -> None:
        """New blocks start."""
        self.mbarriers.reset()
        self.flights.reset()
        self.parked.clear()
        self.told[:] = False
        if self.shared.agents.copies:
            self.groups.reset()

    def ask(self, index: int, wait: Wait, rows: Rows, active: Array | None) -> tuple[Array, Array]:
        """Lanes `[rows, 32]` that go on with "yes", and those that go on with "not yet"."""
        asking = np.ones((len(self.told[rows]), LANES), np.bool_) if active is None else active
        passed = wait.finds(rows, active)
        left = asking & ~passed
        refused = left & ~self.told[rows] if not wait.parks else np.zeros_like(left)
        self.told[rows] = (self.told[rows] | refused) & ~passed
        parked = left & ~refused
        if parked.any():
            lanes = self.parked.setdefault(index, np.zeros_like(self.told))
            lanes[rows] |= parked
        return passed, refused

    def earliest(self) -> Array:
        """For each warp, the first block at which lanes of it wait; a large number for none."""
        first = np.full(self.batch.capacity, 1 << 40)
        for index in sorted(self.parked, reverse=True):
            first[self.parked[index].any(axis=1)] = index
        return first

    def wake(self, waits: dict[int, Wait]) -> list[tuple[int, Array]]:
        """Lanes `[warps, 32]` that a change lets go on, by the block that their wait ends."""
        self.mbarriers.changed = False
        woken = []
        for index, lanes in list(self.parked.items()):
            rows = self.batch.rows_of(np.asarray(lanes.any(axis=1)))
            passed = waits[index].finds(rows, lanes[rows])
            if passed.any():
                free = np.zeros_like(lanes)
                free[rows] = passed
                self.told &= ~free
                left = lanes & ~free
                if left.any():
                    self.parked[index] = left
                else:
                    del self.parked[index]
                woken.append((index, free))
        return woken

    def land(self, waits: dict[int, Wait]) -> bool:
        """Nobody can run: let something land that a waiting lane needs; False if there is none."""
        awaited: set[int] = set()
        for index, lanes in self.parked.items():
            rows = self.batch.rows_of(np.asarray(lanes.any(axis=1)))
            address = np.broadcast_to(waits[index].address[rows], lanes[rows].shape)
            awaited.update((np.unique(address[lanes[rows]]).astype(np.int64) - BASE).tolist())
        return self.flights.land_one(awaited)

    def deadlock(self, waits: dict[int, Wait]) -> None:
        """Lanes wait, and nothing can change that: object."""
        for index, lanes in self.parked.items():
            warp, lane = (int(each) for each in np.argwhere(lanes)[0])
            rows = np.array([warp])
            address = np.broadcast_to(waits[index].address[rows], (1, LANES))[0, lane]
            barrier = self.mbarriers.at[int(address) - BASE]
            block = int(self.batch.block_of_warp[warp])
            mates = np.flatnonzero(lanes.any(axis=1) & (self.batch.block_of_warp == block))
            names = ", ".join(str(int(self.batch.warp_in_block[each])) for each in mates)
            phase = int(barrier.phase[block])
            self.mbarriers.deadlock(barrier, block, phase, names, waits[index].where)

    def check_end(self) -> None:
        """All lanes are done."""
        if self.shared.agents.copies:
            self.groups.check_end()
        if self.mbarriers.at:
            self.flights.check_end()
            self.mbarriers.check_end()
