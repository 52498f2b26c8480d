"""Which outputs do not tell which base is kept, and what a lazy base then does to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, exp, f16, f32, log, maximum, optimize, softmax, where
from egraph_flash.errors import ScheduleError
from egraph_flash.evaluation import evaluate
from egraph_flash.gauge import at_base, equal
from egraph_flash.terms import make, rewrite
from tests.support.forms import decoded, inputs
from tests.support.fresh import fresh_rng

h, m, n, d, e = Axis.many(h=2, m=70, n=300, d=32, e=32)
q, k = Tensor("q", (h, m, d), f16), Tensor("k", (h, n, d), f16)
v = Tensor("v", (h, n, e), f16)
s = (q * k).sum(d) * 0.5
top = s.max(n)
weights = exp(s - top)
output = (softmax(s, n) * v).sum(n)
lse = top + log(weights.sum(n))
bias = Tensor("bias", (h, m), f32)

spread = (softmax(s, n) * maximum(v, -v)).sum(n)

# Each output, and what multiplies `spread` in how far the rounding of weights may move it.
BLIND = {
    "output": {output: 1.0},
    "log-sum-exp": {lse: 0.0},
    "both": {output: 1.0, lse: 0.0},
    "scaled output": {output * 3.0 + 1.0: 3.0},
    "kernel mean without a maximum": {(exp(s) * v).sum(n) / exp(s).sum(n): 1.0},
    "commuted log-sum-exp": {log(weights.sum(n)) + top: 0.0},
    "log-sum-exp less a target": {log(weights.sum(n)) - (bias - top): 0.0},
    "one more element": {(weights * v).sum(n) / (weights.sum(n) + exp(bias - top)): 1.0},
}
TELLING: dict[str, Any] = {
    "denominator": weights.sum(n),
    "numerator": (weights * v).sum(n),
    "maximum": (output, top),
    "quotient of the wrong powers": output / weights.sum(n),
    "a case by the maximum": where(top < 50.0, output, 0.0),
}


@pytest.mark.parametrize("name", BLIND)
def test_outputs_that_do_not_tell_take_any_base(name: str) -> None:
    """The kernel keeps a base that is not the maximum, and the outputs are right all the same.

    A weight rounded to f16 moves an output by half a unit in its last place; the rest is f32.
    """
    kernel = optimize(tuple(each.cast(f32) for each in BLIND[name]), "sm_90", {"BASE": "lazy"})
    assert kernel.schedule["BASE"] == "lazy"
    arrays = inputs(kernel, fresh_rng())
    results: Any = kernel.run(backend="sim", **arrays)
    results = results if isinstance(results, tuple) else (results,)
    given = decoded(kernel, arrays)
    for (expr, scale), found in zip(BLIND[name].items(), results, strict=True):
        expected = evaluate(expr, given)
        assert np.isfinite(expected).all()
        half_a_unit = 2.0**-11 * scale * evaluate(spread, given) if scale else 0.0
        assert (np.abs(found - expected) < half_a_unit + 1e-4).all()


@pytest.mark.parametrize("name", TELLING)
def test_outputs_that_tell_are_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match=r"depends on which base is kept.*value is vote"):
        optimize(TELLING[name], "sm_90", {"BASE": "lazy"})
    kernel = optimize(TELLING[name], "sm_90", {"BASE": "vote"})
    assert kernel.schedule["BASE"] == "vote"


def test_unpinned_they_keep_the_maximum() -> None:
    kernel = optimize(TELLING["denominator"].cast(f32), "sm_90", {"EPILOGUE": "apart"})
    assert kernel.schedule.get("BASE") in ("max", "vote")
    arrays = inputs(kernel, fresh_rng())
    found = np.asarray(kernel.run(backend="sim", **arrays), np.float64)
    expected = evaluate(TELLING["denominator"], decoded(kernel, arrays))
    assert np.abs(found / expected - 1).max() < 1e-5


def test_scores_that_keep_growing_move_the_base_again_and_again() -> None:
    """Each block exceeds the one before by more than the slack: every one moves the base."""
    kernel = optimize(output.cast(f32), "sm_90", {"BASE": "lazy"})
    arrays = {name: np.asarray(a) for name, a in inputs(kernel, fresh_rng()).items()}
    arrays["q"] = np.full_like(arrays["q"], 1.0)
    rise = np.linspace(0.0, 4.0, n.size)[None, :, None]
    arrays["k"] = np.ascontiguousarray(
        np.broadcast_to(rise, arrays["k"].shape).astype(arrays["k"].dtype)
    )
    found = np.asarray(kernel.run(backend="sim", **arrays), np.float64)
    expected = evaluate(output, decoded(kernel, arrays))
    assert (
        np.abs(found - expected) < 2.0**-11 * evaluate(spread, decoded(kernel, arrays)) + 1e-4
    ).all()


# ---- what the laws prove of the scalars of one place ---------------------------------------------

_peak = make("Ch", make("Max"), s)
_ones, _values = (make("Tw", make("Rep", "Scale"), (_peak,), each.expr) for each in (1 + 0 * s, v))
b, x, z, y, g, c = (Tensor(name, (), f32).expr for name in "bxzygc")
STATE = {_peak: b, _ones: z, _values: x}

PROVEN = {
    "quotient": x / z,
    "times a reciprocal": 1 / z * x,
    "a reciprocal last": x * (1 / z),
    "affine": x / z * 3.0 + 1.0,
    "gated": y * x / z,
    "scaled denominator": x / (2.0 * z),
    "log-sum-exp": b + log(z),
    "commuted": log(z) + b,
    "below it": y - (b + log(z)),
    "term by term": y - b - log(z),
    "the other way": log(z) - (y - b),
    "among others": y + b + log(z),
    "one more element": x / (exp(y - b) + z),
    "moved on": exp(b - maximum(b, y)) * x / (exp(b - maximum(b, y)) * z),
    "cases by something else": where(y < 1.0, x / z, b + log(z)),
}
UNPROVEN = {
    "base": b,
    "numerator": x,
    "denominator": z,
    "case by the base": where(b < 1.0, y, x / z),
    "case by the denominator": where(z < 1.0, 1.0, 2.0),
    "wrong power": x / z / z,
    "unnormalised": x * exp(-b),
    "half of it": x / z + exp(y - b),
    "difference": b - log(z),
    "twice the base": 2.0 * b + log(z),
    "epsilon": x / (z + 0.1),
}


def proves(expr: Any) -> bool:
    moved = at_base(STATE, _peak, c)
    return equal(expr, rewrite(expr, {STATE[each]: value for each, value in moved.items()}))


@pytest.mark.parametrize("name", PROVEN)
def test_laws_prove_that_the_base_cancels(name: str) -> None:
    assert proves(PROVEN[name])


@pytest.mark.parametrize("name", UNPROVEN)
def test_laws_prove_nothing_that_is_false(name: str) -> None:
    """Each of these does depend on the base, as some numbers show."""
    assert not proves(UNPROVEN[name])
    at = {"b": 0.5, "x": 2.0, "z": 2.0, "y": 0.5}
    weight = np.exp(at["b"] - 2.0)
    moved = {"b": 2.0, "x": 2.0 * weight, "z": 2.0 * weight, "y": 0.5}
    one, two = (
        float(evaluate(UNPROVEN[name], {key: np.asarray(value) for key, value in each.items()}))
        for each in (at, moved)
    )
    assert abs(one - two) > 0.01
