"""Which outputs do not tell which base is kept, and what a lazy base then does to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, exp, f16, f32, log, maximum, optimize, softmax
from egraph_flash.errors import ScheduleError
from egraph_flash.evaluation import evaluate
from egraph_flash.rules import gauge
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

spread = (softmax(s, n) * maximum(v, -v)).sum(n)

# Each output, and what multiplies `spread` in how far the rounding of weights may move it.
BLIND = {
    "output": {output: 1.0},
    "log-sum-exp": {lse: 0.0},
    "both": {output: 1.0, lse: 0.0},
    "scaled output": {output * 3.0 + 1.0: 3.0},
    "kernel mean without a maximum": {(exp(s) * v).sum(n) / exp(s).sum(n): 1.0},
}
TELLING: dict[str, Any] = {
    "denominator": weights.sum(n),
    "numerator": (weights * v).sum(n),
    "maximum": (output, top),
    "quotient of the wrong powers": output / weights.sum(n),
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
    kernel = optimize(TELLING["denominator"].cast(f32), "sm_90")
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


def test_each_gauge_law_has_a_name_of_its_family() -> None:
    assert {law.family for law in gauge.laws()} == {"gauge"}
