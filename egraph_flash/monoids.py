"""Which monoids a reduction may fold in, and at which level of the machine a fold may run."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .dtypes import Array
from .errors import ExpressionError


@dataclass(frozen=True)
class Monoid:
    """A commutative monoid on the reals, or on those that its `domain` holds for.

    `combine(a, b)` is a pointwise expression of two expressions and of nothing else: what a fold
    means and what is emitted for it, on any level, follow from it. `identity` is what masked and
    padded elements are. `symbol` is how people write the reduction.

    `domain(x)` is a condition on one expression that every element is trusted to fulfil.
    `reduce(values, axis)` may say how numpy folds a whole float64 axis; without it, halves are
    combined until one is left.

    Raises ExpressionError for a name that is no word or an identity that is no f32.
    """

    name: str
    symbol: str
    combine: Callable[[Any, Any], Any] = field(repr=False, compare=False)
    identity: float
    domain: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)
    reduce: Callable[[Array, int], Array] | None = field(default=None, repr=False, compare=False)
    source: str = "commutative monoids of the extended reals"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", self.name):
            raise ExpressionError(
                f"monoid: got the name {self.name!r}, wants a word that begins with a capital"
            )
        if not self.symbol or '"' in self.symbol or "\n" in self.symbol:
            raise ExpressionError(
                f"monoid {self.name}: got the symbol {self.symbol!r}, wants a word or a sign"
            )
        with np.errstate(over="ignore"):
            stored = float(np.float32(self.identity))
        if stored != self.identity:
            raise ExpressionError(
                f"monoid {self.name}: got the identity {self.identity}, wants a number that f32 "
                "holds, or an infinity"
            )

    @property
    def terms(self) -> tuple[Any, Any]:
        """Its combine of the variables `a` and `b`, and its domain of `a`; without one, 1."""
        from .expressions import lift
        from .terms import variable

        a, b = (variable("Expr", name) for name in "ab")
        holds = 1.0 if self.domain is None else self.domain(a)
        return lift(self.combine(a, b)), lift(holds)

    @property
    def definition(self) -> str:
        """All that a kernel may depend on, as text."""
        from .notation import text

        parts = (self.name, self.symbol, repr(float(self.identity)), *map(text, self.terms))
        return "\n".join(parts)


@dataclass(frozen=True)
class Level:
    """A level of the bracketing tower, outermost first; `Flat` is a fold not yet bracketed."""

    name: str
    hardware: str


def _maximum(a: Any, b: Any) -> Any:
    from .expressions import maximum

    return maximum(a, b)


MONOIDS: dict[str, Monoid] = {
    row.name: row
    for row in (
        Monoid(
            *("Sum", "Σ", operator.add, 0.0),
            reduce=lambda values, axis: np.add.reduce(values, axis=axis),
        ),
        Monoid(
            *("Max", "max", _maximum, -np.inf),
            reduce=lambda values, axis: np.maximum.reduce(values, axis=axis, initial=-np.inf),
        ),
    )
}

LEVELS: dict[str, Level] = {
    row.name: row
    for row in (
        Level("Flat", "not chosen yet"),
        Level("Grid", "blocks of the grid, whose partial states a combine kernel folds"),
        Level("Serial", "a loop in one block, state kept in registers"),
        Level("Tile", "the elements of one block of the fold, in registers and tensor cores"),
    )
}
