"""How a tensor core sums: products and accumulator aligned to the largest exponent, truncated.

Rule: MMA-Sim (arXiv 2511.10909), 25 fraction bits for Hopper and RTX Blackwell; checked on an
H200 against 524,288 outputs a type. Everything is done in float64, where it is exact: a product
of two half-precision numbers has at most 22 bits, a term on the grid at most 27, a sum 32.
"""

from __future__ import annotations

import numpy as np

from ..dtypes import Array
from .rounding import CANONICAL_NAN

FRACTION_BITS = 25
_LEAST = -(1 << 12)  # the exponent of a zero: no sum of two of them is ever the largest


def decode_half(values: Array) -> tuple[Array, Array]:
    """float16, or bfloat16 as uint16 → float64 values and exponents, without renormalising.

    A subnormal has the exponent of the smallest normal; a zero has `_LEAST`.
    """
    if values.dtype == np.float16:
        wide = values.astype(np.float32)
        field = (values.view(np.uint16) >> np.uint16(10)) & np.uint16(0x1F)
        bias = 15
    else:
        assert values.dtype == np.uint16, "bfloat16 comes as its bit patterns"
        wide = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        field = (values >> np.uint16(7)) & np.uint16(0xFF)
        bias = 127
    exponents = np.maximum(field.astype(np.int16), 1) - np.int16(bias)
    exponents[wide == 0] = _LEAST
    return wide.astype(np.float64), exponents


def tensor_core_dot(a: Array, b: Array, c: Array, fraction_bits: int = FRACTION_BITS) -> Array:
    """D = A·B + C with the tensor core's rounding: `[…, m, k]`, `[…, k, n]`, `[…, m, n]` f32.

    a, b: float16, or bfloat16 bit patterns (uint16); all k products are summed at once, so k is
    the instruction's own depth. Overflow gives infinity.
    """
    a_values, a_exponents = decode_half(np.ascontiguousarray(np.moveaxis(a, -1, 0)))
    b_values, b_exponents = decode_half(np.ascontiguousarray(np.moveaxis(b, -2, 0)))
    c = np.asarray(c, dtype=np.float32)
    c_field = (c.view(np.uint32) >> np.uint32(23)).astype(np.int16) & np.int16(0xFF)
    largest = np.maximum(c_field, 1) - np.int16(127)  # a zero: -126
    exponents = a_exponents[..., :, None] + b_exponents[..., None, :]
    np.maximum(largest, exponents.max(axis=0), out=largest)
    scale = _power_of_two(fraction_bits - largest.astype(np.int64))
    terms = a_values[..., :, None] * b_values[..., None, :]
    terms *= scale
    np.trunc(terms, out=terms)
    total = terms.sum(axis=0) + np.trunc(c * scale)
    return _towards_zero((total + 0.0) / scale)  # + 0.0: a sum of negative zeros is +0


def _power_of_two(exponents: Array) -> Array:
    return ((exponents + 1023) << 52).view(np.float64)


def _towards_zero(exact: Array) -> Array:
    """float64 → f32, rounded towards zero on f32's own (sub)normal grid; overflow is infinite."""
    single = exact.astype(np.float32)
    grown = np.abs(single) > np.abs(exact)
    grown &= np.abs(exact) < 2.0**128  # at least that much is infinite
    if grown.any():
        bits = single.view(np.int32)
        single = np.where(grown, bits - 1, bits).view(np.float32)
    return np.where(np.isnan(single), CANONICAL_NAN, single)
