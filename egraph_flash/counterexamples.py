"""On which values a monoid of one's own is none: what is claimed of it, on edges and at random."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .absence import identity_kinds
from .axes import Axis
from .dtypes import Array
from .evaluation import Evaluator, Value
from .expressions import lift
from .monoids import Monoid
from .terms import subterms, variable

EDGES = (0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 100.0, 1e-3)
HUGE = (1e30, -1e30)  # beside identities alone, since sums of them round off everything else
HUGE = (1e30, -1e30)  # sampled beside identities alone: sums of them round everything else off
RANDOM = 500
TOLERANCE = 1e-9  # of the largest value that takes part
A, B, C = (variable("Expr", name) for name in "abc")


def of_monoid(row: Monoid, seed: int = 0) -> str | None:
    """A claim that fails, with the values and both sides; None where all hold."""
    values = _values(row, np.random.default_rng(seed))
    if len(set(values)) < 2:
        return (
            f"its domain holds for {len(set(values))} of {len(EDGES) + RANDOM} sampled values, "
            "wants two or more"
        )
    if row.identity not in values:
        return f"its identity {row.identity:g} lies outside of its domain"
    few, rest = values[: len(EDGES) + 1], values[len(EDGES) + 1 :]
    triples = [*itertools.product(few, repeat=3), *zip(*[iter(rest)] * 3, strict=False)]
    triples += [(each, row.identity, row.identity) for each in _within(row, np.array(HUGE))]
    for claim, left, right in _claims(row):
        found = _differ(row, np.array(triples), left, right)
        if found is not None:
            return f"{claim}: {found}"
    return None


def _values(row: Monoid, random: np.random.Generator) -> list[float]:
    """Values of the domain, the edges first."""
    scales = random.choice([0.1, 1.0, 10.0], RANDOM)
    drawn = [row.identity, *EDGES, *(random.standard_normal(RANDOM) * scales)]
    return _within(row, np.array(list(dict.fromkeys(map(float, drawn)))))


def _within(row: Monoid, values: Array) -> list[float]:
    """Those of the values that its domain holds for."""
    if row.domain is not None:
        holds = _evaluated(row, lift(row.domain(A)), {A: values})
        values = values[np.broadcast_to(holds != 0, values.shape)]
    return values.tolist()  # type: ignore[no-any-return]


def _claims(row: Monoid) -> Iterator[tuple[str, Any, Any]]:
    """(what is claimed, both sides), as terms of `a`, `b` and `c`."""

    def plus(a: Any, b: Any) -> Any:
        return lift(row.combine(a, b))

    unit, both = lift(row.identity), plus(A, B)
    yield (
        "it is not associative",
        ("combine(combine(a, b), c)", plus(both, C)),
        ("combine(a, combine(b, c))", plus(A, plus(B, C))),
    )
    yield "it is not commutative", ("combine(a, b)", both), ("combine(b, a)", plus(B, A))
    yield (
        f"{row.identity:g} is not its identity",
        (f"combine({row.identity:g}, a)", plus(unit, A)),
        ("a", A),
    )
    if row.domain is not None:
        holds = lift(row.domain(both)) != 0.0
        yield "it leaves its domain", ("domain(combine(a, b))", holds), ("true", lift(1.0))


def _differ(row: Monoid, triples: Array, left: Any, right: Any) -> str | None:
    """Where two terms differ, the first such place, or None."""
    given = dict(zip((A, B, C), triples.T, strict=True))
    x, y = (
        np.broadcast_to(_evaluated(row, term, given), len(triples)) for _, term in (left, right)
    )
    with np.errstate(invalid="ignore"):
        parts = (*np.abs(triples.T), np.abs(x), np.abs(y))
        scale = np.maximum.reduce([np.where(np.isfinite(part), part, 1.0) for part in parts])
        same = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= TOLERANCE * scale)
    if same.all():
        return None
    at = int(np.argmin(same))
    read = subterms(left[1], right[1])
    values = ", ".join(f"{v} = {places[at]:g}" for v, places in given.items() if v in read)
    return f"{left[0]} = {x[at]:g}, but {right[0]} = {y[at]:g} at {values}"


def _evaluated(row: Monoid, term: Any, given: dict[Any, Array]) -> Array:
    """A term of variables at many places; an identity of -inf or 0 is what a mask leaves."""
    places = Axis("place", len(next(iter(given.values()))))
    evaluator = Evaluator(term, {}, {})
    for name, values in given.items():
        absent = (values == row.identity) & bool(identity_kinds(row.identity))
        evaluator.values[name] = Value(values, (places,), absent)
    return evaluator.value(term).array
