"""States that the last block of a launch takes up: bits, counters, and what orders the blocks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, f16, f32, optimize, runtime, softmax
from egraph_flash.candidates import candidates
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError, SimulationError
from egraph_flash.extraction import extract
from egraph_flash.joining import common_axes, joined
from egraph_flash.kernel import Kernel
from egraph_flash.knobs import Tile
from egraph_flash.machines import machine
from egraph_flash.plan import Plan
from egraph_flash.request import Root
from egraph_flash.sharing import Cut, passes_over, shared
from egraph_flash.simulator import run
from egraph_flash.stages import split
from egraph_flash.terms import rewrite
from tests.support.deletions import without_each
from tests.support.forms import decoded, inputs
from tests.support.fresh import fresh_rng
from tests.test_sharing import FOLDED, attention, d, e, m, n


def grouped() -> Any:
    """Decoding with two rows of one tile for each head of the cache."""
    b, heads, groups, cache = Axis.many(b=2, heads=4, groups=2, cache=200)
    new = Tensor("q", (b, heads, d), f16)
    keys, values = (Tensor(x, (b, groups, cache, a), f16) for x, a in (("k", d), ("v", e)))
    p = softmax((new * keys[b, heads // 2, cache, d]).sum(d) * 0.2, cache)
    return (p * values[b, heads // 2, cache, e]).sum(cache).cast(f32)


CASES = {**FOLDED, "grouped heads": grouped()}


def both(expr: Any, reduce: str, target: str = "sm_90", **pins: str) -> tuple[Kernel, Kernel]:
    """In one launch, and in two with every other knob the same."""
    one = optimize(expr, target, {"REDUCE": f"{reduce}/last", **pins})
    name = next(name for name in one.schedule if name.startswith("REDUCE@"))
    assert one.schedule[name] == f"{reduce}/last"
    return one, optimize(expr, target, {**one.schedule, name: reduce})


def simulated(kernel: Kernel, arrays: dict[str, Array], seed: int = 0, ptx: str = "") -> Array:
    """What two calls in a row compute on the same buffers; their counters are left at zero."""
    plan = kernel.plan
    held = {b.name: np.zeros(b.shape, b.dtype.storage) for b in plan.buffers}
    held |= arrays
    names = [buffer.name for buffer in plan.having("workspace")]
    run(
        ptx or kernel.ptx, plan.launches * 2, held, target=kernel.target, seed=seed,
        uninitialised=["out", *names], complete=["out"],
    )  # fmt: skip
    assert plan.having("counter")
    assert not any(held[buffer.name].any() for buffer in plan.having("counter"))
    return held["out"]


@pytest.mark.parametrize("reduce", ["g2", "g5", "s48"])
@pytest.mark.parametrize("name", CASES)
def test_one_launch_gives_the_bits_of_two(name: str, reduce: str) -> None:
    one, two = both(CASES[name], reduce)
    assert (len(one.plan.launches), len(two.plan.launches)) == (1, 2)
    arrays = inputs(one, fresh_rng())
    wanted = np.asarray(two.run(backend="sim", **arrays))
    assert np.asarray(one.run(backend="sim", **arrays)).tobytes() == wanted.tobytes()
    for seed in range(1, 4):
        assert simulated(one, arrays, seed).tobytes() == wanted.tobytes()
    true = evaluate(CASES[name], decoded(one, arrays))
    assert np.abs(wanted - true).max() <= 2e-3 * max(1.0, np.abs(true).max())


PINNED = [
    {"STAGE": "d2/cp/ring", "TILE@d": "a:mma_m16n8k16_f16/w2x1/f1x4/k2"},
    {"STAGE": "d2/tma/ring", "TILE@d": "a:mma_m16n8k16_f16/w4x1/f1x4/k2"},
    {"TILE@n": "a:fma_f32/w1x1/f1x16/k16", "TILE@d": "a:fma_f32/w1x1/f1x16/k16"},
    {"TILE@n_share": "a:map_m32n1/w1x1/f2x8/k1"},
]


@pytest.mark.parametrize("pins", PINNED, ids=lambda pins: str(next(iter(pins.values()))))
def test_whatever_stores_the_states(pins: dict[str, str]) -> None:
    one, two = both(FOLDED["weighted rows"], "g3", **pins)
    arrays = inputs(one, fresh_rng())
    wanted = np.asarray(two.run(backend="sim", **arrays))
    assert simulated(one, arrays, 5).tobytes() == wanted.tobytes()


def test_lanes_fold_rows_of_their_own_where_last_blocks_do() -> None:
    """Elsewhere they do if they are asked to."""
    first, second = pair()
    assert "map_m32n1" in {each.inner.atom for each in candidates(second)}
    assert "map_m32n1" not in {each.inner.atom for each in candidates(first)}
    asked = Tile.parse("a:map_m32n1/w1x1/f2x8/k1")
    assert asked in {each.inner for each in candidates(first, [asked])}


def test_last_blocks_do_the_work_of_several() -> None:
    """A launch less, and more in turn: the more, the fewer blocks do all of it."""
    one, two = both(FOLDED["weighted rows"], "g5", **{"TILE@n_share": "a:map_m1n32/w1x1/f1x1/k1"})
    assert one.cost.by_resource_us["launch"] < two.cost.by_resource_us["launch"]
    assert one.cost.total_us > two.cost.total_us - machine("sm_90").launch_us


def test_an_open_length_is_taken_up_too() -> None:
    """Short ones too, that leave parts without elements; one text for all."""
    keys = Axis("n", "count", hint=4096)
    scores = (Tensor("q", (m, d), f16) * Tensor("k", (keys, d), f16)).sum(d) * 0.2
    expr = (softmax(scores, keys) * Tensor("v", (keys, e), f16)).sum(keys).cast(f32)
    one, two = both(expr, "g5")
    rng = fresh_rng()
    for count in (1, 37, 300):
        shapes = {"q": (5, 32), "k": (count, 32), "v": (count, 16)}
        given = {a: rng.standard_normal(shape).astype(np.float16) for a, shape in shapes.items()}
        bits = [np.asarray(each.run(backend="sim", **given)).tobytes() for each in (one, two)]
        assert bits[0] == bits[1]


def test_rows_of_an_open_number_have_counters_of_their_own() -> None:
    rows = Axis("b", "rows", hint=3)
    expr = Tensor("x", (rows, n), f32).sum(n)
    one, two = both(expr, "g4")
    x = fresh_rng().standard_normal((7, 300)).astype(np.float32)
    bits = [np.asarray(each.run(backend="sim", x=x)).tobytes() for each in (one, two)]
    assert bits[0] == bits[1]


# ---- what orders the blocks ----------------------------------------------------------------------


def wrong_ones(ptx: str) -> dict[str, str]:
    """The text with one mistake each in how the last block is found."""
    at = ptx.index("comes to arrived")
    tail = ptx[at : ptx.index("bra.uni", at)]
    rest = ptx[at + len(tail) :]
    texts = {what: ptx[:at] + text + rest for what, text in without_each(tail)}
    texts["relaxed"] = ptx[:at] + tail.replace("acq_rel", "relaxed") + rest
    plain = re.sub(r"atom\S+ (%r\d+), (\[\S+\]), (\d+);", r"ld.global.u32 \1, \2;", tail)
    texts["no atomic"] = ptx[:at] + plain + rest
    early = re.sub(r"(atom.*, )(\d+);", lambda found: f"{found[1]}{int(found[2]) - 1};", tail)
    texts["one too few"] = ptx[:at] + early + rest
    texts["nc"] = ptx[:at] + tail + rest.replace("ld.global.f32", "ld.global.nc.f32")
    return texts


@pytest.mark.parametrize("what", ["bar", "relaxed", "no atomic", "one too few", "nc"])
def test_what_finds_the_last_block_is_needed(what: str) -> None:
    tile = "a:mma_m16n8k16_f16/w2x1/f1x4/k2"
    kernel = optimize(attention.cast(f32), "sm_90", {"REDUCE": "g4/last", "TILE@d": tile})
    arrays = inputs(kernel, fresh_rng())
    wrong = wrong_ones(kernel.ptx)
    texts = {name: wrong[name] for name in wrong if name == what or f": {what}." in name}
    assert len(texts) == (2 if what == "bar" else 1)
    for text in texts.values():
        assert text != kernel.ptx
        with pytest.raises((SimulationError, AssertionError)):
            simulated(kernel, arrays, 1, text)


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
def test_the_assembler_takes_it(target: str) -> None:
    kernel = optimize(grouped(), target, {"REDUCE": "g4/last"})
    assert [entry.spill_bytes for entry in kernel.assembly.entries] == [0]


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_one_launch_on_the_gpu(name: str) -> None:
    target = runtime.present_target()
    assert target is not None
    one, two = both(CASES[name], "g5", target)
    arrays = inputs(one, fresh_rng())
    wanted = np.asarray(two.run(backend="gpu", **arrays))
    for _ in range(100):  # in whichever order blocks come
        assert np.asarray(one.run(backend="gpu", **arrays)).tobytes() == wanted.tobytes()


# ---- which blocks belong together ----------------------------------------------------------------


def pair() -> tuple[Any, Any]:
    """The two stages of a sum over n of a batch, in four parts."""
    b = Axis("b", 6)
    cut = Cut.even(n, 4)
    (root,) = extract((Tensor("x", (b, m, n), f32).sum(n).expr,), machine("sm_90"), {}).roots
    whole = shared(root, cut)
    (part,) = set(passes_over(whole)) - {cut.part}
    stages = split((Root("out", whole, (b, m), f32, (b.index, m.index)),), ("x",))
    first, second = joined(stages, {part})
    assert first.followed
    assert second.joins
    return first, second


def test_blocks_of_one_index_belong_together() -> None:
    first, second = pair()
    assert first.roles.batch[0] is m
    assert common_axes(first, second) == (m,)


def test_they_do_not_where_other_indices_are_read() -> None:
    first, second = pair()
    other = {m.index.expr: (4 - m.index).expr}
    crossed = replace(second, channels=tuple(rewrite(c, other) for c in second.channels))
    assert crossed != second
    assert common_axes(first, crossed) == ()


@pytest.mark.parametrize(
    ("pins", "told"),
    [
        ({"REDUCE": "g1/last"}, "'n' is one part, and none is last; the nearest legal value is g1"),
        ({"REDUCE": "s300/last"}, "one part, and none is last; the nearest legal value is s300"),
        ({"REDUCE": "s400/last"}, "one part, and none is last; the nearest legal value is s400"),
        ({"REDUCE": "g29/last"}, "28 parts; the nearest legal value is g28/last"),
        ({"REDUCE": "g2/first"}, "REDUCE: got 'g2/first'"),
        ({"REDUCE": "g2/last", "GRID@stage0": "persistent"}, "nearest legal value is tiles"),
        ({"REDUCE": "g2/last", "ROLES@stage0": "producer", "STAGE": "d2/tma/ring"}, "one is legal"),
        ({"REDUCE": "g2/last", "TILE@n_share": "a:map_m1n32/w8x1/f1x1/k1",
          "TILE@d": "a:mma_m16n8k16_f16/w1x1/f1x4/k2"}, "none that is pinned, of the 1 warps"),
    ],
)  # fmt: skip
def test_what_no_last_block_takes_up(pins: dict[str, str], told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        optimize(attention, "sm_90", pins)


def test_a_plan_says_which_words_are_counters() -> None:
    plan: Plan = optimize(grouped(), "sm_90", {"REDUCE": "g4/last", "PACK": "on"}).plan
    (counter,) = plan.having("counter")
    assert counter.shape == (2, 2)
    assert plan.having("workspace")
