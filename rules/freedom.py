"""Which axes an expression may depend on, head by head, generated from the table of heads.

The set is kept for a whole class: equal expressions depend on the intersection of what each of
them mentions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..terms import HEADS
from . import examples as at
from .law import Row, Steering

_SOURCE = "free variables, as in the lambda calculus"


def _rule(head: str, premises: str, axes: str, more: str = "") -> Steering:
    return Steering(
        name=f"freedom/{head.lower()}",
        phase="analysis",
        source=_SOURCE,
        example=at.OF_HEAD[head],
        premises=premises,
        actions=f"(set (free e) {axes}){more}",
    )


def _union(names: list[str]) -> str:
    axes = names[-1]
    for name in reversed(names[:-1]):
        axes = f"(set-union {name} {axes})"
    return axes


def _rules() -> Iterator[Row]:
    yield _rule("Num", "(= e (Num v))", "(set-empty)")
    yield _rule("Idx", "(= e (Idx k))", "(set-of k)")
    yield _rule("Len", "(= e (Len k))", "(set-empty)")
    yield _rule(
        "Red",
        "(= e (Red m k b)) (= f (free b))",
        "(set-diff f (set-of k))",
        " (reduces k)",
    )
    for head in HEADS.values():
        below = [place for place, sort in enumerate(head.arguments) if sort == "Expr"]
        if head.result != "Expr" or not below or head.name == "Red":
            continue
        pattern = " ".join(f"a{place}" for place in range(len(head.arguments)))
        free = " ".join(f"(= f{place} (free a{place}))" for place in below)
        axes = _union([f"f{place}" for place in below])
        yield _rule(head.name, f"(= e ({head.name} {pattern})) {free}", axes)


# The axes of a load are stated for each load when the term is added: see `egraph.Session`.
LAWS: tuple[Row, ...] = tuple(_rules())
