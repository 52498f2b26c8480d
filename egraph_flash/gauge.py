"""Whether an output reads a carrier as a class of states: the same for every base that is kept.

A twisted channel is kept relative to its base, and the base is a free representative: (m, x) and
(c, act(c - m) x) are one state (the gauge laws, rules/gauge.py). A kernel may therefore keep any
base that is near enough, where outputs read their channels only in ways that do not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .carriers import bases_of, is_twisted, representation_of
from .dtypes import f32
from .evaluation import evaluate
from .expressions import Tensor
from .stages import Stage
from .terms import Chan, rewrite, subterms

SAMPLES = 24
RELATIVE = 1e-9


@lru_cache(maxsize=256)
def tells_the_base(stage: Stage) -> str | None:
    """The name of an output whose value depends on which base is kept, or None."""
    free = [base for base in stage.channels if free_base(stage, base)]
    for target in stage.targets:
        for base in free:
            if not _invariant(stage, target.expr, base):
                return target.name
    return None


def free_base(stage: Stage, base: Chan) -> bool:
    """Whether channels are kept relative to this one, and any value near it would do."""
    over = [c for c in stage.channels if base in bases_of(c)]
    return bool(over) and all(representation_of(c).slack is not None for c in over)


def _invariant(stage: Stage, expr: Any, base: Chan) -> bool:
    """Whether the expression is the same at another base, on samples of all that it reads."""
    gets = [n for n in subterms(expr) if n.head == "Get" and n.args[0] is stage.state]
    values = {get.args[1]: Tensor(f"c{place}", (), f32).expr for place, get in enumerate(gets)}
    if base not in values:
        values[base] = Tensor("base", (), f32).expr
    other = Tensor("other", (), f32).expr
    moved = {**values, base: other}
    for channel in values:
        if is_twisted(channel) and base in bases_of(channel):
            old = tuple(values.get(b, values[base]) for b in bases_of(channel))
            new = tuple(other if b is base else values.get(b, other) for b in bases_of(channel))
            moved[channel] = representation_of(channel).transport(values[channel], old, new)
    plain, shifted = (
        _as_scalar(expr, {get: found[get.args[1]] for get in gets}) for found in (values, moved)
    )
    return _agree(plain, shifted)


def _as_scalar(expr: Any, gets: dict[Any, Any]) -> Any:
    """The expression at one place: channels as given, loads and indices as further inputs."""
    expr = rewrite(expr, gets)
    mine = set(gets.values())
    others = [n for n in subterms(expr) if n.head in ("Load", "Idx", "Red") and n not in mine]
    known = {n for value in mine for n in subterms(value)}
    outermost = [n for n in others if n not in known]
    return rewrite(expr, {n: Tensor(f"x{i}", (), f32).expr for i, n in enumerate(outermost)})


def _agree(plain: Any, shifted: Any) -> bool:
    names = sorted(
        {n.args[0] for term in (plain, shifted) for n in subterms(term) if n.head == "Array"}
    )
    rng = np.random.default_rng(1)
    for _ in range(SAMPLES):
        sample = {name: np.float64(rng.uniform(0.3, 3.0)) for name in names}
        one, two = (float(evaluate(term, _read(term, sample))) for term in (plain, shifted))
        if not abs(one - two) <= RELATIVE * max(abs(one), abs(two), 1.0):
            return False
    return True


def _read(term: Any, sample: dict[str, Any]) -> dict[str, Any]:
    names: Sequence[str] = [n.args[0] for n in subterms(term) if n.head == "Array"]
    return {name: np.asarray(sample[name]) for name in names}
