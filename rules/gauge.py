"""That the base of a twisted channel is a free representative of a class of states.

A state (m, x) stands for the same sum as (c, act(c - m) x), for every c. What may be read of a
carrier without saying which of them is kept is whatever these laws bring to the same form. They
license a kernel to keep a base that is only near the maximum, and finite once anything is folded
into it (`egraph_flash.gauge` asks them); no phase of the exploration needs them.
"""

from __future__ import annotations

from functools import partial

from ..expressions import exp, log
from . import examples as at
from .facts import fact
from .law import Law, rewrite
from .patterns import E

a, b, m, c, k, o, d, x = E("a b m c k o d x")

_orbit = partial(
    rewrite,
    phase="combine",
    source="act is a group action: a state is an orbit, its base a choice of origin",
)
_ordered = partial(rewrite, phase="combine", source="the field axioms")
_FINITE = (fact("finite", c), fact("finite", m))


def laws() -> tuple[Law, ...]:
    """How a base cancels, and what brings it next to what cancels it, in a few rounds."""
    return (*ORBITS, *ORDERS)


# For the scalar action, x at base m is exp(-m) times the plain sum.
ORBITS = (
    _orbit(
        "gauge/compose",
        exp(c - k) * (exp(m - c) * o),
        exp(m - k) * o,
        given=(fact("finite", c),),
        example=exp(at.x - at.g) * (exp(at.y - at.x) * at.g),
    ),
    _orbit(
        "gauge/quotient",
        (exp(m - c) * o) / (exp(m - c) * d),
        o / d,
        given=_FINITE,
        example=(exp(at.x - at.y) * at.g) / (exp(at.x - at.y) * at.x),
    ),
    _orbit(
        "gauge/logarithm",
        c + log(exp(m - c) * d),
        m + log(d),
        given=(fact("finite", c),),
        example=at.x + log(exp(at.y - at.x) * exp(at.g)),
    ),
    _orbit(
        "gauge/one-more-element",
        exp(m - c) * d + exp(k - c),
        exp(m - c) * (d + exp(k - m)),
        given=_FINITE,
        example=exp(at.x - at.y) * at.g + exp(at.g - at.y),
    ),
)

# Not directed: they run for a few rounds, on a few scalars.
ORDERS = (
    _ordered("gauge/commute-sum", a + b, b + a, example=at.x + at.g),
    _ordered("gauge/regroup-sum", (a + b) + x, a + (b + x), example=(at.x + at.g) + at.y),
    _ordered("gauge/commute-product", a * b, b * a, example=at.x * at.g),
    _ordered("gauge/regroup-product", (a * b) * x, a * (b * x), example=(at.x * at.g) * at.y),
    _ordered("gauge/minus-both", (a - b) - x, a - (b + x), example=(at.x - at.g) - at.y),
    _ordered(
        "gauge/minus-difference",
        a - (b - c),
        (a + c) - b,
        given=(fact("finite", c),),
        example=at.x - (at.g - at.y),
    ),
)
