"""Which monoids a reduction may fold in, and at which level of the machine a fold may run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .dtypes import Array


@dataclass(frozen=True)
class Monoid:
    """A commutative monoid on the reals: `operator` names the pointwise operator that combines.

    `reduce(values, axis)` folds a whole float64 axis; `symbol` is how people write the reduction.
    """

    name: str
    symbol: str
    operator: str
    identity: float
    reduce: Callable[[Array, int], Array] = field(repr=False, compare=False)
    source: str = "commutative monoids of the extended reals"


@dataclass(frozen=True)
class Level:
    """A level of the bracketing tower, outermost first; `Flat` is a fold not yet bracketed."""

    name: str
    hardware: str


MONOIDS: dict[str, Monoid] = {
    row.name: row
    for row in (
        Monoid("Sum", "Σ", "Add", 0.0, lambda values, axis: np.add.reduce(values, axis=axis)),
        Monoid(
            "Max",
            "max",
            "Max2",
            -np.inf,
            lambda values, axis: np.maximum.reduce(values, axis=axis, initial=-np.inf),
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
