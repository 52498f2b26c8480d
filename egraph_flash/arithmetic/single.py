"""What IEEE single precision gives on NVIDIA hardware: `.rn`, no `.ftz`, canonical NaN."""

from __future__ import annotations

import numpy as np

from ..dtypes import Array
from .rounding import CANONICAL_NAN, SMALLEST_NORMAL, canonical

HALFWAY_BITS = np.uint64(0x1FFFFFFF)  # the bits of a double that a single has no room for
HALFWAY = np.uint64(0x10000000)


def add_f32(a: Array, b: Array) -> Array:
    """a + b, to nearest even."""
    return canonical(np.add(a, b))


def sub_f32(a: Array, b: Array) -> Array:
    """a − b, to nearest even."""
    return canonical(np.subtract(a, b))


def mul_f32(a: Array, b: Array) -> Array:
    """a · b, to nearest even."""
    return canonical(np.multiply(a, b))


def div_f32(a: Array, b: Array) -> Array:
    """a / b, to nearest even."""
    return canonical(np.divide(a, b))


def sqrt_f32(a: Array) -> Array:
    """√a, to nearest even; NaN below zero."""
    return canonical(np.sqrt(a))


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """a·b + c rounded once, to nearest even, subnormals included.

    The product of two singles is exact in double, and rounding the sum to double first goes
    wrong only where that double lies exactly halfway between two singles (or where the result
    is subnormal, whose halfway points lie elsewhere); there the double is rounded to odd.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    bits = total.view(np.uint64)
    doubtful = (bits & HALFWAY_BITS) == HALFWAY
    doubtful |= np.abs(total) < SMALLEST_NORMAL
    if doubtful.any():
        total = np.where(doubtful, _round_to_odd(product, np.float64(1.0) * c, total), total)
    return canonical(total.astype(np.float32))


def _round_to_odd(x: Array, y: Array, total: Array) -> Array:
    """x + y in double, rounded to odd, given `total` rounded to nearest (Boldo–Melquiond)."""
    rest = total - x
    error = (x - (total - rest)) + (y - rest)  # Knuth's two-sum: exact
    bits = total.view(np.int64)
    inward = (error < 0) != (total < 0)  # the exact sum has the smaller magnitude
    moved = np.where(inward, bits - 1, bits) | 1
    inexact = (error != 0) & np.isfinite(total)
    return np.where(inexact & (bits & 1 == 0), moved, bits).view(np.float64)


def max_f32(a: Array, b: Array) -> Array:
    """`max.f32`: a NaN loses to a number; +0 > −0."""
    return canonical(_zero_signs(np.fmax(a, b), a, b, np.bitwise_and))


def min_f32(a: Array, b: Array) -> Array:
    """`min.f32`: a NaN loses to a number; −0 < +0."""
    return canonical(_zero_signs(np.fmin(a, b), a, b, np.bitwise_or))


def max_nan_f32(a: Array, b: Array) -> Array:
    """`max.NaN.f32`: a NaN wins, as the canonical one."""
    return canonical(_zero_signs(np.maximum(a, b), a, b, np.bitwise_and))


def min_nan_f32(a: Array, b: Array) -> Array:
    """`min.NaN.f32`: a NaN wins, as the canonical one."""
    return canonical(_zero_signs(np.minimum(a, b), a, b, np.bitwise_or))


def _zero_signs(result: Array, a: Array, b: Array, merge: np.ufunc) -> Array:
    """numpy may return either zero of two; PTX orders them, so the signs merge."""
    zero = result == 0
    if not zero.any():
        return result
    both = zero & (np.equal(a, 0)) & (np.equal(b, 0))
    a_bits, b_bits = (np.asarray(x, dtype=np.float32).view(np.uint32) for x in (a, b))
    return np.where(both, merge(a_bits, b_bits).view(np.float32), result)


__all__ = [
    "CANONICAL_NAN",
    "add_f32",
    "div_f32",
    "fma_f32",
    "max_f32",
    "max_nan_f32",
    "min_f32",
    "min_nan_f32",
    "mul_f32",
    "sqrt_f32",
    "sub_f32",
]


def normal_reciprocal(divisor: float) -> float | None:
    """1 / divisor where that is a normal f32, else None: then a product replaces the quotient.

    >>> normal_reciprocal(8.0), normal_reciprocal(0.0), normal_reciprocal(2.0**127)
    (0.125, None, None)
    """
    if divisor == 0 or abs(divisor) == float("inf"):
        return None
    reciprocal = 1.0 / divisor
    limits = np.finfo(np.float32)
    return reciprocal if float(limits.tiny) <= abs(reciprocal) <= float(limits.max) else None
