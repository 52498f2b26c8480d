"""What a reduction picks: by an index, one element at most; by a maximum, those that have it.

Σ_k (p = k ? s : 0) is s at k = p. Its parts leave the sum without any rounding, where those of
other sums may cancel. What is picked by x = max x has a form that the laws of `twist` read: a
condition that compares an element with the maximum, in this order, and a sum's factor of 0 or 1 in
front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..expressions import log, where
from ..terms import make
from . import examples as at
from .facts import fact
from .law import Clause, Equal, Law
from .patterns import E, k, one, peak, total, zero

a, b, e, m, p, s, t, u, x = E("a b e m p s t u x")
_here = make("Eq", p, make("Idx", k))
_fixed_p, _fixed_b = fact("invariant", p, k), fact("invariant", b, k)


def _law(
    name: str, phase: str, given: Sequence[Clause], then: Sequence[Clause], example: Any
) -> Law:
    return Law(
        name=f"selection/{name}",
        phase=phase,
        source="a sum with one term is that term",
        example=example,
        given=tuple(given),
        then=tuple(then),
    )


def _parts(word: str, both: Any, apart: Any, example: Any) -> Law:
    """A selected sum or difference of which a part does not vary."""
    return _law(
        word,
        "homomorphism",
        (
            *(Equal(x, total(k, e)), Equal(e, where(_here, s, zero)), Equal(s, both)),
            *(_fixed_p, _fixed_b, fact("finite", b)),
        ),
        (Equal(x, apart),),
        example,
    )


_top = Equal(m, peak(k, u))
_varies = fact("depends", u, k)  # else all would be above the maximum of nothing
_indicator = where(make("Eq", u, m), one, zero)


def _at_peak(name: str, left: Any, right: Any, example: Any, given: Sequence[Clause]) -> Law:
    """What an expression of the indicator of the maximum is; what it multiplies is linear."""
    return Law(
        name=f"selection/{name}",
        phase="units",
        source="order of the reals, and the field axioms",
        example=example.sum(at.n),
        given=(Equal(e, left), _top, *given),
        then=(Equal(e, right),),
        linear=(s, t),
    )


def _ordered() -> Iterator[Law]:
    """Other ways to say that an element is a maximum: no element is above it."""
    x, top = at.x, at.x.max(at.n)
    is_top = make("Eq", u, m)
    for name, spelled, example in (
        ("peak-is-element", make("Eq", m, u), top == x),
        ("not-below-peak", make("Le", m, u), top <= x),
        ("not-less-than-peak", make("Not", make("Lt", u, m)), ~(x < top)),
    ):
        yield _at_peak(name, spelled, is_top, where(example, at.w, 0.0), (_varies,))


def _linear() -> Iterator[Law]:
    """A sum of what stands at the maximum, as a sum of products."""
    b, x = _indicator, at.x
    v, w, picked = at.v, at.w, at.at_peak
    finite = (fact("finite", s), fact("!=", s, one))
    chosen = where(make("Eq", u, m), s, zero)
    for name, left, right, example, given in (
        ("at-peak", chosen, b * s, where(x == x.max(at.n), v, 0.0), finite),
        ("at-peak-last", s * b, b * s, v * picked, ()),
        ("at-peak-first", (b * s) * t, b * (s * t), (picked * v) * w, ()),
        ("at-peak-inside", t * (b * s), b * (t * s), w * (picked * v), ()),
    ):
        yield _at_peak(name, left, right, example, given)


_picked, _times = total(k, where(_here, a, zero)), total(k, where(_here, one, zero))
_one_hot = where(at.label == at.n.index, 1.0, 0.0)
_shifted = where(at.label == at.n.index, at.x + at.g, 0.0)

LAWS: tuple[Law, ...] = (
    *(
        _law(
            f"one-hot{suffix}",
            "units",
            (Equal(e, product), Equal(b, where(_here, one, zero)), fact("finite", s)),
            (Equal(e, where(_here, s, zero)),),
            example.sum(at.n),
        )
        for suffix, product, example in (
            ("", b * s, _one_hot * log(at.likely)),
            ("-right", s * b, log(at.likely) * _one_hot),
        )
    ),
    _parts("difference", a - b, _picked - b * _times, (_one_hot * log(at.likely)).sum(at.n)),
    _parts(
        "sum",
        a + b,
        _picked + b * _times,
        where(at.label == at.n.index, at.x + at.g, 0.0).sum(at.n),
    ),
    *_ordered(),
    *_linear(),
)
