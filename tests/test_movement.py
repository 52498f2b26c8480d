"""Knobs that only move data: they move no bit, and each of their synchronisations is needed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from egraph_flash import Axis, Tensor, exp, f16, f32, log, optimize
from egraph_flash.choices import Staging
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError, SimulationError
from egraph_flash.evaluation import evaluate
from egraph_flash.kernel import Kernel
from egraph_flash.knobs import KNOBS
from egraph_flash.rungs import RUNGS, Rung, pins_by_rung
from egraph_flash.simulator import run
from tests.support.deletions import without_each
from tests.support.forms import MASKS, attention, decoded, inputs
from tests.support.fresh import fresh_rng

MMA = "a:mma_m16n8k16_f16"
STAGES = ["d0", "d1/sync", "d1/cp", "d2/cp/ring", "d3/cp/ring", "d2x2/cp/ring"]
STAGES += ["d1/tma", "d2/tma/ring", "d3/tma/ring", "d2x2/tma/ring", "d3x2/sync/ring"]
MOVES = {
    "STAGE": STAGES,
    "SLAB": ["raw", "pad16", "xor"],
    "HANDOFF": ["shared", "shared/warp", "repack"],
    "HOIST": ["none", "shared", "registers"],
    "DRAIN": ["x2", "x4", "x4/p2"],
    "SKEW": ["off", "on", "last"],
    "SKIP": ["none", "index", "data"],
    "ROLES": ["all", "one", "rotate", "producer", "each"],
    "GRID": ["tiles", "persistent"],
    "ORDER": ["rows", "heavy", "fold", "pair"],
    "CACHE": ["none", "last", "first"],
    "TURNS": ["off", "on"],
    "BASE": ["max", "vote"],
    "PACK": ["off", "on"],
    "EPILOGUE": ["apart", "inside"],
    "OPERANDS": ["inside", "stored"],
}


def test_every_movement_knob_is_drawn() -> None:
    """A knob is movement by its row, or between the values that its row calls alike."""
    movement = {
        name for name, row in KNOBS.items() if row.alike or set(row.fields.values()) == {"movement"}
    }
    assert movement - {"REGS"} == set(MOVES)
    for name, values in MOVES.items():
        row = KNOBS[name]
        if row.values is not None:
            assert set(values) == set(row.alike or row.values)


def tiles(warps: int, row_atoms: int, block: int, depth: int) -> dict[str, str]:
    """A geometry with `block` column atoms a fold block."""
    return {
        "TILE@d": f"{MMA}/w{warps}x1/f{row_atoms}x{block}/k{min(4, -(-depth // 16))}",
        "TILE@n": f"{MMA}/w{warps}x1/f{row_atoms}x{-(-depth // 8)}/k{block // 2}",
    }


def compiled(expr: Any, pins: dict[str, str], target: str = "sm_90") -> Kernel | None:
    """The kernel, or None where these values do not go together."""
    try:
        return optimize(expr, target, pins)
    except ScheduleError:
        return None


def same_bits(one: Any, other: Any) -> bool:
    return bool(one.tobytes() == other.tobytes())


# ---- no bit moves --------------------------------------------------------------------------------


def blocks_for(staging: Staging) -> int:
    """So many full blocks that every slot is reused and every phase wraps twice."""
    return (2 * max(staging.depth, 1) + 1) * staging.steps


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_movement_moves_no_bit(data: st.DataObject) -> None:
    """Any legal values of movement knobs, over lengths that reuse each slot and leave a rest."""
    moves = {name: data.draw(st.sampled_from(values), name) for name, values in MOVES.items()}
    full = blocks_for(Staging.parse(moves["STAGE"]))
    block = data.draw(st.sampled_from([2, 4] if full > 7 else [2, 4, 8]), "column atoms")
    depth = data.draw(st.sampled_from([16, 24, 32, 64, 72, 96, 128]), "head dim")
    length = 8 * block * full + data.draw(st.integers(0, 8 * block - 1), "rest")
    rows = data.draw(st.integers(1, 150), "rows")
    mask = data.draw(st.sampled_from(["none", *MASKS]), "mask")
    expr = attention(1, 2, rows, length, depth, mask=MASKS.get(mask))
    exact = {"EXP": "ex2", "SUM": "block", "BASE": "max", "REDUCE": "g1"}
    still = {"STAGE": "d0", "HOIST": "none", "SKEW": "off", "SKIP": "none"}
    plain = compiled(expr, {**tiles(1, 1, block, depth), **exact, **still})
    assume(plain is not None)
    assert plain is not None
    geometry = tiles(
        data.draw(st.sampled_from([1, 2, 4, 8]), "warps"),
        data.draw(st.sampled_from([1, 2]), "row atoms"),
        block,
        depth,
    )
    moved = legal(expr, {**geometry, **exact}, moves)
    arrays = inputs(plain, fresh_rng())
    expected = plain.run(backend="sim", **arrays)
    assert np.isfinite(np.asarray(expected, np.float64)).all()
    assert same_bits(moved.run(backend="sim", **arrays), expected), moved.schedule


@pytest.mark.parametrize("stage", ["d1/sync", "d2x2/sync/ring", "d1/cp", "d2/cp/ring"])
def test_threads_past_a_small_tiles_chunks_touch_nothing(stage: str) -> None:
    """A tile of 32 chunks, 128 threads: memory past the tensors' ends is no one's to read."""
    expr = attention(1, 2, 5, 64, 16)
    exact = {"EXP": "ex2", "SUM": "block", "BASE": "max"}
    plain = optimize(expr, "sm_90", {**tiles(1, 1, 2, 16), **exact, "STAGE": "d0"})
    pins = {**tiles(4, 1, 2, 16), **exact, "STAGE": stage}
    arrays = inputs(plain, fresh_rng())
    moved = optimize(expr, "sm_90", pins).run(backend="sim", **arrays)
    assert same_bits(moved, plain.run(backend="sim", **arrays))


def legal(expr: Any, pins: dict[str, str], moves: dict[str, str]) -> Kernel:
    """The kernel with the moves, but for those that a refusal names; the pins hold without them."""
    kept = dict(moves)
    while kept:
        try:
            return optimize(expr, "sm_90", {**pins, **kept})
        except ScheduleError as refusal:
            named = [name for name in kept if f"{name}=" in str(refusal)]
            for name in named or list(kept)[-1:]:
                del kept[name]
    assume(False)
    raise AssertionError("hypothesis goes on with another example")


@pytest.mark.parametrize("stage", ["d2/cp/ring", "d2/tma/ring", "d3/tma/ring"])
@pytest.mark.parametrize("rows_first", [True, False])
def test_matmul_takes_the_same_moves(stage: str, rows_first: bool) -> None:
    """Both operands stream, whichever axis their rows lie along; the bits stay."""
    m, n, k = Axis.many(m=70, n=72, k=328)
    a, b = Tensor("a", (m, k), f16), Tensor("b", (n, k) if rows_first else (k, n), f16)
    expr = (a * b).sum(k)
    pins = {"TILE@k": f"{MMA}/w2x1/f1x9/k2"}
    plain = optimize(expr, "sm_90", {**pins, "STAGE": "d0"})
    moved = optimize(expr, "sm_90", {**pins, "STAGE": stage})
    assert moved.schedule["STAGE@a"] == moved.schedule["STAGE@b"] == stage
    arrays = inputs(plain, fresh_rng())
    expected = plain.run(backend="sim", **arrays)
    assert same_bits(moved.run(backend="sim", **arrays), expected)
    reference = evaluate(expr, decoded(plain, arrays))
    assert np.abs(np.asarray(expected, np.float64) - reference).max() < 0.1


@pytest.mark.parametrize("way", ["shared", "shared/warp", "repack"])
def test_a_tile_that_no_atom_made_is_handed_over(way: str) -> None:
    """A sum in the body that is no contraction is an operand of one all the same."""
    m, n, d, e = Axis.many(m=40, n=72, d=8, e=16)
    q, k = Tensor("q", (m, d), f16), Tensor("k", (n, d), f16)
    v = Tensor("v", (n, e), f16)
    expr = (exp(-abs(q - k)).sum(d) * v).sum(n).cast(f32)
    pins = {"TILE@n": f"{MMA}/w2x1/f1x2/k2", "HANDOFF": way, "STAGE": "d1/cp"}
    kernel = optimize(expr, "sm_90", pins)
    arrays = inputs(kernel, fresh_rng())
    found = np.asarray(kernel.run(backend="sim", **arrays), np.float64)
    given = decoded(kernel, arrays)
    rounding = 2.0**-11 * evaluate((exp(-abs(q - k)).sum(d) * abs(v)).sum(n), given)
    assert (np.abs(found - evaluate(expr, given)) < rounding + 1e-4).all()


def test_a_log_sum_exp_takes_the_skew_and_the_lazy_base() -> None:
    """They belong to the carrier and the tower, not to what is made of them."""
    m, n, d = Axis.many(m=70, n=500, d=32)
    s = (Tensor("q", (m, d), f16) * Tensor("k", (n, d), f16)).sum(d)
    top = s.max(n)
    expr = (top + log(exp(s - top).sum(n))).cast(f32)
    pins = {"STAGE": "d2x2/tma/ring", "SKEW": "on", "BASE": "lazy", "SUM": "lane", "EXP": "fold"}
    kernel = optimize(expr, "sm_90", pins)
    assert kernel.schedule["SKEW"] == "on"
    arrays = inputs(kernel, fresh_rng())
    expected = evaluate(expr, decoded(kernel, arrays))
    found = np.asarray(kernel.run(backend="sim", **arrays), np.float64)
    assert np.abs(found - expected).max() < 1e-4


# ---- every synchronisation is needed -------------------------------------------------------------

SYNCHRONISED = [
    rung
    for rung in RUNGS
    if rung.brackets in ("mma", "wide") and rung.name not in ("mma-global", "four-tiles")
]
FEW_BLOCKS = 2  # of a persistent grid, so that each takes several tiles in turn


def synchronised(rung: Rung) -> Kernel:
    """A rung's kernel, on two row tiles a head; every slot is used three times and a rest."""
    pins = pins_by_rung(32, "f16")[rung.name]
    block = 32 if rung.brackets == "wide" else 64
    heads = 5 if pins.get("GRID") == "persistent" else 2
    full = blocks_for(Staging.parse(pins["STAGE"]))
    return optimize(attention(1, heads, 70, block * full + 20, 32), "sm_90", pins)


