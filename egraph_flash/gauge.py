"""Whether an output reads a carrier as a class of states: the same for every base that is kept.

A twisted channel is kept relative to its base, and the base is a free representative: (m, x) and
(c, act(c - m) x) are one state. A kernel may therefore keep any base that is near enough, where
the gauge laws (rules/gauge.py) prove that an output reads the same of both. An output of which
they do not prove it counts as telling: a refusal may be too careful, a permission may not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .carriers import bases_of, closure, representation_of
from .dtypes import f32
from .egraph import Session
from .expressions import Expr, Tensor
from .rules import OWN, Row, gauge
from .shapes import free_base
from .stages import Stage
from .terms import Chan, rewrite, subterms

# Each round brings a base one operator nearer to what cancels it.
ROUNDS = 3
_ROUND = "(run-schedule (saturate (run analysis)) (run combine) (repeat 4 (run units)))"


@lru_cache(maxsize=256)
def tells_the_base(stage: Stage) -> str | None:
    """The name of an output whose value may depend on which base is kept, or None."""
    free = [base for base in stage.channels if free_base(stage, base)]
    for target in stage.targets:
        for base in free:
            if not _invariant(stage, target.expr, base):
                return target.name
    return None


def _invariant(stage: Stage, expr: Any, base: Chan) -> bool:
    """Whether the expression provably reads the same of the state at another base.

    Bases are finite numbers here: where nothing is folded in, both are the identity, one state.
    """
    gets = [n for n in subterms(expr) if n.head == "Get" and n.args[0] is stage.state]
    channels = closure([*(get.args[1] for get in gets), base])
    values = {channel: _scalar(f"c{place}") for place, channel in enumerate(channels)}
    plain = _at_one_place(expr, {get: values[get.args[1]] for get in gets})
    moved = at_base(values, base, _scalar("other"))
    return equal(plain, rewrite(plain, {values[c]: value for c, value in moved.items()}))


def at_base(values: dict[Chan, Expr], base: Chan, other: Expr) -> dict[Chan, Expr]:
    """How the same state reads where `other` is the base that is kept."""
    moved = {**values, base: other}
    for channel in values:
        bases = bases_of(channel)
        if base in bases:
            old, new = (tuple(kept[b] for b in bases) for kept in (values, moved))
            moved[channel] = representation_of(channel).transport(values[channel], old, new)
    return moved


def _scalar(name: str) -> Expr:
    return Tensor(name, (), f32).expr


def _at_one_place(expr: Any, gets: dict[Any, Expr]) -> Expr:
    """The expression at one place: channels as given, loads and indices as further inputs."""
    others = [n for n in subterms(expr) if n.head in ("Load", "Idx")]
    inputs = {n: _scalar(f"x{place}") for place, n in enumerate(others)}
    return rewrite(expr, {**inputs, **gets})  # type: ignore[no-any-return]


def equal(plain: Expr, shifted: Expr) -> bool:
    """Whether the gauge laws, with those of units and of order, make one of the other."""
    return plain is shifted or _proved(plain, shifted, tuple(OWN.values()))


@lru_cache(maxsize=256)
def _proved(plain: Expr, shifted: Expr, own: tuple[Row, ...]) -> bool:
    """The same of different terms, under the users' laws of now; few differ in a whole plan, since
    nothing is left in them of a stage's names and extents."""
    session = Session((plain, shifted), [law.egglog for law in gauge.laws()])
    for _ in range(ROUNDS):
        session.run(_ROUND)
    return session.holds(0, shifted)
