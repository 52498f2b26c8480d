"""What the special-function unit returns: ex2, rcp and rsqrt, from tables read off an H200.

`data/sm90_mufu_tables.npz` holds each function's results over one binade (rsqrt: two) as first
differences of the f32 bit patterns over the 2^23 mantissas; the exponent is applied exactly.
Measured on sm_90; whether sm_120 has the same tables is not known.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np

from ..dtypes import Array
from .rounding import CANONICAL_NAN, canonical, flush_subnormals

MANTISSA = 23
STEPS = 1 << MANTISSA
INFINITY = 0x7F800000


@cache
def table(name: str) -> Array:
    """The f32 bit patterns `[2^23]` (int32) of `ex2`, `rcp`, `rsqrt12` or `rsqrt24`."""
    path = resources.files("egraph_flash") / "data" / "sm90_mufu_tables.npz"
    with path.open("rb") as file, np.load(file) as tables:
        first, steps = tables[f"{name}_t0"], tables[f"{name}_d"]
    found = np.empty(STEPS, np.int32)
    found[0] = first
    np.cumsum(steps, dtype=np.int32, out=found[1:])
    found[1:] += np.int32(first)
    found.flags.writeable = False
    return found


def ex2_approx_ftz(a: Array) -> Array:
    """`ex2.approx.ftz.f32`: 2^a for f32 `a` of any shape.

    The unit takes it as a fixed-point number of 23 fraction bits, truncated towards zero and
    negated as one's complement (integers excepted); its table gives 2^fraction in [2, 4).
    """
    x = np.asarray(a, dtype=np.float32)
    bounded = np.fmin(np.abs(x), np.float32(256.0))  # beyond, everything over- or underflows
    magnitude = (bounded * np.float32(STEPS)).astype(np.int64)
    whole = (magnitude & (STEPS - 1)) == 0
    fixed = np.where(x < 0, ~magnitude + whole, magnitude)
    fraction = fixed & (STEPS - 1)
    bits = table("ex2")[fraction] + (fixed - fraction - STEPS)
    bits = np.where(bits < STEPS, 0, np.minimum(bits, INFINITY))  # below 2^-126: zero
    return canonical(np.where(np.isnan(x), x, bits.astype(np.uint32).view(np.float32)))


def rcp_approx_ftz(a: Array) -> Array:
    """`rcp.approx.ftz.f32`: 1/a; subnormal inputs count as zero, subnormal results flush."""
    x = flush_subnormals(np.asarray(a, dtype=np.float32))
    bits = x.view(np.uint32).astype(np.int64)
    exponent = (bits >> MANTISSA) & 0xFF
    found = table("rcp")[bits & (STEPS - 1)].astype(np.int64) + ((127 - exponent) << MANTISSA)
    found = np.where(found < STEPS, 0, found)  # below 2^-126
    sign = bits & 0x80000000
    result = (found | sign).astype(np.uint32).view(np.float32)
    result = np.where(exponent == 0, np.copysign(np.float32(np.inf), x), result)
    result = np.where(np.isinf(x), np.copysign(np.float32(0.0), x), result)
    return np.where(np.isnan(x), CANONICAL_NAN, result)


def rsqrt_approx_ftz(a: Array) -> Array:
    """`rsqrt.approx.ftz.f32`: 1/√a; −0 and +0 give infinities, negatives NaN."""
    x = flush_subnormals(np.asarray(a, dtype=np.float32))
    bits = x.view(np.uint32).astype(np.int64)
    exponent = ((bits >> MANTISSA) & 0xFF) - 127
    odd = (exponent & 1).astype(bool)
    mantissa = bits & (STEPS - 1)
    found = np.where(odd, table("rsqrt24")[mantissa], table("rsqrt12")[mantissa]).astype(np.int64)
    found = found - ((exponent >> 1) << MANTISSA)
    result = found.astype(np.uint32).view(np.float32)
    result = np.where(np.isposinf(x), np.float32(0.0), result)
    result = np.where(x == 0, np.copysign(np.float32(np.inf), x), result)
    return np.where(np.isnan(x) | (x < 0), CANONICAL_NAN, result)
