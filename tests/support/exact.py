"""What the arithmetic should give, from the definitions, in exact rationals, one value a time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

NAN_BITS = 0x7FFFFFFF


def fraction(value: float) -> Fraction:
    return Fraction(float(value))


def round_bits(value: Fraction, mantissa: int, exponent_bits: int, sign_of_zero: int = 0) -> int:
    """An exact number as IEEE bits of a format, to nearest even; overflow is infinite."""
    width = mantissa + exponent_bits
    if value == 0:
        return sign_of_zero << width
    sign = int(value < 0)
    magnitude = abs(value)
    least = 2 - (1 << exponent_bits - 1)  # exponent of the smallest normal
    exponent = least
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    grid = Fraction(2) ** (exponent - mantissa)
    steps = round(magnitude / grid)  # Python rounds halves to even
    bits = steps + ((exponent - least) << mantissa)  # a carry moves into the exponent
    return min(bits, ((1 << exponent_bits) - 1) << mantissa) | sign << width


def f32_bits(value: Fraction, sign_of_zero: int = 0) -> int:
    return round_bits(value, 23, 8, sign_of_zero)


def fma_bits(a: float, b: float, c: float) -> int:
    """a·b + c as f32 bits, rounded once."""
    with np.errstate(all="ignore"):
        plain = np.float64(a) * np.float64(b) + np.float64(c)
    if np.isnan(plain):
        return NAN_BITS
    if np.isinf(plain):
        return 0x7F800000 | (0x80000000 if plain < 0 else 0)
    exact = fraction(a) * fraction(b) + fraction(c)
    negative = np.signbit(plain)  # of an exact zero the signs decide
    return f32_bits(exact, int(negative))


def _decode(bits: int, mantissa: int, exponent_bits: int) -> tuple[int, int, int]:
    """(sign, integer mantissa, exponent) without renormalising: value = ±m·2^(e − mantissa)."""
    bias = (1 << exponent_bits - 1) - 1
    field = bits >> mantissa & (1 << exponent_bits) - 1
    fraction_bits = bits & (1 << mantissa) - 1
    sign = -1 if bits >> mantissa + exponent_bits else 1
    hidden = 1 << mantissa if field else 0
    return sign, fraction_bits | hidden, max(field, 1) - bias


def tensor_core_bits(a: list[int], b: list[int], c: int, type: str, fraction_bits: int) -> int:
    """One output of an mma as f32 bits, by the measured integer rule; finite inputs only."""
    mantissa, exponent_bits = (10, 5) if type == "f16" else (7, 8)
    terms: list[tuple[int, int, int]] = []  # signed integer, its scale, exponent
    sign, value, exponent = _decode(c, 23, 8)
    largest = exponent
    terms.append((sign * value, 23, exponent))
    for x, y in zip(a, b, strict=True):
        (sx, mx, ex), (sy, my, ey) = (_decode(each, mantissa, exponent_bits) for each in (x, y))
        if mx and my:
            terms.append((sx * sy * mx * my, 2 * mantissa, ex + ey))
            largest = max(largest, ex + ey)
    total = 0
    for integer, scale, exponent in terms:
        shift = fraction_bits - scale - (largest - exponent)
        magnitude = abs(integer) << shift if shift >= 0 else abs(integer) >> -shift
        total += magnitude if integer > 0 else -magnitude
    exact = Fraction(total) * Fraction(2) ** (largest - fraction_bits)
    return towards_zero_bits(exact)


def towards_zero_bits(value: Fraction) -> int:
    """An exact number as f32 bits, rounded towards zero; from 2^128 on, infinite."""
    if value == 0:
        return 0
    sign = 0x80000000 if value < 0 else 0
    magnitude = abs(value)
    if magnitude >= 2**128:
        return sign | 0x7F800000
    exponent = -126
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = int(magnitude / Fraction(2) ** (exponent - 23))
    return sign | (steps + ((exponent + 126) << 23))
