"""Expressions of every kind through the whole pipeline, run by the simulator, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import evaluate, f32, optimize
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError
from egraph_flash.kernel import Kernel
from tests.support.fresh import fresh_rng
from tests.support.workloads import WORKLOADS

# Larger than the defaults, so that tiles are full, half full and more than one.
LARGER: dict[str, dict[str, int]] = {
    "attention": {"m": 70, "n": 150, "d": 32, "e": 48},
    "attention_causal": {"m": 70, "n": 150, "d": 32, "e": 48},
    "attention_grouped": {"m": 33, "n": 90, "d": 32, "e": 32},
    "kernel_regression": {"m": 70, "n": 150, "d": 32, "e": 48},
    "sink": {"m": 70, "n": 150, "d": 32, "e": 48},
    "variance": {"m": 37, "n": 300},
    "log_sum_exp": {"m": 37, "n": 300},
}
CASES: list[tuple[str, dict[str, int]]] = [(name, {}) for name in WORKLOADS] + list(LARGER.items())


def arrays_for(kernel: Kernel, rng: np.random.Generator) -> dict[str, Array]:
    return {
        spec.name: rng.integers(0, 3, spec.shape).astype(spec.dtype.storage)
        if spec.dtype.is_integer
        else spec.dtype.encode(rng.standard_normal(spec.shape))
        for spec in kernel.inputs
    }


def tolerance(kernel: Kernel, reference: Array) -> float:
    """f32 arithmetic, and one f16 rounding for each contraction whose atom rounds its operands."""
    roundings = sum("mma" in value for value in kernel.schedule.values())
    return 2 * max(roundings * 2.0**-11, 2.0**-20) * max(1.0, float(np.abs(reference).max()))


@pytest.mark.parametrize(("name", "extents"), CASES, ids=lambda value: str(value))
def test_workloads_are_right(name: str, extents: dict[str, int]) -> None:
    expr = WORKLOADS[name](**extents)
    outputs = expr if isinstance(expr, tuple) else (expr,)
    given = tuple(output.cast(f32) for output in outputs)
    kernel = optimize(given if len(given) > 1 else given[0], "sm_120", name=name)
    arrays = arrays_for(kernel, fresh_rng())
    results: Any = kernel.run(backend="sim", **arrays)
    results = results if isinstance(results, tuple) else (results,)
    reals = {spec.name: spec.dtype.decode(arrays[spec.name]) for spec in kernel.inputs}
    for result, reference in zip(results, evaluate(outputs, reals), strict=True):
        assert not np.isnan(reference).any()
        finite = np.isfinite(reference)
        np.testing.assert_array_equal(result[~finite], reference[~finite])
        worst = np.abs(result[finite] - reference[finite]).max(initial=0.0)
        assert worst <= tolerance(kernel, reference[finite])


@pytest.mark.parametrize("form", ["block", "lane"])
@pytest.mark.parametrize("name", ["log_sum_exp", "collision"])
def test_sums_that_a_base_moves_by_a_factor_may_stay_in_lanes(name: str, form: str) -> None:
    expr = WORKLOADS[name](m=5, n=300)
    kernel = optimize(expr, "sm_90", {"SUM": form})
    arrays = arrays_for(kernel, fresh_rng())
    wanted = evaluate(expr, arrays)
    assert not np.isnan(wanted).any()
    assert np.abs(kernel.run(backend="sim", **arrays) - wanted).max() < tolerance(kernel, wanted)


@pytest.mark.parametrize("shift", [0.0, 30.0])
@pytest.mark.parametrize("pins", [{}, {"REDUCE": "s64", "PLACE": "fold=fuse"}], ids=str)
@pytest.mark.parametrize("name", ["layer_norm_matmul", "layer_norm_gain"])
def test_a_layer_norm_and_its_product_are_one_pass(
    name: str, pins: dict[str, str], shift: float
) -> None:
    """On tensor cores: the product is kept about the mean so far, and moves with it by a multiple
    of sums that columns have and rows have not. A shift of the rows moves nothing."""
    kernel = optimize(WORKLOADS[name](m=70, n=150, e=48).cast(f32), "sm_120", pins)
    assert kernel.passes == 1
    assert kernel.derivation.steps[-1].unsafe == 0
    assert "Center" in str(kernel.derivation)
    assert kernel.schedule["TILE@n"].startswith("a:mma_m16n8k16_f16")
    arrays = arrays_for(kernel, fresh_rng())
    arrays["x"] = (np.round(64 * arrays["x"]) / 64 + shift).astype(np.float16)
    reference = evaluate(WORKLOADS[name](m=70, n=150, e=48), arrays)
    assert not np.isnan(reference).any()
    result = kernel.run(backend="sim", **arrays)
    assert np.abs(result - reference).max() <= tolerance(kernel, reference)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_a_covariance_is_one_pass_that_nothing_cancels_in(shift: float) -> None:
    kernel = optimize(WORKLOADS["covariance"](m=7, n=500), "sm_120")
    assert kernel.passes == len(kernel.plan.launches) == 1
    assert kernel.derivation.steps[-1].unsafe == 0
    arrays = {
        spec.name: np.round(8 * fresh_rng().standard_normal(spec.shape)).astype(np.float32)
        for spec in kernel.inputs
    }
    arrays["z"] = np.roll(arrays["z"], 1, axis=1)
    wanted = evaluate(WORKLOADS["covariance"](m=7, n=500), arrays)
    moved = {name: array + np.float32(shift) for name, array in arrays.items()}
    assert np.abs(kernel.run(backend="sim", **moved) - wanted).max() < 1e-2


@pytest.mark.parametrize("shift", [0.0, 100.0, -100.0])
@pytest.mark.parametrize("name", ["weighted_variance", "softmax_variance"])
def test_moments_of_weights_take_one_pass_that_nothing_cancels_in(name: str, shift: float) -> None:
    """Kept relative to the maximum of the scores and to the mean of the values: shifts of both,
    and a shared fold, move nothing."""
    expr = WORKLOADS[name](m=7, n=500)
    scores = "w" if name == "weighted_variance" else "scores"
    for pins in ({}, {"REDUCE": "s128"}):
        kernel = optimize(expr, "sm_90", pins)
        assert kernel.passes == 1
        assert kernel.derivation.steps[-1].unsafe == 0
        arrays = {
            spec.name: np.round(16 * fresh_rng().standard_normal(spec.shape)).astype(np.float32)
            for spec in kernel.inputs
        }
        wanted = evaluate(expr, arrays)
        arrays["x"] += np.float32(shift)
        arrays[scores] += np.float32(shift)
        error = np.abs(kernel.run(backend="sim", **arrays) - wanted)
        assert (error <= variance_bound(arrays["x"], arrays[scores])).all()


def variance_bound(x: Array, scores: Array) -> Array:
    """By how much variances in f32 may be off, of values [m, n] under weights exp(scores).

    A score and the maximum it is kept relative to are each rounded as exponents of 2, and a weight
    is off by as much; means are rounded, where they are updated and where they are compared, and a
    variance is off by that relative to its condition, rms / deviation (Chan, Golub & LeVeque 1983).
    """
    weights = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    weights = np.broadcast_to(weights / weights.sum(axis=-1, keepdims=True), x.shape)
    square = (weights * np.square(x, dtype=np.float64)).sum(axis=-1)
    mean = (weights * x).sum(axis=-1, keepdims=True)
    variance = (weights * (x - mean) ** 2).sum(axis=-1)
    exponent = np.log2(np.e) * np.abs(scores).max(axis=-1)
    return np.asarray(2.0**-24 * (2 * exponent * variance + 4 * np.sqrt(variance * square)))


@pytest.mark.parametrize("name", ["variance", "weighted_spread", "layer_norm", "entropy"])
def test_what_an_action_adds_is_not_added_in_each_lane(name: str) -> None:
    with pytest.raises(ScheduleError, match="SUM=lane: it changes nothing here"):
        optimize(WORKLOADS[name](m=5, n=300), "sm_90", {"SUM": "lane"})


@pytest.mark.parametrize("shift", [0.0, 100.0, -100.0])
def test_entropy_takes_one_pass_that_nothing_cancels_in(shift: float) -> None:
    """Its channel is kept relative to the maximum, so that a shift of all scores moves nothing."""
    expr = WORKLOADS["entropy"](m=7, n=500)
    kernel = optimize(expr, "sm_90")
    assert kernel.passes == len(kernel.plan.launches) == 1
    assert kernel.derivation.steps[-1].unsafe == 0
    x = np.round(16 * 3 * fresh_rng().standard_normal((7, 500))).astype(np.float32) / 16
    x[0], x[1, 1:] = 0.0, -60.0  # all alike, and one that is all of it
    wanted = evaluate(expr, {"x": x})
    assert not np.isnan(wanted).any()
    out = kernel.run(backend="sim", x=x + np.float32(shift))
    assert np.abs(out - wanted).max() < 1e-5 * max(abs(shift), 1.0)


def test_kernel_regression_is_one_safe_pass_on_tensor_cores() -> None:
    """Nobody named it; its squared norms, which no matrix product computes, ride along."""
    expr = WORKLOADS["kernel_regression"](m=256, n=512, d=64, e=64)
    kernel = optimize(expr, "sm_120")
    assert kernel.passes == len(kernel.plan.launches) == 1
    assert kernel.derivation.steps[-1].unsafe == 0
    assert kernel.schedule["TILE@d"].startswith("a:mma_m16n8k16_f16")
    assert kernel.schedule["TILE@n"].startswith("a:mma_m16n8k16_f16")
    arrays = {
        spec.name: (0.3 * fresh_rng().standard_normal(spec.shape)).astype(np.float16)
        for spec in kernel.inputs
    }
    reals = {name: array.astype(np.float64) for name, array in arrays.items()}
    result = kernel.run(backend="sim", **arrays)
    assert np.abs(result - evaluate(expr, reals)).max() < 1e-3


GATED = ("gated", "gated_output", "gated_scores")
WITHOUT_EXPONENTIALS = ("linear", "linear_features", "best_rows")


@pytest.mark.parametrize("name", [*GATED, *WITHOUT_EXPONENTIALS])
def test_one_pass_on_tensor_cores(name: str) -> None:
    """Gates on weights and results, and weights that are no exponentials: nothing is special."""
    expr = WORKLOADS[name](m=70, n=150, d=32, e=48)
    kernel = optimize(expr.cast(f32), "sm_120", name=name)
    assert kernel.passes == len(kernel.plan.launches) == 1
    for axis in "dn":
        assert kernel.schedule[f"TILE@{axis}"].startswith("a:mma_m16n8k16_f16")
    arrays = arrays_for(kernel, fresh_rng())
    reference = evaluate(expr, {spec.name: arrays[spec.name] for spec in kernel.inputs})
    assert not np.isnan(reference).any()
    result = kernel.run(backend="sim", **arrays)
    assert np.abs(result - reference).max() <= tolerance(kernel, reference)
