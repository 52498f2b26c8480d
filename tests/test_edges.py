"""Expressions at the edges of what tiles know: each was wrong once, or would not compile."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from egraph_flash import (
    Axis,
    Tensor,
    evaluate,
    exp,
    f16,
    f32,
    i32,
    inf,
    optimize,
    same_document,
    softmax,
    where,
)
from egraph_flash.dtypes import Array
from egraph_flash.errors import ExpressionError, InputError
from tests.support.fresh import fresh_rng

m, n, d, e, b = Axis.many(m=70, n=90, d=16, e=40, b=2)
any_d, any_e = Axis("d", "depth", hint=16), Axis("e", "columns", hint=20)
q, k, v = Tensor("q", (m, d), f16), Tensor("k", (n, d), f16), Tensor("v", (n, e), f16)
x, y = Tensor("x", (m, n), f16), Tensor("y", (m,), f32)
MMA = "a:mma_m16n8k16_f16/w2x1/f1x2/k1"

Inputs = dict[str, Array]
Spoil = Callable[[Inputs], None]


@dataclass(frozen=True)
class Edge:
    """An expression, pins, lengths of a call, and what is done to its random inputs."""

    expr: Any
    pins: Mapping[str, str] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    spoil: Spoil = lambda inputs: None


def attention(scores: Any, values: Any = v) -> Any:
    return (softmax(scores * 0.25, n) * values).sum(n)


S = (q * k).sum(d)

# ---- masks along axes that a tile does not share -------------------------------------------------

LIMIT = Tensor("limit", (e,), i32)
COLUMNS = {
    "triangle": Edge((x * where(n.index <= e.index, v, 0.0)).sum(n)),
    "limits of columns": Edge((x * where(n.index < LIMIT[e], v, 0.0)).sum(n)),
    "unskipped": Edge((exp(-abs(S)) * where(n.index <= e.index, v, 0.0)).sum(n), {"SKIP": "none"}),
    "half of the depth": Edge(attention((where(d.index < 8, q, 2.0 * q) * k).sum(d))),
    "every other depth": Edge(attention((where(d.index % 2 < 1, q, 2.0 * q) * k).sum(d))),
    "depth and key": Edge(attention((where(d.index <= n.index, q, 2.0 * q) * k).sum(d))),
    "depth and query": Edge(attention((where(d.index <= m.index, q, 2.0 * q) * k).sum(d))),
}

# ---- what is counted, and where it ends ----------------------------------------------------------

LAST = Tensor("last", (b,), i32)
QB, KB, VB = (
    Tensor(t, (b, *axes), f16) for t, axes in (("q", (m, d)), ("k", (n, d)), ("v", (n, e)))
)
SB = (QB * KB).sum(d)


def set_last(*values: int) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        inputs["last"][:] = values

    return spoil


def poisoned(ends: tuple[int, int], **lengths: tuple[int, int]) -> Spoil:
    """NaN in keys and values from each batch's end on."""

    def spoil(inputs: Inputs) -> None:
        for batch, end in enumerate(ends):
            inputs["k"][batch, end:] = np.nan
            inputs["v"][batch, end:] = np.nan
        for name, values in lengths.items():
            inputs[name][:] = values

    return spoil


L, L2 = Tensor("l", (b,), i32), Tensor("l2", (b,), i32)
EITHER = (n.index < L[b]) | ((n.index >= 5) & (n.index < L2[b]))
KINDS = ((n.index % 2 < 1) & (n.index < L[b])) | ((n.index % 3 < 1) & (n.index < L2[b]))
ENDS = {
    "keys seen": Edge(y * where(n.index < m.index, 1.0, 0.0).sum(n)),
    "mean of a prefix": Edge(y / where(n.index <= m.index, 1.0, 0.0).sum(n)),
    "no end": Edge(
        attention(where(n.index <= LAST[b], SB, -inf), VB), spoil=set_last(2**31 - 1, 40)
    ),
    "before the first": Edge(
        attention(where(n.index <= LAST[b] - 3, SB, -inf), VB), spoil=set_last(1, -7)
    ),
    "either end": Edge(
        attention(where(EITHER, SB, -inf), VB),
        {"SKIP": "index", "TILE@d": MMA},
        spoil=poisoned((30, 50), l=(20, 50), l2=(30, 10)),
    ),
    "ends of two kinds": Edge(
        attention(where(KINDS, SB, -inf), VB),
        {"SKIP": "index", "TILE@d": MMA},
        spoil=poisoned((30, 50), l=(20, 50), l2=(30, 10)),
    ),
}

# ---- tiles that see nothing, at the end of memory ------------------------------------------------

