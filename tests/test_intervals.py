"""Intervals of predicates against all indices: what may hold lies inside, what must hold holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, i32
from egraph_flash.dtypes import Array
from egraph_flash.indices import bounds
from egraph_flash.intervals import (
    FIRST_ROW,
    LAST_ROW,
    Interval,
    greatest,
    least,
    span_of,
    truth_of,
)
from egraph_flash.terms import make, rewrite
from tests.support.fresh import fresh_rng

ROWS, KEYS, TILE = 20, 24, 8
PREDICATES = 400
m, n = Axis.many(m=ROWS, n=KEYS)
OF_ROW, OF_KEY = Tensor("of_row", (m,), i32), Tensor("of_key", (n,), i32)


def index(rng: np.random.Generator, deep: int, leaves: list[Any]) -> Any:
    """Random index arithmetic."""
    kind = int(rng.integers(0, 8)) if deep else 0
    if kind < 2:
        return leaves[int(rng.integers(len(leaves)))]
    a = index(rng, deep - 1, leaves)
    if kind == 2:
        return a // int(rng.integers(1, 6))
    if kind == 3:
        return a % int(rng.integers(1, 6))
    if kind == 4:
        return a * int(rng.integers(-3, 4))
    b = index(rng, deep - 1, leaves)
    return a + b if kind == 5 else a - b if kind == 6 else make("Max2", a, b)


def predicate(rng: np.random.Generator, deep: int, leaves: list[Any]) -> Any:
    kind = int(rng.integers(0, 7)) if deep else 6
    if kind < 2:
        a, b = (predicate(rng, deep - 1, leaves) for _ in range(2))
        return a & b if kind == 0 else a | b
    if kind == 2:
        return ~predicate(rng, deep - 1, leaves)
    head = ("Lt", "Le", "Eq", "Ne")[int(rng.integers(4))]
    a, b = (index(rng, 2, leaves) for _ in range(2))
    # varies along both axes, so that its value is a whole table
    return make(head, a + 0 * m.index + 0 * n.index, b)


def leaves_of(rng: np.random.Generator) -> list[Any]:
    numbers = [make("Num", float(rng.integers(-8, 30))) for _ in range(2)]
    return [m.index, n.index, n.index, *numbers]


def table(term: Any, arrays: dict[str, Array]) -> Array:
    """The value at each row and key."""
    return np.asarray(evaluate((term + 0 * m.index + 0 * n.index).order(m, n), arrays))


def end(term: Any, first: int, last: int) -> float:
    """An interval's end for a tile of rows."""
    ends = {FIRST_ROW: make("Num", float(first)), LAST_ROW: make("Num", float(last))}
    low, high = bounds(rewrite(term, ends))
    assert low == high, f"{term} is not told by the tile"
    return low


def inside(interval: Interval, first: int, last: int) -> Array:
    keys = np.arange(KEYS)
    low = -np.inf if interval.low is None else end(interval.low, first, last)
    high = np.inf if interval.high is None else end(interval.high, first, last)
    return (keys >= low) & (keys < high)


def tiles() -> list[tuple[int, int]]:
    return [(first, min(first + TILE, ROWS) - 1) for first in range(0, ROWS, TILE)]


@pytest.mark.parametrize("part", range(4))
def test_spans_hold_what_may_and_what_must(part: int) -> None:
    rng, told = fresh_rng(), 0
    for _ in range(PREDICATES // 4):
        found = predicate(rng, 2, leaves_of(rng))
        span, holds = span_of(found, n, m), table(found, {}) != 0
        for first, last in tiles():
            rows = holds[first : last + 1]
            live, full = (inside(each, first, last) for each in (span.live, span.full))
            assert not rows[:, ~live].any(), f"{found} holds outside of {span.live}"
            assert rows[:, full].all(), f"{found} fails inside of {span.full}"
            told += int((~live).sum() + full.sum())
    assert told > PREDICATES  # intervals that tell nothing would pass all of the above


@pytest.mark.parametrize("part", range(4))
def test_truths_of_data_hold_what_may_and_what_must(part: int) -> None:
    rng, told = fresh_rng(), 0
    arrays = {
        "of_row": np.sort(rng.integers(0, 12, ROWS)).astype(np.int32),
        "of_key": np.sort(rng.integers(0, 12, KEYS)).astype(np.int32),
    }
    for _ in range(PREDICATES // 4):
        found = predicate(rng, 1, [*leaves_of(rng), OF_ROW[m], OF_KEY[n]])
        truth = truth_of(found, n, m)
        if truth is None:
            continue
        holds = table(found, arrays) != 0
        for first, last in tiles():
            rows = holds[first : last + 1]
            may, must = (told_of(each, truth.loads, arrays, (first, last)) for each in
                         (truth.may, truth.must))  # fmt: skip
            assert not rows[:, ~may].any(), f"{found} holds where {truth.may} does not"
            assert rows[:, must].all(), f"{found} fails where {truth.must} holds"
            told += int((~may).sum() + must.sum())
    assert told > PREDICATES


def told_of(
    term: Any, loads: tuple[Any, ...], arrays: dict[str, Array], tile: tuple[int, int]
) -> Array:
    """A truth at each key, for a tile of rows."""
    first, last = tile
    change = {FIRST_ROW: make("Num", float(first)), LAST_ROW: make("Num", float(last))}
    for load in loads:
        rows = arrays["of_row"][first : last + 1]
        change[least(load)] = make("Num", float(rows.min()))
        change[greatest(load)] = make("Num", float(rows.max()))
    return np.asarray(table(rewrite(term, change), arrays)[0] != 0)
