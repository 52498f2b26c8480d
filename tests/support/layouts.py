"""Where arrays may lie: views into buffers that are full of NaN, each with what it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from egraph_flash.dtypes import Array
from egraph_flash.runtime import DeviceArray


@dataclass(frozen=True)
class Laid:
    """A view of `whole`, whose other elements are NaN."""

    view: Array
    whole: Array

    @property
    def gaps(self) -> Array:
        """Whether each element of `whole` is none of the view's."""
        held = self.whole.copy()
        self.view[...] = 0
        inside: Array = self.whole == 0
        self.view[...] = 1
        inside &= self.whole == 1
        self.whole[...] = held
        return np.logical_not(inside)


def poison(*shape: int) -> Array:
    """NaN throughout, in f16, from a multiple of 16 bytes on."""
    memory = np.full(int(np.prod(shape)) + 8, np.nan, np.float16)
    start = -memory.ctypes.data % 16 // 2
    return memory[start : start + int(np.prod(shape))].reshape(shape)


def _view(whole: Array, view: Array, values: Array | None) -> Laid:
    assert np.shares_memory(whole, view)
    if values is not None:
        view[...] = values
    return Laid(view, whole)


Lay = Callable[[tuple[int, ...], Array | None], Laid]  # [b, h, s, d], and the values or None


def dense(shape: tuple[int, ...], values: Array | None) -> Laid:
    whole = poison(*shape)
    return _view(whole, whole, values)


def bshd(shape: tuple[int, ...], values: Array | None) -> Laid:
    """[b, s, h, d] in memory, read as [b, h, s, d]."""
    b, h, s, d = shape
    whole = poison(b, s, h, d)
    return _view(whole, whole.swapaxes(1, 2), values)


def packed(shape: tuple[int, ...], values: Array | None) -> Laid:
    """The middle one of three, as a projection to q, k and v gives them: [b, s, 3, h, d]."""
    b, h, s, d = shape
    whole = poison(b, s, 3, h, d)
    return _view(whole, whole[:, :, 1].swapaxes(1, 2), values)


def sliced(start: int, rest: int) -> Lay:
    """Rows of a wider array, from its element `start` on and `rest` before its end."""

    def lay(shape: tuple[int, ...], values: Array | None) -> Laid:
        b, h, s, d = shape
        whole = poison(b, h + 1, s + 2, start + d + rest)
        return _view(whole, whole[:, 1:, 1:-1, start : start + d], values)

    lay.__name__ = f"sliced_{start}_{rest}"
    return lay


def expanded(shape: tuple[int, ...], values: Array | None) -> Laid:
    """One head for all, with a stride of 0; the values of the first."""
    b, _, s, d = shape
    whole = poison(b, s, d + 8)
    one = whole[:, None, :, :d]
    if values is not None:
        one[...] = values[:, :1]
    steps = (one.strides[0], 0, *one.strides[2:])
    return Laid(np.lib.stride_tricks.as_strided(one, shape, steps), whole)


# the bytes that divide addresses and strides; None where the array is dense
LAYOUTS: tuple[tuple[Lay, int | None], ...] = (
    (dense, None),
    (bshd, 16),
    (packed, 16),
    (sliced(8, 8), 16),
    (sliced(4, 4), 8),
    (sliced(0, 2), 4),
    (sliced(1, 6), 2),
    (sliced(3, 5), 2),
)


class DeviceView:
    """A view of a `DeviceArray` as other libraries give it, through `__cuda_array_interface__`."""

    def __init__(self, laid: Laid, held: DeviceArray) -> None:
        self.held = held
        shift = laid.view.ctypes.data - laid.whole.ctypes.data
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": laid.view.shape,
            "typestr": "<f2",
            "data": (held.address + shift, False),
            "strides": laid.view.strides,
            "version": 3,
        }