short = Axis("n", 64)
KS, VS = Tensor("k", (short, d), f16), Tensor("v", (short, e), f16)
rows = Axis("m", 128)
QR, BIAS = Tensor("q", (rows, d), f16), Tensor("bias", (rows, short), f32)
AFTER = (QR * KS).sum(d) * 0.25 + BIAS
AFTER = (softmax(where(short.index > rows.index, AFTER, -inf), short) * VS).sum(short)
UNSEEN = {
    "skewed": Edge(AFTER, {"SKEW": "on", "STAGE": "d0", "TILE@d": MMA}),
    "skewed ring": Edge(AFTER, {"SKEW": "on", "STAGE@k": "d2/cp/ring", "TILE@d": MMA}),
    "skewed boxes": Edge(
        AFTER, {"SKEW": "on", "STAGE@k": "d2/tma/ring", "ROLES": "producer", "TILE@d": MMA}
    ),
}

# ---- transports that differ ----------------------------------------------------------------------

MIXED = {
    f"{ours} and {theirs}": Edge(
        attention(S),
        {"SKEW": "on", "STAGE@k": ours, "STAGE@v": theirs, "ROLES": "all", "TILE@d": MMA},
    )
    for ours, theirs in (("d2/cp/ring", "d3/sync/ring"), ("d3/cp/ring", "d2/sync/ring"))
}

# ---- leading keys of minus infinity by inputs ----------------------------------------------------


def infinite(inputs: Inputs) -> None:
    inputs["q"][:] = abs(inputs["q"]) + np.float16(0.1)
    inputs["k"][:50] = -np.inf


INFINITE = {
    f"{form} {base}": Edge(attention(S), {"EXP": form, "BASE": base, "TILE@d": MMA}, spoil=infinite)
    for form in ("ex2", "fold", "accurate")
    for base in ("max", "vote", "lazy")
}

# ---- axes of the body whose length a call says ---------------------------------------------------

QD, KD = Tensor("q", (m, any_d), f16), Tensor("k", (n, any_d), f16)
VE = Tensor("v", (n, any_e), f16)
LENGTHS = {
    **{
        f"depth {size}": Edge(attention((QD * KD).sum(any_d)), lengths={"depth": size})
        for size in (8, 16, 40)
    },
    **{
        f"distance {size}": Edge(attention(-abs(QD - KD).sum(any_d)), lengths={"depth": size})
        for size in (8, 24)
    },
    **{
        f"columns {size} {staging}": Edge(
            attention(S, VE), {"STAGE@v": staging, "TILE@d": MMA}, {"columns": size}
        )
        for size in (7, 20, 24, 40)
        for staging in ("d0", "d1/sync")
    },
}

# ---- one array that two contractions take --------------------------------------------------------


def shared(size: int, pins: Mapping[str, str], *, masked: bool = False) -> Edge:
    """Keys that are the values, too."""
    depth = Axis("d", size)
    queries, keys = Tensor("q", (m, depth), f16), Tensor("k", (n, depth), f16)
    scores = (queries * keys).sum(depth)
    scores = where(n.index <= m.index + 20, scores, -inf) if masked else scores
    return Edge(attention(scores, keys), pins)


SHARED = {
    f"shared {size} {staging}": shared(size, {"STAGE": staging, "TILE@d": MMA}, masked=size < 20)
    for size in (8, 24, 72)
    for staging in ("d1/sync", "d2/cp/ring", "d2/tma/ring")
}

EDGES = {**COLUMNS, **ENDS, **UNSEEN, **MIXED, **INFINITE, **LENGTHS, **SHARED}


@pytest.mark.parametrize("name", EDGES)
def test_right_at_the_edges(name: str) -> None:
    edge = EDGES[name]
    kernel = optimize(edge.expr, "sm_120", edge.pins)
    inputs = random_inputs(kernel, edge.lengths)
    edge.spoil(inputs)
    found = np.asarray(kernel.run(backend="sim", **inputs, **edge.lengths), np.float64)
    with np.errstate(invalid="ignore"):
        wanted = evaluate(edge.expr, inputs, lengths=edge.lengths)
    finite = {name: np.nan_to_num(a, posinf=0.0, neginf=0.0) for name, a in inputs.items()}
    largest = float(np.max([abs(a).max() for name, a in finite.items() if a.dtype.kind == "f"]))
    assert np.isfinite(wanted).all()
    assert np.abs(found - wanted).max() <= 3e-3 * largest * max(1.0, np.abs(wanted).max())


def random_inputs(kernel: Any, lengths: Mapping[str, int]) -> Inputs:
    rng, made = fresh_rng(), {}
    for spec in kernel.inputs:
        shape = spec.at(lengths).shape
        whole = spec.dtype is i32
        values = rng.integers(0, 60, shape) if whole else rng.standard_normal(shape)
        made[spec.name] = values.astype(spec.dtype.storage)
    return made


