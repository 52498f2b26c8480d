"""How a kernel sees a caller's array: numpy, DLPack or `__cuda_array_interface__`."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..dtypes import DTYPES, Array
from ..errors import InputError
from . import dlpack, driver
from .memory import DeviceArray

ALIGNMENT_BYTES = 16
IMMUTABLE = ("jax", "jaxlib")  # libraries whose arrays DLPack gives away and nobody may change


@dataclass(frozen=True)
class View:
    """Where an array's elements are: the first one's address, and strides in elements.

    `dtype` is a name in `DTYPES`, or the producer's own for a type that kernels do not take;
    `device` is a CUDA ordinal, None in host memory; `host` is the same memory as numpy sees it;
    `source` is the caller's array and `keep` whatever else keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int | None
    writable: bool
    source: Any = field(repr=False, compare=False)
    host: Array | None = field(default=None, repr=False, compare=False)
    keep: Any = field(default=None, repr=False, compare=False)

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie row-major without gaps."""
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected and 0 not in self.shape:
                return False
            expected *= extent
        return True

    @property
    def is_aligned(self) -> bool:
        return self.address % ALIGNMENT_BYTES == 0

    @property
    def library(self) -> str:
        """The top-level package that made the array, such as "numpy" or "torch"."""
        return type(self.source).__module__.partition(".")[0]

    @property
    def place(self) -> str:
        return "host memory" if self.device is None else f"CUDA device {self.device}"

    def overlaps(self, other: View) -> bool:
        """Whether the two share bytes, for dense views."""
        if self.device != other.device or not (self.size_bytes and other.size_bytes):
            return False
        return (
            self.address < other.address + other.size_bytes
            and other.address < self.address + self.size_bytes
        )

    @property
    def size_bytes(self) -> int:
        if self.host is not None:
            return self.host.nbytes
        if self.dtype not in DTYPES:
            raise InputError(f"array: got dtype {self.dtype}, wants one of {', '.join(DTYPES)}")
        return math.prod(self.shape) * DTYPES[self.dtype].size_bytes


def view(array: Any, named: str) -> View:
    """How a kernel sees `array`; InputError, which says `named`, for what is no array."""
    if isinstance(array, View):
        return array
    if isinstance(array, np.ndarray):
        return _numpy_view(array, named)
    if isinstance(array, DeviceArray):
        return _device_array_view(array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _dlpack_view(array, named)
    if hasattr(array, "__cuda_array_interface__"):
        return _interface_view(array)
    raise InputError(
        f"{named}: got {type(array).__name__}, wants an array: numpy, DLPack (PyTorch, CuPy, JAX) "
        "or __cuda_array_interface__"
    )


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements.

    >>> dense_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


_NAMES = {(row.storage.kind, row.storage.itemsize): row.name for row in DTYPES.values()}
_NAMES["u", 1] = "bool"  # bytes, as masks are often kept


def numpy_name(dtype: np.dtype[Any]) -> str:
    """The name of a numpy dtype among ours; uint8 is bool, uint16 and ml_dtypes' bfloat16 bf16."""
    if dtype.name == "bfloat16":
        return "bf16"
    if not dtype.isnative:
        return str(dtype)
    return _NAMES.get((dtype.kind, dtype.itemsize), dtype.name)


def _numpy_view(array: Array, named: str) -> View:
    if any(stride % array.itemsize for stride in array.strides):
        raise InputError(
            f"{named}: got byte strides {array.strides} of {array.itemsize}-byte elements, wants "
            "multiples; pass a copy"
        )
    name = numpy_name(array.dtype)
    host = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    return View(
        address=array.__array_interface__["data"][0],
        shape=array.shape,
        strides=tuple(stride // array.itemsize for stride in array.strides),
        dtype=name,
        device=None,
        writable=array.flags.writeable,
        source=array,
        host=host,
    )


def _device_array_view(array: DeviceArray) -> View:
    strides = dense_strides(array.shape)
    return View(array.address, array.shape, strides, array.dtype.name, array.device, True, array)


def _dlpack_view(array: Any, named: str) -> View:
    exported = dlpack.export(array, named)
    found = View(
        address=exported.address,
        shape=exported.shape,
        strides=exported.strides or dense_strides(exported.shape),
        dtype=exported.dtype,
        device=exported.device,
        writable=type(array).__module__.partition(".")[0] not in IMMUTABLE,
        source=array,
        keep=exported.capsule,
    )
    if found.device is None and found.dtype in DTYPES:
        return replace(found, host=_host_memory(found))
    return found


def _host_memory(found: View) -> Array:
    """The same memory as a numpy array; the view keeps it alive, not the array."""
    storage = DTYPES[found.dtype].storage
    if 0 in found.shape:
        return np.empty(found.shape, storage)
    reach = 1 + sum((n - 1) * s for n, s in zip(found.shape, found.strides, strict=True))
    memory = (ctypes.c_char * (reach * storage.itemsize)).from_address(found.address)
    steps = tuple(stride * storage.itemsize for stride in found.strides)
    return np.ndarray(found.shape, storage, buffer=memoryview(memory), strides=steps)


def _interface_view(array: Any) -> View:
    interface = array.__cuda_array_interface__
    shape = tuple(interface["shape"])
    address, readonly = interface["data"]
    dtype = np.dtype(interface["typestr"])
    strides = interface.get("strides")
    return View(
        address=address or 0,
        shape=shape,
        strides=tuple(s // dtype.itemsize for s in strides) if strides else dense_strides(shape),
        dtype=numpy_name(dtype),
        device=driver.owner(address) if address else 0,
        writable=not readonly,
        source=array,
    )
