"""In which order warps run: the group at the earliest block first, so that lanes meet again.

A group is warps (and of them, lanes) that are at the start of one block. Groups at the same
block merge; the one whose block stands first in the text runs. So lanes that diverge reconverge
at the first common block, and warps that agree run in lockstep as one numpy call. With a seed, an
entry whose warps wait for each other by mbarriers has some of its warps lag behind at random, and
one whose blocks meet at atomics some of its blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from ..codegen.targets import Limits
from ..errors import SimulationError
from .barriers import Barriers
from .batch import LANES, Array, Batch, Rows
from .counters import LaunchCounts
from .decode import Decoder, Step, holds
from .exchange import check_whole_warps
from .flow import Block, retries
from .operands import Constant, Source
from .waits import Wait
from .where import objection

Group = tuple[Rows, "Array | None"]
Trace = Callable[[str], None]


class Scheduler:
    """Runs a decoded entry for one batch of blocks after another."""

    def __init__(
        self, batch: Batch, blocks: list[Block], decoder: Decoder, limits: Limits,
        counts: LaunchCounts, instruction_limit: int, trace: Trace | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:  # fmt: skip
        self.batch = batch
        self.blocks = blocks
        self.decoder = decoder
        self.steps: list[list[Step]] = decoder.steps(blocks)
        self.counts = counts
        self.left = instruction_limit
        self.trace = trace
        self.limits = limits
        self.barriers = self._new_barriers()
        self.ready: dict[int, list[Group]] = {}
        self.executed: Counter[int] = Counter()
        self.barrier_operands = {
            block.index: self._barrier_operands(block)
            for block in blocks
            if block.end and block.end[0].row.flow in ("barrier", "arrive")
        }
        self.waits = decoder.waits
        self.wait_of = {
            block.index: self._wait_of(block)
            for block in blocks
            if block.end and block.end[0].row.flow == "wait"
        }
        self.blocks_meet = any(
            instruction.row.counter == "atomic"
            for block in blocks
            for instruction, _ in block.instructions()
        )
        waits = self.wait_of or decoder.shared.agents.meetings or self.blocks_meet
        self.rng = rng if waits else None
        self.lagging = np.zeros(batch.capacity, np.bool_)

    def run(self) -> None:
        """Run the batch's blocks from entry to exit."""
        batch = self.batch
        self.decoder.reset()
        self.barriers = self._new_barriers()
        self.counts.warps += batch.warps
        self._add(0, batch.everyone, None if batch.whole else batch.alive[batch.everyone])
        while (found := self._next()) is not None:
            index, (rows, active) = found
            self._run_block(self.blocks[index], rows, active)
            if self.waits.mbarriers.changed and self.waits.parked:
                self._wake()
        if self.waits.parked:
            self.waits.deadlock(self.wait_of)
        if self.barriers.waiting().any():
            self.barriers.deadlock()
        self.waits.check_end()

    def _next(self) -> tuple[int, Group] | None:
        """The group to run, taken from those that are ready; None if nothing can run any more."""
        if self.rng is None and not self.waits.parked:
            if not self.ready:
                return None
            index = min(self.ready)
            return index, self._merge(self.ready.pop(index))
        if self.rng is not None and self.rng.random() < 0.1:
            self.lagging = self._laggards(self.rng)
        found = self._take()
        if found is None and self.lagging.any():
            self.lagging[:] = False
            found = self._take()
        if found is not None or self._let_land():
            return found or self._next()
        return self._run_ahead() if self.ready else None

    def _laggards(self, rng: np.random.Generator) -> Array:
        """Some warps of every block; where blocks meet at atomics, all warps of some."""
        batch = self.batch
        of, count = batch.warp_in_block, batch.warps_per_block
        if self.blocks_meet and rng.random() < 0.5:
            of, count = batch.block_of_warp, len(batch.block_ids)
        some: Array = rng.random(count) < rng.random()
        return some[of]

    def _take(self) -> tuple[int, Group] | None:
        """The first group, less the warps that lag and those that hold.

        Lanes hold while others of their warp wait at an earlier block: there they meet again.
        """
        behind = self.waits.earliest()
        for index in sorted(self.ready):
            rows, active = self._merge(self.ready.pop(index))
            late = self.lagging[rows] | (behind[rows] < index)
            if not late.any():
                return index, (rows, active)
            lanes = np.broadcast_to(True if active is None else active, (len(late), LANES))
            now, later = (self._part(rows, lanes & each[:, None]) for each in (~late, late))
            self._add(index, *later)
            if len(self.batch.block_of_warp[now[0]]):
                return index, now
        return None

    def _run_ahead(self) -> tuple[int, Group] | None:
        """Lanes that hold go on without those that they hold for, since nothing else can."""
        index = min(self.ready)
        rows, active = self._merge(self.ready.pop(index))
        try:
            self._run_block(self.blocks[index], rows, active)
        except SimulationError:
            self.waits.deadlock(self.wait_of)
            raise
        if self.waits.mbarriers.changed:
            self._wake()
        return self._next()

    def _let_land(self) -> bool:
        """Whether something that lanes wait for lands and makes some of them ready."""
        while self.waits.parked and self.waits.land(self.wait_of):
            if self.waits.mbarriers.changed and self._wake():
                return True
        return False

    def count(self) -> None:
        """Add what has run to the counts, by instruction row."""
        for index, times in self.executed.items():
            for instruction, _ in self.blocks[index].instructions():
                self.counts.rows[instruction.row.name] += times
        self.executed.clear()

    def _new_barriers(self) -> Barriers:
        return Barriers(self.batch, self.decoder.shared.clocks_of, self.limits.barriers)

    def _add(self, index: int, rows: Rows, active: Array | None) -> None:
        self.ready.setdefault(index, []).append((rows, active))

    def _merge(self, groups: list[Group]) -> Group:
        if len(groups) == 1:
            return groups[0]
        batch = self.batch
        lanes = np.zeros(batch.alive.shape, np.bool_)
        for rows, active in groups:
            if active is None:
                lanes[rows] = True
            else:
                lanes[rows] |= active
        return self._group(lanes)

    def _group(self, lanes: Array) -> Group:
        """The group of the lanes that are True in `[capacity, 32]`."""
        rows = self.batch.rows_of(np.asarray(lanes.any(axis=1)))
        active = lanes[rows]
        return rows, None if active.all() else active

    def _run_block(self, block: Block, rows: Rows, active: Array | None) -> None:
        if self.trace:
            self._show(self.trace, block, rows, active)
        steps = self.steps[block.index]
        for step in steps:
            step(rows, active)
        warps = len(self.batch.block_of_warp[rows])
        self.executed[block.index] += warps
        self.counts.steps += len(steps) + 1
        self.left -= len(steps) + 1
        if self.left < 0:
            where = block.instructions()[0][1] if block.instructions() else None
            raise objection(where, "instruction limit passed: does the loop end?")
        flow = block.end[0].row.flow if block.end else ""
        if flow == "branch":
            self._branch(block, rows, active)
        elif flow == "exit":
            self._exit(block, rows, active)
        elif flow in ("barrier", "arrive"):
            self._barrier(block, rows, active)
        elif flow == "wait":
            self._wait(block, rows, active)
        elif block.index + 1 < len(self.blocks):
            self._add(block.index + 1, rows, active)
        else:
            self._retire(rows, active)

    def _show(self, trace: Trace, block: Block, rows: Rows, active: Array | None) -> None:
        warps = len(self.batch.block_of_warp[rows])
        lanes = warps * LANES if active is None else int(np.count_nonzero(active))
        for _, where in block.instructions():
            trace(f"line {where.line}, {warps} warps, {lanes} lanes: {where.text}")

    def _split(self, block: Block, rows: Rows, active: Array | None) -> tuple[Group, Group]:
        """Lanes for which the block's last instruction holds, and the others."""
        assert block.end is not None
        guard = block.end[0].guard
        none: Group = (slice(0, 0), None)
        if guard is None:
            return (rows, active), none
        lanes = holds(self.decoder.predicate(guard), guard.negated, rows, active)
        lanes = lanes.copy()  # they go on when the predicate is written again
        others = ~lanes if active is None else active & ~lanes
        if not others.any():
            return (rows, active), none
        if not lanes.any():
            return none, (rows, active)
        return self._part(rows, lanes), self._part(rows, others)

    def _part(self, rows: Rows, lanes: Array) -> Group:
        chosen = lanes.any(axis=1)
        if chosen.all():
            return rows, None if lanes.all() else lanes
        warps = np.arange(self.batch.capacity)[rows][chosen]
        full = np.zeros(self.batch.capacity, np.bool_)
        full[warps] = True
        active = lanes[chosen]
        return self.batch.rows_of(full), None if active.all() else active

    def _branch(self, block: Block, rows: Rows, active: Array | None) -> None:
        assert block.end is not None
        assert block.target is not None
        self._check_end(block, rows, active)
        instruction, where = block.end
        taken, passed = self._split(block, rows, active)
        if instruction.row.collective:
            for group in (taken, passed):
                check_whole_warps(self.batch, where, *group, every_lane=False)
        for index, (rows, active) in ((block.target, taken), (block.index + 1, passed)):
            if len(self.batch.block_of_warp[rows]):
                if index < len(self.blocks):
                    self._add(index, rows, active)
                else:
                    self._retire(rows, active)

    def _exit(self, block: Block, rows: Rows, active: Array | None) -> None:
        self._check_end(block, rows, active)
        leaving, staying = self._split(block, rows, active)
        self._retire(*leaving)
        if len(self.batch.block_of_warp[staying[0]]):
            if block.index + 1 < len(self.blocks):
                self._add(block.index + 1, *staying)
            else:
                self._retire(*staying)

    def _retire(self, rows: Rows, active: Array | None) -> None:
        if active is None:
            self.batch.alive[rows] = False
        else:
            self.batch.alive[rows] &= ~active

    def _barrier(self, block: Block, rows: Rows, active: Array | None) -> None:
        assert block.end is not None
        instruction, where = block.end
        if instruction.guard is not None:
            raise objection(where, "a barrier under a guard: branch around it instead")
        self._check_end(block, rows, active)
        check_whole_warps(self.batch, where, rows, active, every_lane=False)
        number, threads = self.barrier_operands[block.index]
        waits = instruction.row.flow == "barrier"
        self.counts.barrier_waits += len(self.batch.block_of_warp[rows]) if waits else 0
        for after, free in self.barriers.arrive(
            rows, number[rows], threads[rows], block.index + 1, where, waits
        ):
            self._go(after, *self._group(self.batch.alive & free[:, None]))
        if not waits:
            self._go(block.index + 1, rows, active)

    def _go(self, index: int, rows: Rows, active: Array | None) -> None:
        """Warps go on at a block, or are done where the text ends."""
        if index < len(self.blocks):
            self._add(index, rows, active)
        else:
            self._retire(rows, active)

    def _wait_of(self, block: Block) -> Wait:
        assert block.end is not None
        instruction, where = block.end
        parks = "try_wait" in instruction.row.mnemonic and retries(self.blocks, block)
        return Wait(
            where,
            self.decoder.evaluation(instruction, where),
            self.decoder.value(instruction, "a"),
            self.decoder.value(instruction, "parity"),
            parks,
        )

    def _wait(self, block: Block, rows: Rows, active: Array | None) -> None:
        assert block.end is not None
        instruction, where = block.end
        if instruction.guard is not None:
            raise objection(where, "a wait under a guard: branch around it instead")
        self._check_end(block, rows, active)
        self.counts.mbarrier_waits += len(self.batch.block_of_warp[rows])
        wait = self.wait_of[block.index]
        for lanes, told in zip(self.waits.ask(block.index, wait, rows, active), (True, False),
                               strict=True):  # fmt: skip
            self._answer(block, *self._part(rows, lanes), told)

    def _answer(self, block: Block, rows: Rows, active: Array | None, told: bool) -> None:
        """Lanes go on after a wait that told them whether the phase is complete."""
        if not len(self.batch.block_of_warp[rows]):
            return
        assert block.end is not None
        self.decoder.assign(block.end[0], rows, active, np.bool_(told))
        self._go(block.index + 1, rows, active)

    def _wake(self) -> bool:
        """Lanes whose wait is over go on; whether there are any."""
        woken = self.waits.wake(self.wait_of)
        for index, lanes in woken:
            self._answer(self.blocks[index], *self._group(lanes), True)
        return bool(woken)

    def _barrier_operands(self, block: Block) -> tuple[Source, Source]:
        assert block.end is not None
        instruction, _ = block.end
        number = self.decoder.value(instruction, "a")
        if "b" in instruction.operands:
            return number, self.decoder.value(instruction, "b")
        return number, Constant(np.uint32(self.batch.warps_per_block * 32))

    def _check_end(self, block: Block, rows: Rows, active: Array | None) -> None:
        """The block's last instruction reads only registers that hold a value."""
        unsure = block.unsure.get(len(block.body))
        if unsure and block.end:
            self.decoder.checking(lambda rows, active: None, unsure, None, block.end[1])(
                rows, active
            )