# ---- what is put at indices, and what divides ----------------------------------------------------


def test_values_that_go_nowhere_need_no_place() -> None:
    total = Axis("t", 100)
    at = Tensor("at", (m,), i32)
    kernel = optimize((y * 2.0).placed((total,), (at[m],), where=at[m] >= 0), "sm_120")
    rng = fresh_rng()
    places = rng.permutation(100)[:70].astype(np.int32)
    places[::7] = -1
    given = rng.standard_normal(70).astype(np.float32)
    wanted = np.zeros(100, np.float32)
    wanted[places[places >= 0]] = 2 * given[places >= 0]
    assert (kernel.run(backend="sim", y=given, at=places) == wanted).all()


@pytest.mark.parametrize("divisor", [0, -2, 1.5, m.index])
def test_divisors_are_positive_constants(divisor: Any) -> None:
    for divided in (operator.floordiv, operator.mod):
        with pytest.raises(ExpressionError, match=r"[/%]: got the divisor .*, wants a positive"):
            divided(n.index, divisor)


# ---- indices that a call's lengths decide --------------------------------------------------------

rows_, total = Axis("m", "rows", hint=64), Axis("t", "total", hint=64)
HELD = Tensor("held", (rows_, d), f32)


def test_an_index_before_the_first_is_refused_where_it_stands() -> None:
    with pytest.raises(ExpressionError, match=r"index m - 5 of axis 'm' reaches -5, wants >= 0"):
        _ = HELD[rows_.index - 5, d]


@pytest.mark.parametrize("index", [rows_.index + 5, 200])
def test_an_index_past_a_call_s_length_is_refused_by_the_call(index: Any) -> None:
    kernel = optimize(HELD[index, d] * 2.0, "sm_120")
    with pytest.raises(InputError, match=r"index 0 of held: .* wants 0 to 9"):
        kernel.run(backend="sim", held=np.ones((10, 16), np.float32))


def test_a_place_past_a_call_s_length_is_refused_by_the_call() -> None:
    kernel = optimize(HELD.expr.placed((total, d), (rows_.index + 5, d)), "sm_120")
    held = fresh_rng().standard_normal((10, 16)).astype(np.float32)
    with pytest.raises(InputError, match=r"index 0 of out: m \+ 5 is 10 at m = 5, wants 0 to 9"):
        kernel.run(backend="sim", held=held, total=10)
    assert (kernel.run(backend="sim", held=held, total=15)[5:] == held).all()


@pytest.mark.parametrize("queries", [rows_, Axis("m", 8)], ids=["open", "known"])
def test_documents_of_more_queries_than_keys_are_refused_by_the_call(queries: Axis) -> None:
    keys = Axis("n", "keys", hint=64)
    doc, weights = Tensor("doc", (keys,), i32), Tensor("weights", (queries, keys), f32)
    kernel = optimize(where(same_document(doc, queries, keys), weights, 0.0).sum(keys), "sm_120")
    with pytest.raises(InputError, match=r"index 0 of doc: .* is -2 at m = 0, wants 0 to 5"):
        kernel.run(backend="sim", doc=np.zeros(6, np.int32), weights=np.ones((8, 6), np.float32))
    found = kernel.run(
        backend="sim", doc=np.zeros(9, np.int32), weights=np.ones((8, 9), np.float32)
    )
    assert (found == 9).all()


# ---- sums that have no rows ----------------------------------------------------------------------


def test_sums_of_columns_stand_beside_a_product() -> None:
    """Which is on tensor cores all the same; alone, they are no product."""
    rows, fold, column = Axis.many(rows=70, fold=150, column=48)
    a = Tensor("a", (rows, fold), f16).expr
    b = Tensor("b", (fold, column), f16).expr
    together = ((a * b).sum(fold), b.sum(fold), a.sum(fold))
    kernel = optimize(tuple(each.cast(f32) for each in together), "sm_120")
    assert kernel.passes == len(kernel.plan.launches) == 1
    assert kernel.schedule["TILE@fold"].startswith("a:mma_m16n8k16_f16")
    arrays = {
        spec.name: fresh_rng().integers(-3, 4, spec.shape).astype(np.float16)
        for spec in kernel.inputs
    }
    wanted = evaluate(together, arrays)
    for result, reference in zip(kernel.run(backend="sim", **arrays), wanted, strict=True):
        np.testing.assert_array_equal(result, reference)
    alone = optimize(b.sum(fold), "sm_120")
    assert alone.schedule["TILE@fold"].startswith("a:map")
