"""What mbarrier instructions do: their lanes sorted by the barrier that they name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .batch import LANES, Array, Rows
from .clocks import Vector
from .copies import CopyGroups
from .landing import Flight, Flights
from .mbarriers import MBARRIER_BYTES, Mbarrier, Mbarriers
from .shared_memory import BASE
from .where import Where, objection

Named = tuple[int, Array, Array]  # offset, warps [n], lanes [n, 32]


class MbarrierAccess:
    """One instruction's view of the mbarriers; `rows` and `active` are set before each use."""

    def __init__(
        self, barriers: Mbarriers, groups: CopyGroups, flights: Flights, where: Where
    ) -> None:
        self.barriers = barriers
        self.groups = groups
        self.flights = flights
        self.where = where
        self.rows: Rows = barriers.batch.everyone
        self.active: Array | None = None

    # ---- which lanes name which barrier ----------------------------------------------------------

    def running(self) -> tuple[Array, Array]:
        """The warps that execute it, and their lanes."""
        warps = np.arange(self.barriers.batch.capacity)[self.rows]
        if self.active is None:
            return warps, np.ones((warps.size, LANES), np.bool_)
        return warps, self.active

    def named(self, address: Array) -> Iterator[Named]:
        warps, lanes = self.running()
        offsets = np.broadcast_to(address, lanes.shape).astype(np.int64) - BASE
        for offset in np.unique(offsets[lanes]):
            chosen = lanes & (offsets == offset)
            some = chosen.any(axis=1)
            self._check_place(int(offset), warps[some], chosen[some])
            yield int(offset), warps[some], chosen[some]

    def _check_place(self, offset: int, warps: Array, lanes: Array) -> None:
        memory = self.barriers.shared
        inside = 0 <= offset <= memory.size_bytes - MBARRIER_BYTES
        if inside and offset % MBARRIER_BYTES == 0:
            return
        problem = "misaligned, wants a multiple of 8" if inside else "out of bounds of the block's "
        problem += "" if inside else f"{memory.size_bytes} shared bytes"
        name = memory.batch.thread_name(warps, lanes)
        raise objection(self.where, f"mbarrier at offset {offset}: {problem}", name)

    def used(self, address: Array) -> Iterator[tuple[Mbarrier, Array, Array]]:
        """The barriers that lanes name, each checked to be there for them."""
        for offset, warps, lanes in self.named(address):
            barrier = self.barriers.at.get(offset)
            if barrier is None:
                raise self.barriers.uninitialised(offset, warps, lanes, self.where)
            self.barriers.check_use(barrier, warps, lanes, self.where)
            yield barrier, warps, lanes

    def _of(self, value: Any, warps: Array) -> Array:
        """An operand's values `[n, 32]` for some of the warps that execute it."""
        running, lanes = self.running()
        full = np.broadcast_to(value, lanes.shape).astype(np.int64)
        chosen: Array = full[np.searchsorted(running, warps)]
        return chosen

    # ---- what instructions do --------------------------------------------------------------------

    def init(self, address: Array, count: Array) -> None:
        for offset, warps, lanes in self.named(address):
            self.barriers.init(offset, warps, lanes, self._of(count, warps), self.where)

    def inval(self, address: Array) -> None:
        for barrier, warps, lanes in self.used(address):
            self.barriers.inval(barrier, warps, lanes, self.where)

    def arrive(self, address: Array, count: Any, expected_bytes: Any) -> None:
        for barrier, warps, lanes in self.used(address):
            bytes = np.where(lanes, self._of(expected_bytes, warps), 0).sum(axis=1)
            if bytes.any():
                self.barriers.expect(barrier, warps, lanes, bytes, self.where)
            arrivals = np.where(lanes, self._of(count, warps), 0).sum(axis=1)
            self.barriers.arrive(barrier, warps, lanes, arrivals, self.where)

    def expect(self, address: Array, expected_bytes: Array) -> None:
        for barrier, warps, lanes in self.used(address):
            bytes = np.where(lanes, self._of(expected_bytes, warps), 0).sum(axis=1)
            self.barriers.expect(barrier, warps, lanes, bytes, self.where)

    def arrive_after_copies(self, address: Array) -> None:
        barriers, agents = self.barriers, self.barriers.shared.agents
        for barrier, warps, lanes in self.used(address):
            block, warp = barriers.place(warps)
            upto, settled = self.groups.close(warps, None if lanes.all() else lanes)
            asked = np.zeros((barriers.batch.capacity, LANES), np.int64)
            asked[warps] = upto
            alive = barriers.alive(warps)
            known = barriers.shared.clocks.step(block, warp, lanes, alive)
            if agents.copies:
                known[np.arange(warps.size), agents.copies + warp] = settled
            told, arrivals = Vector(known, np.zeros_like(known)), lanes.sum(axis=1)

            def land(
                barrier: Mbarrier = barrier, block: Array = block, asked: Array = asked,
                told: Vector = told, arrivals: Array = arrivals,
            ) -> None:  # fmt: skip
                self.groups.land(asked)
                columns = barrier.gathered.known.shape[1]
                wide = Vector(*(_wide(table, columns) for table in told))
                barriers.gather(barrier, block, wide, arrivals, self.where)
                barriers.complete(barrier, self.where)

            self.flights.start(Flight(barrier, self.where, land))

    def fence_init(self) -> None:
        self.barriers.fence_init(*self.running())

    def fence_proxy(self) -> None:
        warps, lanes = self.running()
        block, warp = self.barriers.place(warps)
        self.barriers.shared.clocks.fence(block, warp, lanes, self.barriers.alive(warps))

    def passed(self, address: Array, parity: Array) -> Array:
        """Which lanes see the phase of that parity complete, `[warps, 32]`; they learn from it."""
        running, lanes = self.running()
        passed = np.zeros(lanes.shape, np.bool_)
        for barrier, warps, asking in self.used(address):
            at = np.searchsorted(running, warps)
            passed[at] |= self._passed(barrier, warps, asking, self._of(parity, warps))
        return passed

    def _passed(self, barrier: Mbarrier, warps: Array, lanes: Array, parity: Array) -> Array:
        """A lane waits for the next phase that it does not know to be complete, or, where the
        parity is not that one's, for the phase before it (of a fresh barrier: none).

        Phases of a barrier that is made anew are numbered on; its first one has parity 0.
        """
        barriers, clocks = self.barriers, self.barriers.shared.clocks
        block, warp = barriers.place(warps)
        known = clocks.knows(block[:, None], warp[:, None], np.arange(LANES), barrier.column)
        first = barrier.first[block][:, None]
        known = np.maximum(known, first)
        wanted = np.where(known - first & 1 == parity & 1, known, known - 1)
        complete = barrier.phase[block][:, None]
        self._check_parity(parity, warps, lanes)
        missed = lanes & (complete > wanted + 1)
        if missed.any():
            row, lane = np.argwhere(missed)[0]
            problem = (
                f"missed phase: a wait for phase {int(wanted[row, lane])} by parity, but "
                f"{int(complete[row, 0])} phases are complete"
            )
            raise barriers.objection(barrier, self.where, problem, warps, missed)
        passed: Array = lanes & (complete == wanted + 1)
        again = passed & (barrier.seen[warps] >= wanted)
        if again.any():
            row, lane = np.argwhere(again)[0]
            problem = (
                f"a wait passes again on phase {int(wanted[row, lane])}, for which this lane has "
                "waited before; the next phase has the other parity"
            )
            raise barriers.objection(barrier, self.where, problem, warps, again)
        self._learn(barrier, warps, passed, wanted)
        return passed

    def _learn(self, barrier: Mbarrier, warps: Array, passed: Array, wanted: Array) -> None:
        barriers, clocks = self.barriers, self.barriers.shared.clocks
        barrier.seen[warps] = np.where(passed, wanted, barrier.seen[warps])
        real = passed & (wanted >= barrier.first[barriers.place(warps)[0]][:, None])
        some = real.any(axis=1)
        if not some.any():
            return
        warps, real, wanted = warps[some], real[some], wanted[some]
        block, warp = barriers.place(warps)
        phase = np.where(real, wanted, -1).max(axis=1)
        barrier.waited[warps] = np.stack([phase, clocks.now[block, warp]], axis=1)
        told = Vector(barrier.released.known[block], barrier.released.fenced[block])
        clocks.hear(block, warp, real, barriers.alive(warps), told)

    def _check_parity(self, parity: Array, warps: Array, lanes: Array) -> None:
        if (wrong := lanes & (parity > 1)).any():
            name = self.barriers.batch.thread_name(warps, wrong)
            raise objection(self.where, f"parity {int(parity[wrong][0])}, wants 0 or 1", name)


def _wide(table: Array, columns: int) -> Array:
    grown = np.zeros((len(table), columns), table.dtype)
    grown[:, : table.shape[1]] = table
    return grown
