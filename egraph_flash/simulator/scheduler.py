"""In which order warps run: the group at the earliest block first, so that lanes meet again.

A group is warps (and of them, lanes) that are at the start of one block. Groups at the same
block merge; the one whose block stands first in the text runs. So lanes that diverge reconverge
at the first common block, and warps that agree run in lockstep as one numpy call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from ..codegen.targets import Limits
from .barriers import Barriers
from .batch import LANES, Array, Batch, Rows
from .counters import LaunchCounts
from .decode import Decoder, Step, holds
from .exchange import check_whole_warps
from .flow import Block
from .operands import Constant, Source
from .where import objection

Group = tuple[Rows, "Array | None"]
Trace = Callable[[str], None]


class Scheduler:
    """Runs a decoded entry for one batch of blocks after another."""

    def __init__(
        self, batch: Batch, blocks: list[Block], decoder: Decoder, limits: Limits,
        counts: LaunchCounts, instruction_limit: int, trace: Trace | None = None,
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
            if block.end and block.end[0].row.flow == "barrier"
        }

    def run(self) -> None:
        """Run the batch's blocks from entry to exit."""
        batch = self.batch
        self.decoder.reset()
        self.barriers = self._new_barriers()
        self.counts.warps += batch.warps
        self._add(0, batch.everyone, None if batch.whole else batch.alive[batch.everyone])
        while self.ready:
            index = min(self.ready)
            rows, active = self._merge(self.ready.pop(index))
            self._run_block(self.blocks[index], rows, active)
            if not self.ready and self.barriers.waiting().any():
                self.barriers.deadlock()

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
        elif flow == "barrier":
            self._barrier(block, rows, active)
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
        self.counts.barrier_waits += len(self.batch.block_of_warp[rows])
        for after, free in self.barriers.arrive(
            rows, number[rows], threads[rows], block.index + 1, where
        ):
            lanes = self.batch.alive & free[:, None]
            if after < len(self.blocks):
                self._add(after, *self._group(lanes))
            else:
                self._retire(*self._group(lanes))

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
