"""The grid level of the tower: folds that blocks share, and the fold of their states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, exp, f16, f32, log, optimize, softmax, sqrt
from egraph_flash.axes import size_of
from egraph_flash.dtypes import DTYPES, Array
from egraph_flash.errors import ScheduleError
from egraph_flash.extraction import extract
from egraph_flash.kernel import Kernel
from egraph_flash.machines import machine
from egraph_flash.sharing import Cut, passes_over, shared
from egraph_flash.simulator import run
from egraph_flash.terms import subterms
from tests.support.forms import decoded, inputs
from tests.support.fresh import fresh_rng
from tests.support.workloads import WORKLOADS

SIZES = (1, 2, 3, 4, 8)  # of parts, of axes that most of them do not divide

m, n, d, e = Axis.many(m=5, n=300, d=32, e=16)
x, weight = Tensor("x", (m, n), f32), Tensor("weight", (n, e), f16)
q, k = Tensor("q", (m, d), f16), Tensor("k", (n, d), f16)
attention = (softmax((q * k).sum(d) * 0.2, n) * weight).sum(n)
centred = x - x.sum(n) / n.size

FOLDED = {
    "a sum": (x.sum(n)).cast(f32),
    "a product": (Tensor("a", (m, n), f16) * weight).sum(n).cast(f32),
    "a maximum": x.max(n),
    "a log-sum-exp": x.max(n) + log(exp(x - x.max(n)).sum(n)),
    "a variance": (centred * centred).sum(n) / n.size,
    "weighted rows": attention.cast(f32),
}


def drawn(roots: tuple[Any, ...], rng: np.random.Generator) -> dict[str, Array]:
    """Fresh reals, and integers 0 or 1, for every input."""
    found: dict[str, Array] = {}
    for node in subterms(*(root.expr for root in roots)):
        if node.head == "Array":
            name, dtype, extents, *_ = node.args
            shape = tuple(map(size_of, extents))
            whole = DTYPES[dtype].is_integer
            found[name] = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
    return found


@pytest.mark.parametrize("name", WORKLOADS)
def test_parts_of_any_size_fold_to_the_same(name: str) -> None:
    made = WORKLOADS[name]()
    roots = made if isinstance(made, tuple) else (made,)
    found = extract(tuple(root.expr for root in roots), machine("sm_90"), {})
    arrays = drawn(roots, fresh_rng())
    tried = 0
    for naive, root in zip(roots, found.roots, strict=True):
        wanted = evaluate(naive, arrays)
        assert not np.isnan(wanted).any()
        for axis in passes_over(root):
            for size in SIZES:
                got = evaluate(shared(root, Cut.known(axis, size)).order(*naive.axes), arrays)
                np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
                tried += 1
    assert tried


def checked(expr: Any, kernel: Kernel, tolerance: float) -> Array:
    arrays = inputs(kernel, fresh_rng())
    out = np.asarray(kernel.run(backend="sim", **arrays))
    wanted = evaluate(expr, decoded(kernel, arrays))
    assert not np.isnan(wanted).any()
    assert (np.abs(out - wanted) <= tolerance * np.maximum(1.0, np.abs(wanted).max())).all()
    return out


@pytest.mark.parametrize("splits", ["g2", "g5", "s16", "s112", "s300"])
@pytest.mark.parametrize("name", FOLDED)
def test_every_carrier_is_shared(name: str, splits: str) -> None:
    expr = FOLDED[name]
    kernel = optimize(expr, "sm_90", {"REDUCE": splits})
    assert kernel.schedule["REDUCE@n"] == splits
    assert len(kernel.plan.launches) == (1 if splits == "s300" else 2)
    checked(expr, kernel, 2e-3 if "mma" in str(kernel.schedule) else 1e-5)


def test_the_tower_says_so() -> None:
    tile = "a:fma_f32/w1x1/f1x16/k16"
    kernel = optimize(attention, "sm_90", {"REDUCE": "s64", "TILE@n": tile})
    assert "grid n/16/4 serial n/16%4 tile n%16" in str(kernel.derivation)
    assert kernel.passes == 1
    assert "bracketing/grid" in kernel.derivation.steps[-1].laws


@pytest.mark.parametrize("name", ["a log-sum-exp", "weighted rows", "a product"])
def test_no_order_of_blocks_shows(name: str) -> None:
    """Parts are folded in their order, whichever block ends first."""
    kernel = optimize(FOLDED[name], "sm_90", {"REDUCE": "g5"})
    arrays = inputs(kernel, fresh_rng())
    found = set()
    for seed in range(4):
        held = {b.name: np.zeros(b.shape, b.dtype.storage) for b in kernel.plan.buffers}
        run(kernel.ptx, kernel.plan.launches, held | arrays, target=kernel.target, seed=seed)
        found.add(held["out"].tobytes())
    assert len(found) == 1
    assert np.asarray(kernel.run(backend="sim", **arrays)).tobytes() in found


def test_a_size_of_parts_makes_rows_independent_of_the_batch() -> None:
    """The same brackets for each row, however many there are, bit for bit."""
    found = {}
    rng = fresh_rng()
    keys, values = rng.standard_normal((2, 300, 32)).astype(np.float16)
    rows = rng.standard_normal((40, 32)).astype(np.float16)
    for count in (1, 7, 40):
        some, of, to = Axis("m", count), Axis("d", 32), Axis("e", 32)
        scores = (Tensor("q", (some, of), f16) * Tensor("k", (n, of), f16)).sum(of)
        expr = (softmax(scores * 0.2, n) * Tensor("v", (n, to), f16)).sum(n).cast(f32)
        tile = "a:mma_m16n8k16_f16/w1x1/f1x4/k2"
        pins = {"REDUCE": "s96", "TILE@d": tile, "TILE@n": tile, "BASE": "max", "SUM": "block"}
        kernel = optimize(expr, "sm_90", {**pins, "EXP": "ex2"})
        found[count] = np.asarray(kernel.run(backend="sim", q=rows[:count], k=keys, v=values))
    assert (found[40][:1] == found[1]).all()
    assert (found[40][:7] == found[7]).all()


def test_nothing_is_left_to_fold() -> None:
    """Parts that a mask leaves without elements, and rows without any."""
    from egraph_flash import inf, where

    length = Tensor("length", (m,), DTYPES["i32"])
    scores = where(n.index < length[m], (q * k).sum(d) * 0.2, -inf)
    expr = (softmax(scores, n) * weight).sum(n).cast(f32)
    kernel = optimize(expr, "sm_90", {"REDUCE": "s64"})
    arrays = inputs(kernel, fresh_rng()) | {"length": np.array([0, 1, 64, 65, 300], np.int32)}
    out = np.asarray(kernel.run(backend="sim", **arrays))
    wanted = evaluate(expr, arrays)
    assert (out[0] == 0).all()
    assert np.abs(out - wanted).max() < 2e-3


def test_long_folds_of_few_rows_are_shared_unasked() -> None:
    """Where tiles would leave most of the machine without work; others are left alone."""
    long, of, to = Axis.many(n=1 << 16, d=64, e=64)
    few, many = Axis("m", 4), Axis("m", 1 << 16)
    for rows, is_shared in ((few, True), (many, False)):
        scores = (Tensor("q", (rows, of), f16) * Tensor("k", (long, of), f16)).sum(of)
        kernel = optimize((softmax(scores, long) * Tensor("v", (long, to), f16)).sum(long), "sm_90")
        assert ("REDUCE@n" in kernel.schedule) == is_shared
        again = optimize(
            (softmax(scores, long) * Tensor("v", (long, to), f16)).sum(long),
            "sm_90",
            dict(kernel.schedule),
        )
        assert again.ptx == kernel.ptx


def test_splits_of_one_length_are_tried_too() -> None:
    """170 SMs for 4 row tiles are 42 splits, with a rest in each that whole copies run into."""
    rows, columns, long = Axis.many(m=64, n=64, k=1 << 16)
    expr = (Tensor("a", (rows, long), f16) * Tensor("w", (long, columns), f16)).sum(long)
    kernel = optimize(expr, "sm_120")
    splits = int(str(kernel.schedule["REDUCE@k"]).removeprefix("g"))
    assert long.size % splits == 0
    assert splits >= 32
    assert kernel.cost.total_us < optimize(expr, "sm_120", {"REDUCE": "g1"}).cost.total_us / 4


@pytest.mark.parametrize(
    ("pins", "told"),
    [
        ({"REDUCE": "g400"}, r"300 elements of 'n' in parts of 1 are 300 parts; .* value is g300"),
        ({"REDUCE": "g29"}, "in parts of 11 are 28 parts; the nearest legal value is g28"),
        ({"REDUCE@q": "g2"}, "for the axis of a fold; got 'q', wants REDUCE@n"),
        ({"REDUCE": "4"}, "REDUCE: got '4', wants g<splits> or s<elements of a split>"),
        ({"REDUCE": "g0"}, "REDUCE: got 'g0'"),
    ],
)
def test_splits_that_cannot_be(pins: dict[str, str], told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        optimize(attention, "sm_90", pins)


def test_a_map_has_nothing_to_split() -> None:
    with pytest.raises(ScheduleError, match="splits are chosen for the axis of a fold"):
        optimize(x + 1.0, "sm_90", {"REDUCE": "g2"})


@pytest.mark.parametrize("pins", [{}, {"STAGE": "d2/cp/ring"}, {"STAGE": "d2/tma/ring"}])
def test_an_open_length_is_split_into_so_many_parts(pins: dict[str, str]) -> None:
    """One text for every length, short ones too, that leave parts without elements."""
    keys = Axis("n", "count", hint=4096)
    scores = (q * Tensor("k", (keys, d), f16)).sum(d) * 0.2
    expr = (softmax(scores, keys) * Tensor("v", (keys, e), f16)).sum(keys).cast(f32)
    kernel = optimize(expr, "sm_90", {"REDUCE": "g5", **pins})
    assert kernel.schedule["REDUCE@n"] == "g5"
    rng = fresh_rng()
    for count in (1, 16, 37, 128, 300):
        arrays = {"q": (5, 32), "k": (count, 32), "v": (count, 16)}
        given = {a: rng.standard_normal(shape).astype(np.float16) for a, shape in arrays.items()}
        out = np.asarray(kernel.run(backend="sim", **given))
        wanted = evaluate(expr, given, lengths={"count": count})
        assert not np.isnan(wanted).any()
        assert np.abs(out - wanted).max() < 2e-3


def test_an_open_length_has_no_size_of_parts() -> None:
    length = Axis("n", "count", hint=4096)
    with pytest.raises(ScheduleError, match=r"no length before a call.* value is g64"):
        optimize(Tensor("y", (m, length), f32).sum(length), "sm_90", {"REDUCE": "s64"})


def test_a_count_that_leaves_no_rest_is_named() -> None:
    """301 = 7 * 43, of which no part is a multiple of 16 elements."""
    with pytest.raises(ScheduleError, match="equally long; the nearest legal value is g1"):
        optimize(WORKLOADS["block"](q=301), "sm_90", {"REDUCE@k": "g2"})


def test_values_of_passes_inside_want_parts_of_one_length() -> None:
    with pytest.raises(ScheduleError, match="equally long; the nearest legal value is g1"):
        optimize(WORKLOADS["block"](), "sm_90", {"REDUCE@k": "g2"})


def test_an_inner_fold_and_an_outer_one_are_not_both_shared() -> None:
    """The inner one's parts go through memory, also for elements past the outer one's end."""
    rows, long, deep = Axis.many(m=11, n=39, d=48)
    z = (Tensor("a", (rows, deep), f32) * Tensor("b", (long, deep), f32)).sum(deep)
    expr = z / sqrt((z * z).sum(long) / 39 + 1e-6)
    for pins, found in (
        ({"REDUCE": "g2"}, {"REDUCE@d": "g1", "REDUCE@n": "g2"}),
        ({"REDUCE@d": "g2", "REDUCE@n": "s13"}, {"REDUCE@d": "g2", "REDUCE@n": "s13"}),
    ):
        kernel = optimize(expr, "sm_90", pins)
        assert {k: v for k, v in kernel.schedule.items() if k.startswith("REDUCE")} == found
        checked(expr, kernel, 1e-5)
    with pytest.raises(ScheduleError, match=r"pin REDUCE@n=g2: .* the nearest legal value is g1"):
        optimize(expr, "sm_90", {"REDUCE@d": "g2", "REDUCE@n": "g2"})
