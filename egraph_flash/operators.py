"""Which pointwise operators the language has, and what each means in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .dtypes import Array

Kind = Literal["real", "predicate", "index"]


@dataclass(frozen=True)
class Operator:
    """A pointwise operator: `meaning` takes and gives float64 arrays, under IEEE arithmetic.

    Predicates give 0 and 1. `index` operators may also stand in the index of a load. `symbol` is
    how people write it: an infix sign, or the name of a function. The conventions for elements
    that a mask removed stand in `absence`.
    """

    name: str
    symbol: str
    arity: int
    kind: Kind
    meaning: Callable[..., Array] = field(repr=False, compare=False)
    source: str = "IEEE 754"
    infix: bool = False


def _where(condition: Array, chosen: Array, otherwise: Array) -> Array:
    return np.where(condition != 0, chosen, otherwise)


def _truth(relation: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    return lambda a, b: np.asarray(relation(a, b), dtype=np.float64)


def _infix(name: str, symbol: str, kind: Kind, meaning: Callable[..., Array]) -> Operator:
    return Operator(name, symbol, 2, kind, meaning, infix=True)


def _function(name: str, symbol: str, arity: int, meaning: Callable[..., Array]) -> Operator:
    return Operator(name, symbol, arity, "real", meaning)


OPERATORS: dict[str, Operator] = {
    row.name: row
    for row in (
        _infix("Add", "+", "index", np.add),
        _infix("Sub", "-", "index", np.subtract),
        _infix("Mul", "*", "index", np.multiply),
        _infix("Div", "/", "real", np.divide),
        _infix("FloorDiv", "//", "index", np.floor_divide),
        _infix("Mod", "%", "index", np.mod),
        _infix("Lt", "<", "predicate", _truth(np.less)),
        _infix("Le", "<=", "predicate", _truth(np.less_equal)),
        _infix("Eq", "==", "predicate", _truth(np.equal)),
        _infix("Ne", "!=", "predicate", _truth(np.not_equal)),
        _infix("And", "&", "predicate", _truth(lambda a, b: (a != 0) & (b != 0))),
        _infix("Or", "|", "predicate", _truth(lambda a, b: (a != 0) | (b != 0))),
        Operator("Not", "not", 1, "predicate", lambda a: np.asarray(a == 0, np.float64)),
        Operator("Where", "where", 3, "real", _where),
        Operator("Max2", "max", 2, "index", np.maximum),
        Operator("Min2", "min", 2, "index", np.minimum),
        _function("Neg", "-", 1, np.negative),
        _function("Exp", "exp", 1, np.exp),
        _function("Log", "log", 1, np.log),
        _function("Tanh", "tanh", 1, np.tanh),
        _function("Sqrt", "sqrt", 1, np.sqrt),
        _function("Abs", "abs", 1, np.abs),
    )
}
