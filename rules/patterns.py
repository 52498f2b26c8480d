"""The variables and small constructors that laws are written with."""

from __future__ import annotations

from typing import Any

from ..expressions import Expr, lift, registered
from ..monoids import Monoid
from ..terms import Term, make, variable


def E(names: str) -> Any:
    """Expression variables: `x, y = E("x y")`, one alone without a tuple."""
    found = tuple(variable("Expr", name) for name in names.split())
    return found if len(found) > 1 else found[0]


k: Any = variable("Axis", "k")
number: Any = variable("f64", "number")
monoid: Any = variable("Monoid", "monoid")

zero, one = lift(0.0), lift(1.0)
minus_inf = lift(float("-inf"))


def reduce(monoid: Any, axis: Any, body: Any) -> Expr:
    """The fold over the axis in a monoid: a variable, a row, or its name."""
    named = isinstance(monoid, str | Monoid)
    return make("Red", make(registered(monoid)) if named else monoid, axis, body)  # type: ignore[no-any-return]


def total(axis: Any, body: Any) -> Expr:
    """Σ over the axis."""
    return reduce("Sum", axis, body)


def peak(axis: Any, body: Any) -> Expr:
    """max over the axis."""
    return reduce("Max", axis, body)


def fold(axis: Any, state: Any, level: str = "Flat") -> Any:
    return make("Fold", axis, make(level), state)


def fold_one(axis: Any, *channels: Term) -> Any:
    """The flat fold of a carrier with just these channels."""
    return fold(axis, make("Lift", channels))


def get(state: Any, channel: Any) -> Expr:
    return make("Get", state, channel)  # type: ignore[no-any-return]


def plain(monoid_name: Any, body: Any) -> Any:
    return make("Ch", make(monoid_name) if isinstance(monoid_name, str) else monoid_name, body)
