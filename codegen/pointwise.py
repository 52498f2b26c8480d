"""Which instructions compute each pointwise operator, on reals in f32 and on indices in s32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..arithmetic import normal_reciprocal
from .builder import Builder

Emit = Callable[..., Any]
LOG2_E = math.log2(math.e)
LN_2 = math.log(2.0)


def _instruction(row: str) -> Emit:
    return lambda b, *sources: b.op(row, *sources)


def exp2_scaled(b: Builder, x: Any, scale: float = 1.0) -> Any:
    """exp(scale * x) = 2^(x * (scale * log2 e)); the error is that of ex2.approx and a rounding."""
    return b.op("ex2_approx_ftz_f32", b.op("mul_rn_f32", x, scale * LOG2_E))


def _logarithm(b: Builder, x: Any) -> Any:
    return b.op("mul_rn_f32", b.op("lg2_approx_ftz_f32", x), LN_2)


def divided(b: Builder, x: Any, y: Any) -> Any:
    """x / y; by a constant, x times its reciprocal, with an error of at most 1.5 ulp.

    Both the reciprocal and the product are rounded, by 2^-24 each; a power of two is exact.
    """
    reciprocal = normal_reciprocal(y) if isinstance(y, int | float) else None
    if reciprocal is None:
        return b.op("div_rn_f32", x, y)
    return x if reciprocal == 1.0 else b.op("mul_rn_f32", x, reciprocal)


def _swapped(row: str) -> Emit:
    """A commutative instruction: a constant goes second, as PTX likes it."""

    def emit(b: Builder, x: Any, y: Any) -> Any:
        return b.op(row, y, x) if isinstance(x, int | float) else b.op(row, x, y)

    return emit


REAL: dict[str, Emit] = {
    "Add": _swapped("add_rn_f32"),
    "Sub": _instruction("sub_rn_f32"),
    "Mul": _swapped("mul_rn_f32"),
    "Div": divided,
    "Neg": _instruction("neg_f32"),
    "Abs": _instruction("abs_f32"),
    "Sqrt": _instruction("sqrt_rn_f32"),
    "Max2": _swapped("max_NaN_f32"),
    "Min2": _swapped("min_NaN_f32"),
    "Exp": exp2_scaled,
    "Log": _logarithm,
}


def _is_power_of_two(number: Any) -> bool:
    return isinstance(number, int) and number > 0 and number & (number - 1) == 0


def _floor_division(b: Builder, x: Any, divisor: Any) -> Any:
    """Rounds toward minus infinity; `div.s32` rounds toward zero."""
    if _is_power_of_two(divisor):
        return b.op("shr_s32", x, divisor.bit_length() - 1)
    quotient = b.op("div_s32", x, divisor)
    remainder = b.op("rem_s32", x, divisor)
    below = b.op("setp_lt_s32", remainder, 0)
    return b.op("selp_s32", b.op("add_s32", quotient, -1), quotient, below)


def _remainder(b: Builder, x: Any, divisor: Any) -> Any:
    """Has the divisor's sign, as Python's; `rem.s32` has the dividend's."""
    if _is_power_of_two(divisor):
        return b.op("and_b32", x, divisor - 1)
    remainder = b.op("rem_s32", x, divisor)
    below = b.op("setp_lt_s32", remainder, 0)
    return b.op("selp_s32", b.op("add_s32", remainder, divisor), remainder, below)


INTEGER: dict[str, Emit] = {
    "Add": _swapped("add_s32"),
    "Sub": _instruction("sub_s32"),
    "Mul": _swapped("mul_lo_s32"),
    "Neg": _instruction("neg_s32"),
    "Max2": _swapped("max_s32"),
    "Min2": _swapped("min_s32"),
    "FloorDiv": _floor_division,
    "Mod": _remainder,
}

# comparisons: (on f32, on s32); a NaN compares unequal to everything
COMPARE: dict[str, tuple[Emit, Emit]] = {
    "Lt": (_instruction("setp_lt_f32"), _instruction("setp_lt_s32")),
    "Le": (_instruction("setp_le_f32"), _instruction("setp_le_s32")),
    "Eq": (_instruction("setp_eq_f32"), _instruction("setp_eq_s32")),
    "Ne": (_instruction("setp_neu_f32"), _instruction("setp_ne_s32")),
}

LOGIC: dict[str, Emit] = {
    "And": _instruction("and_pred"),
    "Or": _instruction("or_pred"),
    "Not": _instruction("not_pred"),
}
