"""Sequences of different lengths in one call: given lengths, and batches packed end to end."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, exp, f16, f32, i32, inf, log, optimize, softmax, where
from egraph_flash.dtypes import Array
from egraph_flash.errors import ExpressionError, InputError
from egraph_flash.evaluation import evaluate
from tests.support.fresh import fresh_rng
from tests.support.plain import assert_close_as_plain, plain_attention

MMA = {"TILE@d": "a:mma_m16n8k16_f16/w2x1/f1x2/k2", "BASE": "max", "EXP": "ex2", "SUM": "block"}
SCHEDULES: dict[str, dict[str, str]] = {
    "loads": {**MMA, "STAGE": "d0"},
    "copies": {**MMA, "STAGE": "d2/cp/ring", "SKEW": "on"},
    "sync": {**MMA, "STAGE": "d1/sync"},
    "boxes": {**MMA, "STAGE": "d2/tma/ring", "SLAB": "xor", "ROLES": "rotate", "SKEW": "on"},
    "producer": {**MMA, "STAGE": "d2x2/tma/ring", "SLAB": "xor", "ROLES": "producer"},
    "kept in shared memory": {**MMA, "STAGE": "d2/tma/ring", "SLAB": "xor", "HOIST": "shared"},
    "CUDA cores": {"TILE@d": "a:fma_f32/w2x1/f1x8/k8"},
}
SKIPS = ("none", "index")


# ---- a length for each sequence of a padded batch ------------------------------------------------

b, h, m, n, d, e = Axis.many(b=4, h=2, m=50, n=100, d=32, e=48)
Q, K, V = (
    Tensor("q", (b, h, m, d), f16),
    Tensor("k", (b, h, n, d), f16),
    Tensor("v", (b, h, n, e), f16),
)
COUNT = Tensor("count", (b,), i32)
S = where(n.index < COUNT, (Q * K).sum(d) * 32**-0.5, -inf)
PADDED = (
    (softmax(S, n) * V).sum(n),
    (S.max(n) + log(exp(S - S.max(n)).sum(n))).cast(f32),
)
COUNTS = np.array([37, 0, 100, 1], np.int32)


@pytest.mark.parametrize("skip", SKIPS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_memory_past_a_given_length_may_hold_anything(name: str, skip: str) -> None:
    """NaN past each length reaches no output, and moves no bit."""
    made = optimize(PADDED, "sm_90", {**SCHEDULES[name], "SKIP": skip})
    rng = fresh_rng()
    arrays = {
        s.name: s.dtype.encode(rng.standard_normal(s.shape))
        for s in made.inputs
        if s.name != "count"
    }
    arrays["count"] = COUNTS
    clean = made.run(backend="sim", **arrays)
    for sequence, count in enumerate(COUNTS):
        arrays["k"][sequence, :, count:] = np.nan
        arrays["v"][sequence, :, count:] = np.nan
    wanted = evaluate(PADDED, arrays)
    assert not any(np.isnan(value).any() for value in wanted)
    results = made.run(backend="sim", **arrays)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(results, clean, strict=True))
    assert np.abs(results[0].astype(float) - wanted[0]).max() < 4e-3
    seen = np.isfinite(wanted[1])
    np.testing.assert_allclose(results[1][seen], wanted[1][seen], rtol=1e-5, atol=1e-5)
    assert (results[1][~seen] == -np.inf).all()
    assert (results[0][1] == 0).all()


# ---- packed end to end ---------------------------------------------------------------------------

BATCH, HEADS, DEPTH = 5, 2, 32


def packed(*, causal: bool) -> Any:
    """Sequence i has rows offsets[i] … offsets[i + 1] - 1 of q, k, v and of the output."""
    s, ends = Axis("s", BATCH), Axis("ends", BATCH + 1)
    hh, dd, ee = Axis.many(h=HEADS, d=DEPTH, e=DEPTH)
    rows, keys = Axis("m", "longest", hint=64), Axis("n", "longest", hint=64)
    total = Axis("t", "total", hint=200)
    offsets = Tensor("offsets", (ends,), i32)
    q, k = Tensor("q", (total, hh, dd), f16), Tensor("k", (total, hh, dd), f16)
    v = Tensor("v", (total, hh, ee), f16)
    start, count = offsets[s.index], offsets[s.index + 1] - offsets[s.index]
    score = (q[start + rows.index, hh, dd] * k[start + keys.index, hh, dd]).sum(dd) * DEPTH**-0.5
    seen = keys.index < count
    if causal:
        seen = seen & (keys.index <= rows.index)
    o = (softmax(where(seen, score, -inf), keys) * v[start + keys.index, hh, ee]).sum(keys)
    return o.placed((total, hh, ee), (start + rows.index, hh, ee), where=rows.index < count)


def inputs(counts: list[int]) -> dict[str, Array]:
    rng = fresh_rng()
    total = sum(counts)
    found = {x: rng.standard_normal((total, HEADS, DEPTH)).astype(np.float16) for x in "qkv"}
    return found | {"offsets": np.cumsum([0, *counts]).astype(np.int32)}


def one_by_one(arrays: dict[str, Array], *, causal: bool) -> tuple[Array, Array]:
    """Each sequence by itself: in float64, and by the plain computation in f16."""
    wanted, plain = (np.zeros(arrays["q"].shape) for _ in range(2))
    for first, last in zip(arrays["offsets"], arrays["offsets"][1:], strict=False):
        own = {x: arrays[x][first:last].swapaxes(0, 1)[None] for x in "qkv"}
        if last == first:
            continue
        mm, nn = Axis.many(m=int(last - first), n=int(last - first))
        one, hh, dd, ee = Axis.many(b=1, h=HEADS, d=DEPTH, e=DEPTH)
        q, k = Tensor("q", (one, hh, mm, dd), f16), Tensor("k", (one, hh, nn, dd), f16)
        score = (q * k).sum(dd) * DEPTH**-0.5
        if causal:
            score = where(nn.index <= mm.index, score, -inf)
        o = (softmax(score, nn) * Tensor("v", (one, hh, nn, ee), f16)).sum(nn)
        wanted[first:last] = evaluate(o, own)[0].swapaxes(0, 1)
        plain[first:last] = plain_attention(own, f16, causal=causal)[0].swapaxes(0, 1)
    return wanted, plain


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_packed_batch(name: str, causal: bool) -> None:
    """One text for every batch; each sequence as if it were alone; nothing outside is touched."""
    texts, bits = set(), set()
    for skip in SKIPS:
        made = optimize(packed(causal=causal), "sm_90", {**SCHEDULES[name], "SKIP": skip})
        for counts in ([37, 0, 100, 1, 20], [0, 0, 0, 0, 3], [16, 16, 16, 16, 16]):
            arrays = inputs(counts)
            result = made.run(backend="sim", longest=max(counts), **arrays)
            wanted, plain = one_by_one(arrays, causal=causal)
            same = evaluate(packed(causal=causal), arrays, lengths={"longest": max(counts)})
            np.testing.assert_allclose(same, wanted, rtol=1e-12, atol=1e-13)
            assert_close_as_plain(result.astype(float), plain, wanted, f16)
        texts.add(made.ptx)
        again = {**inputs([5, 40, 0, 7, 20]), "q": np.ones((72, HEADS, DEPTH), np.float16)}
        again |= {x: np.ones_like(again["q"]) * np.arange(72)[:, None, None] / 72 for x in "kv"}
        again = {x: a.astype(np.float16) if x in "kv" else a for x, a in again.items()}
        bits.add(made.run(backend="sim", longest=40, **again).tobytes())
    assert len(bits) == 1
    assert len(texts) == len(SKIPS) or not causal


def test_what_no_value_reaches() -> None:
    """Elements past the last sequence are 0, or what the caller's array held."""
    made = optimize(packed(causal=False), "sm_90")
    arrays = inputs([3, 4, 0, 2, 1])
    spare = {
        x: np.concatenate([arrays[x], np.full((6, HEADS, DEPTH), np.nan, np.float16)])
        for x in "qkv"
    }
    given = {**spare, "offsets": arrays["offsets"]}
    assert (made.run(backend="sim", longest=4, **given)[10:] == 0).all()
    out = np.full((16, HEADS, DEPTH), 7, np.float16)
    result = made.run(backend="sim", longest=4, out=out, **given)
    assert result is out
    assert (out[10:] == 7).all()
    np.testing.assert_array_equal(out[:10], made.run(backend="sim", longest=4, **arrays))


