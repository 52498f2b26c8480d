"""What happens to elements that a mask removed: the conventions that the language fixes.

An element is absent where a `where`, an index past the end or an empty axis put the identity of a
reduction: -inf in the logarithmic domain, 0 in the linear one. Absent elements annihilate:
(-inf) - (-inf) = -inf, 0 / 0 = 0 and 0 * inf = 0. Everything else is IEEE arithmetic, so that
infinities and NaN of the inputs propagate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .dtypes import Array
from .monoids import MONOIDS
from .terms import make, rewrite, subterms, variable

TRUE = make("Num", 1.0)
_LEFT, _RIGHT = variable("Expr", "left"), variable("Expr", "right")
Flag = Array  # boolean, same shape as the values


def _log_absent(value: Array, absent: Flag) -> Flag:
    return np.asarray(absent & (value == -np.inf))


def _zero_absent(value: Array, absent: Flag) -> Flag:
    return np.asarray(absent & (value == 0))


def _add(a: Array, x: Flag, b: Array, y: Flag) -> Flag:
    return _log_absent(a, x) | _log_absent(b, y) | (x & y)


def _sub(a: Array, x: Flag, b: Array, y: Flag) -> Flag:
    return _log_absent(a, x) | (_zero_absent(a, x) & _zero_absent(b, y))


def _mul(a: Array, x: Flag, b: Array, y: Flag) -> Flag:
    zero = _zero_absent(a, x) | _zero_absent(b, y)
    return zero | (_log_absent(a, x) & (b >= 0)) | (_log_absent(b, y) & (a >= 0))


def _div(a: Array, x: Flag, b: Array, y: Flag) -> Flag:
    return _zero_absent(a, x) | (_log_absent(a, x) & (b > 0))


def _both(a: Array, x: Flag, b: Array, y: Flag) -> Flag:
    return x & y


def _where(c: Array, z: Flag, a: Array, x: Flag, b: Array, y: Flag) -> Flag:
    return np.where(c != 0, x, y)


def _zeros(a: Array, x: Flag) -> Flag:
    return _zero_absent(a, x)


# For each operator: which results are absent. Operators that are not listed make nothing absent.
ABSENT: dict[str, Callable[..., Flag]] = {
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Max2": _both,
    "Min2": _both,
    "Where": _where,
    "Neg": _zeros,
    "Exp": _log_absent,
    "Log": _zeros,
    "Tanh": _zeros,
    "Sqrt": _zeros,
    "Abs": _zeros,
}


def _limit(name: str, operands: tuple[Array, ...], absent: Flag) -> Array:
    """The value of an absent result: the identity of the domain that it lives in."""
    if name == "Add":
        log = (operands[0] == -np.inf) | (operands[1] == -np.inf)
        return np.where(log, -np.inf, 0.0)
    if name == "Sub":
        return np.where(operands[0] == -np.inf, -np.inf, 0.0)
    if name == "Mul":
        zero = (operands[0] == 0) | (operands[1] == 0)
        return np.where(zero, 0.0, -np.inf)
    return np.where(operands[0] == 0, 0.0, -np.inf)  # Div


def settle(name: str, value: Array, operands: tuple[Array, ...], absent: Flag) -> Array:
    """The operator's value with the conventions applied where the result is absent."""
    if name in ("Add", "Sub", "Mul", "Div") and absent.any():
        return np.where(absent, _limit(name, operands, absent), value)
    return value


Kinds = frozenset[str]  # the domains in which an element may be absent: "log" (-inf), "zero" (0)
NOWHERE: Kinds = frozenset()
LOG: Kinds = frozenset({"log"})
ZERO: Kinds = frozenset({"zero"})


def identity_kinds(identity: float) -> Kinds:
    """What a state that still holds a monoid's identity may be."""
    return LOG if identity == -np.inf else ZERO if identity == 0 else NOWHERE


def folded_kinds(monoid: str, elements: Kinds) -> Kinds:
    """In which domains what a monoid makes of one or more such elements may be absent."""
    known = {_LEFT: elements, _RIGHT: elements}
    both = elements | absence_of(MONOIDS[monoid].combine(_LEFT, _RIGHT), known)
    return both if both == elements else folded_kinds(monoid, both)


def absence_of(term: Any, known: Mapping[Any, Kinds]) -> Kinds:
    """In which domains an element of a term may be absent, as far as its form shows.

    `known` answers for variables, and for arrays that hold values computed before.
    """
    if term in known:
        return known[term]
    head, below = term.head, [absence_of(child, known) for child in _read(term)]
    if head == "Num":
        return LOG if term.args[0] == -np.inf else NOWHERE
    if head in ("Load", "Var"):
        return known.get(term.args[0], NOWHERE) if head == "Load" else NOWHERE
    if head == "Where" and is_known(term.args[0]):
        return below[1]
    if head == "Red":
        monoid = term.args[0].head
        empty = identity_kinds(MONOIDS[monoid].identity)
        return folded_kinds(monoid, below[0]) | (empty if _may_be_empty(term.args[1]) else NOWHERE)
    if head == "Get":
        found = frozenset().union(LOG | ZERO if _folds_nothing(term) else NOWHERE, *below)
        vanishes = term.args[1].head == "Tw" and found & LOG  # with its base
        return found | ZERO if vanishes else found
    return _RESULT[head](*below) if head in _RESULT else NOWHERE


def known_to_hold(condition: Any) -> Any:
    """The condition where it holds for sure. It stays in the term, as `condition | 1`, so that a
    block without masks makes of a term what one with them does, to the last rounding."""
    return make("Or", condition, TRUE)


def is_known(condition: Any) -> bool:
    return bool(condition.head == "Or" and condition.args[1] is TRUE)


def doubted(term: Any) -> Any:
    """The term with its conditions as they were before they were known to hold."""
    known = [node for node in subterms(term) if node.head == "Or" and is_known(node)]
    return rewrite(term, {node: node.args[0] for node in known})


def _read(term: Any) -> list[Any]:
    if term.head == "Get":
        return _lifts(term.args[1])
    return [child for child in term.children if child.sort == "Expr"]


def _lifts(channel: Any) -> list[Any]:
    found = []
    for child in channel.children:
        found += _lifts(child) if child.sort == "Chan" else [child] if child.sort == "Expr" else []
    return found


def _folds_nothing(get: Any) -> bool:
    return _may_be_empty(get.args[0].args[0].root)


def _may_be_empty(axis: Any) -> bool:
    return bool(axis.extent.head == "Symbol" or axis.size == 0)


def _sum_kinds(a: Kinds, b: Kinds) -> Kinds:
    return ((a | b) & LOG) | (a & b & ZERO)


# for each operator: the domains of its result from those of its operands (compare ABSENT)
_RESULT: dict[str, Callable[..., Kinds]] = {
    "Add": _sum_kinds,
    "Sub": lambda a, b: (a & LOG) | (a & b & ZERO),
    "Mul": lambda a, b: a | b,
    "Div": lambda a, b: a,
    "Max2": lambda a, b: a & b,
    "Min2": lambda a, b: a | b,
    "Where": lambda c, a, b: a | b,
    "Exp": lambda a: ZERO if a & LOG else NOWHERE,
    "Log": lambda a: LOG if a & ZERO else NOWHERE,
    "Cast": lambda a: a,
    "Mat": lambda a: a,
    "Risk": lambda a: a,
    **dict.fromkeys(("Neg", "Tanh", "Sqrt", "Abs"), lambda a: a & ZERO),
}
