"""What a launch's arguments are to the driver: values with C types, and encoded tensor maps."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..plan import Launch, Pointer, Scalar
from ..tensor_map import ADDRESS_ALIGNMENT_BYTES, MAP_ALIGNMENT_BYTES, MAP_BYTES, TensorMap
from . import driver

_SCALARS: dict[str, Any] = {
    "u32": ctypes.c_uint32,
    "s32": ctypes.c_int32,
    "b32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "s64": ctypes.c_int64,
    "b64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}

# cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, and the choices that are the same for every map
_TYPES = {"i32": 3, "i64": 5, "f16": 6, "f32": 7, "bf16": 9}
_SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
_NO_INTERLEAVE = 0
# Lines are fetched into the L2 in twos: the box's other rows, or another block's box, want the
# neighbour of a 128-byte row soon, and every byte of the tensor is read anyway.
_L2_PROMOTION_256B = 3
_FILL_ZEROS = 0
_SINCE_CUDA = 12000  # which version of cuTensorMapEncodeTiled to ask the driver for

# the driver's entry point, in the order of the programming interface
PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,  # the result
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,  # the tensor
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
)

Parameters = tuple[tuple[Any, ...], tuple[Any, ...]]


class EncodedMap(ctypes.Structure):
    """A tensor map's opaque bytes; the launch copies them into the kernel's parameters."""

    _fields_ = [("opaque", ctypes.c_uint64 * (MAP_BYTES // 8))]


def parameters(step: Launch, addresses: Mapping[str, int]) -> Parameters:
    """Values and C types, as `cuda.bindings` takes them; buffers are at `addresses`.

    Raises InputError for a buffer whose address no tensor map can hold.
    """
    values: list[Any] = []
    types: list[Any] = []
    for argument in step.arguments:
        match argument:
            case Pointer(buffer):
                values.append(addresses[buffer])
                types.append(ctypes.c_void_p)
            case Scalar(type_, value):
                values.append(value)
                types.append(_SCALARS[type_])
            case TensorMap():
                values.append(_encoded(argument, addresses[argument.buffer]))
                types.append(None)  # a structure, by value
    return tuple(values), tuple(types)


def _encoded(map_: TensorMap, address: int) -> EncodedMap:
    if address % ADDRESS_ALIGNMENT_BYTES:
        raise InputError(
            f"buffer {map_.buffer!r}: got the address {address:#x}, wants a multiple of "
            f"{ADDRESS_ALIGNMENT_BYTES} bytes, for the kernel copies boxes of it by a tensor map; "
            "pass a copy"
        )
    return encode(map_, address)


@functools.lru_cache(maxsize=1024)
def encode(map_: TensorMap, address: int) -> EncodedMap:
    """The bytes of a map over the tensor at `address`; DeviceError where the driver refuses it.

    The driver's own entry point is called: it wants 64-byte aligned room for its result, which
    `cuda.bindings` does not allocate.
    """
    rank = map_.rank
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT_BYTES)
    start = ctypes.addressof(room)
    aligned = -(-start // MAP_ALIGNMENT_BYTES) * MAP_ALIGNMENT_BYTES
    status = _encode_tiled()(
        aligned,
        _TYPES[map_.dtype.name],
        rank,
        address,
        (ctypes.c_uint64 * rank)(*map_.sizes),
        (ctypes.c_uint64 * max(rank - 1, 1))(*map_.strides_bytes),
        (ctypes.c_uint32 * rank)(*map_.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        _NO_INTERLEAVE,
        _SWIZZLES[map_.swizzle],
        _L2_PROMOTION_256B,
        _FILL_ZEROS,
    )
    driver.check(driver.api().CUresult(status), f"cuTensorMapEncodeTiled of {map_} at {address:#x}")
    return EncodedMap.from_buffer_copy(room, aligned - start)


def _encode_tiled() -> Any:
    return PROTOTYPE(driver.call("cuGetProcAddress", b"cuTensorMapEncodeTiled", _SINCE_CUDA, 0))