def test_a_longest_that_is_too_long_changes_nothing() -> None:
    made = optimize(packed(causal=True), "sm_90")
    arrays = inputs([30, 2, 0, 9, 17])
    exact = made.run(backend="sim", longest=30, **arrays)
    assert made.run(backend="sim", longest=77, **arrays).tobytes() == exact.tobytes()


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        (
            [0, 9, 4, 12, 12, 20],
            "a length along n: offsets[s + 1] - offsets[s] is -5 at s = 1, wants 0 to 20",
        ),
        ([0, 3, 4, 12, 12, 21], "offsets[s] + m is 20 at s = 4, m = 8, wants 0 to 19"),
        ([-2, 3, 4, 12, 12, 20], "offsets[s] + m is -2 at s = 0, m = 0, wants 0 to 19"),
    ],
)
def test_offsets_that_lead_outside_are_refused(offsets: list[int], says: str) -> None:
    made = optimize(packed(causal=False), "sm_90")
    arrays = {**inputs([4, 4, 4, 4, 4]), "offsets": np.array(offsets, np.int32)}
    with pytest.raises(InputError, match=re.escape(says)):
        made.run(backend="sim", longest=20, **arrays)
    with pytest.raises(InputError, match=re.escape(says)):
        made.check(longest=20, **arrays)


def test_placing_must_name_every_axis() -> None:
    with pytest.raises(ExpressionError, match="the values vary along"):
        PADDED[0].placed((b, h, e), (b, h, e))
    with pytest.raises(ExpressionError, match="got 2 indices for the axes"):
        PADDED[0].placed((b, h, e), (b, h))
