"""When a thread's cp.async land in shared memory: as late as the waits of the program permit.

Each warp numbers its commits. A copy carries the number that is open when it starts; a lane that
waits knows up to which number its own copies are complete, and they land then. `history[i]` is
the number that a lane's i-th latest group had when it was committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..codegen.ptx import Entry, Immediate
from .banks import sectors_of
from .batch import LANES, Array, Batch, Rows
from .global_memory import GlobalAccess
from .races import Copying
from .shared_memory import SharedAccess, SharedMemory
from .where import Where, objection


def deepest_wait(entry: Entry) -> int:
    """The most groups that a cp.async.wait_group of the entry leaves open."""
    depths = [0]
    for instruction in entry.instructions():
        if instruction.row.name == "cp_async_wait_group":
            (groups,) = instruction.operands["n"]
            assert isinstance(groups, Immediate)
            depths.append(int(groups.value))
    return max(depths)


@dataclass
class Pending:
    """Copies of one instruction that have not landed: of `lanes` `[n, 32]` of n warps."""

    where: Where
    warps: Array  # [n]
    number: Array  # [n]
    lanes: Array
    place: Array  # [n, 32] in pieces of `values.shape[-1]` bytes
    values: Array  # [n, 32, bytes]


class CopyGroups:
    """The groups of cp.async of a batch's threads."""

    def __init__(self, batch: Batch, shared: SharedMemory, depth: int) -> None:
        self.batch = batch
        self.shared = shared
        shape = (batch.capacity, LANES)
        self.open = np.ones(batch.capacity, np.int64)
        self.last = np.zeros(shape, np.int64)  # the number of a lane's latest copy
        self.done = np.zeros(shape, np.int64)
        self.history = np.zeros((depth + 1, *shape), np.int64)
        self.pending: list[Pending] = []

    def reset(self) -> None:
        self.open[:] = 1
        for each in (self.last, self.done, self.history):
            each[:] = 0
        self.pending.clear()
        self.shared.clocks.copied = self.settled
        if self.shared.races:
            self.shared.races.copied_lanes = self.done

    def settled(self) -> Array:
        """For each warp, up to which number all of its lanes have waited for their copies."""
        settled: Array = self._settled(self.done).min(axis=1)
        return settled

    def _settled(self, done: Array) -> Array:
        return np.where(self.last > done, done, self.open[:, None] - 1)

    def start(self, rows: Rows, active: Array | None, pending: Pending) -> None:
        number = self.open[rows][:, None]
        self.last[rows] = number if active is None else np.where(active, number, self.last[rows])
        self.pending.append(pending)

    def commit(self, rows: Rows, active: Array | None) -> None:
        held = self.history[:, rows]
        number = np.broadcast_to(self.open[rows][:, None], held.shape[1:])
        shifted = np.concatenate([number[None], held[:-1]])
        self.history[:, rows] = shifted if active is None else np.where(active, shifted, held)
        self.open[rows] += 1

    def wait(self, rows: Rows, active: Array | None, groups: int) -> None:
        complete = np.maximum(self.done[rows], self.history[groups, rows])
        self.done[rows] = (
            complete if active is None else np.where(active, complete, self.done[rows])
        )
        if self.pending:
            self.land(self.done)

    def close(self, rows: Rows, active: Array | None) -> tuple[Array, Array]:
        """Ask for all copies that lanes have started: their numbers `[n, 32]`, 0 for the others;
        and, for each warp, up to which number all of its copies will then be complete."""
        number = np.broadcast_to(self.open[rows][:, None], (len(self.open[rows]), LANES))
        self.open[rows] += 1
        upto = number if active is None else np.where(active, number, 0)
        settled = np.where(upto > 0, upto, self._settled(self.done)[rows])
        settled = np.where(self.batch.alive[rows], settled, number)
        return upto, settled.min(axis=1)

    def land(self, upto: Array) -> None:
        """Copies of numbers up to `[capacity, 32]` land."""
        left = []
        for each in self.pending:
            due = each.lanes & (each.number[:, None] <= upto[each.warps])
            if due.any():
                self._write(each, due)
                each.lanes = each.lanes & ~due
            if each.lanes.any():
                left.append(each)
        self.pending = left

    def _write(self, each: Pending, due: Array) -> None:
        size = each.values.shape[-1]
        for array, values in ((self.shared.data, each.values[due]), (self.shared.written, 1)):
            usable = len(array) // size * size
            array[:usable].reshape(-1, size)[each.place[due]] = values

    def check_end(self) -> None:
        """All blocks are done: so must be their copies."""
        for each in self.pending:
            row = int(np.flatnonzero(each.lanes.any(axis=1))[0])
            lane = int(np.flatnonzero(each.lanes[row])[0])
            raise objection(
                each.where,
                "the kernel ends before a wait for an asynchronous copy",
                self.batch.name(int(each.warps[row]), lane),
            )


