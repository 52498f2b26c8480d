"""How an index depends on axes: a sum of integer multiples, with all else kept as opaque terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..axes import Axis
from ..layouts import strides_of
from ..terms import make

_ONE = make("Known", 1)


@dataclass(frozen=True)
class Affine:
    """`constant + Σ coefficient * axis + Σ coefficient * term`, terms being no sums themselves.

    `strided` are further (index, dimension) pairs: an index times a stride that a call says.
    """

    constant: int
    axes: tuple[tuple[Axis, int], ...]
    terms: tuple[tuple[Any, int], ...]
    strided: tuple[tuple[Any, int], ...] = ()

    def coefficient(self, axis: Axis | None) -> int:
        return dict(self.axes).get(axis, 0) if axis is not None else 0


def affine(index: Any) -> Affine:
    constant, axes, terms = _collect(index, 1)
    return Affine(constant, _merged(axes), _merged(terms))


@lru_cache(maxsize=1024)
def linear(load: Any) -> Affine:
    """The element offset of a load into its array."""
    tensor, indices = load.args
    total = make("Num", 0.0)
    strided = []
    pairs = list(enumerate(zip(indices, strides_of(tensor), strict=True)))
    for dim, (index, stride) in reversed(pairs):
        if stride is not None:
            total = total + index * stride
        elif tensor.args[2][dim] is not _ONE:
            strided.append((index, dim))
    return replace(affine(total), strided=tuple(strided))


Parts = tuple[int, list[tuple[Any, int]], list[tuple[Any, int]]]


def _collect(index: Any, scale: int) -> Parts:
    head = index.head
    if head == "Num":
        return scale * int(index.args[0]), [], []
    if head == "Idx":
        return 0, [(index.args[0], scale)], []
    if head in ("Add", "Sub"):
        a = _collect(index.args[0], scale)
        b = _collect(index.args[1], scale if head == "Add" else -scale)
        return a[0] + b[0], a[1] + b[1], a[2] + b[2]
    if head == "Neg":
        return _collect(index.args[0], -scale)
    if head == "Mul":
        for constant, other in (index.args, reversed(index.args)):
            if constant.head == "Num":
                return _collect(other, scale * int(constant.args[0]))
    return 0, [], [(index, scale)]


def _merged(parts: list[tuple[Any, int]]) -> tuple[tuple[Any, int], ...]:
    total: dict[Any, int] = {}
    for term, scale in parts:
        total[term] = total.get(term, 0) + scale
    return tuple((term, scale) for term, scale in total.items() if scale)
