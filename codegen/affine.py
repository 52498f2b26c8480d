"""How an index depends on axes: a sum of integer multiples, with all else kept as opaque terms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..axes import Axis, size_of
from ..terms import make


@dataclass(frozen=True)
class Affine:
    """`constant + Σ coefficient * axis + Σ coefficient * term`, terms being no sums themselves."""

    constant: int
    axes: tuple[tuple[Axis, int], ...]
    terms: tuple[tuple[Any, int], ...]

    def coefficient(self, axis: Axis | None) -> int:
        return dict(self.axes).get(axis, 0) if axis is not None else 0


def affine(index: Any) -> Affine:
    constant, axes, terms = _collect(index, 1)
    return Affine(constant, _merged(axes), _merged(terms))


@lru_cache(maxsize=1024)
def linear(load: Any) -> Affine:
    """The element offset of a load into its dense row-major array."""
    tensor, indices = load.args
    stride, total = 1, make("Num", 0.0)
    for extent, index in zip(reversed(tensor.args[2]), reversed(indices), strict=True):
        total = total + index * stride
        stride *= size_of(extent)
    return affine(total)


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