class CopyAccess:
    """One instruction's view of the copies; `rows` and `active` are set before each use."""

    def __init__(
        self, groups: CopyGroups, where: Where, source: GlobalAccess | None,
        piece: GlobalAccess | None, to: SharedAccess | None,
    ) -> None:  # fmt: skip
        self.groups = groups
        self.where = where
        self.source = source
        self.piece = piece  # of single bytes, for copies of which some are zeros
        self.to = to
        self.rows: Rows = groups.batch.everyone
        self.active: Array | None = None

    def copy(self, to: Array, source: Array, given_bytes: Array | None) -> None:
        assert self.to is not None
        groups, rows = self.groups, self.rows
        warps = np.arange(groups.batch.capacity)[rows]
        active = np.ones((warps.size, LANES), np.bool_) if self.active is None else self.active
        values = self._read(source, active, given_bytes)
        shared = groups.shared
        self.to.rows, self.to.active, self.to.source = rows, self.active, source
        agent = shared.agents.copies + groups.batch.warp_in_block[rows]
        number = groups.open[rows].copy()
        place = self.to.start_copy(to, Copying(agent, number))
        groups.start(rows, self.active, Pending(self.where, warps, number, active, place, values))
        shared.counts.copies += int(np.count_nonzero(active))

    def _read(self, source: Array, active: Array, given_bytes: Array | None) -> Array:
        """The bytes to copy, `[warps, 32, size]`."""
        assert self.to is not None
        size = self.to.size_bytes
        values = np.zeros((*active.shape, size), np.uint8)
        given = np.broadcast_to(size if given_bytes is None else given_bytes, active.shape)
        if given_bytes is not None and (active & (given > size)).any():
            raise objection(self.where, f"source size {int(given.max())}, wants at most {size}")
        for access, lanes, at, element in self._pieces(active, given, size):
            access.rows, access.active = self.rows, None if lanes.all() else lanes
            count = access.size_bytes // element.itemsize
            found = access.load(source + np.uint64(at), element, count)
            found = np.ascontiguousarray(found).view(np.uint8).reshape(*active.shape, -1)
            values[..., at : at + access.size_bytes][lanes] = found[lanes]
        counts, reads = self.groups.shared.counts, active & (given > 0)
        counts.global_bytes_read += int(given[reads].sum())
        counts.global_sectors_read += sectors_of(source, reads)
        return values

    def _pieces(
        self, active: Array, given: Array, size: int
    ) -> Iterable[tuple[GlobalAccess, Array, int, np.dtype[np.unsignedinteger]]]:
        """The accesses that a copy is made of: one of its size, or byte by byte up to a bound."""
        assert self.source is not None
        whole = active & (given == size)
        if whole.any():
            yield self.source, whole, 0, np.dtype(np.uint32)
        part = active & (given < size)
        if self.piece is not None and part.any():
            for at in range(int(np.max(given, initial=0, where=part))):
                yield self.piece, part & (given > at), at, np.dtype(np.uint8)

    def commit(self) -> None:
        self.groups.commit(self.rows, self.active)

    def wait(self, groups: Array) -> None:
        self.groups.wait(self.rows, self.active, int(groups))

    def wait_all(self) -> None:
        self.commit()
        self.groups.wait(self.rows, self.active, 0)
