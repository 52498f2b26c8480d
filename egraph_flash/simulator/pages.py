"""An array of zeros that takes memory only where it was written."""

from __future__ import annotations

from typing import Any

import numpy as np

from .batch import Array

WHOLE = 1 << 22  # entries up to which an array is held in one piece
SHIFT = 16  # entries a page, as a power of two


class Pages:
    """`size` numbers, zeros at first; those of pages that nothing wrote share one page of zeros."""

    def __init__(self, size: int, dtype: Any) -> None:
        self.size = size
        self.slots: Array | None = None  # where each page lies in `values`
        self.held = 1
        if size > WHOLE:
            self.slots = np.zeros(-(-size >> SHIFT), np.int64)
        self.values = np.zeros(size if self.slots is None else 1 << SHIFT, dtype)

    def read(self, places: Array, width: int = 1) -> Array:
        """The numbers at `places`, or the `width` numbers from there on, `[..., width]`.

        With a width, which is a power of two, places are multiples of it.
        """
        found: Array = self._groups(width)[self._flat(places) // width]
        return found

    def write(self, places: Array, values: Any, width: int = 1) -> None:
        """Set what `read` gives."""
        if self.slots is not None:
            self._make(np.unique(places >> SHIFT))
        self._groups(width)[self._flat(places) // width] = values

    def count(self) -> int:
        """How many of the numbers are not zero."""
        return int(np.count_nonzero(self.values))

    def _flat(self, places: Array) -> Array:
        if self.slots is None:
            return places
        flat: Array = self.slots[places >> SHIFT] << SHIFT | places & (1 << SHIFT) - 1
        return flat

    def _groups(self, width: int) -> Array:
        if width == 1:
            return self.values
        return self.values[: len(self.values) // width * width].reshape(-1, width)

    def _make(self, pages: Array) -> None:
        """Give these pages memory of their own."""
        assert self.slots is not None
        new = pages[self.slots[pages] == 0]
        if not new.size:
            return
        self.slots[new] = self.held + np.arange(new.size)
        self.held += new.size
        room = len(self.values) >> SHIFT
        if self.held > room:
            more = np.zeros(max(self.held - room, room) << SHIFT, self.values.dtype)
            self.values = np.concatenate([self.values, more])
