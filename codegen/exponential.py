"""How exp is computed: by ex2, with its constants folded, accurately, or by a polynomial."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arithmetic import normal_reciprocal
from .builder import Builder
from .context import Context
from .expression import compute, emit_each, real, zero_for_minus_infinity
from .frames import Frame
from .pointwise import LOG2_E, exp2_scaled
from .values import Value, constant, each

INF = float("inf")
LEAST, GREATEST = 2.0**-100, 2.0**100  # of a factor that constants are gathered into

# 2^f for |f| <= 1/2 with a relative error of 1.0e-7: interpolation at Chebyshev's points
POLYNOMIAL = (1.00000008, 0.69314719, 0.24022107, 0.05550357, 0.00967603, 0.00133909)
ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which its low bits then hold
LN_2 = math.log(2.0)
LOG2_E_HIGH = float(np.float32(LOG2_E))
LOG2_E_LOW = LOG2_E - LOG2_E_HIGH


def exponential(ctx: Context, term: Any, frame: Frame) -> Value:
    """exp in the form that is chosen; one of a single value a row is always plain."""
    form = ctx.choices.exp
    inner = term.args[0]
    by_element = all(ctx.uses(term, frame))
    if by_element and inner.head == "Sub" and form.form in ("fold", "poly"):
        folded = _folded(ctx, inner.args[0], inner.args[1], frame)
        if folded is not None:
            return folded
    if by_element and form.form == "accurate":
        value = real(ctx, compute(ctx, inner, frame), frame)
        return emit_each(ctx, _accurate, (value,), frame, "f32")
    return _plain(ctx, inner, frame)


def _plain(ctx: Context, inner: Any, frame: Frame) -> Value:
    """exp(c * x) takes one multiplication for both constants."""
    inner, scale = scaled_by(inner)
    value = real(ctx, compute(ctx, inner, frame), frame)
    if value.is_constant:
        return constant(float(np.exp(scale * value.words[0])))
    return emit_each(ctx, lambda b, x: exp2_scaled(b, x, scale), (value,), frame, "f32")


def scaled_by(term: Any) -> tuple[Any, float]:
    """A term as (x, c) with c * x equal to it: x without constant factors and divisors."""
    scale = 1.0
    while True:
        inner, factor = _factor(term)
        if inner is term or not LEAST <= abs(scale * factor) <= GREATEST:
            return term, scale
        term, scale = inner, scale * factor


def _factor(term: Any) -> tuple[Any, float]:
    """The term without its outermost constant factor, and that factor; itself and 1 else."""
    if term.head == "Div" and term.args[1].head == "Num" and term.args[0].head != "Num":
        reciprocal = normal_reciprocal(term.args[1].args[0])
        return (term, 1.0) if reciprocal is None else (term.args[0], reciprocal)
    if term.head == "Mul":
        for factor, other in (term.args, reversed(term.args)):
            if factor.head == "Num" and other.head != "Num":
                return other, factor.args[0]
    return term, 1.0


def _folded(ctx: Context, left: Any, right: Any, frame: Frame) -> Value | None:
    """exp(c x - b), b having one value a row, as 2^(x * (c log2 e) + (-b log2 e)).

    A base of minus infinity counts as 0, as it does in a difference: then x is minus infinity.
    """
    rows, columns = ctx.uses(right, frame)
    if columns or not rows or not ctx.uses(left, frame)[1] or right not in ctx.upper:
        return None
    x, scale = scaled_by(left)
    value = real(ctx, compute(ctx, x, frame), frame)
    folded = (value, _subtracted(ctx, right, frame))
    depth = max(each_.depth for each_ in folded)
    share = ctx.choices.exp.share
    turn = iter(range(1 << 30))

    def emit(word: Any, negated: Any) -> Any:
        b = ctx.builder
        exponent = b.op("fma_rn_f32", word, scale * LOG2_E, negated)
        if next(turn) % 8 < share:
            return _polynomial(b, exponent)
        return b.op("ex2_approx_ftz_f32", exponent)

    with ctx.builder.at(depth):
        return each(folded, frame, emit, "f32", depth)


def _subtracted(ctx: Context, base: Any, frame: Frame) -> Value:
    """-base * log2 e: kept where the base seldom moves, else computed once a block."""
    if "negated" in ctx.kept.get(base, {}):
        return ctx.kept[base]["negated"]
    name = ("negated", *ctx.name_of(base, frame))
    if name not in ctx.memo:
        value = real(ctx, compute(ctx, base, frame), frame)
        ctx.memo[name] = emit_each(ctx, negated, (value,), frame, "f32")
    return ctx.memo[name]


def negated(b: Builder, base: Any) -> Any:
    """-base * log2 e, of minus infinity 0."""
    return b.op("mul_rn_f32", zero_for_minus_infinity(b, base), -LOG2_E)


def _accurate(b: Builder, x: Any) -> Any:
    """exp(x) to an ulp or two: the rounding of x log2 e is made good by a first-order term."""
    bounded = b.op("min_NaN_f32", b.op("max_NaN_f32", x, -200.0), 200.0)
    high = b.op("mul_rn_f32", bounded, LOG2_E_HIGH)
    low = b.op("fma_rn_f32", bounded, LOG2_E_HIGH, b.op("neg_f32", high))
    low = b.op("fma_rn_f32", bounded, LOG2_E_LOW, low)
    power = b.op("ex2_approx_ftz_f32", high)
    correction = b.op("mul_rn_f32", low, LN_2)
    corrected = b.op("fma_rn_f32", power, correction, power)
    infinite = b.op("setp_eq_f32", power, INF)
    return b.op("selp_f32", power, corrected, infinite)


def _polynomial(b: Builder, exponent: Any) -> Any:
    """2^x without the special function unit: x = n + f, 2^f by a polynomial, n by the exponent.

    Results below 2^-126 are 0, as with ex2: the part is 0 there, and NaN where x is.
    """
    kept = b.op("max_NaN_f32", b.op("min_NaN_f32", exponent, 127.0), -126.0)
    shifted = b.op("add_rn_f32", kept, ROUNDER)
    whole = b.op("sub_rn_f32", shifted, ROUNDER)
    part = b.op("sub_rn_f32", kept, whole)
    power: Any = None
    for coefficient in reversed(POLYNOMIAL):
        if power is None:
            power = b.new("f32")
            b.move(power, coefficient)
        else:
            held = b.new("f32")
            b.move(held, coefficient)
            power = b.op("fma_rn_f32", power, part, held)
    bits, number = b.new("b32"), b.new("b32")
    b.put("mov_b32", d=bits, a=power)
    b.put("mov_b32", d=number, a=shifted)
    raised = b.op("add_s32", bits, b.op("shl_b32", number, 23))
    result = b.new("f32")
    b.put("mov_b32", d=result, a=raised)
    normal = b.op("setp_ge_f32", exponent, -126.0)
    return b.op("selp_f32", result, part, normal)
