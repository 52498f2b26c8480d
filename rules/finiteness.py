"""Where exponents are finite, or what they scale vanishes: there exp(-a) exp(a) cancels.

A row without unmasked elements has the maximum -inf, and exp(-(-inf)) exp(-inf) is no 1. It is
sound to cancel where `a` is finite, or where the rest is absent wherever a is -inf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..expressions import exp, lift, log, maximum, sqrt, tanh, where
from ..terms import make, variable
from . import examples as at
from .facts import fact
from .law import Clause, Equal, Law, rewrite
from .patterns import E, k, number, one, peak, total

a, b, c, r, u, x, y, z = E("a b c r u x y z")


def _finite(name: str, form: Any, given: Sequence[Clause], example: Any) -> Law:
    return Law(
        name=f"finiteness/{name}",
        phase="analysis",
        source="inputs are real numbers",
        example=example,
        given=(Equal(x, form), *given),
        then=(fact("finite", x),),
    )


_A = fact("finite", a)
_AB = (fact("finite", a), fact("finite", b))
_axis = variable("Axis", "i")
_numbers = (fact(">", number, float("-inf")), fact("<", number, float("inf")))

FINITE = tuple(
    _finite(*row)
    for row in (
        ("number", make("Num", number), _numbers, lift(2.0)),
        ("index", make("Idx", _axis), (), at.n.index * at.x),
        ("add", a + b, _AB, at.x + at.g),
        ("subtract", a - b, _AB, at.x - at.g),
        ("times", a * b, _AB, at.x * at.g),
        ("over", a / b, (_A, fact("positive", b)), at.x / 2.0),
        ("negative", -a, (_A,), -at.x),
        ("tanh", tanh(a), (), tanh(at.x)),
        ("exp", exp(a), (_A,), exp(at.x)),
        ("log", log(a), (_A, fact("positive", a)), log(exp(at.x))),
        ("abs", abs(a), (_A,), abs(at.x)),
        ("sqrt", sqrt(a), (_A, fact("nonnegative", a)), sqrt(abs(at.x))),
        ("where", where(c, a, b), _AB, where(at.x < at.g, at.x, at.g)),
        ("maximum", maximum(a, b), _AB, maximum(at.x, at.g)),
        ("sum", total(k, a), (_A,), at.x.sum(at.n)),
        ("peak", peak(k, a), (_A, fact("inhabited", k)), at.x.max(at.n)),
    )
)


def _vanish(name: str, form: Any, example: Any) -> Law:
    return Law(
        name=f"finiteness/vanishing-{name}",
        phase="analysis",
        source="absent elements annihilate",
        example=example,
        given=(Equal(y, form), fact("vanishes", x, a)),
        then=(fact("vanishes", y, a),),
    )


VANISHING = (
    _vanish("times", x * z, at.masked_gated),
    _vanish("times-right", z * x, at.masked_normalised),
    _vanish("over", x / z, at.masked_unshifted),
)


def _cancel(
    name: str, lhs: Any, rhs: Any, finite: Any, vanishing: Any, *, retire: bool = True
) -> Iterator[Law]:
    """The law for a finite `a`, and the law for an `x` that vanishes with it, with examples.

    What cancels is retired, so that no other sum takes exp(-a) for a weight of its own.
    """
    for suffix, condition, example in (
        ("finite", fact("finite", a), finite),
        ("vanishing", fact("vanishes", x, a), vanishing),
    ):
        yield rewrite(
            f"finiteness/{name}-{suffix}",
            lhs,
            rhs,
            phase="units",
            source="exp(-a) exp(a) = 1",
            given=(condition,),
            example=example,
            retire=retire,
        )


_t = at.x
CANCELLING = (
    *_cancel(
        "inverse",
        exp(-a) * (exp(a) * x),
        x,
        exp(-_t) * (exp(_t) * at.g),
        at.masked_normalised,
    ),
    *_cancel(
        "inverse-right",
        exp(a) * (exp(-a) * x),
        x,
        exp(_t) * (exp(-_t) * at.g),
        at.masked_returned,
    ),
    *_cancel(
        "inverse-sum-left",
        exp(-(a + b)) * (exp(a) * x),
        exp(-b) * x,
        exp(-(_t + at.y)) * (exp(_t) * at.g),
        at.masked_against_left,
    ),
    *_cancel(
        "inverse-sum-right",
        exp(-(b + a)) * (exp(a) * x),
        exp(-b) * x,
        exp(-(at.y + _t)) * (exp(_t) * at.g),
        at.masked_against_right,
    ),
    *_cancel(
        "common-factor",
        (exp(a) * x) / (exp(a) * y),
        x / y,
        (exp(_t) * at.g) / (exp(_t) * at.y),
        at.masked_unshifted,
        retire=False,
    ),
    rewrite(
        "finiteness/inverse-alone",
        exp(-a) * exp(a),
        one,
        phase="units",
        source="exp(-a) exp(a) = 1",
        given=(fact("finite", a),),
        example=exp(-at.x) * exp(at.x),
    ),
    rewrite(
        "finiteness/merge-below",
        exp(-a) * (exp(b) * x),
        exp(b - a) * x,
        phase="units",
        source="exp is a homomorphism from + to *; the exponent b - a <= 0 is safe",
        given=(fact("bounded", b, a),),
        example=at.sink,
    ),
)

LAWS: tuple[Law, ...] = (*FINITE, *VANISHING, *CANCELLING)
