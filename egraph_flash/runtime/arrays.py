"""How a kernel sees a caller's array: numpy, DLPack or `__cuda_array_interface__`."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..dtypes import DTYPES, Array
from ..errors import InputError
from ..footprint import Footprint
from ..plan import dense_strides
from . import dlpack, driver
from .memory import DeviceArray

OVERLAP_WORK = 1 << 20  # steps after which two arrays are taken to share bytes
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
    def has_rows(self) -> bool:
        """Whether the last dimension is contiguous, and none runs backwards."""
        pairs = list(zip(self.shape, self.strides, strict=True))
        moving = [stride for extent, stride in pairs if extent > 1]
        inner = not pairs or pairs[-1][0] <= 1 or pairs[-1][1] == 1
        return 0 in self.shape or (inner and min(moving, default=0) >= 0)

    @property
    def library(self) -> str:
        """The top-level package that made the array, such as "numpy" or "torch"."""
        return type(self.source).__module__.partition(".")[0]

    @property
    def place(self) -> str:
        return "host memory" if self.device is None else f"CUDA device {self.device}"

    def overlaps(self, other: View) -> bool:
        """Whether the two share a byte; also True where finding out would take too long."""
        if self.device != other.device or 0 in (*self.shape, *other.shape):
            return False
        try:
            most: Any = OVERLAP_WORK  # numpy's stubs know of two values only
            return np.shares_memory(self._seen(), other._seen(), max_work=most)
        except np.exceptions.TooHardError:
            return True

    def _seen(self) -> Array:
        """The array as numpy would see it, wherever it lies: for its addresses, not its bytes."""
        return np.asarray(_Addresses(self.address, self.shape, self.strides_bytes, self.item_bytes))

    @property
    def strides_bytes(self) -> tuple[int, ...]:
        return tuple(stride * self.item_bytes for stride in self.strides)

    @property
    def item_bytes(self) -> int:
        """The size of an element; InputError for a dtype that no kernel takes."""
        if self.host is not None:
            return self.host.itemsize
        if self.dtype not in DTYPES:
            raise InputError(f"array: got dtype {self.dtype}, wants one of {', '.join(DTYPES)}")
        return DTYPES[self.dtype].size_bytes

    @property
    def footprint(self) -> Footprint:
        """The bytes that its elements take, as if no dimension ran backwards.

        Raises InputError where its dimensions interleave in too many pieces.
        """
        try:
            return Footprint.of(self.shape, tuple(map(abs, self.strides_bytes)), self.item_bytes)
        except ValueError as error:
            raise InputError(f"array with strides {self.strides}: {error}") from error


class _Addresses:
    """Elements at an address, for numpy to compare with others."""

    def __init__(
        self, address: int, shape: tuple[int, ...], strides_bytes: tuple[int, ...], size: int
    ) -> None:
        self.__array_interface__ = {
            "data": (address, True),
            "shape": shape,
            "strides": strides_bytes,
            "typestr": f"|V{size}",
            "version": 3,
        }


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
    where = array.address, array.shape, array.strides
    return View(*where, array.dtype.name, array.device, True, array)


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


def on_host(found: View) -> Array:
    """The elements in host memory; for an array on a GPU a copy, once all work there is done."""
    if found.host is not None:
        return found.host
    assert found.device is not None, "an array is on the host or on a GPU"
    held = np.empty(found.footprint.size_bytes, np.uint8)
    with driver.on(found.device):
        driver.call("cuCtxSynchronize")
        driver.download(held.ctypes.data, found.address, held.size, 0)
        driver.synchronize(0)
    return np.ndarray(found.shape, DTYPES[found.dtype].storage, held, strides=found.strides_bytes)
