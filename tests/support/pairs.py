"""A sample of a matrix of choices in which every pair of values of two factors occurs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def pairwise(*factors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows that cover every pair of values of any two factors, greedily, in a fixed order.

    >>> rows = pairwise("ab", "xy", (1, 2))
    >>> len(rows) <= 6
    True
    """
    every = list(itertools.product(*factors))
    wanted = {pair for row in every for pair in _pairs(row)}
    chosen: list[tuple[Any, ...]] = []
    while wanted:
        best = max(every, key=lambda row: len(wanted.intersection(_pairs(row))))
        wanted.difference_update(_pairs(best))
        chosen.append(best)
    return chosen


def _pairs(row: tuple[Any, ...]) -> set[Any]:
    return set(itertools.combinations(enumerate(row), 2))
