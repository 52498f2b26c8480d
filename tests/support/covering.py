"""Rows of choices in which every pair of values of two factors occurs, where the two can."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Row = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]
Fits = Callable[[Mapping[str, str]], bool]  # whether these choices go together, others being open

TRIES = 6  # rows of which the one that covers most is kept
SEED = 4


@dataclass(frozen=True)
class Cover:
    """`rows` that fit, and the pairs that no row that fits can have."""

    rows: list[Row]
    impossible: list[Pair]


def cover(factors: Mapping[str, Sequence[str]], fits: Fits) -> Cover:
    """Greedy and deterministic: rows grow around a pair that none has yet (Cohen et al. 1997).

    >>> found = cover({"a": "xy", "b": "xy", "c": "12"}, lambda row: True)
    >>> len(found.rows) <= 6, found.impossible
    (True, [])
    """
    rng = random.Random(SEED)
    wanted = dict.fromkeys(_pairs_of(factors))
    rows: list[Row] = []
    impossible: list[Pair] = []
    while wanted:
        pair = next(iter(wanted))
        tries = [_grown(pair, factors, wanted, fits, rng) for _ in range(TRIES)]
        made = [row for row in tries if row is not None]
        if not made:
            impossible.append(pair)
            del wanted[pair]
            continue
        best = max(made, key=lambda row: sum(p in wanted for p in pairs_in(row, factors)))
        rows.append(best)
        for covered in pairs_in(best, factors):
            wanted.pop(covered, None)
    return Cover(rows, impossible)


def pairs_in(row: Mapping[str, str], factors: Mapping[str, Sequence[str]]) -> list[Pair]:
    items = [(name, row[name]) for name in factors if name in row]
    return list(itertools.combinations(items, 2))


def _pairs_of(factors: Mapping[str, Sequence[str]]) -> list[Pair]:
    return [
        ((one, a), (other, b))
        for one, other in itertools.combinations(factors, 2)
        for a, b in itertools.product(factors[one], factors[other])
    ]


def _grown(
    pair: Pair,
    factors: Mapping[str, Sequence[str]],
    wanted: Mapping[Pair, None],
    fits: Fits,
    rng: random.Random,
) -> Row | None:
    """A row with the pair, each further choice the one that covers most; None where none fits."""
    row: Row = dict(pair)
    if not fits(row):
        return None
    names = [name for name in factors if name not in row]
    rng.shuffle(names)
    for name in names:
        values = [value for value in factors[name] if fits({**row, name: value})]
        if not values:
            return None
        rng.shuffle(values)
        row[name] = max(values, key=lambda value: _new(row, name, value, wanted, factors))
    return {name: row[name] for name in factors}


def _new(
    row: Row,
    name: str,
    value: str,
    wanted: Mapping[Pair, None],
    factors: Mapping[str, Sequence[str]],
) -> int:
    here, order = (name, value), list(factors)
    place = order.index(name)
    before = sum((pair, here) in wanted for pair in row.items() if order.index(pair[0]) < place)
    after = sum((here, pair) in wanted for pair in row.items() if order.index(pair[0]) > place)
    return before + after
