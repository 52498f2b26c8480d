"""Realizations that do not go together: refused before assembly, with numbers and what would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, exp, f16, f32, optimize
from egraph_flash.dtypes import i32
from egraph_flash.errors import ScheduleError
from tests.support.forms import attention, inputs
from tests.support.fresh import fresh_rng

MMA = "a:mma_m16n8k16_f16"
GEOMETRY = {"TILE@d": f"{MMA}/w4x1/f1x8/k4", "TILE@n": f"{MMA}/w4x1/f1x8/k4"}
STREAMED = {**GEOMETRY, "STAGE": "d2/tma/ring", "SLAB": "xor"}

_m, _n, _d, _e = Axis.many(m=70, n=300, d=32, e=32)
_q, _k = Tensor("q", (_m, _d), f16), Tensor("k", (_n, _d), f16)
_v, _x, _y = Tensor("v", (_n, _e), f16), Tensor("x", (_m, _n), f32), Tensor("y", (_m,), f32)
_g = (_q * _k).sum(_d)


def refused(pins: dict[str, str], expr: Any = None, target: str = "sm_90") -> str:
    expr = attention(1, 2, 256, 512, 64) if expr is None else expr
    with pytest.raises(ScheduleError) as error:
        optimize(expr, target, pins)
    return str(error.value)


@pytest.mark.parametrize(
    ("pins", "told"),
    [
        pytest.param(
            {**STREAMED, "SLAB": "pad16"},
            ("rows end to end", "nearest legal value is xor"),
            id="padding between rows of a box",
        ),
        pytest.param(
            {**STREAMED, "ROLES": "all"},
            ("issued by one thread", "one is legal"),
            id="all threads issuing tensor copies",
        ),
        pytest.param(
            {**GEOMETRY, "STAGE": "d2/cp/ring", "ROLES": "producer"},
            ("one ring filled by tma", "nearest legal value is all"),
            id="a producer of cp.async",
        ),
        pytest.param(
            {**GEOMETRY, "STAGE@k": "d2/cp/ring", "STAGE@v": "d2x2/cp/ring"},
            ("different numbers of blocks", "the same for all is legal"),
            id="slots of different lengths",
        ),
        pytest.param(
            {"TILE@d": "a:fma_f32/w4x1/f1x8/k8", "STAGE": "d1/cp"},
            ("STAGE", "it changes nothing here"),
            id="staging for atoms that read no shared memory",
        ),
        pytest.param(
            {**GEOMETRY, "STAGE": "d0", "HOIST": "registers", "DRAIN": "x4"},
            ("DRAIN=x4", "it wants: some operand is staged"),
            id="draining what is not staged",
        ),
        pytest.param(
            {**STREAMED, "BASE": "max", "START": "base"},
            ("START=base", "BASE is vote or lazy"),
            id="starting at a base that moves every block",
        ),
        pytest.param(
            {**GEOMETRY, "STAGE": "d1/sync", "CACHE": "last"},
            ("CACHE=last", "sync take no hint", "nearest legal transport is cp"),
            id="hints for plain loads",
        ),
        pytest.param(
            {**GEOMETRY, "STAGE@k": "d1/cp", "STAGE@v": "d1/sync", "CACHE": "first"},
            ("CACHE=first", "sync take no hint", "nearest legal transport is cp"),
            id="hints for one operand of two",
        ),
        pytest.param(
            {**STREAMED, "STAGE": "d8x4/tma/ring"},
            ("shared bytes, more than the 232448", "nearest legal depth is d"),
            id="more shared memory than there is",
        ),
        pytest.param(
            {"TILE@d": f"{MMA}/w4x1/f4x8/k4", "TILE@n": f"{MMA}/w4x1/f4x8/k4"},
            ("registers a thread, more than the 255", "nearest legal value is"),
            id="more registers than there are",
        ),
    ],
)
def test_combinations_are_refused(pins: dict[str, str], told: tuple[str, ...]) -> None:
    message = refused(pins)
    for part in told:
        assert part in message, message


def test_a_nearest_depth_is_legal() -> None:
    message = refused({**STREAMED, "STAGE": "d8x4/tma/ring"})
    depth = message.partition("nearest legal depth is d")[2][0]
    pins = {**STREAMED, "STAGE": f"d{depth}x4/tma/ring"}
    assert optimize(attention(1, 2, 256, 512, 64), "sm_90", pins).schedule["STAGE@k"] == (
        f"d{depth}x4/tma/ring"
    )


@pytest.mark.parametrize(
    ("depth", "stage", "told"),
    [
        (36, "d2/tma/ring", "got 72, wants 0 to 1099511627760 bytes, a multiple of 16"),
        (33, "d2/cp/ring", "rows of k have runs of 2; the nearest legal transport is sync"),
    ],
)
def test_head_dims_that_a_transport_cannot_take(depth: int, stage: str, told: str) -> None:
    """The plain loads of `sync` take any of them."""
    expr = attention(1, 2, 64, 200, depth)
    assert told in refused({"STAGE": stage}, expr)
    assert optimize(expr, "sm_90", {"STAGE": "d1/sync"}).schedule["STAGE@k"] == "d1/sync"


@pytest.mark.parametrize(("depth", "hints"), [(20, False), (24, True)])
def test_short_runs_take_no_hint(depth: int, hints: bool) -> None:
    """Rows of 20 elements have runs of 8 bytes; only 16-byte copies name a policy."""
    expr, pins = attention(1, 2, 64, 200, depth), {"STAGE": "d2/cp/ring", "CACHE": "last"}
    if hints:
        assert ".L2::cache_hint" in optimize(expr, "sm_90", pins).ptx
    else:
        message = refused(pins, expr)
        assert "CACHE=last: cp.async takes a hint where it copies 16 bytes" in message
        assert "runs of 8; the nearest legal value is none" in message


def test_a_stage_with_nothing_early_has_no_skew() -> None:
    m, n, k = Axis.many(m=64, n=64, k=256)
    product = (Tensor("a", (m, k), f16) * Tensor("b", (k, n), f16)).sum(k)
    message = refused({"SKEW": "on"}, product)
    assert "SKEW=on" in message
    assert "part of the body does not depend on the carried state" in message


def test_a_stage_that_stages_nothing_takes_no_staging() -> None:
    """Not even where the pin names no operand; d0 is what it has."""
    rows = _x.sum(_n).cast(f32)
    assert "STAGE=d1/cp: it changes nothing here" in refused({"STAGE": "d1/cp"}, rows)
    optimize(rows, "sm_90", {"STAGE": "d0"})


def test_one_depth_step_has_no_next() -> None:
    expr = (abs(_q - _k).sum(_d) * _v).sum(_n).cast(f32)
    pins = {"TILE@n": f"{MMA}/w4x1/f1x4/k1", "STAGE": "d1/cp", "DRAIN": "x2/p2"}
    assert "the nearest legal value is x2" in refused(pins, expr)
    assert optimize(expr, "sm_90", {**pins, "DRAIN": "x2"}).schedule["DRAIN"] == "x2"


def test_a_share_of_more_words_than_a_lane_holds_is_refused() -> None:
    expr = (exp(_x - _x.max(_n)).sum(_n)).cast(f32)
    pins = {"TILE": "a:map_m1n32/w4x1/f1x4/k1"}
    assert "4 words of a tile; the nearest legal value is poly4" in refused(
        {**pins, "EXP": "poly5"}, expr
    )
    assert optimize(expr, "sm_90", {**pins, "EXP": "poly4"}).schedule["EXP"] == "poly4"


def test_a_tile_and_a_transport_that_are_both_illegal() -> None:
    """The nearest tile is one that is legal without the other pin, and says so."""
    m, n, d = Axis.many(m=16, n=20, d=32)
    k = Tensor("k", (n, d), f16, strides=(33, 1))
    product = (Tensor("q", (m, d), f16) * k).sum(d)
    tile = "a:mma_m16n8k16_f16/w1x1/f1x4/k2"
    message = refused({"TILE@d": tile, "STAGE@k": "d1/cp"}, product)
    assert f"{tile}: no geometry has it" in message
    assert message.endswith("f1x3/k2, without STAGE@k=d1/cp")


def test_warps_that_are_no_two_halves_take_no_turns() -> None:
    """Three warps are no halves of one another, and one has nobody to take turns with."""
    tiles = {"TILE@d": f"{MMA}/w3x1/f1x8/k4", "TILE@n": f"{MMA}/w3x1/f1x8/k4"}
    assert "3 row warps and 1 column warps are no two halves" in refused({**tiles, "TURNS": "on"})
    alone = {knob: value.replace("w3", "w1") for knob, value in tiles.items()}
    assert "TURNS=on: it changes nothing here" in refused({**alone, "TURNS": "on"})


def test_a_product_without_a_body_takes_no_turns() -> None:
    m, n, k = Axis.many(m=64, n=64, k=256)
    product = (Tensor("a", (m, k), f16) * Tensor("b", (k, n), f16)).sum(k)
    message = refused({"TURNS": "on"}, product)
    assert "it changes nothing here; it wants: a contraction in the body of a fold" in message
    assert "the nearest legal value of TURNS is off" in message


def test_a_sum_that_nothing_weighs_rides_no_contraction() -> None:
    m, n = Axis.many(m=64, n=256)
    x = Tensor("x", (m, n), f32)
    message = refused({"SUM": "ones"}, exp(x - x.max(n)).sum(n))
    assert "SUM=ones" in message
    assert "lane is legal" in message


@pytest.mark.parametrize(
    ("expr", "forms"),
    [
        pytest.param((exp(-abs(_g)) * _v).sum(_n), ("accurate",), id="a kernel sum"),
        pytest.param((exp(_g - _y) * _v).sum(_n), ("accurate",), id="less what is no maximum"),
        pytest.param((_g * exp(_v)).sum(_n), ("accurate",), id="of an operand"),
        pytest.param((_g * _v).sum(_n) * exp((_q * _q).sum(_d)), (), id="of rows"),
        pytest.param(_x.sum(_n) * exp(_y), (), id="after a sum"),
        pytest.param((_x * exp(_y)).sum(_n), (), id="out of a sum"),
    ],
)
def test_forms_of_exp_that_change_nothing_are_refused(expr: Any, forms: tuple[str, ...]) -> None:
    """A form acts on exponentials by element; `fold` and `poly` on those that subtract a base."""
    plain = optimize(expr.cast(f32), "sm_90", {"EXP": "ex2"}).ptx
    for form in ("accurate", "fold", "poly1", "poly8"):
        if form in forms:
            assert optimize(expr.cast(f32), "sm_90", {"EXP": form}).ptx != plain
            continue
        message = refused({"EXP": form}, expr.cast(f32))
        assert f"EXP={form}: it changes nothing here" in message
        assert "nearest legal value of EXP is ex2" in message


@pytest.mark.parametrize("form", ["fold", "poly2"])
def test_where_a_contraction_starts_at_the_base_no_exp_subtracts_it(form: str) -> None:
    pins = {**STREAMED, "BASE": "lazy", "START": "base"}
    assert optimize(attention(1, 2, 256, 512, 64), "sm_90", pins).schedule["EXP"] == "ex2"
    assert "it changes nothing here" in refused({**pins, "EXP": form})


def test_no_form_folds_what_an_output_subtracts() -> None:
    """After the fold a maximum of -inf is no base that counts as 0."""
    top, w = _g.max(_n), Tensor("w", (_m, _e), f32)
    expr = ((exp(_g - top) * _v).sum(_n) * exp(w - top)).cast(f32)
    pins = {"BASE": "vote", "START": "base", "HOIST": "registers"}
    assert optimize(expr, "sm_90", pins).schedule["EXP"] == "ex2"
    assert "nearest legal value" in refused({**pins, "EXP": "fold"}, expr)


def test_gathered_rows_are_no_box() -> None:
    """Rows that a table finds one by one are no box; cp.async takes them."""
    m, n, d, p = Axis.many(m=64, n=256, d=64, p=256)
    table = Tensor("table", (p,), i32)
    q, k = Tensor("q", (m, d), f16), Tensor("k", (p, d), f16)
    s = (q * k[table[n.index], d.index]).sum(d)
    e = Axis("e", 64)
    v = Tensor("v", (n, e), f16)
    o = (exp(s - s.max(n)) * v).sum(n) / exp(s - s.max(n)).sum(n)
    assert "no tensor map describes k" in refused({"STAGE@k": "d2/tma/ring"}, o)


@pytest.mark.parametrize(("n", "size"), [(130, 80), (160, 80)])
def test_rows_that_end_inside_a_part_stay_where_they_are(n: int, size: int) -> None:
    """Threads would copy a part of 80 elements as far as it goes: past a bias of 130 a row."""
    m, long, d, e = Axis.many(m=16, n=n, d=32, e=32)
    q, k, v = Tensor("q", (m, d), f16), Tensor("k", (long, d), f16), Tensor("v", (long, e), f16)
    s = (q * k).sum(d) + Tensor("bias", (m, long), f16)
    o = (exp(s - s.max(long)) * v).sum(long) / exp(s - s.max(long)).sum(long)
    pins = {"REDUCE": f"s{size}", "TILE@d": "a:mma_m16n8k16_f16/w1x1/f1x2/k2", "STAGE@k": "d0"}
    staged = {**pins, "STAGE@v": "d0", "STAGE@bias": "d2/cp/ring"}
    if n % size:
        assert "ends of rows of bias; the nearest legal value is d0" in refused(staged, o)
        staged["STAGE@bias"] = "d0"
    kernel = optimize(o, "sm_90", staged)
    arrays = inputs(kernel, fresh_rng())
    wanted = evaluate(o, arrays)
    assert not np.isnan(wanted).any()
    assert np.abs(np.asarray(kernel.run(backend="sim", **arrays)) - wanted).max() < 5e-3
