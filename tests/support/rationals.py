"""Carriers over exact numbers: fractions, integer maxima, and 2^x in the place of exp(x).

With integer exponents every rescale is exact, so that the axioms hold to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from egraph_flash.carriers import closure, combine, identity
from egraph_flash.terms import subterms, variable

Number = Fraction | float  # a float only for -inf
ABSENT = float("-inf")


def _minus(a: Number, b: Number) -> Number:
    return ABSENT if a == ABSENT else a - b  # absent elements stay absent


def _times(a: Number, b: Number) -> Number:
    return Fraction(0) if 0 in (a, b) else a * b


def _over(a: Number, b: Number) -> Number:
    return Fraction(0) if a == 0 else a / b


def _power(a: Number) -> Number:
    if a == ABSENT:
        return Fraction(0)
    assert isinstance(a, Fraction)
    assert a.denominator == 1, "the base-2 action is exact on integers only"
    return Fraction(2) ** int(a)


MEANINGS: dict[str, Callable[..., Number]] = {
    "Add": lambda a, b: a + b,
    "Sub": _minus,
    "Mul": _times,
    "Div": _over,
    "Max2": max,
    "Exp": _power,
    "Eq": lambda a, b: Fraction(a == b),
    "Where": lambda c, a, b: a if c else b,
}


def exact(term: Any, values: Mapping[Any, Number]) -> Number:
    """The value of an expression over variables with the given exact values."""
    done: dict[Any, Number] = dict(values)
    for node in subterms(term):
        if node in done or node.sort != "Expr":
            continue
        if node.head == "Num":
            number = node.args[0]
            done[node] = number if number == ABSENT else Fraction(number)
        else:
            done[node] = MEANINGS[node.head](*(done[child] for child in node.args))
    return done[term]


def exactly(number: float) -> Number:
    return ABSENT if number == -np.inf else Fraction(number)


class Exact:
    """The combine of a carrier over fractions."""

    def __init__(self, carrier: tuple[Any, ...]) -> None:
        channels = closure(carrier)
        self.left = {c: variable("Expr", f"l{i}") for i, c in enumerate(channels)}
        self.right = {c: variable("Expr", f"r{i}") for i, c in enumerate(channels)}
        self.terms = combine(channels, self.left, self.right)
        self.identity = {c: exactly(identity(c)) for c in channels}

    def __call__(self, a: dict[Any, Any], b: dict[Any, Any]) -> dict[Any, Any]:
        values = {self.left[c]: a[c] for c in a} | {self.right[c]: b[c] for c in b}
        return {c: exact(term, values) for c, term in self.terms.items()}
