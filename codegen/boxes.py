"""How a tensor copy names an operand's tile: its tensor map, and the coordinates of its boxes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..axes import Axis, size_of
from ..dtypes import DTYPES
from ..errors import ScheduleError
from ..layouts import alignment_of, strides_of
from ..open_plan import BufferMap
from ..plan import Buffer
from ..tensor_map import ADDRESS_ALIGNMENT_BYTES, MOST_BOX, Swizzle, TensorMap
from .arena import Placed
from .stepping import Stepping, stepping


@dataclass(frozen=True)
class Box:
    """One copy of a tile: `row` and `element` are where it starts in the slab's tile."""

    offset_bytes: int
    row: int
    element: int


@dataclass(frozen=True)
class Boxes:
    """The map of an operand and the boxes that fill its slab, in order.

    `dims` gives the index of each dimension of the map, innermost first. Rows of the tile that an
    index finds a run at a time, as in pages, are a box for each run.
    """

    map: TensorMap | BufferMap
    dims: tuple[Any, ...]
    boxes: tuple[Box, ...]


@lru_cache(maxsize=1024)
def boxes_of(placed: Placed) -> Boxes:
    """The boxes of an operand; axes that are not its tile's are the block's own.

    Raises ScheduleError for an index that no map describes.
    """
    load, layout = placed.load, placed.layout
    name, dtype_name, *_ = load.args[0].args
    size = DTYPES[dtype_name].size_bytes
    dims = tuple(reversed(load.args[1]))
    across = [_stepping(name, index, placed.across) for index in dims]
    along = [_stepping(name, index, placed.along) for index in dims]
    if [each.step for each in along] != [1] + [0] * (len(dims) - 1) or any(a.run for a in along):
        raise _refused(name, f"its last index is {dims[0]}, wants one along {placed.along} alone")
    moving = [dim for dim, each in enumerate(across) if each.step]
    if len(moving) != 1 or across[moving[0]].step != 1 or moving == [0]:
        raise _refused(name, f"{placed.across} is no dimension of its own")
    (row_dim,) = moving
    run = math.gcd(*(each.run for each in across))
    if run and (placed.across.extent.head == "Symbol" or placed.across.size % run):
        raise _refused(name, f"{placed.across} ends inside a run of {run} rows")
    rows = _divisor(math.gcd(layout.rows, run), MOST_BOX)
    width = layout.span_bytes // size
    if layout.pitch_bytes != layout.span_bytes:
        raise _refused(name, "rows with padding between them; SLAB=xor or raw would do")
    if width > MOST_BOX:
        raise _refused(name, f"rows of {width} elements, wants at most {MOST_BOX} without xor")
    box = [1] * len(dims)
    box[0], box[row_dim] = width, rows
    try:
        found = _map(load.args[0], tuple(box), layout.swizzle)
    except ScheduleError as error:
        raise _refused(name, str(error)) from error
    return Boxes(found, dims, tuple(_boxes(placed, rows, width)))


def _map(array: Any, box: tuple[int, ...], swizzle: Swizzle) -> TensorMap | BufferMap:
    """The map over an array; where a call says its lengths or strides, one that it completes.

    Strides that a call says are taken to be multiples of what the array promises.
    """
    name, dtype_name, extents, *_ = array.args
    dtype, strides = DTYPES[dtype_name], strides_of(array)
    if alignment_of(array) < ADDRESS_ALIGNMENT_BYTES:
        raise ScheduleError(
            f"its address and strides are multiples of {alignment_of(array)} bytes, "
            f"wants {ADDRESS_ALIGNMENT_BYTES}"
        )
    if strides[-1] != 1:
        raise ScheduleError(f"its innermost stride is {strides[-1]}, wants 1")
    open_ = BufferMap(name, dtype, box, swizzle)
    stand_in = ADDRESS_ALIGNMENT_BYTES // dtype.size_bytes
    steps = tuple(stand_in if stride is None else stride for stride in strides)
    known = open_.at(Buffer(name, tuple(map(size_of, extents)), dtype, "input", steps))
    is_known = None not in strides and all(extent.head == "Known" for extent in extents)
    return known if is_known else open_


def _boxes(placed: Placed, rows: int, width: int) -> Iterator[Box]:
    layout = placed.layout
    for across in range(layout.boxes):
        for row in range(0, layout.rows, rows):
            start = placed.offset_bytes + across * layout.box_bytes + row * layout.pitch_bytes
            yield Box(start, row, across * width)


def _stepping(name: str, index: Any, axis: Axis) -> Stepping:
    found = stepping(index, axis)
    if found is None:
        raise _refused(name, f"the index {index} does not move with {axis} in steps")
    return found


def _divisor(number: int, most: int) -> int:
    return next(d for d in range(min(number, most), 0, -1) if number % d == 0)


def _refused(name: str, why: str) -> ScheduleError:
    return ScheduleError(
        f"no tensor map describes {name}: {why}; the nearest legal transport is cp"
    )
