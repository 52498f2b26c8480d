"""Reductions that have a name, each only its naive definition, spelled out."""

from __future__ import annotations

from .axes import Axis
from .errors import ExpressionError
from .expressions import Expr, Value, exp, inf, lift, maximum, where

EXACT = 2**24  # whole numbers up to it are f32


def softmax(x: Value, axis: Axis, *, extra: Value | None = None) -> Expr:
    """exp(x - max x) / Σ exp(x - max x), spelled out; a row without unmasked elements gives 0.

    `extra` is one more element of each row, which the maximum and the sum take in and the result
    leaves out (an attention sink). Raises ExpressionError where it varies along the axis.
    """
    x = lift(x)
    if extra is None:
        weights = exp(x - x.max(axis))
        return weights / weights.sum(axis)
    extra = lift(extra)
    if axis in extra.axes:
        raise ExpressionError(
            f"softmax: the extra element {extra} varies along {axis}, wants one a row"
        )
    top = maximum(x.max(axis), extra)
    weights = exp(x - top)
    return weights / (weights.sum(axis) + exp(extra - top))


def argmax(x: Value, axis: Axis) -> Expr:
    """The index of the maximum along an axis, of several the first; of no element, infinity.

    Spelled out: the least index whose element equals the maximum. Raises ExpressionError for an
    axis with indices that f32, which kernels carry, does not hold.
    """
    x = lift(x)
    if axis.size > EXACT:
        raise ExpressionError(
            f"argmax: got the axis {axis} of {axis.size} elements, wants at most {EXACT}, whose "
            "indices f32 holds"
        )
    return -where(x == x.max(axis), -axis.index, -inf).max(axis)
