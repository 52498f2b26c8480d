"""Attention whose scores are masked, biased and bent in ways that a user may write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from egraph_flash import (
    Axis,
    Tensor,
    alibi,
    boolean,
    causal,
    distance,
    evaluate,
    exp,
    f32,
    i32,
    inf,
    log,
    maximum,
    minimum,
    prefix,
    same_document,
    softcap,
    softmax,
    sqrt,
    where,
    window,
)
from egraph_flash.dtypes import Array, Dtype


@dataclass(frozen=True)
class Operands:
    """The axes and operands of softmax(s) v, with s = q k / √d: [b, h, m or n, d or e].

    `t` are scores of other queries and keys.
    """

    b: Axis
    h: Axis
    m: Axis
    n: Axis
    s: Any
    t: Any
    v: Any


@dataclass(frozen=True)
class Scored:
    """An output, and the scores that its weights are the exponentials of."""

    output: Any
    scores: Any


def operands(dtype: Dtype, m: int = 37, n: int = 64, d: int = 64, e: int = 32) -> Operands:
    b, h, mm, nn, dd, ee = Axis.many(b=1, h=2, m=m, n=n, d=d, e=e)
    q, k = Tensor("q", (b, h, mm, dd), dtype), Tensor("k", (b, h, nn, dd), dtype)
    other = Tensor("q2", (b, h, mm, dd), dtype), Tensor("k2", (b, h, nn, dd), dtype)
    s, t = ((a * c).sum(dd) / float(d) ** 0.5 for a, c in ((q, k), other))
    return Operands(b, h, mm, nn, s, t, Tensor("v", (b, h, nn, ee), dtype).expr)


def weighted(o: Operands, scores: Any, extra: Any = None) -> Scored:
    return Scored((softmax(scores, o.n, extra=extra) * o.v).sum(o.n), scores)


def masked(o: Operands, visible: Any, scores: Any = None, extra: Any = None) -> Scored:
    return weighted(o, where(visible, o.s if scores is None else scores, -inf), extra)


def sink(o: Operands) -> Any:
    return Tensor("sink", (o.h,), f32).expr


def slopes(o: Operands) -> Any:
    return Tensor("slope", (o.h,), f32).expr


def table(o: Operands) -> Any:
    (r,) = Axis.many(r=o.m.size + o.n.size - 1)
    return Tensor("table", (o.h, r), f32)[o.h, o.n.index - o.m.index + (o.m.size - 1)]


def documents(o: Operands) -> Any:
    return same_document(Tensor("doc", (o.b, o.n), i32), o.m, o.n)


def kept(o: Operands) -> Any:
    return Tensor("keep", (o.b, o.m, o.n), boolean).expr


def everything(o: Operands) -> Scored:
    scores = softcap(o.s + table(o), 20.0) + alibi(slopes(o), o.m, o.n)
    seen = (window(o.m, o.n, left=20, right=0) | prefix(o.n, 4)) & documents(o) & kept(o)
    return masked(o, seen, scores, sink(o))


def clipped(o: Operands) -> Scored:
    """A table of 17 distances, the nearest of which stands for all beyond."""
    (r,) = Axis.many(r=17)
    near = minimum(maximum(distance(o.m, o.n) + 8, 0), 16)
    return weighted(o, o.s + Tensor("table", (o.h, r), f32)[o.h, near])


def two_sinks(o: Operands) -> Scored:
    first, second = sink(o), Tensor("sink2", (o.h, o.m), f32).expr
    top = maximum(maximum(o.s.max(o.n), first), second)
    weights = exp(o.s - top)
    total = weights.sum(o.n) + exp(first - top) + exp(second - top)
    return Scored((weights / total * o.v).sum(o.n), o.s)


def masked_after(o: Operands) -> Scored:
    """The mask on the weights: what it removes still counts in the denominator."""
    weights = where(causal(o.m, o.n), softmax(o.s, o.n), 0.0)
    return Scored((weights * o.v).sum(o.n), o.s)


def bent(o: Operands) -> Scored:
    """A sigmoid, a square root of the distance, a logarithm."""
    far = sqrt(abs(distance(o.m, o.n))) * slopes(o)
    return weighted(o, 5.0 / (1.0 + exp(-o.s)) - far + log(1.0 + abs(o.s)))


def nested(o: Operands) -> Scored:
    inner = where(o.n % 3 == 0, o.s * 2.0, o.s - 1.0)
    return masked(o, o.n.index > 3, where(causal(o.m, o.n), inner, -inf))


def two_kinds(o: Operands) -> Scored:
    """The difference of two kinds of weights, each with a maximum of its own."""
    seen = causal(o.m, o.n)
    first, second = (softmax(where(seen, s, -inf), o.n) for s in (o.s, o.t))
    return Scored(((first - slopes(o) * second) * o.v).sum(o.n), maximum(abs(o.s), abs(o.t)))


def three_kinds(o: Operands) -> Scored:
    weights = softmax(o.s, o.n) + softmax(o.t, o.n) - softmax(o.s - o.t, o.n)
    return Scored((o.v * weights).sum(o.n), maximum(abs(o.s), abs(o.t)))


def shifted(o: Operands) -> Scored:
    bias = Tensor("shift", (o.h, o.n), f32)
    return masked(o, causal(o.m, o.n), o.s + bias, sink(o))


CASES: dict[str, Callable[[Operands], Scored]] = {
    "causal": lambda o: masked(o, causal(o.m, o.n)),
    "window": lambda o: masked(o, window(o.m, o.n, left=8, right=3)),
    "prefix": lambda o: masked(o, causal(o.m, o.n) | prefix(o.n, 40)),
    "lengths": lambda o: masked(o, prefix(o.n, Tensor("length", (o.b,), i32))),
    "documents": lambda o: masked(o, documents(o)),
    "keep": lambda o: masked(o, kept(o) & ~causal(o.m, o.n)),
    "alibi": lambda o: masked(o, causal(o.m, o.n), o.s + alibi(slopes(o), o.m, o.n)),
    "alibi_both_ways": lambda o: weighted(o, o.s - slopes(o) * abs(distance(o.m, o.n))),
    "softcap": lambda o: weighted(o, softcap(o.s, 30.0)),
    "table": lambda o: weighted(o, o.s + table(o)),
    "clipped": clipped,
    "sink": lambda o: weighted(o, o.s, sink(o)),
    "sink_of_zero": lambda o: masked(o, causal(o.m, o.n), extra=0.0),
    "capped_window": lambda o: masked(
        o, window(o.m, o.n, left=12, right=0), softcap(o.s, 50.0), sink(o)
    ),
    "everything": everything,
    "two_sinks": two_sinks,
    "masked_after": masked_after,
    "bent": bent,
    "nested": nested,
    "two_kinds": two_kinds,
    "three_kinds": three_kinds,
}


def random_arrays(kernel: Any, rng: np.random.Generator) -> dict[str, Array]:
    """Fresh inputs: normals; documents and lengths that occur; coins for truths."""
    made = {}
    for spec in kernel.inputs:
        if spec.name == "doc":
            values = np.sort(rng.integers(0, 4, spec.shape), axis=-1)
        elif spec.dtype.is_integer:
            values = rng.integers(1, 60, spec.shape)
        elif spec.dtype.is_boolean:
            values = rng.integers(0, 2, spec.shape)
        elif spec.name == "slope":
            values = rng.uniform(0.01, 0.6, spec.shape)
        else:
            values = rng.standard_normal(spec.shape)
        made[spec.name] = spec.dtype.encode(values)
    return made


def reals(kernel: Any, arrays: dict[str, Array]) -> dict[str, Array]:
    return {spec.name: spec.dtype.decode(arrays[spec.name]) for spec in kernel.inputs}


def bound(scored: Scored, given: dict[str, Array], dtype: Dtype) -> Array:
    """By how much each element may be off: the weights and the result are rounded to the dtype,
    and an exponent is off by some 2^-20 of the largest score. Weights come in one kind and, where
    there are others, in at most three, each of which adds up to 1 at most."""
    spread = evaluate(scored.output, {**given, "v": np.abs(given["v"])})
    if "q2" in given:
        spread = np.broadcast_to(3.0 * np.abs(given["v"]).max(), spread.shape)
    reference = evaluate(scored.output, given)
    scores = evaluate(scored.scores, given)
    largest = np.abs(scores[np.isfinite(scores)]).max(initial=0.0)
    of_weights = 1.1 * dtype.unit_roundoff + 2.0**-20 * (1.0 + largest)
    return np.asarray(
        of_weights * spread + 1.1 * dtype.unit_roundoff * np.abs(reference) + 2.0**-24
    )
