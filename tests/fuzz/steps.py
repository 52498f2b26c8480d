"""The score arithmetic that cases are made of: each step's expression, and what error it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from egraph_flash import (
    Tensor,
    alibi,
    distance,
    exp,
    f32,
    log,
    maximum,
    minimum,
    softcap,
    sqrt,
    tanh,
    where,
)
from egraph_flash.axes import Axis
from egraph_flash.dtypes import DTYPES, Array

from .operands import Operands
from .spelling import Part

STEP = 2.0**-23  # the rounding of one operation in f32, and of the hardware's exp and reciprocal
TANH = {"exp": 2.0**-19, "approx": 2.0**-9}  # absolute, as the knob's row says, with room


@dataclass(frozen=True)
class Size:
    """How large scores are before they cancel, and by how much they may be off."""

    largest: float
    error: float

    def plus(self, other: float) -> Size:
        largest = self.largest + other
        return Size(largest, self.error + largest * STEP)

    def times(self, factor: float) -> Size:
        return Size(self.largest * factor, self.error * factor + self.largest * factor * STEP)


@dataclass(frozen=True)
class Given:
    """What the size of a step depends on: the inputs, and the form of tanh."""

    arrays: Mapping[str, Array]
    tanh: str
    reach: int  # the largest distance of a query and a key

    def largest(self, name: str) -> float:
        return float(np.abs(self.arrays[name]).max(initial=0.0))


Build = Callable[[Any, Part, Operands, str], Any]  # scores, the step, the operands, a name
Grow = Callable[[Size, Part, Given, str], Size]


@dataclass(frozen=True)
class Step:
    name: str
    build: Build
    grow: Grow


def _bias(s: Any, step: Part, o: Operands, name: str) -> Any:
    axes, dtype = step.arguments
    return s + o.tensor(name, axes, DTYPES[dtype])


def _table(s: Any, step: Part, o: Operands, name: str) -> Any:
    """A number for each distance, the farthest standing for all beyond it."""
    (reach,) = step.numbers
    rows = Tensor(name, (o.axis("h"), Axis(f"r{name}", 2 * reach + 1)), f32)
    o.tensors.setdefault(name, rows)
    near = minimum(maximum(distance(o.axis("m"), o.axis("n")) + reach, 0), 2 * reach)
    return s + rows[o.axis("h"), near]


def _alibi(s: Any, step: Part, o: Operands, name: str) -> Any:
    return s + alibi(o.tensor(name, "h"), o.axis("m"), o.axis("n"))


def _both_ways(s: Any, step: Part, o: Operands, name: str) -> Any:
    return s - o.tensor(name, "h") * abs(distance(o.axis("m"), o.axis("n")))


def _root(s: Any, step: Part, o: Operands, name: str) -> Any:
    return s - sqrt(abs(distance(o.axis("m"), o.axis("n")))) * 0.5


def _pick(s: Any, step: Part, o: Operands, name: str) -> Any:
    (every,) = step.numbers
    return where(o.axis("n") % every == 0, s * 2.0, s - 1.0)


def _other(s: Any, step: Part, o: Operands, name: str) -> Any:
    """Other queries and keys, whose scores are added."""
    return s + o.scores(name) * 0.25


def _capped(size: Size, step: Part, given: Given, name: str) -> Size:
    cap = float(step.arguments[0])
    return Size(min(size.largest, cap), size.error + cap * TANH[given.tanh])


def _scaled(size: Size, step: Part, given: Given, name: str) -> Size:
    return size.times(abs(float(step.arguments[0])))


def _squared(size: Size, step: Part, given: Given, name: str) -> Size:
    return Size(size.largest**2, 2 * size.largest * size.error + size.largest**2 * STEP).times(0.1)


def _dots(size: Size, step: Part, given: Given, name: str) -> Size:
    other = dots(given.arrays, name)
    return Size(size.largest + other.largest / 4, size.error + other.error / 4).plus(0.0)


def dots(arrays: Mapping[str, Array], name: str = "") -> Size:
    """Of Σ q k: rounded once for each of d steps at most."""
    q, k = (np.nan_to_num(np.abs(arrays[f"{side}{name}"]), posinf=0.0) for side in "qk")
    if not q.size or not k.size:
        return Size(0.0, 0.0)
    largest = float(np.sqrt((q**2).sum(-1).max() * (k**2).sum(-1).max()))
    return Size(largest, (q.shape[-1] + 8) * STEP / 2 * largest)


STEPS: dict[str, Step] = {
    row.name: row
    for row in (
        Step("scale", lambda s, p, o, _: s * float(p.arguments[0]), _scaled),
        Step("over", lambda s, p, o, _: s / float(p.arguments[0]),
             lambda z, p, g, _: z.times(1 / float(p.arguments[0]))),
        Step("add", lambda s, p, o, _: s + float(p.arguments[0]),
             lambda z, p, g, _: z.plus(abs(float(p.arguments[0])))),
        Step("bias", _bias, lambda z, p, g, n: z.plus(g.largest(n))),
        Step("table", _table, lambda z, p, g, n: z.plus(g.largest(n))),
        Step("alibi", _alibi, lambda z, p, g, n: z.plus(g.largest(n) * g.reach)),
        Step("bothways", _both_ways, lambda z, p, g, n: z.plus(g.largest(n) * g.reach)),
        Step("root", _root, lambda z, p, g, _: z.plus(float(g.reach) ** 0.5)),
        Step("cap", lambda s, p, o, _: softcap(s, float(p.arguments[0])), _capped),
        Step("tanh", lambda s, p, o, _: s + tanh(s),
             lambda z, p, g, _: Size(z.largest, 2 * z.error + TANH[g.tanh]).plus(1.0)),
        Step("sigmoid", lambda s, p, o, _: 5.0 / (1.0 + exp(-s)),
             lambda z, p, g, _: Size(5.0, 5 * z.error + 40 * STEP + 5 * z.largest * STEP)),
        Step("log", lambda s, p, o, _: s + log(1.0 + abs(s)),
             lambda z, p, g, _: Size(2 * z.largest, 2 * z.error).plus(0.0)),
        Step("relu", lambda s, p, o, _: maximum(s, 0.0), lambda z, p, g, _: z),
        Step("square", lambda s, p, o, _: s * s * 0.1, _squared),
        Step("negate", lambda s, p, o, _: -s, lambda z, p, g, _: z),
        Step("pick", _pick, lambda z, p, g, _: z.times(2.0).plus(1.0)),
        Step("other", _other, _dots),
    )
}  # fmt: skip


def name_of(step: Part, place: int) -> str:
    """What a step's own tensor is called: after the step, and where in the chain it stands."""
    return f"{step.head}{place}"
