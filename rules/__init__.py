"""The laws: general facts about monoids, exponentials and order, one family a module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ..representations import Representation
from .law import Equal, Law, Row, Steering, declarations, rewrite

__all__ = [
    "OWN",
    "Equal",
    "Law",
    "Row",
    "Steering",
    "laws",
    "of_representation",
    "program_parts",
    "rewrite",
]

OWN: dict[str, Row] = {}  # rows that users registered, by name: see `registration`


def _registry(families: Iterable[tuple[Row, ...]]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for family in families:
        for row in family:
            assert row.name not in found, f"two laws are called {row.name}"
            found[row.name] = row
    return found


def laws() -> dict[str, Row]:
    """Every law and steering rule, by name, in the order in which the engine reads them."""
    own = tuple(OWN[name] for name in sorted(OWN))
    return _registry((tuple(_laws().values()), own)) if own else _laws()


@cache
def _laws() -> dict[str, Row]:
    """Those of the package."""
    from . import (
        absorption,
        bracketing,
        finiteness,
        freedom,
        homomorphism,
        placement,
        selection,
        signs,
        splitting,
        streaming,
        tupling,
        twist,
        units,
        weights,
    )

    return _registry(
        module.LAWS
        for module in (
            freedom,
            signs,
            finiteness,
            streaming,
            splitting,
            units,
            homomorphism,
            weights,
            selection,
            twist,
            tupling,
            absorption,
            bracketing,
            placement,
        )
    )


def of_representation(rep: Representation) -> tuple[Row, ...]:
    """The rows that are generated of one representation."""
    from . import tupling, twist

    return (*twist.laws(rep), *tupling.rows(rep))


def program_parts() -> tuple[str, ...]:
    """The declarations and each rule as egglog text, to be parsed one by one.

    egglog 13 takes quadratic time over one long text, because every span holds it.
    """
    own = (OWN[name].egglog for name in sorted(OWN))
    return (declarations(), *_texts(), *own)


@cache
def _texts() -> tuple[str, ...]:
    return tuple(row.egglog for row in _laws().values())