@pytest.mark.parametrize("rung", SYNCHRONISED, ids=lambda rung: rung.name)
def test_each_synchronisation_is_needed(rung: Rung) -> None:
    """Whatever is left out, the simulator objects."""
    kernel = synchronised(rung)
    arrays = inputs(kernel, fresh_rng())
    simulate(kernel, kernel.ptx, arrays, seed=0)
    kept = [gone for gone, text in without_each(kernel.ptx) if not objects(kernel, text, arrays)]
    assert not kept, f"nobody missed {kept}"


def objects(kernel: Kernel, ptx: str, arrays: dict[str, Array]) -> bool:
    """Whether the simulator objects, in one of a few orders of warps and copies."""
    for seed in range(3):
        try:
            simulate(kernel, ptx, arrays, seed)
        except SimulationError:
            return True
    return False


def simulate(kernel: Kernel, ptx: str, arrays: dict[str, Array], seed: int) -> None:
    buffers = dict(arrays)
    for spec in kernel.outputs:
        buffers[spec.name] = np.zeros(spec.shape, spec.dtype.storage)
    outputs = [spec.name for spec in kernel.outputs]
    launches = [
        replace(each, grid=(min(each.grid[0], FEW_BLOCKS), 1, 1))
        if kernel.schedule["GRID"] == "persistent"
        else each
        for each in kernel.plan.launches
    ]
    run(
        ptx,
        launches,
        buffers,
        target=kernel.target,
        seed=seed,
        uninitialised=outputs,
        complete=outputs,
    )


