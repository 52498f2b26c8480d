"""How boxes that tensor maps describe reach shared memory: cp.async.bulk.tensor.

A copy writes from the moment that it starts as far as races go; its bytes land when a barrier
that waits for them can go on in no other way (landing.py). Rows of a box lie densely, but with a
swizzle each takes as many bytes as the swizzle spans, and what is left of them is not written; the
bytes that a barrier counts are those of the box (seen on an H200, as is that the copy must start
at 16 bytes of its array's row).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..tensor_map import SPAN_BYTES, TensorMap
from .batch import Array, Rows
from .global_buffer import GlobalBuffer
from .global_memory import GlobalMemory
from .landing import Flight
from .mbarrier_access import MbarrierAccess
from .mbarriers import Mbarrier
from .params import Params
from .races import Copying
from .shared_memory import BASE, ROW_BYTES, SharedMemory
from .where import Where, objection

# which address bits the XOR takes, and how many: (bits from 4 ^= as many bits from 7)
SWIZZLE_BITS = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


class TensorAccess:
    """One instruction's view of the maps; `rows` and `active` are set before each use."""

    def __init__(
        self, memory: GlobalMemory, shared: SharedMemory, params: Params,
        barriers: MbarrierAccess, where: Where,
    ) -> None:  # fmt: skip
        self.memory = memory
        self.shared = shared
        self.params = params
        self.barriers = barriers
        self.where = where
        self.rows: Rows = shared.batch.everyone
        self.active: Array | None = None
        self.place_number = shared.races.place(where) if shared.races else 0

    def generic(self, address: Array) -> Array:
        return self.params.generic(address)

    def prefetch(self, map: Array) -> None:
        self.barriers.rows, self.barriers.active = self.rows, self.active
        for _ in self._maps(map):
            pass

    def load(self, to: Array, map: Array, at: Array, barrier: Array) -> None:
        access = self.barriers
        access.rows, access.active = self.rows, self.active
        running, _ = access.running()
        coordinates = at if at.ndim == 3 else at[..., None]
        for found, of_map in self._maps(map):
            for each, warps, lanes in access.used(barrier):
                rows = np.searchsorted(running, warps)
                chosen = lanes & of_map[rows]
                if not chosen.any():
                    continue
                access.barriers.check_use(each, warps, chosen, self.where, bulk=True)
                row, lane = np.nonzero(chosen)
                first = np.broadcast_to(to, of_map.shape)[rows][row, lane].astype(np.int64) - BASE
                origin = np.broadcast_to(coordinates, (*of_map.shape, coordinates.shape[-1]))
                self._start(found, each, warps[row], lane, first, origin[rows][row, lane])

    def _maps(self, address: Array) -> Iterator[tuple[TensorMap, Array]]:
        """The maps that lanes name, and which lanes `[rows, 32]` name each."""
        warps, lanes = self.barriers.running()
        addresses = np.broadcast_to(address, lanes.shape)
        for each in np.unique(addresses[lanes]):
            chosen = lanes & (addresses == each)
            found = self.params.map_at(int(each))
            if found is None:
                raise objection(
                    self.where,
                    f"got address {int(each):#x}, wants the generic address of a tensor map "
                    "(mov.b64 of the parameter, then cvta.param.u64)",
                    self.shared.batch.thread_name(warps, chosen),
                )
            yield found, chosen

    def _start(
        self, map: TensorMap, barrier: Mbarrier, warps: Array, lanes: Array, first: Array,
        origin: Array,
    ) -> None:  # fmt: skip
        """Copies of `n` threads start: their offsets `[n]` and coordinates `[n, rank]`."""
        shared = self.shared
        batch = shared.batch
        self._check(map, warps, lanes, first, origin)
        block = batch.block_of_warp[warps]
        values = self._read(map, origin, warps, lanes)
        chunks = self._chunks(map, first) + (block * shared.stride)[:, None]
        if shared.races:
            cells = shared.races.cells(chunks, ROW_BYTES)
            cells = cells.reshape(len(cells), 1, -1)
            agent = np.full(len(warps), barrier.column)
            clock = barrier.phase[block] + 1
            for lane in np.unique(lanes):
                mine = lanes == lane
                shared.races.check_write(
                    cells[mine], warps[mine], None, np.array([lane]), self.where,
                    self.place_number, Copying(agent[mine], clock[mine], bulk=True),
                )  # fmt: skip
        np.add.at(barrier.coming, block, map.box_bytes)
        shared.counts.tma_copies += len(warps)
        shared.counts.tma_bytes += len(warps) * map.box_bytes
        phase, place = barrier.phase[block], chunks // ROW_BYTES

        def land() -> None:
            self._land(map, barrier, block, phase, place, values)

        self.barriers.flights.start(Flight(barrier, self.where, land))

    def _check(
        self, map: TensorMap, warps: Array, lanes: Array, first: Array, origin: Array
    ) -> None:
        rank, aligned = origin.shape[1], map.shared_alignment_bytes
        held_bytes = map.box_bytes // map.inner_bytes * _pitch_bytes(map)
        outside = (first < 0) | (first + held_bytes > self.shared.size_bytes)
        inner = origin[:, 0].astype(np.int64) * map.dtype.size_bytes
        problems = (
            (outside, f"out of bounds of the block's {self.shared.size_bytes} shared bytes"),
            (first % aligned != 0, f"misaligned, wants a multiple of {aligned} ({map})"),
            (np.full(len(first), rank != map.rank), f"rank {rank} for a map of rank {map.rank}"),
            (
                inner % ROW_BYTES != 0,
                f"coordinate 0 is {int(origin[0, 0])}, wants a multiple of 16 bytes",
            ),
        )
        for wrong, problem in problems:
            if wrong.any():
                bad = int(np.flatnonzero(wrong)[0])
                raise objection(
                    self.where,
                    f"copy of {held_bytes} bytes to shared offset {int(first[bad])}: {problem}",
                    self.shared.batch.name(int(warps[bad]), int(lanes[bad])),
                )
        for at, there in self.shared.opaque.items():
            over = (first < at + 8) & (first + held_bytes > at)
            if (over & there[self.shared.batch.block_of_warp[warps]]).any():
                raise objection(self.where, f"the copy overwrites the mbarrier at offset {at}")

    @staticmethod
    def _chunks(map: TensorMap, first: Array) -> Array:
        """Where each 16 bytes of the box go, `[n, chunks]`: an XOR of absolute address bits."""
        rows = np.arange(map.box_bytes // map.inner_bytes) * _pitch_bytes(map)
        within = rows[:, None] + np.arange(0, map.inner_bytes, ROW_BYTES)
        linear = first[:, None] + within.reshape(-1)
        mask = (1 << SWIZZLE_BITS[map.swizzle]) - 1
        swizzled: Array = linear ^ (((linear + BASE) >> 7 & mask) << 4)
        return swizzled

    def _read(self, map: TensorMap, origin: Array, warps: Array, lanes: Array) -> Array:
        """The boxes' bytes in their order, `[n, chunks, 16]`; zeros past the array's edges."""
        buffer = self.memory.buffers[map.buffer]
        size = map.dtype.size_bytes
        n = len(origin)
        offset = np.zeros((n, 1), np.int64)
        inside = np.ones((n, 1), np.bool_)
        for axis in reversed(range(map.rank)):  # outermost first: dimension 0 varies fastest
            index = origin[:, axis, None].astype(np.int64) + np.arange(map.box[axis])
            stride = size if axis == 0 else map.strides_bytes[axis - 1]
            offset = (offset[:, :, None] + (index * stride)[:, None, :]).reshape(n, -1)
            valid = (index >= 0) & (index < map.sizes[axis])
            inside = (inside[:, :, None] & valid[:, None, :]).reshape(n, -1)
        everywhere = bool(inside.all())
        where_ = offset if everywhere else np.where(inside, offset, 0)
        thread = self.shared.batch.name(int(warps[0]), int(lanes[0]))
        self._check_bounds(map, buffer, where_, inside, thread)
        self._check_read(buffer, where_, inside, size, warps)
        elements = buffer.elements(np.dtype(f"u{size}"), 1)[where_ // size]
        if not everywhere:
            elements = np.where(inside, elements, elements.dtype.type(0))
        values: Array = np.ascontiguousarray(elements).view(np.uint8).reshape(n, -1, ROW_BYTES)
        return values

    def _check_bounds(
        self, map: TensorMap, buffer: GlobalBuffer, offsets: Array, inside: Array, thread: str
    ) -> None:
        """The map's tensor starts at 16 bytes, and lies within the buffer's elements."""
        size = map.dtype.size_bytes
        if buffer.lead_bytes:
            raise objection(
                self.where,
                f"misaligned: {map} starts {buffer.lead_bytes} bytes past a multiple of 16",
                thread,
            )
        if int(offsets.max()) + size > buffer.size_bytes or int(offsets.min()) < 0:
            raise objection(
                self.where,
                f"out of bounds: {map} reaches byte {int(offsets.max()) + size} of buffer "
                f"{map.buffer!r}, which has {buffer.size_bytes}",
                thread,
            )
        strays = buffer.strays(offsets, size)
        if strays is not None and (strays & inside).any():
            place = buffer.place(int(offsets[strays & inside][0]))
            problem = f"out of the tensor, between its elements: {map} reads {place}"
            raise objection(self.where, problem, thread)

    def _check_read(
        self, buffer: GlobalBuffer, offsets: Array, inside: Array, size: int, warps: Array
    ) -> None:
        """The array's elements have been written, and by no other block of this launch."""
        if buffer.written is not None:
            held = buffer.written.read(offsets + (size - 1)) != 0
            if (inside & ~held).any():
                at = int(offsets[inside & ~held][0])
                problem = f"read of byte {at} of buffer {buffer.name!r}, which nothing has written"
                raise objection(self.where, problem)
        races = self.memory.races
        races.read(buffer, offsets, size, warps, inside, "bulk copy", self.where)

    def _land(
        self, map: TensorMap, barrier: Mbarrier, block: Array, phase: Array, place: Array,
        values: Array,
    ) -> None:  # fmt: skip
        for array, given in ((self.shared.data, values), (self.shared.written, 1)):
            usable = len(array) // ROW_BYTES * ROW_BYTES
            array[:usable].reshape(-1, ROW_BYTES)[place] = given
        np.subtract.at(barrier.coming, block, map.box_bytes)
        np.subtract.at(barrier.bytes, block, map.box_bytes)
        late = barrier.phase[block] != phase
        assert not late.any(), "a phase with bytes to come is not complete"
        self.barriers.barriers.complete(barrier, self.where)


def _pitch_bytes(map: TensorMap) -> int:
    """From a row of the box to the next in shared memory."""
    return SPAN_BYTES.get(map.swizzle, map.inner_bytes)
