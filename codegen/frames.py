"""Where a tile's elements lie: which row and column each register of each lane holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..axes import Axis
from .atoms import Atom
from .lanes import LaneMap
from .ptx import Register


@dataclass(frozen=True)
class Side:
    """One side of a tile: the coordinates along `axis` that a thread's registers hold.

    Register index i holds `origin + lane part + warp part + moving + offsets[i]`: the lane part
    adds `lane_steps[b]` for each set bit b of the lane, the warp part `warp_step` times the
    warp's place among `warps` (counted from `warp_stride` threads of warps), the origin is the
    block's own first coordinate (a multiple of `extent`), and `moving` is a loop's counter, a
    multiple of `moving_step`, or a constant. `bound` is where the axis ends, if elements past it may occur and must be masked.
    """

    axis: Axis | None
    offsets: tuple[int, ...]
    lane_steps: tuple[int, ...]
    warp_step: int = 0
    warps: int = 1
    warp_stride: int = 1
    origin: Register | None = None
    moving: Register | int = 0
    moving_step: int = 1
    bound: int | None = None

    @property
    def extent(self) -> int:
        """How many consecutive coordinates all warps together hold."""
        return self.warp_step * (self.warps - 1) + self.reach

    @cached_property
    def reach(self) -> int:
        """How many consecutive coordinates one warp holds."""
        return 1 + max(self.offsets, default=0) + sum(self.lane_steps)

    @cached_property
    def sharing_bits(self) -> tuple[int, ...]:
        """The lane bits that do not move along this side."""
        return tuple(bit for bit, step in enumerate(self.lane_steps) if step == 0)

    @property
    def placing(self) -> tuple[tuple[int, ...], int, int, int, Register | None]:
        """What decides the coordinate of offset 0, the moving part aside."""
        return self.lane_steps, self.warp_step, self.warps, self.warp_stride, self.origin

    def agrees(self, other: Side) -> bool:
        """Whether every thread's register i holds the same coordinate on both sides."""
        return (
            self.axis is other.axis
            and self.offsets == other.offsets
            and self.placing == other.placing
            and self.moving == other.moving
        )


@dataclass(frozen=True)
class Frame:
    """The two sides of a tile; an element is a pair of register indices."""

    row: Side
    column: Side


def repeat(inner: tuple[int, ...], count: int, step: int) -> tuple[int, ...]:
    """Offsets of `count` copies of a tile, `step` apart, in increasing order.

    >>> repeat((0, 8), 2, 16)
    (0, 8, 16, 24)
    """
    return tuple(sorted(copy * step + offset for copy in range(count) for offset in inner))


def row_offsets(lanes: LaneMap) -> tuple[int, ...]:
    return tuple(sorted(set(lanes.element_rows)))


def column_offsets(lanes: LaneMap) -> tuple[int, ...]:
    return tuple(sorted(set(lanes.element_cols)))


def lane_steps(lanes: LaneMap, side: int) -> tuple[int, ...]:
    return tuple(step[side] for step in lanes.lane)


def fragment(atom: Atom, which: str, place: tuple[int, int]) -> list[tuple[int, int]]:
    """The (row, column) offsets of an atom's elements, in register order, at an atom's place.

    `which` is a, b or c; `place` counts atoms along the operand's own rows and columns.
    """
    lanes: LaneMap = getattr(atom, which)
    rows, columns = lanes.shape
    return [
        (place[0] * rows + row, place[1] * columns + column)
        for row, column in zip(lanes.element_rows, lanes.element_cols, strict=True)
    ]
