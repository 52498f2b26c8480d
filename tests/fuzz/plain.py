"""What an expression gives when every step is rounded to the inputs' own dtype, as plain code does.

A contraction and a softmax are one step each: their insides keep f32, as libraries' kernels do.
For narrow inputs that is as good as exact. For f32 inputs it is all the rounding there is, so that
every step inside is rounded too, and sums are added up in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from egraph_flash.dtypes import Array, Dtype
from egraph_flash.evaluation import Evaluator, Value
from egraph_flash.free import free
from egraph_flash.terms import subterms

REAL = ("Add", "Sub", "Mul", "Div", "Neg", "Tanh", "Sqrt", "Log", "Max2", "Min2")


def plain(
    output: Any, arrays: Mapping[str, Array], dtype: Dtype, lengths: Mapping[str, int]
) -> Array:
    """The output's value, [axes in its order], as float64."""
    term = output.expr
    rounded = Rounded(term, arrays, {}, lengths)
    rounded.dtype = dtype
    rounded.kept = frozenset() if dtype.name == "f32" else _kept(term)
    return rounded.value(term).along(output.axes)


class Rounded(Evaluator):
    """Rounds the value of each step that stands for one call of a library."""

    dtype: Dtype
    kept: frozenset[Any]

    def _apply(self, node: Any) -> Value:
        found = super()._apply(node)
        if node.head in REAL and node not in self.kept and _is_real(node):
            return self._rounded(found)
        return found

    def _red(self, node: Any) -> Value:
        body = self.values[node.args[2]]
        axis = node.args[1]
        found = super()._red(node)
        if self.dtype.name == "f32" and node.args[0].head == "Sum" and axis in body.axes:
            place = body.axes.index(axis)
            sums = np.add.accumulate(body.array.astype(np.float32), axis=place, dtype=np.float32)
            if sums.shape[place]:
                found = replace(found, array=sums.take(-1, axis=place).astype(np.float64))
        return found if node in self.kept else self._rounded(found)

    def _rounded(self, value: Value) -> Value:
        return Value(self.dtype.decode(self.dtype.encode(value.array)), value.axes, value.absent)


def _is_real(node: Any) -> bool:
    """Whether a value is no arithmetic of indices alone."""
    return any(n.head == "Load" for n in subterms(node)) and bool(free(node))


def _kept(term: Any) -> frozenset[Any]:
    """What stays inside of a step: factors of a contraction; exponents, and the sums of exps."""
    found = set()
    for node in subterms(term):
        if node.head == "Exp":
            found.add(node.args[0])
        if node.head == "Red":
            below = node.args[2]
            found |= {below} if below.head == "Mul" else set()
            if any(n.head == "Exp" for n in (below, *below.children)):
                found.add(node)
        if node.head == "Add" and any(n.head == "Red" for n in node.children):
            found.add(node)  # a sink beside the sum
    return frozenset(found)
