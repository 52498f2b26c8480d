"""Where the arrays of a case lie: views into memory that is full of NaN around and between them."""

from __future__ import annotations

import numpy as np

from egraph_flash.dtypes import Array, Dtype

LAYS = ("dense", "turned", "packed", "expanded", "sliced:8:8", "sliced:4:4", "sliced:1:6")
AROUND = 64  # elements of poison before and after the buffer


def poison(count: int, dtype: Dtype) -> Array:
    """Elements that no result survives, from a multiple of 16 bytes on."""
    made = np.zeros(count + 2 * AROUND + 16, dtype.storage)
    if dtype.is_integer:
        made[...] = np.iinfo(dtype.storage).max // 2
    elif dtype.is_boolean:
        made[...] = True
    else:
        made[...] = dtype.encode(np.asarray(np.nan))
    start = AROUND + (-(made.ctypes.data + AROUND * made.itemsize) % 16) // made.itemsize
    return made[start : start + count]


def lay(kind: str, shape: tuple[int, ...], dtype: Dtype) -> Array:
    """A view of that shape that lies so; all that it does not cover is poison."""
    name, *numbers = kind.split(":")
    if name == "sliced":
        start, rest = map(int, numbers)
        wide = (*(extent + 1 for extent in shape[:-1]), start + shape[-1] + rest)
        inside = tuple(slice(1, None) for _ in shape[:-1])
        return _buffer(wide, dtype)[(*inside, slice(start, start + shape[-1]))]
    if name == "turned":
        order = _turned(len(shape))
        whole = _buffer(tuple(shape[a] for a in order), dtype)
        return whole.transpose(np.argsort(order))
    if name == "packed":
        order = _turned(len(shape))
        moved = tuple(shape[a] for a in order)
        whole = _buffer((*moved[:-2], 3, *moved[-2:]), dtype)
        return whole[..., 1, :, :].transpose(np.argsort(order))
    if name == "expanded":
        whole = _buffer((*shape[:1], *shape[2:]), dtype)
        steps = (*whole.strides[:1], 0, *whole.strides[1:])
        return np.lib.stride_tricks.as_strided(whole, shape, steps)
    if name != "dense":
        raise ValueError(f"layout: got {kind!r}, wants one of {', '.join(LAYS)}")
    return _buffer(shape, dtype)


def _buffer(shape: tuple[int, ...], dtype: Dtype) -> Array:
    return poison(int(np.prod(shape)), dtype).reshape(shape)


def _turned(rank: int) -> tuple[int, ...]:
    """The order in memory: the second dimension from behind before the third."""
    return (*range(rank - 3), rank - 2, rank - 3, rank - 1)


def fits(kind: str, rank: int) -> bool:
    """Whether an array of so many dimensions can lie so."""
    least = {"turned": 3, "packed": 3, "expanded": 3, "sliced": 1}
    return rank >= least.get(kind.partition(":")[0], 0)
