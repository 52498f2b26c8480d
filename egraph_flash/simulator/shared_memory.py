"""What shared memory holds: one arena of bytes a block, which of them are written, who races."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..codegen.ptx import Entry, Module
from ..errors import SimulationError
from .agents import Agents
from .banks import LINE_BYTES, copied_wavefronts, phases_of, wavefronts_of
from .batch import LANES, Array, Batch, Rows
from .clocks import Clocks
from .counters import LaunchCounts, SharedTraffic
from .races import ANY_LANE, Copying, RaceLog
from .where import Where, objection

BASE = 1024  # the first bytes of the window belong to the system (as on the hardware)
ROW_BYTES = 16
LANE = np.arange(LANES)


class SharedLayout:
    """Where a module's shared arrays lie, given the launch's dynamic bytes."""

    def __init__(self, module: Module, dynamic_bytes: int) -> None:
        self.addresses: dict[str, int] = {}
        end = BASE
        dynamic_last = sorted(module.shared, key=lambda array: array.size_bytes is None)
        for array in dynamic_last:
            end = -(-end // array.align_bytes) * array.align_bytes
            self.addresses[array.name] = end
            end += dynamic_bytes if array.size_bytes is None else array.size_bytes
        has_dynamic = any(array.size_bytes is None for array in module.shared)
        if dynamic_bytes and not has_dynamic:
            raise SimulationError(
                f"launch: got {dynamic_bytes} dynamic shared bytes, but the module declares no "
                ".extern .shared array"
            )
        self.size_bytes = end - BASE


def cell_bytes_of(entries: Iterable[Entry]) -> int:
    """The largest piece of shared memory that every access is a whole number of."""
    sizes = [
        instruction.row.access_bytes
        for entry in entries
        for instruction in entry.instructions()
        if instruction.row.counter in ("lsu_shared", "copy", "tma") and instruction.row.access_bytes
    ]
    return math.gcd(*sizes) if sizes else ROW_BYTES


class SharedMemory:
    """The shared memory of a batch's blocks."""

    def __init__(
        self, batch: Batch, layout: SharedLayout, cell_bytes: int, counts: LaunchCounts,
        check_races: bool, agents: Agents,
    ) -> None:  # fmt: skip
        self.batch = batch
        self.agents = agents
        self.size_bytes = layout.size_bytes
        self.stride = -(-max(layout.size_bytes, 1) // ROW_BYTES) * ROW_BYTES
        blocks = batch.block_ids.size
        self.data = np.zeros(blocks * self.stride, np.uint8)
        self.written = np.zeros(blocks * self.stride, np.uint8)
        self.counts = counts
        self.clocks = Clocks(blocks, agents)
        self.opaque: dict[int, Array] = {}  # offsets of mbarriers: True for blocks that have one
        self.races: RaceLog | None = None
        if check_races:
            cells = self.stride // cell_bytes
            self.races = RaceLog(batch, self.clocks, cells, cell_bytes)

    def clocks_of(self) -> Clocks:
        """The clocks of the blocks that run now."""
        return self.clocks

    def reset(self) -> None:
        """Forget everything: new blocks start."""
        self.written[:] = 0
        self.agents.reset()
        self.clocks = Clocks(self.batch.warps // self.batch.warps_per_block, self.agents)
        if self.races:
            self.races.reset()
            self.races.clocks = self.clocks


class SharedAccess:
    """One instruction's view of shared memory; `rows` and `active` are set before each use."""

    def __init__(
        self, memory: SharedMemory, where: Where, size_bytes: int, copies: bool = False
    ) -> None:
        self.memory = memory
        self.where = where
        self.size_bytes = size_bytes
        self.copies = copies
        self.rows: Rows = memory.batch.everyone
        self.active: Array | None = None
        self.place_number = memory.races.place(where) if memory.races else 0
        self.source: Array | None = None  # where an asynchronous copy comes from, in global memory
        self.demand: dict[bytes, tuple[int, int]] = {}
        self.traffic = memory.counts.shared.setdefault(
            where.line, SharedTraffic(where.line, where.text)
        )

    def load(self, address: Array, element: np.dtype[Any], count: int) -> Array:
        flat = self.place(address, self.active)
        if self.memory.races:
            cells = self.memory.races.cells(flat, self.size_bytes)
            self.memory.races.check_read(cells, self.rows, self.active, LANE, self.where)
        self._check_written(flat, self.active)
        found: Array = _elements(self.memory.data, element, count)[flat // self.size_bytes]
        return found

    def store(self, address: Array, values: Any, count: int) -> None:
        active = self.active
        flat = self.place(address, active)
        if self.memory.races:
            cells = self.memory.races.cells(flat, self.size_bytes)
            self.memory.races.check_write(
                cells, self.rows, active, LANE, self.where, self.place_number
            )
        values = np.asarray(values)
        shape = flat.shape if count == 1 else (*flat.shape, count)
        values = np.broadcast_to(values, shape)
        place = flat // self.size_bytes
        if active is not None:
            place, values = place[active], values[active]
        data = _elements(self.memory.data, values.dtype, count)
        data[place] = values
        self._check_lost(data[place], values, place)
        _bytes_of(self.memory.written, self.size_bytes)[place] = 1

    def store_rows(self, address: Array, rows: Array) -> None:
        flat = self.place(address, None)
        lane = np.arange(address.shape[1])
        if self.memory.races:
            cells = self.memory.races.cells(flat, self.size_bytes)
            races = self.memory.races
            races.check_write(cells, self.rows, None, lane, self.where, self.place_number)
        place = flat // ROW_BYTES
        data = _elements(self.memory.data, np.dtype(np.uint16), 8)
        data[place] = rows
        self._check_lost(data[place], rows, place)
        _bytes_of(self.memory.written, ROW_BYTES)[place] = 1

    def start_copy(self, address: Array, copying: Copying) -> Array:
        """Bytes that a copy will write: checks now, returns the places of its pieces."""
        flat = self.place(address, self.active)
        if self.memory.races:
            cells = self.memory.races.cells(flat, self.size_bytes)
            self.memory.races.check_write(
                cells, self.rows, self.active, LANE, self.where, self.place_number, copying
            )
        return flat // self.size_bytes

    def load_rows(self, address: Array) -> Array:
        active = None if self.active is None else self.active[:, : address.shape[1]]
        flat = self.place(address, active)
        if self.memory.races:
            cells = self.memory.races.cells(flat, self.size_bytes)
            lane = np.full(address.shape[1], ANY_LANE)
            self.memory.races.check_read(cells, self.rows, active, lane, self.where)
        self._check_written(flat, active)
        rows: Array = _elements(self.memory.data, np.dtype(np.uint16), 8)[flat // ROW_BYTES]
        return rows

    def place(self, address: Array, active: Array | None) -> Array:
        """Checked byte offsets in the batch's arena `[rows, n]`; inactive lanes get a valid one."""
        memory, size = self.memory, self.size_bytes
        offsets = address.astype(np.int64) - BASE
        if active is not None:
            offsets = np.where(active, offsets, 0)
        if int(offsets.min()) < 0 or int(offsets.max()) + size > memory.size_bytes:
            wrong = (offsets < 0) | (offsets + size > memory.size_bytes)
            wrong = wrong if active is None else wrong & active
            problem = f"out of bounds of the block's {memory.size_bytes} shared bytes"
            self._object(wrong, offsets, problem)
        if int(np.bitwise_or.reduce(offsets, axis=None)) & (size - 1):
            self._object(offsets & (size - 1) != 0, offsets, "misaligned")
        if memory.opaque:
            self._check_opaque(offsets, active)
        self._count(offsets, active)
        block = memory.batch.block_of_warp[self.rows]
        flat: Array = offsets + (block * memory.stride)[:, None]
        return flat

    def _check_opaque(self, offsets: Array, active: Array | None) -> None:
        """No access touches the bytes of a barrier."""
        block = self.memory.batch.block_of_warp[self.rows]
        for at, there in self.memory.opaque.items():
            touched = (offsets < at + 8) & (offsets + self.size_bytes > at) & there[block][:, None]
            if active is not None:
                touched &= active
            if touched.any():
                self._object(touched, offsets, f"it touches the mbarrier at offset {at}")

    def _check_written(self, flat: Array, active: Array | None) -> None:
        held = _bytes_of(self.memory.written, self.size_bytes)[flat // self.size_bytes]
        if held.all():
            return
        missing: Array = ~np.all(held, axis=-1)
        if active is not None:
            missing &= active
        if missing.any():
            offsets = flat % self.memory.stride
            self._object(missing, offsets, "read of shared memory that nothing has written")

    def _check_lost(self, found: Array, values: Array, place: Array) -> None:
        """Lanes of one instruction that write one place must agree on the value."""
        unsigned = np.dtype(f"u{values.dtype.itemsize}")
        lost = np.ascontiguousarray(found).view(unsigned) != np.ascontiguousarray(values).view(
            unsigned
        )
        if lost.any():
            at = int(place[np.nonzero(lost)[: place.ndim]].flat[0]) * self.size_bytes
            raise objection(
                self.where,
                "race in shared memory: lanes of one instruction write different values "
                f"at offset {at % self.memory.stride}",
            )

    def _count(self, offsets: Array, active: Array | None) -> None:
        # adding whole lines to a warp's addresses changes no bank: patterns repeat, so remember
        pattern = offsets - (offsets[:, :1] & -LINE_BYTES)
        known = pattern.astype(np.int32).tobytes() + (b"" if active is None else active.tobytes())
        source = self.source
        if source is not None and self.size_bytes == ROW_BYTES:
            source = source.astype(np.int64)
            source = source - (source[:, :1] & -LINE_BYTES)
            known += source.tobytes()
        demand = self.demand.get(known)
        if demand is None:
            pattern = pattern + (1 << 20)
            if source is not None and self.size_bytes == ROW_BYTES:
                demand = copied_wavefronts(source + (1 << 40), pattern, active)
            else:
                demand = wavefronts_of(phases_of(pattern, self.size_bytes, active))
            self.demand[known] = demand
        counts, traffic = self.memory.counts, self.traffic
        requests = len(offsets) if active is None else int(active.any(axis=1).sum())
        traffic.requests += requests
        traffic.wavefronts += demand[0]
        traffic.conflicts += demand[1]
        if self.copies:
            counts.copy_wavefronts += demand[0]
            counts.copy_conflicts += demand[1]
        else:
            counts.shared_wavefronts += demand[0]
            counts.shared_conflicts += demand[1]

    def _object(self, wrong: Array, offsets: Array, problem: str) -> None:
        row, lane = np.argwhere(wrong)[0]
        at = f"shared memory access of {self.size_bytes} bytes at offset {int(offsets[row, lane])}"
        raise objection(
            self.where, f"{at}: {problem}", self.memory.batch.thread_name(self.rows, wrong)
        )


def _elements(data: Array, element: np.dtype[Any], count: int) -> Array:
    """The bytes as elements, `[n]`, or as groups of `count`, `[n, count]`."""
    usable = len(data) // (element.itemsize * count) * (element.itemsize * count)
    view: Array = data[:usable].view(element)
    return view if count == 1 else view.reshape(-1, count)


def _bytes_of(data: Array, size_bytes: int) -> Array:
    return data[: len(data) // size_bytes * size_bytes].reshape(-1, size_bytes)
