"""By how much an f32 computation of an expression may be off, element by element.

Errors are carried along, to first order, through the steps that the expression spells out. A kernel
computes what equals it by laws that cancel nothing, so that its error is about as large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from egraph_flash.dtypes import DTYPES, Array
from egraph_flash.evaluation import Evaluator, Value, spread

STEP = 2.0**-23  # of one operation in f32, and of the hardware's exp, logarithm and reciprocal
TANH = {"exp": 2.0**-19, "approx": 2.0**-9}  # absolute, as the knob's row says, with room
SMALLEST = 2.0**-120  # past it f32 has fewer digits, and results may be flushed
SIGMAS = 6.0  # of a sum of roundings that have nothing to do with each other
TIMES = 4.0  # more than the first order says


@dataclass(frozen=True)
class Rounding:
    """What a schedule rounds: `operand` is the unit to which tensor cores round operands that are
    computed, 0 for none; `tanh` the absolute error of its tanh."""

    operand: float = 0.0
    tanh: float = TANH["exp"]

    @classmethod
    def of(cls, schedule: Mapping[str, str]) -> Rounding:
        tiles = " ".join(schedule.values())
        narrow = (DTYPES[dtype] for dtype in ("f16", "bf16") if f"m16n8k16_{dtype}" in tiles)
        units = [dtype.unit_roundoff for dtype in narrow]
        forms = [value for name, value in schedule.items() if name.partition("@")[0] == "TANH"]
        return cls(max(units, default=0.0), max((TANH[form] for form in forms), default=2.0**-19))


def bound(
    output: Any, arrays: Mapping[str, Array], rounding: Rounding, lengths: Mapping[str, int]
) -> Array:
    """How far each element of an output [its axes in order] may be from its value, before it is
    stored; infinite where the first order says nothing."""
    term = output.expr
    found = Bounded(term, arrays, {}, lengths)
    found.rounding, found.errors = rounding, {}
    value = found.value(term)
    error = np.where(np.isnan(found.errors[term]), np.inf, found.errors[term])
    whole = np.broadcast_to(error, value.array.shape)
    return np.asarray(SMALLEST + TIMES * spread(whole, value.axes, output.axes))


class Bounded(Evaluator):
    """Values with the error of each, an array along the value's axes."""

    rounding: Rounding
    errors: dict[Any, Array]

    def _value(self, node: Any) -> Value:
        found = super()._value(node)
        error = self._error(node, found)
        gone = found.absent | ~np.isfinite(found.array)
        self.errors[node] = np.where(gone, 0.0, error)
        return found

    def _error(self, node: Any, found: Value) -> Array:
        size = np.abs(found.array)
        if node.head == "Red":
            return self._of_fold(node, size)
        if node.head == "Cast":
            return self.errors[node.args[1]] + DTYPES[node.args[0]].unit_roundoff * size
        rule = _RULES.get(node.head)
        if rule is None:  # loads, numbers, indices, truths
            return np.zeros(found.array.shape)
        below = [self.values[child] for child in node.args]
        values = [spread(each.array, each.axes, found.axes) for each in below]
        errors = [spread(self.errors[child], each.axes, found.axes)
                  for child, each in zip(node.args, below, strict=True)]  # fmt: skip
        own = self.rounding.tanh if node.head == "Tanh" else 0.0
        return np.asarray(rule(found.array, *values, *errors)) + STEP * size + own

    def _of_fold(self, node: Any, size: Array) -> Array:
        monoid, axis, body = node.args[0].head, node.args[1], node.args[2]
        value = self.values[body]
        count = self.size(axis)
        if axis not in value.axes:
            return count * (self.errors[body] + STEP * count * np.abs(value.array))
        place = value.axes.index(axis)
        error = np.broadcast_to(self.errors[body], value.array.shape)
        if monoid == "Max":
            return np.asarray(error.max(axis=place, initial=0.0))
        held = np.where(np.isfinite(value.array), value.array, 0.0)
        scatter = np.sqrt((held * held).sum(axis=place))  # of terms whose roundings are independent
        own = STEP * (8 + count / 8) * (size + 3 * scatter)
        rounded = SIGMAS * self.rounding.operand * scatter if _computes(body) else 0.0
        return np.asarray(error.sum(axis=place) + own + rounded)


def _computes(body: Any) -> bool:
    """Whether a factor of a product is no element of an input as it is."""
    if body.head == "Mul":
        return any(map(_computes, body.args))
    return body.head not in ("Load", "Num")


def _where(r: Array, c: Array, a: Array, b: Array, of_c: Array, of_a: Array, of_b: Array) -> Array:
    return np.where(c != 0, of_a, of_b)


def _divided(r: Array, a: Array, b: Array, of_a: Array, of_b: Array) -> Array:
    return np.where((r == 0) & (of_a == 0), 0.0, (of_a + np.abs(r) * of_b) / np.abs(b))


_RULES: dict[str, Callable[..., Array]] = {
    "Add": lambda r, a, b, of_a, of_b: of_a + of_b,
    "Sub": lambda r, a, b, of_a, of_b: of_a + of_b,
    "Mul": lambda r, a, b, of_a, of_b: np.abs(a) * of_b + np.abs(b) * of_a + of_a * of_b,
    "Div": _divided,
    "Neg": lambda r, a, of_a: of_a,
    "Abs": lambda r, a, of_a: of_a,
    "Max2": lambda r, a, b, of_a, of_b: np.maximum(of_a, of_b),
    "Min2": lambda r, a, b, of_a, of_b: np.maximum(of_a, of_b),
    "Exp": lambda r, a, of_a: np.where(r == 0, 0.0, r * np.expm1(of_a + STEP * np.abs(a))),
    "Log": lambda r, a, of_a: of_a / np.abs(a) + STEP,
    "Tanh": lambda r, a, of_a: of_a,
    "Sqrt": lambda r, a, of_a: np.minimum(of_a / (2 * r), np.sqrt(of_a)),
    "Where": _where,
}
