"""Which element of a tile each lane's registers hold: layouts as one step per bit.

A lane map takes the bits of the lane number and of the element number to a (row, col): every bit
that is set adds its step. Fragments, broadcasts and padded rows are all of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .ptx_types import PtxError

Array = npt.NDArray[Any]
Step = tuple[int, int]


@dataclass(frozen=True)
class LaneMap:
    """A tile of `shape` (rows, cols) spread over 2^len(lane) lanes × 2^len(element) elements.

    A zero step is a broadcast: both values of that bit hold the same place. Otherwise no two
    (lane, element) may hold one place; and places must lie inside the tile and cover it.
    """

    shape: tuple[int, int]
    lane: tuple[Step, ...]
    element: tuple[Step, ...]

    def __post_init__(self) -> None:
        rows, cols = self.shape
        row, col = self.places
        if row.min() < 0 or col.min() < 0 or row.max() >= rows or col.max() >= cols:
            raise PtxError(
                f"lane map: got a place ({int(row.max())}, {int(col.max())}), "
                f"wants places inside {rows} × {cols}"
            )
        distinct = np.unique(row * cols + col).size
        moving = sum(step != (0, 0) for step in self.lane + self.element)
        if distinct != 1 << moving:
            raise PtxError(
                f"lane map: got {distinct} places for {1 << moving} (lane, element) pairs; "
                "two of them collide, and only a zero step may share places"
            )
        if distinct != rows * cols:
            raise PtxError(
                f"lane map: got {distinct} places, wants all {rows * cols} of {rows} × {cols}"
            )

    @property
    def lanes(self) -> int:
        return 1 << len(self.lane)

    @property
    def elements(self) -> int:
        return 1 << len(self.element)

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """Rows and cols of every (lane, element): two arrays `[lanes, elements]`."""
        row, col = (
            _sums([step[axis] for step in self.lane])[:, None]
            + _sums([step[axis] for step in self.element])[None, :]
            for axis in (0, 1)
        )
        return row, col

    def coordinates(self, lane: int, element: int) -> Step:
        """The (row, col) that an element of a lane holds.

        >>> C_M16N8.coordinates(5, 3)
        (9, 3)
        """
        row, col = self.places
        return int(row[lane, element]), int(col[lane, element])

    @cached_property
    def row_lane_bits(self) -> tuple[int, ...]:
        """The lane bits that stay in a row: a sum over a row crosses them by a butterfly."""
        return tuple(bit for bit, (row, _) in enumerate(self.lane) if row == 0)

    @cached_property
    def column_lane_bits(self) -> tuple[int, ...]:
        """The lane bits that stay in a column."""
        return tuple(bit for bit, (_, col) in enumerate(self.lane) if col == 0)

    def row_lanes(self, lane: int) -> tuple[int, ...]:
        """The lanes that hold some element of a row that `lane` holds, itself included.

        >>> C_M16N8.row_lanes(6)
        (4, 5, 6, 7)
        """
        rows = self.places[0]
        shared = np.isin(rows, rows[lane]).any(axis=1)
        return tuple(int(each) for each in np.flatnonzero(shared))

    @cached_property
    def element_rows(self) -> tuple[int, ...]:
        """Each element's row offset: elements of equal offset lie in one row of every lane."""
        return tuple(int(row) for row in _sums([step[0] for step in self.element]))

    @cached_property
    def element_cols(self) -> tuple[int, ...]:
        """Each element's column offset from the lane's own."""
        return tuple(int(col) for col in _sums([step[1] for step in self.element]))

    @cached_property
    def _slots(self) -> Array:
        """For each place of the tile, row by row, one flat (lane, element) that holds it."""
        row, col = self.places
        slots = np.zeros(self.shape, np.intp)
        slots[row, col] = np.arange(row.size).reshape(row.shape)
        return slots.reshape(-1)

    @cached_property
    def _flat(self) -> Array:
        row, col = self.places
        return (row * self.shape[1] + col).reshape(-1)

    def scatter(self, fragment: Array) -> Array:
        """Fragments `[…, lanes, elements]` → tiles `[…, rows, cols]`."""
        leading = fragment.shape[:-2]
        flat = fragment.reshape(*leading, self.lanes * self.elements)
        return flat.take(self._slots, axis=-1).reshape(*leading, *self.shape)

    def gather(self, tile: Array) -> Array:
        """Tiles `[…, rows, cols]` → fragments `[…, lanes, elements]`."""
        leading = tile.shape[:-2]
        flat = tile.reshape(*leading, self.shape[0] * self.shape[1])
        return flat.take(self._flat, axis=-1).reshape(*leading, self.lanes, self.elements)


def _sums(steps: list[int]) -> Array:
    """Sums of the steps of each number's set bits, for 0 … 2^len − 1."""
    sums = np.zeros(1, np.intp)
    for step in steps:
        sums = np.concatenate([sums, sums + step])
    return sums


#  one (row, col) step per bit of the lane and of the element (PTX ISA, Matrix Fragments for
#  mma.m16n8k16 with floating point types; ldmatrix: one 8 × 8 matrix of b16)
#                                lane bit 0       1       2       3       4
A_M16K16 = LaneMap((16, 16), lane=((0, 2), (0, 4), (1, 0), (2, 0), (4, 0)),
                   element=((0, 1), (8, 0), (0, 8)))  # fmt: skip
B_K16N8 = LaneMap((16, 8), lane=((2, 0), (4, 0), (0, 1), (0, 2), (0, 4)),
                  element=((1, 0), (8, 0)))  # fmt: skip
C_M16N8 = LaneMap((16, 8), lane=((0, 2), (0, 4), (1, 0), (2, 0), (4, 0)),
                  element=((0, 1), (8, 0)))  # fmt: skip
M8N8_B16 = LaneMap((8, 8), lane=((0, 2), (0, 4), (1, 0), (2, 0), (4, 0)),
                   element=((0, 1),))  # fmt: skip
