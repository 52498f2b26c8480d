"""How products with 1, sums with 0, and nested quotients, logarithms and negations become shorter.

All of it is directed: there is no commutativity or associativity here, which would not finish.
"""

from __future__ import annotations

from functools import partial

from ..expressions import exp, lift, log
from ..terms import make
from . import examples as at
from .facts import fact
from .law import Law, rewrite
from .patterns import E, number, one, zero

NUMBER = make("Num", number)
a, b, c, d, x, y = E("a b c d x y")

_unit = partial(rewrite, phase="units", source="the field axioms")
_exponential = partial(rewrite, phase="units", source="exp is a homomorphism from + to *")

LAWS: tuple[Law, ...] = (
    _unit("units/one-times", one * x, x, example=1.0 * at.x, retire=True),
    _unit("units/times-one", x * one, x, example=at.x * 1.0, retire=True),
    _unit("units/zero-plus", zero + x, x, example=0.0 + at.x, retire=True),
    _unit("units/plus-zero", x + zero, x, example=at.x + 0.0, retire=True),
    _unit("units/minus-zero", x - zero, x, example=at.x - 0.0, retire=True),
    _unit("units/zero-minus", zero - x, -x, example=0.0 - at.x),
    _unit("units/negative-zero", -zero, zero, example=-lift(0.0), retire=True),
    _unit("units/over-one", x / one, x, example=at.x / 1.0, retire=True),
    _unit("units/negated-twice", make("Neg", -x), x, example=make("Neg", -at.x)),
    _unit("units/negative-minus", (-a) - b, -(a + b), example=(-at.x) - at.g),
    _unit("units/times-negative", c * (-x), -(c * x), example=at.x * (-at.g)),
    _unit("units/reciprocal-times", (one / d) * x, x / d, example=(1.0 / at.g) * at.x),
    _unit("units/quotient-times", (a / d) * x, (a * x) / d, example=(at.y / at.g) * at.x),
    _unit("units/doubled", x + x, lift(2.0) * x, example=at.x + at.x),
    _unit(
        "units/times-zero",
        x * zero,
        zero,
        given=(fact("finite", x),),
        example=at.x * 0.0,
        retire=True,
    ),
    _unit(
        "units/zero-times",
        zero * x,
        zero,
        given=(fact("finite", x),),
        example=0.0 * at.x,
        retire=True,
    ),
    _unit("units/number-first", x * NUMBER, NUMBER * x, example=at.x * 3.0),
    _unit(
        "units/negative-plus", (-a) + a, zero, given=(fact("finite", a),), example=(-at.x) + at.x
    ),
    _exponential("units/exp-zero", exp(zero), one, example=exp(lift(0.0)), retire=True),
    _exponential("units/over-exp", a / exp(b), exp(-b) * a, example=at.x / exp(at.g)),
    _exponential(
        "units/exp-negative-log",
        exp(-log(x)),
        one / x,
        given=(fact("nonnegative", x),),
        example=exp(-log(abs(at.x))),
    ),
    _exponential("units/log-exp", log(exp(a)), a, example=log(exp(at.x))),
    _exponential(
        "units/log-of-scaled",
        log(exp(a) * x),
        a + log(x),
        example=log(exp(at.g) * abs(at.x)),
    ),
    _exponential(
        "units/log-of-quotient",
        log(a / b),
        log(a) - log(b),
        given=(fact("nonnegative", b),),
        example=log(abs(at.x) / abs(at.g)),
    ),
)
