"""What state the mbarriers of a batch's blocks are in: phases by number, arrivals, bytes to come.

The hardware keeps one bit of the phase; here it is the whole number, so that a phase that a
waiter misses shows. `gathered` is what those know that have arrived in the phase that runs,
`released` what the waiters of the phase before it learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .batch import LANES, Array, Batch
from .clocks import Vector, widened
from .shared_memory import SharedMemory
from .where import Where, objection

MOST_COUNT = (1 << 20) - 1  # of arrivals, and of bytes either way (PTX ISA, mbarrier)
MBARRIER_BYTES = 8


@dataclass(eq=False)
class Mbarrier:
    """The barriers at one offset of every block: arrays `[blocks]` unless they say otherwise."""

    offset: int
    column: int  # of the clocks
    live: Array
    count: Array
    pending: Array
    bytes: Array  # expected, less those that came
    phase: Array  # how many are complete
    first: Array  # the number of the first phase since the barrier was made
    coming: Array  # bytes of copies that are under way
    maker: Array  # [blocks, 3]: warp, lane, clock of the initialiser
    fence: Array  # its clock at a fence.mbarrier_init, or 0
    gathered: Vector  # [blocks, agents]
    released: Vector
    seen: Array  # [warps, 32] the latest phase that a lane waited for
    waited: Array  # [warps, 2] a warp's latest phase waited for, and its clock then
    places: dict[str, Where] = field(default_factory=dict)


class Mbarriers:
    """All of them, by offset, for one batch after another."""

    def __init__(self, batch: Batch, shared: SharedMemory) -> None:
        self.batch = batch
        self.shared = shared
        self.at: dict[int, Mbarrier] = {}
        self.changed = False

    def reset(self) -> None:
        self.at.clear()
        self.shared.opaque.clear()
        self.changed = False

    def alive(self, warps: Array) -> Array:
        alive: Array = self.batch.alive[warps]
        return alive

    def place(self, warps: Array) -> tuple[Array, Array]:
        """The block and the warp in it of warps of the batch."""
        return self.batch.block_of_warp[warps], self.batch.warp_in_block[warps]

    # ---- making and ending -----------------------------------------------------------------------

    def init(self, offset: int, warps: Array, lanes: Array, counts: Array, where: Where) -> None:
        """Lanes `[n, 32]` of n warps make the barrier, with counts `[n, 32]`."""
        barrier = self.at.get(offset) or self._new(offset)
        block, warp = self.place(warps)
        makers = np.bincount(block, weights=lanes.sum(axis=1), minlength=barrier.live.size)
        if (makers > 1).any():
            raise self.objection(barrier, where, "several threads initialise it", warps, lanes)
        if barrier.live[block].any():
            raise self.objection(barrier, where, "it is initialised again", warps, lanes)
        lane = lanes.argmax(axis=1)
        count = np.take_along_axis(counts, lane[:, None], axis=1)[:, 0].astype(np.int64)
        if (count < 1).any() or (count > MOST_COUNT).any():
            problem = f"its count is {int(count.min())}, wants 1 to {MOST_COUNT}"
            raise self.objection(barrier, where, problem, warps, lanes)
        clock = self.shared.clocks.now[block, warp]
        barrier.live[block] = True
        barrier.count[block] = barrier.pending[block] = count
        barrier.bytes[block] = barrier.fence[block] = 0
        barrier.first[block] = barrier.phase[block]
        for told in (*barrier.gathered, *barrier.released):
            told[block] = 0
        of_block = np.isin(self.batch.block_of_warp, block)
        barrier.seen[of_block] = barrier.waited[of_block] = -2
        barrier.maker[block] = np.stack([warp, lane, clock], axis=1)
        barrier.places["init"] = where
        self.shared.opaque[offset] = barrier.live

    def _new(self, offset: int) -> Mbarrier:
        column, narrow = self.shared.agents.barrier()
        if narrow:
            self.shared.clocks.widen()
            columns = self.shared.agents.columns
            for each in self.at.values():
                each.gathered = Vector(*(widened(table, columns) for table in each.gathered))
                each.released = Vector(*(widened(table, columns) for table in each.released))
        blocks, warps = self.batch.block_ids.size, self.batch.capacity
        count, pending, bytes, phase, first, coming, fence = np.zeros((7, blocks), np.int64)
        self.at[offset] = Mbarrier(
            offset, column, np.zeros(blocks, np.bool_), count, pending, bytes, phase, first, coming,
            maker=np.zeros((blocks, 3), np.int64), fence=fence,
            gathered=self._silence(), released=self._silence(),
            seen=np.full((warps, LANES), -2), waited=np.full((warps, 2), -2),
        )  # fmt: skip
        return self.at[offset]

    def _silence(self) -> Vector:
        shape = (self.batch.block_ids.size, self.shared.agents.columns)
        return Vector(np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def inval(self, barrier: Mbarrier, warps: Array, lanes: Array, where: Where) -> None:
        block, _ = self.place(warps)
        if barrier.coming[block].any() or barrier.bytes[block].any():
            raise self.objection(barrier, where, "it ends while bytes are to come", warps, lanes)
        self._check_done(barrier, warps, lanes, where)
        barrier.live[block] = False

    def _check_done(self, barrier: Mbarrier, warps: Array, lanes: Array, where: Where) -> None:
        """Every warp that has waited for the barrier did so before it ends."""
        block, warp = self.place(warps)
        every = np.arange(self.batch.warps_per_block)
        mates = block[:, None] * self.batch.warps_per_block + every
        phase, clock = barrier.waited[mates, 0], barrier.waited[mates, 1]
        lane = lanes.argmax(axis=1)
        column = self.shared.agents.steps + every
        heard = self.shared.clocks.knows(block[:, None], warp[:, None], lane[:, None], column)
        late = (phase >= barrier.first[block][:, None]) & (heard < clock)
        late &= every != warp[:, None]
        if late.any():
            mate = np.argwhere(late)[0][1]
            problem = f"it ends while warp {int(mate)} may still wait for it"
            raise self.objection(barrier, where, problem, warps, lanes)

    def fence_init(self, warps: Array, lanes: Array) -> None:
        """The barriers that these threads initialised may be named in the other proxy."""
        block, warp = self.place(warps)
        clock = self.shared.clocks.now[block, warp]
        for barrier in self.at.values():
            maker = barrier.maker[block]
            mine = barrier.live[block] & (maker[:, 0] == warp)
            mine &= np.take_along_axis(lanes, maker[:, 1:2], axis=1)[:, 0]
            barrier.fence[block[mine]] = clock[mine]

    # ---- use -------------------------------------------------------------------------------------

    def check_use(
        self, barrier: Mbarrier, warps: Array, lanes: Array, where: Where, bulk: bool = False
    ) -> None:
        """The barrier is there, and its making comes before its use by these lanes."""
        block, warp = self.place(warps)
        if not barrier.live[block].all():
            raise self.uninitialised(barrier.offset, warps, lanes, where)
        clocks = self.shared.clocks
        by, lane_by, made = (barrier.maker[block, i][:, None] for i in range(3))
        at = (block[:, None], warp[:, None], np.arange(LANES))
        same = (by == warp[:, None]) & (lane_by == np.arange(LANES))
        spoke = clocks.voice[block[:, None], by] == lane_by
        heard = clocks.knows(*at, clocks.agents.voices + by)
        known = same | (made <= clocks.knows(*at, by)) | spoke & (made <= heard)
        if (lanes & ~known).any():
            problem = "it is used without a barrier after its init by "
            problem += f"warp {int(by[0, 0])}, lane {int(lane_by[0, 0])}"
            raise self.objection(barrier, where, problem, warps, lanes & ~known)
        if not bulk:
            return
        fence = barrier.fence[block][:, None]
        seen = (fence > 0) & (same | (fence <= clocks.knows(*at, by)) | spoke & (fence <= heard))
        seen |= made <= clocks.knows(*at, by, fenced=True)
        seen |= same & (made <= clocks.own_fence[block, warp][:, :LANES])
        if (lanes & ~seen).any():
            problem = (
                "a bulk copy names it without fence.mbarrier_init (or fence.proxy.async) after its "
                "init"
            )
            raise self.objection(barrier, where, problem, warps, lanes & ~seen)

    def expect(self, barrier: Mbarrier, warps: Array, lanes: Array, bytes: Array,
               where: Where) -> None:  # fmt: skip
        """The phase expects bytes `[n]` more."""
        block, _ = self.place(warps)
        np.add.at(barrier.bytes, block, bytes)
        barrier.places["expect"] = where
        if (barrier.bytes > MOST_COUNT).any():
            problem = f"it expects {int(barrier.bytes.max())} bytes, wants at most {MOST_COUNT}"
            raise self.objection(barrier, where, problem, warps, lanes)

    def arrive(self, barrier: Mbarrier, warps: Array, lanes: Array, arrivals: Array,
               where: Where) -> None:  # fmt: skip
        """Lanes `[n, 32]` of n warps arrive, so often in all `[n]`."""
        block, warp = self.place(warps)
        clocks = self.shared.clocks
        told = clocks.tell(block, warp, lanes, self.alive(warps))
        clocks.speak(block, warp, lanes, self.alive(warps))
        self.gather(barrier, block, told, arrivals, where)
        self.complete(barrier, where)

    def gather(
        self, barrier: Mbarrier, block: Array, told: Vector, arrivals: Array, where: Where
    ) -> None:
        np.maximum.at(barrier.gathered.known, block, told.known)
        np.maximum.at(barrier.gathered.fenced, block, told.fenced)
        np.subtract.at(barrier.pending, block, arrivals)
        barrier.places["arrive"] = where
        if (barrier.pending < 0).any():
            bad = int(np.flatnonzero(barrier.pending < 0)[0])
            more = int(barrier.count[bad] - barrier.pending[bad])
            problem = f"{more} arrivals in a phase that counts {int(barrier.count[bad])}"
            raise objection(where, self.problem(barrier, problem), self.block_name(bad))

    def complete(self, barrier: Mbarrier, where: Where) -> None:
        """Phases end in the blocks where all has arrived and all bytes have come."""
        over = barrier.live & (barrier.pending == 0) & (barrier.bytes == 0)
        if not over.any():
            return
        if (early := over & (barrier.coming > 0)).any():
            bad = int(np.flatnonzero(early)[0])
            problem = (
                f"phase {int(barrier.phase[bad])} is complete while {int(barrier.coming[bad])} "
                "bytes that no expect_tx counts are still to come"
            )
            raise objection(where, self.problem(barrier, problem), self.block_name(bad))
        self._check_waiters(barrier, over, where)
        barrier.phase[over] += 1
        barrier.pending[over] = barrier.count[over]
        for gathered, released in zip(barrier.gathered, barrier.released, strict=True):
            released[over] = gathered[over]
            gathered[over] = 0
            released[over, barrier.column] = barrier.phase[over]
        self.changed = True

    def _check_waiters(self, barrier: Mbarrier, over: Array, where: Where) -> None:
        """Who waited for the phase before this one must have seen it: the parity turns back."""
        block, warp = self.batch.block_of_warp, self.batch.warp_in_block
        phase, clock = barrier.waited[:, 0], barrier.waited[:, 1]
        before = over[block] & (phase >= 0) & (phase == barrier.phase[block] - 1)
        if not before.any():
            return
        heard = barrier.gathered.known[block, self.shared.agents.steps + warp]
        missed = before & (heard < clock)
        if missed.any():
            bad = int(np.flatnonzero(missed)[0])
            problem = (
                f"missed phase: phase {int(barrier.phase[block[bad]])} can be complete before "
                f"warp {int(warp[bad])} sees phase {int(phase[bad])}, which has the other parity"
            )
            raise objection(where, self.problem(barrier, problem), self.block_name(block[bad]))

    # ---- words -----------------------------------------------------------------------------------

    def problem(self, barrier: Mbarrier, problem: str) -> str:
        return f"mbarrier at offset {barrier.offset}: {problem}"

    def block_name(self, block: int) -> str:
        return self.batch.name(int(block) * self.batch.warps_per_block).rsplit(", ", 1)[0]

    def objection(
        self, barrier: Mbarrier, where: Where, problem: str, warps: Array, lanes: Array
    ) -> Exception:
        return objection(
            where, self.problem(barrier, problem), self.batch.thread_name(warps, lanes)
        )

    def uninitialised(self, offset: int, warps: Array, lanes: Array, where: Where) -> Exception:
        return objection(
            where,
            f"mbarrier at offset {offset}: nothing has initialised it",
            self.batch.thread_name(warps, lanes),
        )

    def check_end(self) -> None:
        """All blocks are done: no bytes may be to come."""
        for barrier in self.at.values():
            for left, what in ((barrier.coming, "that copies bring"), (barrier.bytes, "expected")):
                if (bad := np.flatnonzero(barrier.live & (left != 0))).size:
                    problem = f"the kernel ends with {int(left[bad[0]])} bytes {what} still to come"
                    place = barrier.places.get("expect") or barrier.places.get("init")
                    name = self.block_name(int(bad[0]))
                    raise objection(place, self.problem(barrier, problem), name)

    def deadlock(self, barrier: Mbarrier, block: int, phase: int, warps: str, where: Where) -> None:
        """Nothing can complete a phase that warps wait for: object."""
        problem = (
            f"deadlock: warps {warps} wait for phase {phase}; {int(barrier.phase[block])} phases "
            f"are complete, the next wants {int(barrier.pending[block])} of "
            f"{int(barrier.count[block])} arrivals and {int(barrier.bytes[block])} bytes more"
        )
        raise objection(where, self.problem(barrier, problem), self.block_name(block))
