"""Operands of contractions that are computed: where they are contracted, or stored before."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, bf16, exp, f16, f32, i32, maximum, optimize, sqrt, where
from egraph_flash.errors import ScheduleError
from egraph_flash.kernel import Kernel
from tests.support.forms import inputs
from tests.support.fresh import fresh_rng
from tests.test_epilogues import checked

MMA = "a:mma_m16n8k16_f16"


def products(m: int, n: int, e: int, dtype: Any = f16) -> dict[str, Any]:
    """Sums of products of a computed operand with an array."""
    M, N, E = Axis.many(m=m, n=n, e=e)
    x, w = Tensor("x", (M, N), dtype).expr, Tensor("w", (N, E), dtype)
    gain, label = Tensor("gain", (N,), dtype), Tensor("label", (M,), i32)
    centred = x - x.sum(N) / n
    spread = sqrt((centred * centred).sum(N) / n + 1e-5)
    return {
        "RMS norm": (x / sqrt((x * x).sum(N) / n + 1e-6) * gain * w).sum(N),
        "layer norm": (centred / spread * w).sum(N),
        "a gate": (x / (1.0 + exp(-maximum(x, -9.0))) * w).sum(N),
        "a mask": (where(N.index <= label, x, 0.0) * w).sum(N),
        "the array's side": (x * (gain * w)).sum(N),
    }


def features(m: int, n: int, d: int) -> dict[str, Any]:
    """Products of computed rows and computed columns, in the body of a fold."""
    M, N, D, E = Axis.many(m=m, n=n, d=d, e=d)
    q, k = Tensor("q", (M, D), f16).expr, Tensor("k", (N, D), f16).expr
    v = Tensor("v", (N, E), f16)
    weight = (maximum(q, 0.0) * (k * k)).sum(D)
    return {
        "both sides": (weight * v).sum(N) / (1.0 + weight.sum(N)),
        "one side": ((maximum(q, 0.0) * k).sum(D) * v).sum(N) / n,
    }


@pytest.mark.parametrize("name", features(1, 1, 16))
def test_operands_in_the_body_of_a_fold(name: str) -> None:
    expr = features(40, 72, 32)[name]
    pins = {"TILE@n": f"{MMA}/w1x1/f1x4/k2", "HANDOFF": "repack", "STAGE": "d0", "HOIST": "none"}
    pins |= {"REDUCE": "g1"}
    one, other = (stored(expr, where_, **pins) for where_ in ("inside", "stored"))
    assert len(one.plan.launches) < len(other.plan.launches)
    arrays = inputs(one, fresh_rng())
    found = [np.asarray(each.run(backend="sim", **arrays)) for each in (one, other)]
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1].view(np.uint32))
    checked(expr, other, 3e-3)


def apart(name: str) -> dict[str, str]:
    """Where one pass needs no computed operand, or folds beside it: statistics of their own."""
    return {"PLACE": "fold=cut"} if "norm" in name else {}


def stored(expr: Any, where_: str, **pins: str) -> Kernel:
    return optimize(expr.cast(f32), "sm_90", {"OPERANDS": where_, **pins})


@pytest.mark.parametrize("shape", [(33, 80, 40), (16, 64, 8), (130, 200, 24)])
@pytest.mark.parametrize("name", products(1, 1, 1))
def test_stored_operands_are_contracted(name: str, shape: tuple[int, int, int]) -> None:
    expr = products(*shape)[name]
    kernel = stored(expr, "stored", **apart(name))
    assert len(kernel.plan.launches) > 1
    checked(expr, kernel, 3e-3)


@pytest.mark.parametrize("name", ["RMS norm", "layer norm", "a gate"])
@pytest.mark.parametrize("dtype", [f16, bf16])
def test_where_they_are_computed_moves_no_bit(name: str, dtype: Any) -> None:
    """They are rounded alike, to what the array is of."""
    expr = products(48, 128, 32, dtype)[name]
    pins = {"TILE": f"a:mma_m16n8k16_{dtype.name}/w1x1/f1x4/k2", "REDUCE": "g1"}
    pins |= {"TILE@n.0": "a:map_m1n32/w1x1/f1x4/k1"} if "norm" in name else {}
    pins |= apart(name)
    one, other = (stored(expr, where_, **pins) for where_ in ("inside", "stored"))
    arrays = inputs(one, fresh_rng())
    found = [np.asarray(each.run(backend="sim", **arrays)) for each in (one, other)]
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1].view(np.uint32))


@pytest.mark.parametrize("e", [24, 512])
def test_they_follow_a_fold_of_what_they_read(e: int) -> None:
    """Scaled by what is folded, or before that: its products are stored where squares are summed,
    though a gain has no part in them."""
    expr, pins = products(48, 128, e)["RMS norm"], {"PLACE": "fold=cut"}
    inside, outside = (stored(expr, "stored", EPILOGUE=way, **pins) for way in ("inside", "apart"))
    assert (len(inside.plan.launches), len(outside.plan.launches)) == (2, 3)
    stored_by, _, _ = inside.tile.partition("stage1")
    assert re.search(r"\[m, n\] = store x\[m, n\].* \* gain\[n\] \[inner\]", stored_by)


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        ({"OPERANDS": "stored"}, "pin OPERANDS=stored: it changes nothing here.*value is inside"),
        ({"OPERANDS": "elsewhere"}, r"OPERANDS: got 'elsewhere', wants inside \(.*\) or stored"),
        ({"OPERANDS@n": "stored"}, "chosen for the plan; wants OPERANDS"),
    ],
)
def test_what_is_no_computed_operand(pins: dict[str, str], says: str) -> None:
    m, n, e = Axis.many(m=32, n=64, e=16)
    plain = (Tensor("x", (m, n), f16) * Tensor("w", (n, e), f16)).sum(n)
    with pytest.raises(ScheduleError, match=re.compile(says, re.DOTALL)):
        optimize(plain, "sm_90", pins)
