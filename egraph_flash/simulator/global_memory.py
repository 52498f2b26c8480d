"""What global memory holds: the buffers, far apart in one 64-bit space, and how they are accessed.

Buffers that start uninitialised have a shadow of written bytes; those that a launch may write
have logs of who touched which cell, so that races between blocks are seen (block_races.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from ..codegen.ptx import Entry
from ..errors import SimulationError
from .banks import sectors_of
from .batch import Array, Batch, Rows
from .block_races import BlockRaces, Way
from .counters import LaunchCounts
from .global_buffer import GlobalBuffer
from .grid_order import GridOrder
from .where import Where, objection

FIRST_ADDRESS = 0x7000_0000_0000
GAP_BYTES = 1 << 36  # between buffers: a stray index stays in nobody's land


def cell_bytes_of(entry: Entry) -> int:
    """The largest piece of global memory that every access of the entry is a whole number of."""
    sizes = [
        instruction.row.access_bytes
        for instruction in entry.instructions()
        if instruction.row.counter in ("lsu_global", "copy", "atomic")
    ]
    return math.gcd(*sizes) if sizes else 1


class GlobalMemory:
    """All buffers, by name and by address."""

    def __init__(self, arrays: Mapping[str, Array], uninitialised: Collection[str]) -> None:
        if unknown := sorted(set(uninitialised) - set(arrays)):
            raise SimulationError(f"run: got uninitialised {unknown}, has buffers {list(arrays)}")
        self.buffers: dict[str, GlobalBuffer] = {}
        address = FIRST_ADDRESS
        for name, array in arrays.items():
            self.buffers[name] = GlobalBuffer(name, array, address, name not in uninitialised)
            size_bytes = self.buffers[name].size_bytes
            address += -(-(size_bytes + 1) // GAP_BYTES) * GAP_BYTES + GAP_BYTES

    def begin_launch(self, entry: Entry, may_be_written: Collection[str], order: GridOrder) -> None:
        cell_bytes = cell_bytes_of(entry)
        self.races = BlockRaces(order, cell_bytes)
        for name, buffer in self.buffers.items():
            buffer.track(cell_bytes if name in may_be_written else None)

    def nearest(self, address: int) -> str:
        """Words that relate a bad address to the buffers around it."""
        for buffer in self.buffers.values():
            offset = address - buffer.address
            if -GAP_BYTES // 2 < offset < buffer.size_bytes + GAP_BYTES // 2:
                return f"{buffer.place(offset)}, which has {buffer.footprint.size_bytes}"
        return f"address {address:#x}, which is far from every buffer"

    def check_complete(self, names: Iterable[str]) -> None:
        """Every byte of these buffers' elements has been written."""
        for name in names:
            self.buffers[name].check_complete()


Piece = tuple[GlobalBuffer, Array, Array | None]


