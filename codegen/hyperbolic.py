"""How tanh is computed: by exp, in bits that are known, or by one instruction, in bits that are
not."""

from __future__ import annotations

import math
from typing import Any

from .builder import Builder
from .context import Context
from .exponential import scaled_by
from .expression import compute, emit_each, real
from .frames import Frame
from .pointwise import exp2_scaled
from .values import Value, constant


def hyperbolic_tangent(ctx: Context, term: Any, frame: Frame) -> Value:
    """tanh in the form that is chosen; the constant factors of its argument are one factor."""
    inner, scale = scaled_by(term.args[0])
    value = real(ctx, compute(ctx, inner, frame), frame)
    if value.is_constant:
        return constant(math.tanh(scale * value.words[0]))
    emit = {"exp": _by_exp, "approx": _approximately}[ctx.choices.tanh]
    return emit_each(ctx, lambda b, x: emit(b, x, scale), (value,), frame, "f32")


def _by_exp(b: Builder, x: Any, scale: float) -> Any:
    """tanh y = 1 - 2 / (exp 2y + 1) for y = scale * x, to an absolute error of 2^-21.

    Where exp 2y is 0 or infinite the limits -1 and 1 are exact, and so is the 0 between.
    """
    above = b.op("add_rn_f32", exp2_scaled(b, x, 2.0 * scale), 1.0)
    return b.op("fma_rn_f32", b.op("rcp_approx_ftz_f32", above), -2.0, 1.0)


def _approximately(b: Builder, x: Any, scale: float) -> Any:
    return b.op("tanh_approx_f32", x if scale == 1.0 else b.op("mul_rn_f32", x, scale))
