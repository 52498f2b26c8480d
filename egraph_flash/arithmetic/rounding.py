"""How values change format: f32 to f16 and bf16 and back, to nearest even, with NVIDIA's NaN.

"The result of a single-precision floating-point operation involving one or more input NaNs is
the quiet NaN of bit pattern 0x7fffffff" (CUDA C++ Programming Guide, Floating-Point Standard);
the half-precision formats have 0x7fff. bfloat16 is held as its bit pattern in uint16.
"""

from __future__ import annotations

import numpy as np

from ..dtypes import Array

CANONICAL_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
CANONICAL_NAN_F16 = np.uint16(0x7FFF).view(np.float16)
SMALLEST_NORMAL = np.float32(2.0**-126)


def canonical(values: Array) -> Array:
    """f32 results with every NaN made 0x7fffffff (in place where it is an array of ours)."""
    wrong = np.isnan(values)
    if wrong.any():
        return np.where(wrong, CANONICAL_NAN, values)
    return values


def flush_subnormals(values: Array) -> Array:
    """f32 with subnormals made zeros of the same sign (`.ftz`)."""
    small = np.abs(values) < SMALLEST_NORMAL
    return np.where(small, np.copysign(np.float32(0.0), values), values) if small.any() else values


def f32_to_f16(values: Array) -> Array:
    """f32 → float16, to nearest even (`cvt.rn.f16.f32`); overflow gives infinity."""
    rounded = np.asarray(values).astype(np.float16)
    wrong = np.isnan(rounded)
    return np.where(wrong, CANONICAL_NAN_F16, rounded) if wrong.any() else rounded


def f32_to_bf16(values: Array) -> Array:
    """f32 → bfloat16 bit patterns, to nearest even (`cvt.rn.bf16.f32`).

    >>> hex(int(f32_to_bf16(np.float32(1.0))))
    '0x3f80'
    """
    single = np.asarray(values, dtype=np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    wrong = np.isnan(single)
    return np.where(wrong, np.uint16(0x7FFF), rounded) if wrong.any() else rounded


def f16_to_f32(values: Array) -> Array:
    """float16 → f32, exact (`cvt.f32.f16`)."""
    return canonical(np.asarray(values).astype(np.float32))


def bf16_to_f32(bits: Array) -> Array:
    """bfloat16 bit patterns → f32, exact (`cvt.f32.bf16`), NaN payloads kept (seen on an H200)."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)
