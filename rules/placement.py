"""What may go through memory: the result of every reduction, at the cost of its bytes."""

from __future__ import annotations

from ..terms import make
from . import examples as at
from .law import Equal, Law
from .patterns import E, k, monoid, reduce

e, x = E("e x")

LAWS: tuple[Law, ...] = (
    Law(
        name="placement/store",
        phase="placement",
        source="storing and loading a value keeps it",
        example=at.product,
        given=(Equal(x, reduce(monoid, k, e)),),
        then=(Equal(x, make("Mat", x)),),
    ),
)
