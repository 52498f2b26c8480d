"""What kind of array an output is: the kind of the first input, on the same device."""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..dtypes import Array, Dtype
from ..footprint import Footprint
from ..layouts import ALIGNMENT_BYTES
from . import driver
from .arrays import View, view
from .memory import DeviceArray

_TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "i32": "int32", "i64": "int64"}


def empty_on_host(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    storage: np.dtype[Any],
    shift_bytes: int = 0,
    byte: int = 0xFF,
) -> Array:
    """An array with strides in elements, `shift_bytes` past a multiple of 16.

    Every byte of it, and of its gaps, is `byte`: by default NaN, so that what nothing wrote shows.
    """
    steps = tuple(stride * storage.itemsize for stride in strides)
    size_bytes = Footprint.of(shape, steps, storage.itemsize).size_bytes
    held = np.full(size_bytes + 2 * ALIGNMENT_BYTES, byte, np.uint8)
    start = -held.ctypes.data % ALIGNMENT_BYTES + shift_bytes
    return np.ndarray(shape, storage, held, offset=start, strides=steps)


def empty_on_device(
    first: View,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: Dtype,
    stream: int,
    *,
    chosen: bool,
) -> Any:
    """An uninitialised output beside `first`, without gaps; strides are in elements.

    PyTorch's and CuPy's own arrays for their inputs, else a `DeviceArray`. `chosen` says that the
    caller named the stream.
    """
    assert first.device is not None
    if first.library == "torch":
        return _torch_empty(first.device, shape, strides, dtype, stream, chosen)
    if first.library == "cupy":
        cupy = sys.modules["cupy"]
        steps = tuple(stride * dtype.size_bytes for stride in strides)
        with cupy.cuda.Device(first.device):
            held = cupy.empty(math.prod(shape), dtype.storage)
            return cupy.ndarray(shape, dtype.storage, held.data, steps)
    return DeviceArray(shape, dtype, first.device, stream, strides)


def _torch_empty(
    device: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: Dtype,
    stream: int,
    chosen: bool,
) -> Any:
    torch = sys.modules["torch"]
    # memory comes from the pool of the stream that will write it, so that its reuse is ordered
    pool = torch.cuda.stream(torch.cuda.ExternalStream(stream, device)) if chosen else nullcontext()
    with pool:
        wanted = getattr(torch, _TORCH[dtype.name])
        return torch.empty_strided(shape, strides, dtype=wanted, device=f"cuda:{device}")


def clear(array: Any, device: int, stream: int) -> None:
    """Put zeros into an array without gaps that `empty_on_device` made, in stream order."""
    found = view(array, "output")
    with driver.on(device):
        driver.clear(found.address, math.prod(found.shape) * found.item_bytes, stream)


def from_host(first: View | None, result: Array, dtype: Dtype) -> Any:
    """A numpy result of `dtype.storage` as the kind of `first`, sharing memory where it can."""
    if first is None or first.library == "torch":
        return result if first is None else _torch_from(result, dtype)
    if first.library == "numpy":
        same = first.source.dtype.name == "bfloat16" and dtype.name == "bf16"
        return result.view(first.source.dtype) if same else result
    if dtype.name == "bf16" and "ml_dtypes" in sys.modules:
        result = result.view(sys.modules["ml_dtypes"].bfloat16)
    if hasattr(first.source, "__array_namespace__"):
        return first.source.__array_namespace__().asarray(result)
    return result


def _torch_from(result: Array, dtype: Dtype) -> Any:
    torch = sys.modules["torch"]
    if dtype.name == "bf16":
        return torch.from_numpy(result.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(result)