@pytest.mark.parametrize("rung", SYNCHRONISED, ids=lambda rung: rung.name)
def test_late_copies_and_lagging_warps_change_nothing(rung: Rung) -> None:
    kernel = synchronised(rung)
    arrays = inputs(kernel, fresh_rng())
    found = []
    for seed in range(4):
        buffers = dict(arrays)
        for spec in kernel.outputs:
            buffers[spec.name] = np.zeros(spec.shape, spec.dtype.storage)
        run(kernel.ptx, kernel.plan.launches, buffers, target=kernel.target, seed=seed)
        found.append(buffers["out"])
    assert all(same_bits(one, other) for one, other in itertools.pairwise(found))


# ---- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::egraph_flash.notices.SpillWarning")  # some rungs are spills
@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_gpu_gives_the_simulators_bits_on_every_rung(rung: Rung) -> None:
    """Lengths that reuse every slot and leave a rest; rows that fill no tile."""
    from egraph_flash.runtime import present_target

    expr = attention(1, 3, 150, 32 * 17 + 20, 64)
    kernel = compiled(expr, pins_by_rung(64, "f16")[rung.name], present_target() or "sm_90")
    if kernel is None:
        pytest.skip("refused here")
    arrays = inputs(kernel, fresh_rng())
    simulated = kernel.run(backend="sim", **arrays)
    assert same_bits(kernel.run(backend="gpu", **arrays), simulated)
