"""How a summand splits along an axis: e = c exp(i) exp(u) r, with c and i invariant in the axis.

This demand-driven normal form takes the place of commutativity and associativity. A reduction
asks for the split of its body; products, quotients and exponentials pass the demand down, and
everything else is an atom that stands for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..expressions import exp, where
from ..terms import HEADS, make, variable
from . import examples as at
from .facts import Fact, fact
from .law import Clause, Equal, Law
from .patterns import E, k, minus_inf, one, reduce, total, zero

a, b, c, e, x = E("a b c e x")
_SOURCE = "distributivity of * over +, and exp a homomorphism from + to *"

wanted = fact("factor", e, k)
varying = fact("depends", e, k)


def _part(term: Any, mark: str) -> tuple[Fact, tuple[Any, Any, Any, Any]]:
    """The split of a part of the summand, in variables of its own."""
    parts = E(f"c{mark} i{mark} u{mark} r{mark}")
    return fact("split", term, k, *parts), parts


def _different(*terms: Any) -> tuple[Fact, ...]:
    """Guards against splitting a product into itself and 1."""
    return tuple(fact("!=", term, e) for term in terms)


_split_a, (ca, ia, ua, ra) = _part(a, "a")
_split_b, (cb, ib, ub, rb) = _part(b, "b")
ai, ad, bi, bd = E("ai ad bi bd")
_shifted_a, _shifted_b = fact("shifted", a, k, ai, ad), fact("shifted", b, k, bi, bd)


def _law(
    name: str,
    given: Sequence[Clause],
    then: Sequence[Clause],
    example: Any,
    linear: tuple[Any, ...] = (),
) -> Law:
    return Law(
        name=f"homomorphism/{name}",
        phase="splitting",
        source=_SOURCE,
        example=example,
        given=tuple(given),
        then=tuple(then),
        linear=linear,
    )


def _demand(name: str, form: Any, then: Sequence[Fact], example: Any, *given: Clause) -> Law:
    return _law(f"want-{name}", (wanted, Equal(e, form), *given), then, example)


DEMAND = (
    _law("want-sum", (Equal(x, total(k, e)),), (wanted,), at.product),
    _law("want-peak", (Equal(x, reduce("Max", k, e)),), (fact("shift", e, k),), at.x.max(at.n)),
    _demand("times", a * b, (fact("factor", a, k), fact("factor", b, k)), at.product),
    _demand("over", a / b, (fact("factor", a, k),), at.normalised),
    _demand("negative", -a, (fact("factor", a, k),), (-at.x).sum(at.n)),
    _demand("exp", exp(x), (fact("shift", x, k),), at.normalised),
    _demand("masked", where(c, a, zero), (fact("factor", a, k),), at.masked_weights),
)

SPLITS = (
    _law(
        "split-invariant",
        (wanted, fact("invariant", e, k)),
        (fact("split", e, k, e, zero, zero, one),),
        (at.g * at.x).sum(at.n),
    ),
    _law(
        "split-times",
        (wanted, Equal(e, a * b), *_different(a, b), _split_a, _split_b, varying),
        (fact("split", e, k, ca * cb, ia + ib, ua + ub, ra * rb),),
        at.product,
    ),
    _law(
        "split-over",
        (wanted, Equal(e, a / b), *_different(a), _split_a, fact("invariant", b, k), varying),
        (fact("split", e, k, ca / b, ia, ua, ra),),
        at.normalised,
    ),
    _law(
        "split-over-varying",
        (wanted, Equal(e, a / b), *_different(a), _split_a, fact("depends", b, k)),
        (fact("split", e, k, ca, ia, ua, ra / b),),
        (at.x / at.y).sum(at.n),
    ),
    _law(
        "split-negative",
        (wanted, Equal(e, -a), _split_a, varying),
        (fact("split", e, k, -ca, ia, ua, ra),),
        (-at.x).sum(at.n),
    ),
    _law(
        "split-exp",
        (wanted, Equal(e, exp(x)), fact("shifted", x, k, ai, ad), varying),
        (fact("split", e, k, one, ai, ad, one),),
        at.normalised,
    ),
    _law(  # a mask in the linear domain is a mask in the logarithmic one
        "split-masked",
        (wanted, Equal(e, where(c, a, zero)), _split_a, fact("depends", ua, k)),
        (fact("split", e, k, ca, ia, where(c, ua, minus_inf), ra),),
        at.masked_weights,
    ),
    _law(  # and a factor of 0 or 1, where another sum has the same weights without the mask
        "split-masked-rest",
        (
            *(wanted, Equal(e, where(c, a, zero)), _split_a, fact("depends", ua, k)),
            *(Equal(x, total(k, b)), fact("split", b, k, cb, ib, ua, rb)),
        ),
        (fact("split", e, k, ca, ia, ua, where(c, ra, zero)),),
        at.masked_after,
    ),
)


def _shift(
    name: str,
    form: Any,
    parts: Sequence[Clause],
    i: Any,
    d: Any,
    example: Any,
    linear: tuple[Any, ...] = (),
) -> Iterator[Law]:
    """The demand for the shifts of the parts of an exponent, and the shift that they give."""
    asked = (fact("shift", x, k), fact("depends", x, k), Equal(x, form))
    needed = [part for part in parts if isinstance(part, Fact) and part.kind.name == "shifted"]
    other = [part for part in parts if isinstance(part, Fact) and part.kind.name == "invariant"]
    yield _law(
        f"want-shift-{name}",
        (*asked, *other),
        [fact("shift", part.args[0], k) for part in needed],
        example,
    )
    distinct = [fact("!=", part.args[0], x) for part in needed]
    yield _law(
        f"shift-{name}",
        (*asked, *parts, *distinct),
        (fact("shifted", x, k, i, d),),
        example,
        linear,
    )


_fixed_c = fact("invariant", c, k)


def _whole(name: str, form: Any, given: Sequence[Clause], example: Any) -> Law:
    """A product or quotient whose parts all vary is an atom."""
    return _law(
        f"shift-varying-{name}",
        (fact("shift", x, k), Equal(x, form), *given),
        (fact("shifted", x, k, zero, x),),
        example,
    )


SHIFTS = (
    _law(
        "shift-invariant",
        (fact("shift", x, k), fact("invariant", x, k)),
        (fact("shifted", x, k, x, zero),),
        at.normalised,
    ),
    *_shift("add", a + b, (_shifted_a, _shifted_b), ai + bi, ad + bd, exp(at.x + at.g).sum(at.n)),
    *_shift("minus", a - b, (_shifted_a, _shifted_b), ai - bi, ad - bd, at.normalised),
    *_shift("negative", -a, (_shifted_a,), -ai, -ad, exp(-(at.x + at.g)).sum(at.n)),
    *_shift("times", c * a, (_fixed_c, _shifted_a), c * ai, c * ad, at.late_scale_left, (c,)),
    *_shift("times-right", a * c, (_fixed_c, _shifted_a), ai * c, ad * c, at.late_scale, (c,)),
    _whole(
        "times",
        a * b,
        (fact("depends", a, k), fact("depends", b, k)),
        exp(at.x * at.y).sum(at.n),
    ),
    _whole("over", a / b, (fact("depends", a, k),), exp(at.x / at.y).sum(at.n)),
    _whole("under", a / b, (fact("depends", b, k),), exp(at.x / at.y).sum(at.n)),
    *_shift("over", a / c, (_fixed_c, fact("positive", c), _shifted_a), ai / c, ad / c, at.cooled),
    *_shift(
        "masked",
        where(c, a, minus_inf),
        (_shifted_a, fact("!=", ai, zero)),
        ai,
        where(c, ad, minus_inf),
        at.masked_exponent,
    ),
)

# Heads that the laws above take apart; a node of any other head is an atom where it varies.
_FACTORED = {"Mul", "Div", "Exp", "Neg", "Num", "Mat", "Risk", "Get"}
_SHIFTED = {"Add", "Sub", "Neg", "Mul", "Div", "Num", "Mat", "Risk", "Get"}


def _any(head: str) -> Any:
    """The most general node of a head."""
    sorts = HEADS[head].arguments
    return make(head, *(variable(sort, f"p{place}") for place, sort in enumerate(sorts)))


def _atoms(example_of: dict[str, Any]) -> Iterator[Law]:
    """Which expressions are atoms of a product, and of an exponent: by head."""
    for row in HEADS.values():
        if row.result != "Expr":
            continue
        node = (Equal(e, _any(row.name)),)
        body = example_of[row.name]
        if row.name not in _FACTORED:
            name, atom = f"factor-{row.name.lower()}", fact("atom-factor", e)
            yield _analysis(name, node, atom, body.sum(at.n))
        if row.name not in _SHIFTED:
            name, atom = f"exponent-{row.name.lower()}", fact("atom-exponent", e)
            yield _analysis(name, node, atom, exp(body).sum(at.n))


def _analysis(name: str, given: Sequence[Clause], then: Fact, example: Any) -> Law:
    return Law(
        name=f"homomorphism/atom-{name}",
        phase="analysis",
        source=_SOURCE,
        example=example,
        given=tuple(given),
        then=(then,),
    )


ATOMS = (
    *_atoms(at.OF_HEAD),
    _law(
        "split-atom",
        (wanted, fact("atom-factor", e), varying),
        (fact("split", e, k, one, zero, zero, e),),
        at.x.sum(at.n),
    ),
    _law(
        "shift-atom",
        (fact("shift", e, k), fact("atom-exponent", e), varying),
        (fact("shifted", e, k, zero, e),),
        exp(at.x).sum(at.n),
    ),
)

LAWS: tuple[Law, ...] = (*DEMAND, *SPLITS, *SHIFTS, *ATOMS)
