"""The laws: general facts about monoids, exponentials and order, one family a module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from .law import Equal, Law, Row, Steering, declarations, rewrite

__all__ = ["Equal", "Law", "Row", "Steering", "laws", "program_parts", "rewrite"]


def _registry(families: Iterable[tuple[Row, ...]]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for family in families:
        for row in family:
            assert row.name not in found, f"two laws are called {row.name}"
            found[row.name] = row
    return found


@cache
def laws() -> dict[str, Row]:
    """Every law and steering rule, by name, in the order in which the engine reads them."""
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


@cache
def program_parts() -> tuple[str, ...]:
    """The declarations and each rule as egglog text, to be parsed one by one.

    egglog 13 takes quadratic time over one long text, because every span holds it.
    """
    return (declarations(), *(row.egglog for row in laws().values()))