class GlobalAccess:
    """One instruction's view of global memory; `rows` and `active` are set before each use."""

    def __init__(
        self, memory: GlobalMemory, batch: Batch, where: Where, size_bytes: int,
        counts: LaunchCounts, way: Way = "ld",
    ) -> None:  # fmt: skip
        self.memory = memory
        self.batch = batch
        self.where = where
        self.size_bytes = size_bytes
        self.counts = counts
        self.way: Way = way
        self.rows: Rows = batch.everyone
        self.active: Array | None = None
        self.last = next(iter(memory.buffers.values()), None)

    def load(self, address: Array, element: np.dtype[Any], count: int) -> Array:
        result: Array | None = None
        races = self.memory.races
        for buffer, offsets, active in self.pieces(address):
            place = offsets // self.size_bytes
            self.check_written(buffer, offsets, active)
            races.read(buffer, offsets, self.size_bytes, self.rows, active, self.way, self.where)
            found = buffer.elements(element, count)[place]
            lanes = self.size_bytes * self._count(active)
            self.counts.global_bytes_read += lanes
            self.counts.global_sectors_read += sectors_of(offsets, active)
            if result is None:
                result = found
            else:
                assert active is not None
                np.copyto(result, found, where=active if count == 1 else active[..., None])
        assert result is not None
        return result

    def store(self, address: Array, values: Any, count: int) -> None:
        values = np.asarray(values)
        shape = address.shape if count == 1 else (*address.shape, count)
        values = np.broadcast_to(values, shape)
        races = self.memory.races
        for buffer, offsets, active in self.pieces(address):
            if not buffer.writable:
                raise objection(self.where, f"write to buffer {buffer.name!r}, which is read-only")
            races.write(buffer, offsets, self.size_bytes, self.rows, active, self.where)
            self.counts.global_bytes_written += self.size_bytes * self._count(active)
            self.counts.global_sectors_written += sectors_of(offsets, active)
            given = values
            if active is not None:
                offsets, given = offsets[active], values[active]
            place = offsets // self.size_bytes
            data = buffer.elements(values.dtype, count)
            data[place] = given
            unsigned = np.dtype(f"u{values.dtype.itemsize}")
            found = np.ascontiguousarray(data[place]).view(unsigned)
            if (found != np.ascontiguousarray(given).view(unsigned)).any():
                raise objection(
                    self.where,
                    f"race in buffer {buffer.name!r}: threads write different values to one place",
                )
            if buffer.written is not None:
                buffer.written.write(offsets, 1, self.size_bytes)

    def pieces(self, address: Array) -> list[Piece]:
        """The accesses buffer by buffer, with offsets `[rows, 32]`; nearly always one buffer."""
        active, size = self.active, self.size_bytes
        if self.last is not None:
            offsets = address - np.uint64(self.last.address)
            if active is not None:
                offsets = np.where(active, offsets, np.uint64(0))
            if int(offsets.max()) + size <= self.last.size_bytes:
                return [self._aligned(self.last, offsets, active)]
        left = np.ones(address.shape, np.bool_) if active is None else active.copy()
        pieces = []
        for buffer in self.memory.buffers.values():
            offsets = address - np.uint64(buffer.address)
            if size > buffer.size_bytes:
                continue
            inside = left & (offsets <= np.uint64(buffer.size_bytes - size))
            if inside.any():
                left &= ~inside
                self.last = buffer
                offsets = np.where(inside, offsets, np.uint64(0))
                pieces.append(self._aligned(buffer, offsets, None if inside.all() else inside))
        if left.any():
            row, lane = np.argwhere(left)[0]
            raise objection(
                self.where,
                f"out of bounds: {size} bytes at "
                f"{self.memory.nearest(int(address[row, lane]))} bytes",
                self.batch.thread_name(self.rows, left),
            )
        return pieces

    def _aligned(self, buffer: GlobalBuffer, offsets: Array, active: Array | None) -> Piece:
        if int(np.bitwise_or.reduce(offsets, axis=None)) & (self.size_bytes - 1):
            wrong = offsets & np.uint64(self.size_bytes - 1) != 0
            self._object(buffer, "misaligned", offsets, wrong)
        offsets = offsets.view(np.int64)
        strays = buffer.strays(offsets, self.size_bytes)
        if strays is not None:
            if active is not None:
                strays &= active
            if strays.any():
                self._object(buffer, "out of the tensor, between its elements", offsets, strays)
        return buffer, offsets, active

    def _object(self, buffer: GlobalBuffer, problem: str, offsets: Array, wrong: Array) -> None:
        place = buffer.place(int(offsets[wrong][0]))
        raise objection(
            self.where,
            f"{problem}: {self.size_bytes} bytes at {place}",
            self.batch.thread_name(self.rows, wrong),
        )

    def _count(self, active: Array | None) -> int:
        everyone = len(self.batch.block_of_warp[self.rows]) * 32
        return everyone if active is None else int(np.count_nonzero(active))

    def check_written(self, buffer: GlobalBuffer, offsets: Array, active: Array | None) -> None:
        """What is read there holds a value."""
        if buffer.written is None:
            return
        held = buffer.written.read(offsets, self.size_bytes)
        if held.all():
            return
        missing: Array = (held == 0) if self.size_bytes == 1 else ~np.all(held, axis=-1)
        if active is not None:
            missing &= active
        if missing.any():
            place = buffer.place(int(offsets[missing][0]))
            raise objection(
                self.where,
                f"read of {place}, which nothing has written",
                self.batch.thread_name(self.rows, missing),
            )
