"""Arithmetic of 16-bit floats, rounded once to nearest even; NaNs are 0x7fff."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .rounding import bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16

Array = npt.NDArray[Any]


def mul_f16(a: Array, b: Array) -> Array:
    """`mul.rn.f16`: a product of two float16 is exact in f32, subnormals and all.

    >>> float(mul_f16(np.float16(1.5), np.float16(-2.0)))
    -3.0
    """
    with np.errstate(invalid="ignore"):
        return f32_to_f16(f16_to_f32(a) * f16_to_f32(b))


def mul_bf16(a: Array, b: Array) -> Array:
    """`mul.rn.bf16`, of bit patterns: exact in f64, then by way of an f32 rounded to odd.

    >>> hex(int(mul_bf16(np.uint16(0x3FC0), np.uint16(0xC000))))
    '0xc040'
    """
    with np.errstate(invalid="ignore", over="ignore"):
        exact = bf16_to_f32(a).astype(np.float64) * bf16_to_f32(b).astype(np.float64)
        near = exact.astype(np.float32)
    inexact = (near != exact) & np.isfinite(near)
    away = np.abs(near) > np.abs(exact)
    bits = near.view(np.uint32) - (inexact & away).astype(np.uint32)
    return f32_to_bf16((bits | inexact.astype(np.uint32)).view(np.float32))
