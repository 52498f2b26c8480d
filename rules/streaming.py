"""Which expressions one pass over an axis computes, head by head, generated from the table."""

from __future__ import annotations

from collections.abc import Iterator

from ..terms import HEADS
from . import examples as at
from .law import Row, Steering

_SOURCE = "a fold sees each element once, so its lift may not contain a fold over the same axis"


def _rule(head: str, premises: str) -> Steering:
    return Steering(
        name=f"tupling/streams-{head.lower()}",
        phase="analysis",
        source=_SOURCE,
        example=at.OF_HEAD[head].sum(at.n),
        premises=premises,
        actions="(streams e k)",
    )


def _rules() -> Iterator[Row]:
    for head in HEADS.values():
        if head.result != "Expr" or head.name in ("Get", "Mat", "Risk", "Red"):
            continue
        pattern = " ".join(f"a{place}" for place in range(len(head.arguments)))
        below = [place for place, sort in enumerate(head.arguments) if sort == "Expr"]
        parts = " ".join(f"(streams a{place} k)" for place in below) or "(reduces k)"
        yield _rule(head.name, f"(= e ({head.name} {pattern})) {parts}")
    yield _rule("Red", "(= e (Red m j b)) (streams b k) (!= j k)")


LAWS: tuple[Row, ...] = tuple(_rules())
