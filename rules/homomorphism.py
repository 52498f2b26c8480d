"""What leaves a reduction: factors that do not vary leave sums, positive scales and shifts leave
maxima, and a sum of sums is a sum of its parts.
"""

from __future__ import annotations

from ..expressions import exp
from ..terms import make
from . import examples as at
from .facts import fact
from .law import Clause, Equal, Law
from .patterns import E, k, number, peak, total, zero

a, b, c, e, i, p, r, s, u, d, x, z = E("a b c e i p r s u d x z")
_split = fact("split", e, k, c, i, u, r)
_sum = Equal(x, total(k, e))
_peak = Equal(x, peak(k, e))
_fixed_c = fact("invariant", c, k)
_proper = (fact("!=", i, zero), fact("!=", d, zero))


def _risky(term: object) -> object:
    return make("Risk", term)


def _law(
    name: str,
    given: tuple[Clause, ...],
    then: tuple[Clause, ...],
    example: object,
    linear: tuple[object, ...] = (),
) -> Law:
    return Law(
        name=f"homomorphism/{name}",
        phase="homomorphism",
        source="linear maps commute with Σ; x -> c x + i with c > 0 is monotone, so with max",
        example=example,
        given=given,
        then=then,
        linear=linear,
    )


ci, di = E("ci di")
NUMBER = make("Num", number)

LAWS: tuple[Law, ...] = (
    _law(
        "hoist",
        (_sum, _split, fact("invariant", u, k)),
        (Equal(x, c * (exp(i) * total(k, exp(u) * r))),),
        (at.g * at.x).sum(at.n),
    ),
    _law(
        "count",
        (_sum, fact("invariant", e, k), fact("count", k, number)),
        (Equal(x, make("Num", number) * e),),
        at.total_of_constant,
    ),
    _law("want-linear", (_sum, _split), (fact("shift", r, k),), at.normalised),
    _law(  # the two parts may cancel, so the result carries a risk
        "linear",
        (_sum, _split, fact("shifted", r, k, ci, di), fact("!=", ci, zero), fact("!=", di, zero)),
        (
            Equal(
                x,
                c * (exp(i) * _risky(total(k, exp(u) * di) + ci * total(k, exp(u)))),
            ),
        ),
        (exp(at.x) * (at.y + at.g)).sum(at.n),
        linear=(ci,),
    ),
    _law(
        "want-distribute",
        (_sum, Equal(e, a * b), fact("!=", a, e), fact("!=", b, e)),
        (fact("shift", a, k), fact("shift", b, k)),
        at.product,
    ),
    _law(
        "distribute",
        (_sum, Equal(e, a * b), fact("shifted", a, k, i, d), *_proper),
        (Equal(x, _risky(total(k, d * b) + i * total(k, b))),),
        ((at.x - at.g) * at.y).sum(at.n),
        linear=(i, b),
    ),
    _law(
        "distribute-right",
        (_sum, Equal(e, b * a), fact("shifted", a, k, i, d), *_proper),
        (Equal(x, _risky(total(k, d * b) + i * total(k, b))),),
        (at.y * (at.x - at.g)).sum(at.n),
        linear=(i, b),
    ),
    *(
        _law(  # what is added has one sign, so that no part cancels another
            f"alike{suffix}",
            (
                *(_sum, Equal(e, product), Equal(b, p / z), Equal(s, a - c)),
                *(fact("invariant", c, k), fact("invariant", z, k)),
                *(fact("nonnegative", p), fact("positive", z)),
                *(fact("nonpositive", a), fact("nonnegative", c)),
            ),
            (Equal(x, total(k, p * a) / z - c * total(k, b)),),
            example,
            linear=(p,),
        )
        for suffix, product, example in (
            ("", b * s, at.entropy),
            ("-right", s * b, at.entropy_commuted),
        )
    ),
    # squares stand last in a summand, as the laws of second moments spell them
    *(
        _law(
            f"square-{name}",
            (Equal(x, total(k, product)),),
            (Equal(x, total(k, a * (b * b))),),
            example.sum(at.n),
        )
        for name, product, example in (
            ("apart", (a * b) * b, (at.y * at.x) * at.x),
            ("around", (b * a) * b, (at.x * at.y) * at.x),
            ("last", (b * b) * a, (at.x * at.x) * at.y),
        )
    ),
    # and what is centred stands first, as the law of its products does
    *(
        _law(
            f"centred-{name}",
            (
                *(Equal(x, total(k, product)), Equal(d, a - i)),
                *(Equal(i, total(k, a) / NUMBER), fact("count", k, number)),
            ),
            (Equal(x, total(k, front)),),
            example.sum(at.n),
            linear=(a, b, c),
        )
        for name, product, front, example in (
            ("last", b * d, d * b, at.w * at.centred),
            ("first", (d * b) * c, d * (b * c), (at.centred * at.y) * at.w),
            ("middle", (b * d) * c, d * (b * c), (at.y * at.centred) * at.w),
            ("inside", b * (d * c), d * (b * c), at.w * (at.centred * at.y)),
            ("inside-last", b * (c * d), d * (b * c), at.w * (at.y * at.centred)),
        )
    ),
    _law(
        "peak-scale",
        (_peak, Equal(e, c * s), _fixed_c, fact("positive", c)),
        (Equal(x, c * peak(k, s)),),
        (2.0 * at.x).max(at.n),
    ),
    _law(
        "peak-scale-right",
        (_peak, Equal(e, s * c), _fixed_c, fact("positive", c)),
        (Equal(x, peak(k, s) * c),),
        (at.x * 2.0).max(at.n),
    ),
    _law(
        "peak-scale-over",
        (_peak, Equal(e, s / c), _fixed_c, fact("positive", c)),
        (Equal(x, peak(k, s) / c),),
        (at.x / 2.0).max(at.n),
    ),
    _law(
        "peak-shift",
        (_peak, fact("shifted", e, k, i, d), *_proper),
        (Equal(x, i + peak(k, d)),),
        (at.x + at.g).max(at.n),
    ),
)
