"""Which expressions are provably of one sign, or provably below another.

`exp(x)` is safe only where x <= 0 is proved: extraction counts every other exponential.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expressions import exp, lift, log, maximum, minimum, sqrt, where
from ..terms import make
from . import examples as at
from .facts import Fact, fact
from .law import Clause, Equal, Law
from .patterns import E, k, number, one, peak, total

a, b, c, m, s, u, x = E("a b c m s u x")
_peak_bound = E("bound")
NUMBER = make("Num", number)


def _law(name: str, form: Any, given: Sequence[Clause], then: Fact, example: Any) -> Law:
    return Law(
        name=f"signs/{name}",
        phase="analysis",
        source="order of the reals",
        example=example,
        given=(Equal(x, form), *given),
        then=(then,),
    )


def _sign(name: str, form: Any, given: Sequence[Clause], sign: str, example: Any) -> Law:
    return _law(f"{sign}-{name}", form, given, fact(sign, x), example)


def _both(sign: str) -> tuple[Fact, Fact]:
    return fact(sign, a), fact(sign, b)


_below = -abs(at.x)  # an example of what is <= 0
_above = abs(at.x)  # of what is >= 0
_strict = exp(at.g)  # of what is > 0

NUMBERS = (
    _sign("number", NUMBER, (fact("<=", number, 0.0),), "nonpositive", lift(-2.0)),
    _sign("number", NUMBER, (fact(">=", number, 0.0),), "nonnegative", lift(2.0)),
    _sign("number", NUMBER, (fact(">", number, 0.0),), "positive", lift(2.0)),
)

_varies = fact("depends", s, k)  # else an empty axis would leave s - (-inf)

NONPOSITIVE = tuple(
    _sign(name, form, given, "nonpositive", example)
    for name, form, given, example in (
        ("below-peak", s - m, (Equal(m, peak(k, s)), _varies), at.x - at.x.max(at.n)),
        (
            "below-bound",
            s - _peak_bound,
            (Equal(m, peak(k, s)), _varies, fact("bounded", m, _peak_bound)),
            at.sink,
        ),
        ("difference", a - b, (fact("bounded", a, b),), at.sink),
        ("add", a + b, _both("nonpositive"), _below + _below),
        ("negative", -a, (fact("nonnegative", a),), -_above),
        ("times", a * b, (fact("nonnegative", a), fact("nonpositive", b)), _above * _below),
        ("times-left", a * b, (fact("nonpositive", a), fact("nonnegative", b)), _below * _above),
        ("over", a / b, (fact("nonpositive", a), fact("positive", b)), _below / _strict),
        ("where", where(c, a, b), _both("nonpositive"), where(at.x < at.g, _below, -1.0)),
        ("maximum", maximum(a, b), _both("nonpositive"), maximum(_below, -abs(at.g))),
        ("minimum", minimum(a, b), (fact("nonpositive", a),), minimum(_below, at.g)),
        ("minimum-right", minimum(a, b), (fact("nonpositive", b),), minimum(at.g, _below)),
        ("peak", peak(k, a), (fact("nonpositive", a),), _below.max(at.n)),
    )
)

NONNEGATIVE = tuple(
    _sign(name, form, given, "nonnegative", example)
    for name, form, given, example in (
        ("exp", exp(a), (), exp(at.x)),
        ("abs", abs(a), (), abs(at.x)),
        ("square", a * a, (), at.x * at.x),
        ("sqrt", sqrt(a), (fact("nonnegative", a),), sqrt(_above)),
        ("add", a + b, _both("nonnegative"), _above + _above),
        ("times", a * b, _both("nonnegative"), _above * _strict),
        ("over", a / b, _both("nonnegative"), _above / _strict),
        ("where", where(c, a, b), _both("nonnegative"), where(at.x < at.g, _above, 1.0)),
        ("maximum", maximum(a, b), (fact("nonnegative", a),), maximum(_above, at.g)),
        ("maximum-right", maximum(a, b), (fact("nonnegative", b),), maximum(at.g, _above)),
        ("sum", total(k, a), (fact("nonnegative", a),), _above.sum(at.n)),
        ("log", log(a), (fact("bounded", one, a),), log(at.weights(at.x).sum(at.n))),
    )
)

POSITIVE = tuple(
    _sign(name, form, given, "positive", example)
    for name, form, given, example in (
        ("exp", exp(a), (fact("finite", a),), exp(at.x)),
        ("times", a * b, _both("positive"), _strict * exp(at.x)),
        ("over", a / b, _both("positive"), _strict / exp(at.x)),
        ("add", a + b, (fact("positive", a), fact("nonnegative", b)), _strict + _above),
        ("add-right", a + b, (fact("nonnegative", a), fact("positive", b)), _above + _strict),
        ("sum", total(k, a), (fact("positive", a), fact("inhabited", k)), exp(at.x).sum(at.n)),
        ("maximum", maximum(a, b), (fact("positive", a),), maximum(_strict, at.x)),
        ("sqrt", sqrt(a), (fact("positive", a),), sqrt(_strict)),
    )
)

BOUNDS = (
    Law(  # the largest element alone adds 1
        name="signs/at-least-one",
        phase="analysis",
        source="order of the reals",
        example=at.weights(at.x).sum(at.n),
        given=(
            *(Equal(x, total(k, exp(s - m))), Equal(m, peak(k, s))),
            *(fact("inhabited", k), fact("finite", s)),
        ),
        then=(fact("bounded", one, x),),
    ),
    _law("bound-left", maximum(a, b), (), fact("bounded", a, x), maximum(at.x, at.g)),
    _law("bound-right", maximum(a, b), (), fact("bounded", b, x), maximum(at.x, at.g)),
    *(
        _law(f"bound-{side}", form, (fact("bounded", c, a),), fact("bounded", c, x), at.two_sinks)
        for side, form in (("through-left", maximum(a, b)), ("through-right", maximum(b, a)))
    ),
)

LAWS: tuple[Law, ...] = (*NUMBERS, *NONPOSITIVE, *NONNEGATIVE, *POSITIVE, *BOUNDS)
