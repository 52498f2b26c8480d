"""Where a tile's elements lie: which row and column each register of each lane holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..axes import Axis
from .lanes import LaneMap
from .ptx import Register


@dataclass(frozen=True)
class Side:
    """One side of a tile: the coordinates along `axis` that a thread's registers hold.

    Register index i holds `origin + lane part + warp part + moving + offsets[i]`. The lane part
    adds `lane_steps[b]` for each set bit b of the lane; the warp part is `warp_step` times the
    warp's place among `warps`, which are `warp_stride` warps apart; the origin is the block's own
    first coordinate, a multiple of `extent`; `moving` is a constant, or a loop's counter that is
    a multiple of `moving_step`, and `ahead` a constant on top of it. `interleave` is how many
    atoms take turns along the side. `bound` is where the axis ends, if coordinates past it occur
    and must be masked; `strict` says that memory holds elements past it, which may be anything.
    Where threads are laid out otherwise than by lanes and warps, `own` is the
    thread's part, a multiple of `own_step`, and `block_extent` what the origin is a multiple of.
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
    bound: Register | int | None = None
    strict: bool = False
    interleave: int = 1
    ahead: int = 0
    own: Register | None = None
    own_step: int = 1
    block_extent: int = 0

    @property
    def extent(self) -> int:
        """How many consecutive coordinates all warps together hold."""
        if self.own is not None:
            return self.block_extent
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
    def placing(self) -> tuple[Any, ...]:
        """What decides the coordinate of offset 0, the moving part aside."""
        own = self.own or (self.lane_steps, self.warp_step, self.warps, self.warp_stride)
        return own, self.origin

    def agrees(self, other: Side) -> bool:
        """Whether every thread's register i holds the same coordinate on both sides."""
        return (
            self.axis is other.axis
            and self.offsets == other.offsets
            and self.placing == other.placing
            and self.moving == other.moving
            and self.ahead == other.ahead
        )


@dataclass(frozen=True)
class Frame:
    """The two sides of a tile; an element is a pair of register indices."""

    row: Side
    column: Side


ALONE = Frame(Side(None, (0,), ()), Side(None, (0,), ()))  # of one element, the same for all


def offset(inner: int, place: int, width: int, interleave: int) -> int:
    """Where an element at `inner` of the atom at `place` stands, atoms being `width` long.

    Interleaved by F, F neighbouring atoms take turns element by element, so that a lane holds F
    consecutive coordinates: it permutes free coordinates, which no sum runs over.

    >>> offset(3, 1, 8, 1), offset(3, 1, 8, 4)
    (11, 13)
    """
    group, member = divmod(place, interleave)
    return interleave * (group * width + inner) + member


def repeat(inner: tuple[int, ...], count: int, width: int, interleave: int = 1) -> tuple[int, ...]:
    """The offsets of `count` atoms that hold the `inner` ones each, in increasing order.

    >>> repeat((0, 8), 2, 16)
    (0, 8, 16, 24)
    """
    places = range(count)
    return tuple(sorted(offset(i, place, width, interleave) for place in places for i in inner))


def row_offsets(lanes: LaneMap) -> tuple[int, ...]:
    return tuple(sorted(set(lanes.element_rows)))


def column_offsets(lanes: LaneMap) -> tuple[int, ...]:
    return tuple(sorted(set(lanes.element_cols)))


def lane_steps(lanes: LaneMap, side: int, interleave: int = 1) -> tuple[int, ...]:
    return tuple(interleave * step[side] for step in lanes.lane)


def fragment(lanes: LaneMap, frame: Frame, place: tuple[int, int]) -> list[tuple[int, int]]:
    """The register indices on the frame's sides of an atom's elements, in register order.

    `place` counts atoms along the operand's rows and columns, from the frame's first.
    """
    indices = []
    for which, side in enumerate((frame.row, frame.column)):
        first = min(side.offsets)
        index = {at - first: i for i, at in enumerate(side.offsets)}
        inner = lanes.element_rows if which == 0 else lanes.element_cols
        width = lanes.shape[which]
        indices.append([index[offset(i, place[which], width, side.interleave)] for i in inner])
    return list(zip(*indices, strict=True))


def atoms_along(lanes: LaneMap, frame: Frame) -> tuple[int, int]:
    """How many atoms the frame holds along its rows and along its columns."""
    counts = []
    for which, side in enumerate((frame.row, frame.column)):
        inner = row_offsets(lanes) if which == 0 else column_offsets(lanes)
        counts.append(len(side.offsets) // len(inner))
    return counts[0], counts[1]


def consecutive(lanes: LaneMap, side: int) -> LaneMap:
    """The map with its coordinates on one side permuted so that each lane's are consecutive.

    Both operands of a contraction may have their depth permuted alike: an atom's sum has the same
    products in any order, and the tensor core adds them exactly.
    """
    order = [("element", bit) for bit, step in enumerate(lanes.element) if step[side]]
    order += [("lane", bit) for bit, step in enumerate(lanes.lane) if step[side]]
    steps = {"element": list(lanes.element), "lane": list(lanes.lane)}
    for place, (kind, bit) in enumerate(order):
        step = [*steps[kind][bit]]
        step[side] = 1 << place
        steps[kind][bit] = (step[0], step[1])
    return LaneMap(lanes.shape, lane=tuple(steps["lane"]), element=tuple(steps["element"]))
