"""What a DLPack capsule says: address, shape, strides, dtype and device, read without a library."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError

HOST, CUDA = {1, 3}, {2, 13}  # kDLCPU, kDLCUDAHost; kDLCUDA, kDLCUDAManaged (dlpack.h, v1.1)


class _Tensor(ctypes.Structure):
    """dlpack.h, DLTensor; a DLManagedTensor starts with one."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Exported:
    """One exported tensor; `strides` in elements, None where dense; `device` None on the host.

    The capsule keeps the memory alive: it is never consumed, so dropping it gives it back.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device: int | None
    capsule: Any = field(repr=False)


# dlpack.h, DLDataTypeCode: (code, bits) -> our name. uint16 stands for bf16 bit patterns, and
# uint8 for truths.
_DTYPES = {
    (2, 16): "f16", (4, 16): "bf16", (2, 32): "f32", (0, 32): "i32", (0, 64): "i64",
    (1, 16): "bf16", (6, 8): "bool", (1, 8): "bool",
}  # fmt: skip
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


def export(array: Any, named: str) -> Exported:
    """Read `array`'s DLPack capsule; InputError, which says `named`, where it gives none."""
    kind, ordinal = array.__dlpack_device__()
    if kind not in HOST | CUDA:
        raise InputError(
            f"{named}: got an array on DLPack device type {int(kind)}, wants host memory or CUDA"
        )
    try:  # the kernel runs on the caller's stream, so -1: no synchronisation
        capsule = array.__dlpack__(stream=-1) if kind in CUDA else array.__dlpack__()
    except (BufferError, RuntimeError, TypeError) as error:
        raise InputError(f"{named}: {type(array).__name__} gives no DLPack: {error}") from error
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    dims = range(tensor.ndim)
    return Exported(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=tuple(tensor.shape[axis] for axis in dims),
        strides=tuple(tensor.strides[axis] for axis in dims) if tensor.strides else None,
        dtype=_dtype(tensor),
        device=int(ordinal) if kind in CUDA else None,
        capsule=capsule,
    )


def _dtype(tensor: _Tensor) -> str:
    plain = f"{_KINDS.get(tensor.code, f'type code {tensor.code} of ')}{tensor.bits}"
    if tensor.lanes != 1:
        return f"{plain} x {tensor.lanes}"
    return _DTYPES.get((tensor.code, tensor.bits), plain)


def _pointer(capsule: Any, name: bytes) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(capsule, name))
