"""Forms of single operators in a kernel: quotients by constants, and tanh."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, exp, f16, f32, optimize, softcap, softmax, tanh, where
from egraph_flash.arithmetic import normal_reciprocal
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError
from egraph_flash.execution import simulation_notice, unpredicted
from egraph_flash.expressions import lift
from egraph_flash.kernel import Kernel
from egraph_flash.knobs import KNOBS
from tests.support.fresh import fresh_rng, wide_f32
from tests.support.scores import operands, random_arrays

(N,) = Axis.many(n=4096)
X = Tensor("x", (N,), f32)


def result_of(expr: Any, x: Array, pins: dict[str, str] | None = None) -> tuple[Kernel, Array]:
    kernel = optimize(expr, "sm_90", pins)
    return kernel, np.asarray(kernel.run(backend="sim", x=x))


# ---- quotients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("divisor", [3.0, -7.0, 0.1, 30.0, 1e-30, 1e30, 12345.678])
def test_a_quotient_by_a_constant_is_a_product(divisor: float) -> None:
    """Off by 1.5 ulp at most, where the quotient is a normal number."""
    x = wide_f32(fresh_rng(), 4096)
    kernel, result = result_of(X / divisor, x)
    assert "div.rn" not in kernel.ptx
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float64) / divisor
        normal = (np.abs(wanted) >= 2.0**-125) & (np.abs(wanted) < 2.0**127)
        ulp = np.spacing(np.abs(wanted[normal]).astype(np.float32)).astype(np.float64)
    assert (np.abs(result[normal] - wanted[normal]) <= 1.5 * ulp).all()
    np.testing.assert_array_equal(np.isnan(result), np.isnan(x))
    endless = np.isinf(x)
    np.testing.assert_array_equal(result[endless], x[endless] * np.sign(np.float32(divisor)))


@pytest.mark.parametrize("divisor", [8.0, -0.5, 2.0**40])
def test_a_quotient_by_a_power_of_two_is_exact(divisor: float) -> None:
    x = wide_f32(fresh_rng(), 4096)
    kernel, result = result_of(X / divisor, x)
    assert "div.rn" not in kernel.ptx
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, x / np.float32(divisor))


@pytest.mark.parametrize("divisor", [0.0, 2.0**127, 2.0**-128])
def test_a_quotient_without_a_normal_reciprocal_stays_one(divisor: float) -> None:
    x = wide_f32(fresh_rng(), 4096)
    kernel, result = result_of(X / divisor, x)
    assert normal_reciprocal(divisor) is None
    assert "div.rn" in kernel.ptx
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, x / np.float32(divisor))


def test_constants_of_an_exponent_are_gathered() -> None:
    """x / 8 * 0.5 takes no instruction beside those of exp."""
    o = operands(f16)
    pins = {"TILE@d": "a:mma_m16n8k16_f16/w4x1/f1x4/k4", "EXP": "ex2"}
    plain, scaled = (
        optimize((exp(s) * o.v).sum(o.n), "sm_120", pins) for s in (o.s, o.s * 0.5 / 7.0)
    )
    assert plain.ptx.count("mul.rn.f32") == scaled.ptx.count("mul.rn.f32") > 0


def test_a_scaled_fold_divides_once_a_row() -> None:
    o = operands(f16)
    pins = {"TILE@d": "a:mma_m16n8k16_f16/w4x1/f1x4/k4", "EXP": "fold"}
    kernel = optimize((softmax(o.s, o.n) * o.v).sum(o.n), "sm_120", pins)
    assert kernel.ptx.count("div.rn.f32") == 2  # a lane holds parts of two rows


def test_a_constant_below_zero_is_compared_with_indices() -> None:
    """On either side: as an operand that only a register can hold, too."""
    x = wide_f32(fresh_rng(), 4096)
    seen = (lift(-11.0) <= N.index - 20) & (N.index - 20 < lift(-2.0))
    _, result = result_of(where(seen, X, 0.0), x)
    places = np.arange(4096) - 20
    np.testing.assert_array_equal(result, np.where((places >= -11) & (places < -2), x, 0))


def test_constants_that_only_integers_hold_are_integers() -> None:
    """2^31 - 1 is no f32: what is chosen between it and 0 is an index still."""
    x = wide_f32(fresh_rng(), 4096)
    far = where(X > 0.0, 2.0**31 - 1.0, 0.0)
    _, result = result_of(where(far // 2 > 7, X, 1.0), x)
    np.testing.assert_array_equal(result, np.where(x > 0, x, 1))


# ---- tanh ----------------------------------------------------------------------------------------


def test_tanh_by_exp_keeps_its_bound_and_its_limits() -> None:
    rng = fresh_rng()
    x = np.concatenate([rng.uniform(-12, 12, 2048), 2 * rng.standard_normal(2048)])
    x[:12] = [0.0, -0.0, np.inf, -np.inf, np.nan, 50.0, -50.0, 3e38, -3e38, 1e-40, 9.1, -9.1]
    kernel, result = result_of(tanh(X), x.astype(np.float32))
    assert dict(kernel.schedule)["TANH"] == "exp"
    assert kernel.unpredicted == ()
    wanted = np.tanh(x.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(wanted))
    assert np.nanmax(np.abs(result - wanted)) <= 2.0**-21
    np.testing.assert_array_equal(result[:4], [0.0, 0.0, 1.0, -1.0])
    np.testing.assert_array_equal(result[5:9], [1.0, -1.0, 1.0, -1.0])
    assert np.nanmax(np.abs(result)) <= 1.0


def test_tanh_never_turns_back_where_it_is_flat() -> None:
    x = np.sort(np.linspace(8.0, 100.0, 4096).astype(np.float32))
    _, above = result_of(tanh(X), x)
    _, below = result_of(tanh(X), -x)
    assert (np.diff(above) >= 0).all()
    assert (np.diff(below) <= 0).all()


def test_tanh_approx_is_pinned_and_flagged() -> None:
    x = fresh_rng().standard_normal(4096).astype(np.float32)
    kernel, result = result_of(tanh(X / 3.0) * 3.0, x, {"TANH": "approx"})
    assert dict(kernel.schedule)["TANH"] == "approx"
    assert kernel.unpredicted == ("tanh.approx.f32",)
    notice = simulation_notice(kernel.record, kernel.plan)
    assert "tanh.approx.f32 give rounded values, not the hardware's bits" in notice
    wanted = 3.0 * np.tanh(x.astype(np.float64) / 3.0)
    assert (np.abs(result - wanted) <= 2.0**-11 * np.abs(wanted)).all()


def test_log_is_flagged_alike() -> None:
    assert unpredicted("lg2.approx.ftz.f32 %f1, %f0;") == ("lg2.approx.ftz.f32",)


def test_the_search_never_takes_tanh_approx() -> None:
    o = operands(f16)
    kernel = optimize((softmax(softcap(o.s, 30.0), o.n) * o.v).sum(o.n), "sm_120")
    assert dict(kernel.schedule)["TANH"] == "exp"
    assert KNOBS["TANH"].fields == {"tanh": "bracket"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel.run(backend="sim", **random_arrays(kernel, fresh_rng()))


def test_tanh_approx_is_refused_where_there_is_no_tanh() -> None:
    o = operands(f16)
    with pytest.raises(ScheduleError, match=r"TANH=approx.*the stage computes a tanh"):
        optimize((softmax(o.s, o.n) * o.v).sum(o.n), "sm_120", {"TANH": "approx"})
