"""A small instance of an expression and of terms that equal it: short axes, random inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .axes import Axis
from .dtypes import Array
from .evaluation import evaluate
from .indices import bounds
from .layouts import array_term
from .terms import Term, make, rewrite, subterms

_FOLDED, _PARALLEL = 11, 3  # lengths: odd, so that no block divides them
_BLOCK, _SHARE = 4, 2
_INTEGERS = 4  # integer tensors hold 0 … 3
_SEED = 20_240_607


class Miniature:
    """The terms `roots` and `others` with every axis short, and arrays for their tensors.

    A number that equals the extent of an axis changes along with it: the laws know no arithmetic
    on numbers but how many elements an axis has, so that what they equate stays equal.
    """

    def __init__(self, roots: Sequence[Any], others: Sequence[Any]) -> None:
        nodes = subterms(*roots, *others)
        self.change: dict[Term, Any] = {}
        self.values: dict[Term, Array] = {}
        self._shorten_axes(nodes)
        self._shorten_tensors(nodes)
        self._shorten_towers(nodes)
        random = np.random.default_rng(_SEED)
        arrays = [self.change[node] for node in nodes if node.head == "Array"]
        self.arrays = {array.args[0]: _values(array, random) for array in arrays}

    def differs(self, term: Any, root: Any) -> float:
        """The largest difference of the values of a term and a root, NaN where one has no value."""
        small, axes = rewrite(term, self.change), rewrite(root, self.change).axes
        a, b = self._value(root), self._value(term)
        b = np.transpose(b, [small.axes.index(axis) for axis in axes])
        with np.errstate(invalid="ignore"):
            difference = np.where(a == b, 0.0, np.abs(a - b))
        return float(np.max(difference, initial=0.0))

    def _value(self, term: Any) -> Array:
        if term not in self.values:
            self.values[term] = evaluate(rewrite(term, self.change), self.arrays)
        return self.values[term]

    # ---- the change ------------------------------------------------------------------------------

    def _shorten_axes(self, nodes: list[Any]) -> None:
        folded = {node.args[1].root for node in nodes if node.head == "Red"}
        folded |= {node.args[0].root for node in nodes if node.head == "Fold"}
        numbers = {node.args[0] for node in nodes if node.head == "Num"}
        axes = [node for node in nodes if node.head == "Ax"]
        counted = {axis.size for axis in axes if float(axis.size) in numbers and axis in folded}
        for axis in axes:
            long = axis in folded or axis.size in counted
            length = min(axis.size, _FOLDED if long else _PARALLEL)
            self.change[axis] = make("Ax", axis.args[0], make("Known", length))
        for node in nodes:
            if node.head == "Num" and node.args[0] in counted:
                self.change[node] = make("Num", min(node.args[0], _FOLDED))

    def _shorten_tensors(self, nodes: list[Any]) -> None:
        lengths: dict[Any, list[int]] = {}
        for node in nodes:
            if node.head == "Load":
                tensor, indices = node.args
                needed = [self._reach(index) for index in indices]
                known = lengths.setdefault(tensor, [0] * len(needed))
                lengths[tensor] = [max(pair) for pair in zip(known, needed, strict=True)]
        for tensor, sizes in lengths.items():
            extents = tuple(make("Known", size) for size in sizes)
            self.change[tensor] = array_term(tensor.args[0], tensor.args[1], extents)

    def _reach(self, index: Any) -> int:
        """How long a dimension must be for an index into it."""
        table = make("Idx", Axis("table", _INTEGERS))
        loads = {node: table for node in subterms(index) if node.head == "Load"}
        return int(bounds(rewrite(index, {**self.change, **loads}))[1]) + 1

    def _shorten_towers(self, nodes: list[Any]) -> None:
        for node in nodes:
            if node.head in ("Outer", "Inner"):
                below, size = node.args
                shorter = min(size, _BLOCK if below.head == "Ax" else _SHARE)
                self.change[node] = make(node.head, self.change[below], shorter)


def _values(array: Any, random: np.random.Generator) -> Array:
    _, dtype, extents, *_ = array.args
    shape = tuple(extent.args[0] for extent in extents)
    if dtype.startswith("i"):
        return random.integers(0, _INTEGERS, shape)
    return random.standard_normal(shape)
