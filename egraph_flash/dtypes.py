"""What element types inputs, casts and outputs may have, and how each is stored in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Dtype:
    """One element type.

    `encode` rounds real numbers (any float array) to stored elements, to nearest even;
    `decode` gives the stored elements' exact values as float64 (int64 for integers and truths).
    """

    name: str
    size_bytes: int
    storage: np.dtype[Any]
    unit_roundoff: float
    source: str
    is_integer: bool = False
    is_boolean: bool = False
    encode: Callable[[Array], Array] = field(repr=False, compare=False, default=np.asarray)
    decode: Callable[[Array], Array] = field(repr=False, compare=False, default=np.asarray)

    def __repr__(self) -> str:
        return self.name

    @property
    def is_real(self) -> bool:
        """Whether elements are real numbers, which casts, outputs and contractions may have."""
        return not self.is_integer and not self.is_boolean


def _ieee(name: str, storage: type[np.floating[Any]], unit_roundoff: float) -> Dtype:
    def encode(values: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(values).astype(storage)

    return Dtype(
        name=name,
        size_bytes=np.dtype(storage).itemsize,
        storage=np.dtype(storage),
        unit_roundoff=unit_roundoff,
        source="IEEE 754",
        encode=encode,
        decode=lambda stored: np.asarray(stored).astype(np.float64),
    )


def _integer(name: str, storage: type[np.integer[Any]]) -> Dtype:
    return Dtype(
        name=name,
        size_bytes=np.dtype(storage).itemsize,
        storage=np.dtype(storage),
        unit_roundoff=0.0,
        source="two's complement",
        is_integer=True,
        encode=lambda values: np.asarray(values).astype(storage),
        decode=lambda stored: np.asarray(stored).astype(np.int64),
    )


def encode_bf16(values: Array) -> Array:
    """Round to bfloat16, to nearest even; returns the bit patterns as uint16.

    The value goes through float32 rounded to odd, so that rounding twice equals rounding once.
    """
    exact = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        single = exact.astype(np.float32)
    bits = single.view(np.uint32).astype(np.int64)
    inexact = np.isfinite(single) & (single.astype(np.float64) != exact)
    away = np.abs(single.astype(np.float64)) > np.abs(exact)
    bits = np.where(inexact, np.where(away, bits - 1, bits) | 1, bits)
    bits = np.where(np.isinf(single) & np.isfinite(exact), bits - 1, bits)  # overflow: to odd
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(exact), 0x7FFF, rounded).astype(np.uint16)


def decode_bf16(stored: Array) -> Array:
    """The exact float64 values of bfloat16 bit patterns (uint16, or any 2-byte bfloat16 dtype)."""
    bits = np.ascontiguousarray(stored).view(np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).astype(np.float64)


f16 = _ieee("f16", np.float16, 2.0**-11)
f32 = _ieee("f32", np.float32, 2.0**-24)
bf16 = Dtype(
    name="bf16",
    size_bytes=2,
    storage=np.dtype(np.uint16),
    unit_roundoff=2.0**-8,
    source="bfloat16: the upper half of an IEEE single, kept in numpy as its bit pattern",
    encode=encode_bf16,
    decode=decode_bf16,
)
i32 = _integer("i32", np.int32)
i64 = _integer("i64", np.int64)
boolean = Dtype(
    name="bool",
    size_bytes=1,
    storage=np.dtype(np.bool_),
    unit_roundoff=0.0,
    source="one byte, false where it is 0; numpy and PyTorch bool, or uint8",
    is_boolean=True,
    encode=lambda values: np.asarray(values) != 0,
    decode=lambda stored: (np.asarray(stored) != 0).astype(np.int64),
)

DTYPES: dict[str, Dtype] = {row.name: row for row in (f16, bf16, f32, i32, i64, boolean)}
