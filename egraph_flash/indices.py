"""Which index expressions the language has, and between which bounds their values lie."""

from __future__ import annotations

from typing import Any

from .axes import Axis
from .dtypes import DTYPES
from .errors import ExpressionError
from .free import free
from .operators import OPERATORS
from .terms import Term

Bounds = tuple[float, float]
UNBOUNDED: Bounds = (-float("inf"), float("inf"))


def check_index(tensor: str, axis: Axis, index: Term) -> None:
    """Raise ExpressionError unless `index` is in the language and stays within `axis`."""
    _check_language(tensor, axis, index, loads=1)
    if any(each.size == 0 for each in free(index)):
        return  # there is no index
    low, high = bounds(index)
    if _reads_lengths(index):
        return  # a call says what they are
    if low < 0 and low != -float("inf"):
        raise ExpressionError(
            f"{tensor}: the index {index} of axis {axis.name!r} reaches {low:g}, wants >= 0"
        )
    if axis.extent.head == "Known" and axis.size <= high < float("inf"):
        raise ExpressionError(
            f"{tensor}: the index {index} of axis {axis.name!r} reaches {high:g}, "
            f"wants < {axis.size}"
        )


def _reads_lengths(index: Any) -> bool:
    if index.head == "Len":
        return bool(index.args[0].extent.head == "Symbol")
    return any(_reads_lengths(child) for child in index.children if child.sort == "Expr")


def _check_language(tensor: str, axis: Axis, index: Any, loads: int) -> None:
    def refuse(what: str) -> ExpressionError:
        return ExpressionError(
            f"{tensor}: the index {index} of axis {axis.name!r} {what}; an index may use axes, "
            "+, -, *, // and % by constants, minimum, maximum, and one integer tensor's element"
        )

    if index.head in ("Idx", "Len"):
        return
    if index.head == "Num":
        if index.args[0] != int(index.args[0]):
            raise refuse(f"has the constant {index.args[0]}, which is no integer")
        return
    if index.head == "Load":
        if not DTYPES[index.args[0].args[1]].is_integer:
            raise refuse(f"reads the {index.args[0].args[1]} tensor {index.args[0]}")
        if not loads:
            raise refuse("reads a tensor inside the index of another")
        for inner in index.args[1]:
            _check_language(tensor, axis, inner, loads - 1)
        return
    if index.head not in OPERATORS or OPERATORS[index.head].kind != "index":
        raise refuse(f"uses {index.head}")
    if index.head in ("FloorDiv", "Mod") and not _positive_constant(index.args[1]):
        raise refuse(f"divides by {index.args[1]}, which is no positive constant")
    for child in index.args:
        _check_language(tensor, axis, child, loads)


def _positive_constant(term: Any) -> bool:
    return bool(term.head == "Num" and term.args[0] > 0)


def bounds(term: Any, within: dict[Axis, Bounds] | None = None) -> Bounds:
    """The least and greatest value of an index expression or predicate, by interval arithmetic.

    `within` narrows axes to a range (both ends included), as a tile does. A predicate's bounds
    are (1, 1) where it provably holds, (0, 0) where it provably fails, else (0, 1).
    """
    if term.head == "Num":
        return term.args[0], term.args[0]
    if term.head == "Idx":
        axis = term.args[0]
        if within and axis in within:
            return within[axis]
        return (0, max(axis.size - 1, 0)) if axis.extent.head == "Known" else (0, float("inf"))
    if term.head == "Len":
        known = term.args[0].extent.head == "Known"
        return (term.args[0].size,) * 2 if known else (0, float("inf"))
    combine = _INTERVALS.get(term.head)
    if combine is None:
        return UNBOUNDED
    found: Bounds = combine(*(bounds(child, within) for child in term.args))
    return found


def _products(a: Bounds, b: Bounds) -> Bounds:
    corners = [0.0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Bounds, b: Bounds) -> Bounds:
    if b[0] != b[1] or b[0] <= 0:
        return UNBOUNDED
    return tuple(x if abs(x) == float("inf") else x // b[0] for x in a)  # type: ignore[return-value]


def _remainder(a: Bounds, b: Bounds) -> Bounds:
    if b[0] != b[1] or b[0] <= 0:
        return UNBOUNDED
    if _quotient(a, b)[0] == _quotient(a, b)[1] and abs(a[0]) != float("inf"):
        return a[0] % b[0], a[1] % b[0]
    return 0, b[0] - 1


def _where(condition: Bounds, a: Bounds, b: Bounds) -> Bounds:
    if condition in ((1, 1), (0, 0)):
        return a if condition == (1, 1) else b
    return min(a[0], b[0]), max(a[1], b[1])


def _truth(holds: bool, fails: bool) -> Bounds:
    return (1, 1) if holds else (0, 0) if fails else (0, 1)


_INTERVALS: dict[str, Any] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "Sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "Mul": _products,
    "Neg": lambda a: (-a[1], -a[0]),
    "FloorDiv": _quotient,
    "Mod": _remainder,
    "Max2": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "Min2": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "Where": _where,
    "Lt": lambda a, b: _truth(a[1] < b[0], a[0] >= b[1]),
    "Le": lambda a, b: _truth(a[1] <= b[0], a[0] > b[1]),
    "Eq": lambda a, b: _truth(a[0] == a[1] == b[0] == b[1], a[1] < b[0] or b[1] < a[0]),
    "Ne": lambda a, b: _truth(a[1] < b[0] or b[1] < a[0], a[0] == a[1] == b[0] == b[1]),
    "And": lambda a, b: _truth(a[0] == b[0] == 1, a[1] == 0 or b[1] == 0),
    "Or": lambda a, b: _truth(a[0] == 1 or b[0] == 1, a[1] == b[1] == 0),
    "Not": lambda a: _truth(a[1] == 0, a[0] == 1),
}
