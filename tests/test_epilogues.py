"""What follows a fold for each of its elements, in its own kernel; and warps that share a fold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, exp, f16, f32, log, optimize, softmax, sqrt, where
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError, SimulationError
from egraph_flash.expressions import inf
from egraph_flash.kernel import Kernel
from egraph_flash.plan import Launch
from egraph_flash.simulator import run
from tests.support.deletions import without_each
from tests.support.forms import decoded, inputs
from tests.support.fresh import fresh_rng
from tests.support.workloads import WORKLOADS

WARPS = ("w1x2", "w1x4", "w2x2", "w1x16")


def rows(m: int, n: int, dtype: Any = f32) -> tuple[Axis, Axis, Any]:
    """Axes of that many rows and columns, and a matrix."""
    M, N = Axis.many(m=m, n=n)
    return M, N, Tensor("x", (M, N), dtype).expr


def normalised(m: int, n: int, dtype: Any = f32) -> dict[str, Any]:
    """Values that vary along the axis of the folds that they follow from."""
    M, N, x = rows(m, n, dtype)
    centred = x - x.sum(N) / n
    gain = Tensor("gain", (N,), f32)
    masked = where(N.index <= 3 * M.index, x, -inf)
    return {
        "softmax": softmax(x, N),
        "a masked softmax": softmax(masked, N),
        "layer norm": centred / sqrt((centred * centred).sum(N) / n + 1e-5) * gain,
        "RMS norm": x / sqrt((x * x).sum(N) / n + 1e-6) * gain,
        "a log-softmax": x - (x.max(N) + log(exp(x - x.max(N)).sum(N))),
    }


def checked(expr: Any, kernel: Kernel, tolerance: float = 2e-6) -> Array:
    arrays = inputs(kernel, fresh_rng())
    out = np.asarray(kernel.run(backend="sim", **arrays)).astype(np.float64)
    wanted = evaluate(expr, decoded(kernel, arrays))
    assert not np.isnan(wanted).any()
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(out[~finite], wanted[~finite])  # of rows that see nothing
    largest = max(1.0, np.abs(wanted[finite]).max(initial=0.0))
    assert (np.abs(out[finite] - wanted[finite]) <= tolerance * largest).all()
    return out


@pytest.mark.parametrize("n", [2, 50, 512, 1000])
@pytest.mark.parametrize("name", normalised(1, 1))
def test_they_follow_in_the_same_kernel(name: str, n: int) -> None:
    expr = normalised(7, n)[name]
    kernel = optimize(expr, "sm_120", {"EPILOGUE": "inside"})
    assert len(kernel.plan.launches) == 1
    checked(expr, kernel)


@pytest.mark.parametrize("tile", ["n32/w4x1/f1x2", "n32/w1x4/f1x2", "n128/w1x2/f2x1"])
@pytest.mark.parametrize("name", normalised(1, 1))
def test_where_they_follow_moves_no_bit(name: str, tile: str) -> None:
    expr = normalised(5, 300)[name]
    pins = {"TILE": f"a:map_m1{tile}/k1", "REDUCE": "g1"}
    pins |= {} if "norm" in name else {"BASE": "max", "SUM": "block", "EXP": "ex2"}
    inside, apart = (
        optimize(expr, "sm_120", {**pins, "EPILOGUE": where}) for where in ("inside", "apart")
    )
    assert (len(inside.plan.launches), len(apart.plan.launches)) == (1, 2)
    arrays = inputs(inside, fresh_rng())
    one, other = (np.asarray(each.run(backend="sim", **arrays)) for each in (inside, apart))
    np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


def test_a_row_that_one_block_holds_is_read_once() -> None:
    """Its elements stay in registers; in several blocks they are read again."""
    expr = softmax(rows(4, 1024)[2], rows(4, 1024)[1])
    sectors = []
    for atoms in (8, 2):
        kernel = optimize(
            expr, "sm_120", {"TILE": f"a:map_m1n32/w1x4/f1x{atoms}/k1", "EPILOGUE": "inside"}
        )
        checked(expr, kernel)
        assert kernel.counters is not None
        sectors.append(kernel.counters.total.classes["lsu_global"])
    loads = 4 * 1024 // 32
    assert sectors == [2 * loads, 3 * loads]  # with a store for each element


def test_outputs_of_both_kinds_share_the_fold() -> None:
    _, N, x = rows(6, 200)
    both = (softmax(x, N), x.max(N) + log(exp(x - x.max(N)).sum(N)))
    kernel = optimize(both, "sm_120", {"EPILOGUE": "inside"})
    assert len(kernel.plan.launches) == 1
    arrays = inputs(kernel, fresh_rng())
    for out, expr in zip(kernel.run(backend="sim", **arrays), both, strict=True):
        np.testing.assert_allclose(out, evaluate(expr, decoded(kernel, arrays)), atol=2e-6)


@pytest.mark.parametrize("pin", ["inside", "middle"])
def test_where_nothing_follows_the_pin_is_refused(pin: str) -> None:
    _, N, x = rows(6, 200)
    with pytest.raises(ScheduleError, match=r"nearest legal value is apart|wants apart"):
        optimize(x.sum(N), "sm_120", {"EPILOGUE": pin})
    with pytest.raises(ScheduleError, match="chosen for the plan; wants EPILOGUE"):
        optimize(softmax(x, N), "sm_120", {"EPILOGUE@n": "inside"})


# ---- warps along a fold --------------------------------------------------------------------------

FOLDS = (
    *("log_sum_exp", "log_sum_exp_masked", "cross_entropy", "cross_entropy_picked", "entropy"),
    *("collision", "variance", "weighted_spread", "row_softmax", "layer_norm", "best"),
)


@pytest.mark.parametrize("warps", WARPS)
@pytest.mark.parametrize("name", FOLDS)
def test_warps_fold_parts_of_every_carrier(name: str, warps: str) -> None:
    """Lengths that leave some warps without an element, and that no block divides."""
    rng = fresh_rng()
    for n in (3, int(rng.integers(40, 200)), 700):
        expr = WORKLOADS[name](m=5, n=n)
        pins = {"TILE": f"a:map_m1n32/{warps}/f1x1/k1", "REDUCE": "g1"}
        checked(expr, optimize(expr, "sm_120", pins), 5e-6)


def test_warps_fold_parts_of_an_open_axis() -> None:
    (m,) = Axis.many(m=5)
    n = Axis("n", "length", hint=300)
    x = Tensor("x", (m, n), f32).expr
    expr = log(exp(x).sum(n))
    kernel = optimize(expr, "sm_120", {"TILE": "a:map_m1n32/w1x4/f1x2/k1", "REDUCE": "g1"})
    for length in (1, 130, 513):
        arrays = {"x": fresh_rng().standard_normal((5, length)).astype(np.float32)}
        out = np.asarray(kernel.run(backend="sim", **arrays))
        wanted = evaluate(expr, arrays, lengths={"length": length})
        np.testing.assert_allclose(out, wanted, rtol=1e-6, atol=2e-6)


def test_states_are_merged_in_one_order() -> None:
    """Whichever warp comes first, and in whichever order blocks run."""
    _, N, x = rows(9, 500)
    kernel = optimize(
        softmax(x, N), "sm_120", {"TILE": "a:map_m1n32/w1x8/f1x1/k1", "EPILOGUE": "inside"}
    )
    arrays = inputs(kernel, fresh_rng())
    found = {bits(kernel, kernel.ptx, arrays, seed) for seed in range(4)}
    assert len(found) == 1


def bits(kernel: Kernel, text: str, arrays: dict[str, Array], seed: int) -> bytes:
    held = {b.name: np.zeros(b.shape, b.dtype.storage) for b in kernel.plan.buffers}
    launches: tuple[Launch, ...] = kernel.plan.launches
    run(text, launches, held | arrays, target=kernel.target, seed=seed)
    return held["out"].tobytes()


def test_the_barrier_between_them_is_needed() -> None:
    _, N, x = rows(3, 300)
    kernel = optimize(x.max(N), "sm_120", {"TILE": "a:map_m1n32/w1x4/f1x1/k1", "REDUCE": "g1"})
    arrays = inputs(kernel, fresh_rng())
    ((line, without),) = without_each(kernel.ptx)
    assert "bar.sync" in line
    with pytest.raises(SimulationError, match=r"race|nothing wrote"):
        bits(kernel, without, arrays, 0)


@pytest.mark.parametrize("elements", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [f16, f32])
def test_lanes_take_neighbours(elements: int, dtype: Any) -> None:
    """As many as one load can move, where alignment proves it."""
    _, N, x = rows(4, 512, dtype)
    pins = {"TILE": f"a:map_m1n{32 * elements}/w1x1/f1x1/k1", "REDUCE": "g1"}
    total = x.sum(N).cast(f32)
    kernel = optimize(total, "sm_120", pins)
    checked(total, kernel, 1e-5)
    loads = [line.split()[0] for line in kernel.ptx.splitlines() if "ld.global.nc" in line]
    words = min(elements * dtype.size_bytes // 4, 4)
    assert set(loads) == {f"ld.global.nc.v{words}.{'f' if dtype is f32 else 'b'}32"} or words < 2
