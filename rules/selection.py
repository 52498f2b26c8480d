"""What a reduction picks by an index: a sum of which one element at most is not 0.

Σ_k (p = k ? s : 0) is s at k = p. Its parts leave the sum without any rounding, where those of
other sums may cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expressions import log, where
from ..terms import make
from . import examples as at
from .facts import fact
from .law import Clause, Equal, Law
from .patterns import E, k, one, total, zero

a, b, e, p, s, x = E("a b e p s x")
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
)
