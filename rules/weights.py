"""How a sum over several kinds of weights comes apart: Σ (p - q) b = Σ p b - Σ q b.

Each kind may then be kept relative to a base of its own. It is done only where p and q are
exponentials that vary along the axis: these are rounded before they are added, so that a result
that cancels was no more accurate in one piece. Other sums that may cancel are `Risk`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import examples as at
from .facts import fact
from .law import Clause, Equal, Law
from .patterns import E, k, total

a, b, c, e, i, p, q, r, u, x = E("a b c e i p q r u x")
_wanted, _weighs = fact("factor", e, k), fact("weighs", e, k)


def _law(
    name: str,
    phase: str,
    given: Sequence[Clause],
    then: Sequence[Clause],
    example: Any,
    linear: tuple[Any, ...] = (),
) -> Law:
    return Law(
        name=f"weights/{name}",
        phase=phase,
        source="linear maps commute with Σ, and * distributes over +",
        example=example.sum(at.n),
        given=tuple(given),
        then=tuple(then),
        linear=linear,
    )


def _of_both(word: str, both: Any, first: Any, second: Any, example: Any) -> Iterator[Law]:
    """The laws of p + q or p - q; `first` and `second` are p b op q b and b p op b q."""
    form = Equal(e, both)
    demand = (fact("factor", p, k), fact("factor", q, k))
    yield _law(f"want-{word}", "splitting", (_wanted, form), demand, example)
    parts = (fact("weighs", p, k), fact("weighs", q, k))
    yield _law(f"{word}-weighs", "splitting", (_wanted, form, *parts), (_weighs,), example)
    for name, product, apart, whole in (
        ("times", a * b, first, example * at.v),
        ("of-times", b * a, second, at.v * example),
    ):
        premises = (_wanted, Equal(e, product), Equal(a, both), fact("weighs", a, k))
        yield _law(f"{word}-{name}", "splitting", premises, (Equal(e, apart),), whole, (p, q, b))
    whole_sum = (Equal(x, total(k, e)), form, _weighs)
    sums = total(k, p) - total(k, q) if both.head == "Sub" else total(k, p) + total(k, q)
    yield _law(word, "homomorphism", whole_sum, (Equal(x, sums),), example, (p, q))


LAWS: tuple[Law, ...] = (
    _law(
        "weighs",
        "splitting",
        (fact("split", e, k, c, i, u, r), fact("depends", u, k)),
        (_weighs,),
        at.weights(at.x),
    ),
    *_of_both("sum", p + q, p * b + q * b, b * p + b * q, at.two_weights + at.two_more),
    *_of_both("difference", p - q, p * b - q * b, b * p - b * q, at.two_weights - at.two_more),
)
