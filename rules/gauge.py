"""That the base of a twisted channel is a free representative of a class of states.

A state (m, x) stands for the same sum as (c, act(c - m) x), for every c. What may be read of a
carrier without saying which of them is kept is whatever these laws bring to the same form. They
license a kernel to keep a base that is only near the maximum, and finite once anything is folded
into it; no phase of the exploration needs them.
"""

from __future__ import annotations

from ..expressions import exp, log
from . import examples as at
from .facts import fact
from .law import Law, rewrite
from .patterns import E

m, c, k, o, d = E("m c k o d")
_SOURCE = "act is a group action: a state is an orbit, its base a choice of origin"


def laws() -> tuple[Law, ...]:
    """For the scalar action, x at base m is exp(-m) times the plain sum."""
    return (
        rewrite(
            "gauge/compose",
            exp(c - k) * (exp(m - c) * o),
            exp(m - k) * o,
            given=(fact("finite", c),),
            phase="combine",
            source=_SOURCE,
            example=exp(at.x - at.g) * (exp(at.y - at.x) * at.g),
        ),
        rewrite(
            "gauge/quotient",
            (exp(m - c) * o) / (exp(m - c) * d),
            o / d,
            given=(fact("finite", c), fact("finite", m)),
            phase="combine",
            source=_SOURCE,
            example=(exp(at.x - at.y) * at.g) / (exp(at.x - at.y) * at.x),
        ),
        rewrite(
            "gauge/logarithm",
            c + log(exp(m - c) * d),
            m + log(d),
            given=(fact("finite", c), fact("finite", m), fact("positive", d)),
            phase="combine",
            source=_SOURCE,
            example=at.x + log(exp(at.y - at.x) * at.g),
        ),
    )
