"""Rows of several axes in one tile, where one operand serves them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, f16, f32, inf, optimize, softmax, where
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError
from egraph_flash.extraction import extract
from egraph_flash.machines import machine
from egraph_flash.packing import Packing, packed, packings
from egraph_flash.request import request_for
from egraph_flash.stages import split
from tests.support.forms import decoded, inputs
from tests.support.fresh import fresh_rng

n, d, e = Axis.many(n=90, d=32, e=32)
b = Axis("b", 2)


def heads(count: int, groups: int, rows: int, *, causal: bool = False, keys: int = 90) -> Any:
    """`count` heads of queries on `groups` of keys; without an axis of rows where there are 0."""
    n = Axis("n", keys)
    h, g, m = Axis("h", count), Axis("g", groups), Axis("m", max(rows, 1))
    of = (b, h, m) if rows else (b, h)
    q = Tensor("q", (*of, d), f16)
    k, v = (Tensor(name, (b, g, n, a), f16) for name, a in (("k", d), ("v", e)))
    group = h // (count // groups) if count > groups else h
    scores = (q * k[b, group, n, d]).sum(d) * 0.2
    if causal:
        scores = where(n.index <= m.index + (n.size - rows), scores, -inf)
    return (softmax(scores, n) * v[b, group, n, e]).sum(n).cast(f32)


def shared_keys(rows: int) -> Any:
    """One head of keys for all queries, which no index of theirs tells apart."""
    h, m = Axis("h", 6), Axis("m", rows)
    k, v = Tensor("k", (b, n, d), f16), Tensor("v", (b, n, e), f16)
    scores = (Tensor("q", (b, h, m, d), f16) * k).sum(d) * 0.2
    return (softmax(scores, n) * v).sum(n).cast(f32)


CASES: dict[str, tuple[Callable[[], Any], tuple[str, int, str | None]]] = {
    "no rows": (lambda: heads(8, 2, 0), ("h", 4, None)),
    "one row": (lambda: heads(8, 2, 1), ("h", 4, "m")),
    "a few rows, causal": (lambda: heads(6, 2, 5, causal=True), ("h", 3, "m")),
    "all heads on one": (lambda: heads(4, 1, 3), ("h", 4, "m")),
    "keys of no head": (lambda: shared_keys(3), ("m", 3, "h")),
}


def _roots(expr: Any) -> Any:
    request = request_for(expr, "sm_90", {}, "test")
    found = extract(tuple(root.expr for root in request.outputs), machine("sm_90"), {})
    root = request.outputs[0]
    return request, replace(root, expr=found.roots[0])


@pytest.mark.parametrize("name", CASES)
def test_what_is_packed(name: str) -> None:
    make, (axis, group, row) = CASES[name]
    request, root = _roots(make())
    (found,) = packings(split([root], [array.args[0] for array in request.inputs]))
    assert (found.axis.name, found.group) == (axis, group)
    assert (found.row.name if found.row is not None else None) == row


@pytest.mark.parametrize("name", CASES)
def test_packed_values_are_the_same(name: str) -> None:
    """In float64, each where it was: packing is a bijection of indices."""
    request, root = _roots(CASES[name][0]())
    (packing,) = packings(split([root], [array.args[0] for array in request.inputs]))
    moved = packed(root, packing)
    rng = fresh_rng()
    arrays = {
        array.args[0]: rng.standard_normal([extent.args[0] for extent in array.args[2]])
        for array in request.inputs
    }
    placed = moved.expr.placed(root.axes, moved.at)
    wanted = evaluate(root.expr.order(*root.axes), arrays)
    assert not np.isnan(wanted).any()
    np.testing.assert_allclose(evaluate(placed, arrays), wanted, rtol=1e-12)


@pytest.mark.parametrize("splits", ["g1", "s32"])
@pytest.mark.parametrize("name", CASES)
def test_packed_kernels_are_right(name: str, splits: str) -> None:
    expr = CASES[name][0]()
    kernel = optimize(expr, "sm_90", {"PACK": "on", "REDUCE": splits})
    assert kernel.schedule["PACK"] == "on"
    assert "mma" in kernel.schedule["TILE@d"]
    arrays = inputs(kernel, fresh_rng())
    out = np.asarray(kernel.run(backend="sim", **arrays))
    wanted = evaluate(expr, decoded(kernel, arrays))
    assert not np.isnan(wanted).any()
    assert np.abs(out - wanted).max() < 2e-3


def test_packing_moves_no_bit() -> None:
    """The same brackets in each row: the tiles that rows fill are movement."""
    expr = heads(8, 2, 5, causal=True)
    tile = "a:mma_m16n8k16_f16/w1x1/f1x4/k2"
    fixed = {"TILE@d": tile, "TILE@n": tile, "REDUCE": "g1", "BASE": "max", "SUM": "block"}
    fixed |= {"EXP": "ex2", "SKIP": "none"}
    outs: list[Array] = []
    arrays: dict[str, Array] = {}
    for how in ("off", "on"):
        kernel = optimize(expr, "sm_90", {**fixed, "PACK": how})
        arrays = arrays or inputs(kernel, fresh_rng())
        outs.append(np.asarray(kernel.run(backend="sim", **arrays)))
    assert outs[0].tobytes() == outs[1].tobytes()


def test_a_single_row_of_grouped_heads_is_packed_unasked() -> None:
    kernel = optimize(heads(32, 4, 1, keys=1 << 15), "sm_90")
    assert kernel.schedule["PACK"] == "on"


@pytest.mark.parametrize(
    "expr",
    [
        pytest.param(heads(4, 4, 1), id="a head of keys for each"),
        pytest.param(heads(8, 2, 65), id="many rows"),
        pytest.param((Tensor("a", (b, n), f16) * Tensor("c", (n, e), f16)).sum(n), id="a product"),
    ],
)
def test_nothing_to_pack_is_refused(expr: Any) -> None:
    with pytest.raises(ScheduleError, match=r"PACK=on: it changes nothing here.* value is off"):
        optimize(expr, "sm_90", {"PACK": "on"})
    assert "PACK" not in optimize(expr, "sm_90").schedule


def test_packing_is_chosen_for_the_plan() -> None:
    with pytest.raises(ScheduleError, match="pin PACK@h: PACK is chosen for the plan; wants PACK"):
        optimize(heads(8, 2, 1), "sm_90", {"PACK@h": "on"})


def test_an_axis_that_is_folded_is_not_packed() -> None:
    """Heads that an output adds up are no rows of it."""
    h, m = Axis("h", 8), Axis("m", 2)
    k, v = (Tensor(name, (b, Axis("g", 2), n, a), f16) for name, a in (("k", d), ("v", e)))
    scores = (Tensor("q", (b, h, m, d), f16) * k[b, h // 4, n, d]).sum(d)
    expr = (softmax(scores, n) * v[b, h // 4, n, e]).sum(n).sum(h)
    request, root = _roots(expr)
    stages = split([root], [array.args[0] for array in request.inputs])
    assert all(found.axis is not h for found in packings(stages))
    assert Packing(h, 4, m) not in packings(stages)
