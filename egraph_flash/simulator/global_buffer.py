"""One buffer of global memory: the caller's bytes, in place, and who wrote and read which.

Its bytes reach from the first element to the last; those between elements are nobody's. Offsets
count from the last multiple of 16 before the first element, which is as far from it as in the
caller's memory, so that what is aligned there is aligned here. Shadows take memory where they are
touched only: a buffer may be larger than the machine's memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import SimulationError
from ..footprint import Footprint
from .batch import Array
from .grid_order import Word
from .pages import Pages

ALIGNMENT_BYTES = 16  # of the address that offset 0 has
SCANNED_BYTES = 1 << 20  # at a time, in search of what is not written


class GlobalBuffer:
    """A buffer at `address`; `written` says whether it holds anything yet."""

    def __init__(self, name: str, array: Array, address: int, written: bool) -> None:
        if min(array.strides, default=0) < 0:
            raise SimulationError(
                f"buffer {name}: got byte strides {array.strides}, wants each 0 or more"
            )
        try:
            self.footprint = Footprint.of(array.shape, array.strides, array.itemsize)
        except ValueError as error:
            raise SimulationError(f"buffer {name}: {error}") from error
        self.name = name
        self.address = address
        at, _ = array.__array_interface__["data"]
        self.lead_bytes = at % ALIGNMENT_BYTES if self.footprint.size_bytes else 0
        self.size_bytes = self.lead_bytes + self.footprint.size_bytes
        self.is_whole = self.footprint.is_dense and not self.lead_bytes
        self.writable = array.flags.writeable
        self.data = _bytes_of(array, at - self.lead_bytes, self.size_bytes)
        self.written = None if written else Pages(self.size_bytes, np.uint8)
        self.writer: Pages | None = None  # the tag of each cell's last write in this launch
        self.reader: Pages | None = None  # and of its reads (grid_order.py)
        self.words: dict[int, Word] = {}  # by cell: those that atomics of this launch change
        self._views: dict[tuple[Any, int], Array] = {}

    @property
    def first_address(self) -> int:
        """Where the first element is."""
        return self.address + self.lead_bytes

    def elements(self, element: np.dtype[Any], count: int) -> Array:
        """The bytes as elements `[n]`, or as groups `[n, count]`; a remainder is cut off."""
        wanted = (element, count)
        if wanted not in self._views:
            size = element.itemsize * count
            view = self.data[: self.size_bytes // size * size].view(element)
            self._views[wanted] = view if count == 1 else view.reshape(-1, count)
        return self._views[wanted]

    def strays(self, offsets: Array, size_bytes: int) -> Array | None:
        """Which accesses touch bytes of no element; None where there are no such bytes."""
        if self.is_whole:
            return None
        return ~self.footprint.holds(offsets - self.lead_bytes, size_bytes)

    def place(self, offset: int) -> str:
        """Words for an offset."""
        inside = offset - self.lead_bytes
        shift = f" (its first element is {self.lead_bytes} past 16)" if self.lead_bytes else ""
        return f"byte {inside} of buffer {self.name!r}{shift}"

    def track(self, cell_bytes: int | None) -> None:
        """A launch begins: log who accesses which cell, or (None) nobody can write here."""
        cells = 0 if cell_bytes is None else -(-self.size_bytes // cell_bytes)
        self.writer = None if cell_bytes is None else Pages(cells, np.int64)
        self.reader = None if cell_bytes is None else Pages(cells, np.int64)
        self.words = {}

    def check_complete(self) -> None:
        """Every byte of its elements has been written."""
        if self.written is None:
            return
        wanted = self.footprint.used_bytes
        left = wanted - self.written.count()  # no other bytes can be written
        if left:
            raise SimulationError(
                f"output {self.name!r}: {left} of its {wanted} bytes are never written, "
                f"the first at byte {self._first_missing()}"
            )

    def _first_missing(self) -> int:
        assert self.written is not None
        for start in range(0, self.size_bytes, SCANNED_BYTES):
            offsets = np.arange(start, min(start + SCANNED_BYTES, self.size_bytes))
            missing = self.written.read(offsets) == 0
            strays = self.strays(offsets, 1)
            if strays is not None:
                missing &= ~strays
            if missing.any():
                return int(offsets[missing][0]) - self.lead_bytes
        raise AssertionError("some byte is not written")


class _Memory:
    """Bytes at an address, for numpy to see; `keep` owns them."""

    def __init__(self, keep: Array, address: int, size_bytes: int) -> None:
        self.keep = keep
        self.__array_interface__ = {
            "data": (address, not keep.flags.writeable),
            "shape": (size_bytes,),
            "typestr": "|u1",
            "version": 3,
        }


def _bytes_of(array: Array, address: int, size_bytes: int) -> Array:
    """The memory that an array is a view of; up to 15 bytes before it are not to be read."""
    if not size_bytes:
        return np.empty(0, np.uint8)
    return np.asarray(_Memory(array, address, size_bytes))
