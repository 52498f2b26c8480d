"""Tensors past 2^31 elements, and more batches than a grid's second dimension has."""

from __future__ import annotations

import numpy as np

from egraph_flash import Axis, Tensor, f16, f32, i32, inf, optimize, softmax, where
from egraph_flash.evaluation import evaluate
from tests.support.fresh import fresh_rng

BATCHES = 70_000


def test_rows_of_a_tensor_past_2_31_elements() -> None:
    """Its memory is virtual until it is touched: rows far apart are gathered and summed."""
    rows = 2**21 + 3
    r, n, t = Axis("r", 8), Axis("n", 1024), Axis("t", rows)
    x, row = Tensor("x", (t, n), f16), Tensor("row", (r,), i32)
    made = optimize(x[row, n].sum(n), "sm_120")
    picked = np.array([0, 1, 2**20, 2**21 - 1, 2**21, 2**21 + 1, 2**21 + 2, 77], np.int32)
    held = np.zeros((rows, 1024), np.float16)
    held[picked] = fresh_rng().standard_normal((8, 1024))
    result = made.run(backend="sim", x=held, row=picked)
    wanted = held[picked].astype(float).sum(1)
    assert np.abs(result - wanted).max() <= 1e-3 * np.abs(held[picked].astype(float)).sum(1).max()


def test_batches_more_than_2_31_elements_apart() -> None:
    """Attention over views whose batches lie 2^30 elements apart, on every transport."""
    b, h, m, n, d, e = Axis.many(b=4, h=1, m=20, n=40, d=16, e=16)
    axes = {"q": (b, h, m, d), "k": (b, h, n, d), "v": (b, h, n, e)}
    q, k, v = (Tensor(name, own, f16) for name, own in axes.items())
    o = (softmax((q * k).sum(d) * 0.25, n) * v).sum(n)
    rng = fresh_rng()
    apart = {}
    for name, own in axes.items():
        memory = np.zeros((4, 2**30), np.float16)
        size = own[2].size * own[3].size
        memory[:, :size] = rng.standard_normal((4, size))
        apart[name] = memory[:, :size].reshape(4, 1, own[2].size, own[3].size)
        assert apart[name].strides[0] == 2**31
    wanted = evaluate(o, {name: np.ascontiguousarray(each) for name, each in apart.items()})
    for pins in ({"STAGE": "d0"}, {"STAGE": "d2/cp/ring"}, {"STAGE": "d2/tma/ring", "SLAB": "xor"}):
        made = optimize(o, "sm_90", {"TILE@d": "a:mma_m16n8k16_f16/w1x1/f1x4/k1", **pins})
        result = made.run(backend="sim", **apart)
        assert np.abs(result.astype(float) - wanted).max() < 4e-3, pins


def test_more_batches_than_65535() -> None:
    b, m, n = Axis("b", BATCHES), Axis("m", 1), Axis("n", 4)
    x = Tensor("x", (b, m, n), f32)
    made = optimize(softmax(where(n.index != 2, x, -inf), n), "sm_120")
    given = fresh_rng().standard_normal((BATCHES, 1, 4)).astype(np.float32)
    result = made.run(backend="sim", x=given)
    wanted = evaluate(softmax(where(n.index != 2, x, -inf), n), {"x": given})
    assert (result[..., 2] == 0).all()
    np.testing.assert_allclose(result, wanted, rtol=2e-6)
