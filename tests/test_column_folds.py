"""Folds over the columns of accumulators, in the kernel that makes these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import (
    Axis,
    Monoid,
    Tensor,
    argmax,
    bf16,
    evaluate,
    exp,
    f16,
    f32,
    i32,
    inf,
    log,
    minimum,
    optimize,
    register,
    runtime,
    softmax,
    where,
)
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError, SimulationError
from egraph_flash.kernel import Kernel
from egraph_flash.simulator import run
from tests.support.deletions import without_each
from tests.support.fresh import fresh_rng

M, N, D = 50, 300, 80  # which no tile divides
INSIDE = {"EPILOGUE": "inside", "PLACE": "fold=fuse"}


def scores(m: int, n: int, d: int, dtype: Any = f16) -> tuple[Axis, Axis, Any]:
    """Axes of rows and columns, and a product of so many rows, columns and terms."""
    rows, columns, depth = Axis.many(m=m, n=n, d=d)
    hidden = Tensor("hidden", (rows, depth), dtype)
    weight = Tensor("weight", (columns, depth), dtype)
    return rows, columns, (hidden * weight).sum(depth)


def folded(m: int, n: int, d: int, dtype: Any = f16) -> dict[str, Any]:
    """Values of the rows of a product."""
    rows, columns, s = scores(m, n, d, dtype)
    label, bias = Tensor("label", (rows,), i32), Tensor("bias", (columns,), f32)
    most = s.max(columns)
    lse = most + log(exp(s - most).sum(columns))
    p = softmax(s, columns)
    seen = where(columns.index <= 7 * rows.index - 20, s, -inf)
    found = {
        "log-sum-exp": lse,
        "cross-entropy": lse - where(label[rows] == columns.index, s, 0.0).sum(columns),
        "maximum": s.max(columns),
        "index of the maximum": argmax(s, columns),
        "scaled maximum": (s * 0.125).max(columns),
        "sum of squares": (s * s).sum(columns),
        "entropy": -(p * log(p)).sum(columns),
        "biased log-sum-exp": log(exp(s + bias[columns]).sum(columns)),
        "masked log-sum-exp": seen.max(columns) + log(exp(seen - seen.max(columns)).sum(columns)),
    }
    return {name: expr.cast(f32) for name, expr in found.items()}


def inputs(kernel: Kernel, rng: np.random.Generator, labels: int = N) -> dict[str, Array]:
    """Fresh normals, and labels of columns."""
    return {
        spec.name: rng.integers(0, labels, spec.shape).astype(np.int32)
        if spec.dtype.is_integer
        else spec.dtype.encode(0.5 * rng.standard_normal(spec.shape))
        for spec in kernel.inputs
    }


def checked(expr: Any, kernel: Kernel, tolerance: float = 1e-5) -> Array:
    arrays = inputs(kernel, fresh_rng())
    out = np.asarray(kernel.run(backend="sim", **arrays)).astype(np.float64)
    decoded = {
        spec.name: arrays[spec.name]
        if spec.dtype.is_integer
        else spec.dtype.decode(arrays[spec.name])
        for spec in kernel.inputs
    }
    wanted = evaluate(expr, decoded)
    assert not np.isnan(wanted).any()
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(out[~finite], wanted[~finite])  # of rows that see nothing
    largest = np.maximum(1.0, np.abs(wanted[finite]).max())
    assert np.abs(out[finite] - wanted[finite]).max() <= tolerance * largest
    return out


def in_columns(kernel: Kernel) -> bool:
    return "in the accumulators" in kernel.record.tile


def tile(text: str, dtype: Any = f16) -> str:
    return f"a:mma_m16n8k16_{dtype}/{text}"


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("name", folded(M, N, D))
def test_rows_of_a_product_are_folded_where_it_is_made(name: str, dtype: Any) -> None:
    expr = folded(M, N, D, dtype)[name]
    pins = {"REDUCE": "s128", **INSIDE, "TILE@d": tile("w2x2/f1x8/k2", dtype)}
    kernel = optimize(expr, "sm_90", pins)
    assert in_columns(kernel)
    assert kernel.schedule["EPILOGUE"] == "inside"
    checked(expr, kernel)


GEOMETRIES = {
    128: ("w1x1/f1x16/k1", "w4x1/f1x16/k2", "w1x4/f2x4/k2", "w2x4/f4x4/k2", "w2x2/f2x8/k4"),
    100: ("w1x4/f1x8/k2", "w4x2/f1x13/k2", "w8x1/f2x13/k2"),
    17: ("w2x1/f2x3/k2", "w1x4/f1x2/k1", "w1x8/f1x1/k1"),
}


@pytest.mark.parametrize("geometry", [(n, text) for n in GEOMETRIES for text in GEOMETRIES[n]])
@pytest.mark.parametrize("name", ["cross-entropy", "entropy", "masked log-sum-exp"])
def test_tiles_of_any_shape_hold_a_part(name: str, geometry: tuple[int, str]) -> None:
    """Whole parts, parts that end inside of a tile, and warps that have no column."""
    part, text = geometry
    expr = folded(M, N, D)[name]
    pins = {"REDUCE": f"s{part}", **INSIDE, "TILE@d": tile(text)}
    kernel = optimize(expr, "sm_90", pins)
    assert in_columns(kernel)
    checked(expr, kernel)


@pytest.mark.parametrize("geometry", ["w2x4/f1x32/k8", "w4x2/f2x64/k8", "w8x1/f1x128/k8"])
@pytest.mark.parametrize("name", folded(M, N, D))
def test_accumulators_of_any_atom_are_folded(name: str, geometry: str) -> None:
    expr = folded(M, N, D, f32)[name]
    pins = {**INSIDE, "REDUCE": "s128", "TILE@d": f"a:fma_f32/{geometry}"}
    kernel = optimize(expr, "sm_90", pins)
    assert in_columns(kernel)
    checked(expr, kernel, 2e-5)


@pytest.mark.parametrize("last", ["", "/last"])
@pytest.mark.parametrize("name", ["cross-entropy", "index of the maximum", "entropy"])
def test_parts_are_taken_up_in_either_launch(name: str, last: str) -> None:
    expr = folded(M, N, D)[name]
    pins = {**INSIDE, "REDUCE@n": f"s128{last}", "TILE@d": tile("w4x1/f1x16/k2")}
    kernel = optimize(expr, "sm_90", pins)
    assert in_columns(kernel)
    assert len(kernel.plan.launches) == (1 if last else 2)
    checked(expr, kernel)


@pytest.mark.parametrize("n", [1, 10, 100, 512])
def test_columns_that_a_block_holds_are_no_parts(n: int) -> None:
    """One launch, and nothing of the product is stored."""
    for name in ("index of the maximum", "entropy", "biased log-sum-exp"):
        expr = folded(M, n, D)[name]
        kernel = optimize(expr, "sm_90", {**INSIDE, "REDUCE": "g1"})
        assert in_columns(kernel)
        assert len(kernel.plan.launches) == 1
        checked(expr, kernel)


def test_batches_and_open_rows() -> None:
    """Rows that a call counts, columns of each batch, and operands that are computed."""
    b, n, d = Axis.many(b=3, n=200, d=64)
    m = Axis("m", "rows", hint=70)
    left, right = Tensor("left", (b, m, d), f16), Tensor("right", (b, n, d), f16)
    scale = Tensor("scale", (d,), f16)
    expr = log(exp((left * scale * right).sum(d)).sum(n)).cast(f32)
    pins = {**INSIDE, "REDUCE": "s128", "TILE@d": tile("w2x2/f1x8/k2")}
    kernel = optimize(expr, "sm_90", pins)
    assert in_columns(kernel)
    for rows in (1, 33, 130):
        rng = fresh_rng()
        shapes = {"left": (3, rows, 64), "right": (3, 200, 64), "scale": (64,)}
        arrays = {k: (0.3 * rng.standard_normal(v)).astype(np.float16) for k, v in shapes.items()}
        out = np.asarray(kernel.run(backend="sim", **arrays))
        wanted = evaluate(expr, arrays, lengths={"rows": rows})
        assert np.abs(out - wanted).max() < 2e-3  # a product of operands is rounded to 16 bits


@pytest.mark.parametrize("part", ["g1", "s64"])
def test_lengths_that_data_gives(part: str) -> None:
    """Past them memory may hold anything."""
    b, m, n, d = Axis.many(b=5, m=20, n=200, d=64)
    length = Tensor("length", (b,), i32)
    left, right = Tensor("left", (b, m, d), f16), Tensor("right", (b, n, d), f16)
    s = where(n.index < length[b], (left * right).sum(d), -inf)
    expr = (s.max(n) + log(exp(s - s.max(n)).sum(n))).cast(f32)
    kernel = optimize(expr, "sm_90", {**INSIDE, "REDUCE": part})
    assert in_columns(kernel)
    rng = fresh_rng()
    shapes = {"left": (5, 20, 64), "right": (5, 200, 64)}
    arrays = {k: (0.3 * rng.standard_normal(v)).astype(np.float16) for k, v in shapes.items()}
    arrays["length"] = np.array([0, 1, 64, 65, 200], np.int32)
    wanted = evaluate(expr, arrays)
    for batch, count in enumerate(arrays["length"]):
        arrays["right"][batch, count:] = np.nan
    out = np.asarray(kernel.run(backend="sim", **arrays))
    np.testing.assert_array_equal(out[:1], -np.inf)
    np.testing.assert_allclose(out[1:], wanted[1:], atol=1e-5)


def test_a_monoid_of_ones_own_folds_columns() -> None:
    with register(Monoid("Least", "least", minimum, identity=inf)):
        _, columns, s = scores(M, N, D)
        expr = s.fold("Least", columns).cast(f32)
        pins = {**INSIDE, "REDUCE": "s128", "TILE@d": tile("w2x4/f1x4/k2")}
        kernel = optimize(expr, "sm_90", pins)
        assert in_columns(kernel)
        checked(expr, kernel)


# ---- bits ----------------------------------------------------------------------------------------

MOVES = {
    "w2x2/f2x8": ({"STAGE": "d0"}, {"STAGE": "d0", "GRID": "persistent"}),
    "w4x2/f1x8": ({"STAGE": "d2x2/tma/ring", "SLAB": "xor", "ROLES": "rotate", "DRAIN": "x4"},),
    "w1x2/f4x8": ({"STAGE": "d3/cp/ring", "SLAB": "pad16"}, {"STAGE": "d1/sync", "DRAIN": "x2"}),
    "w4x2/f2x8": (
        {"STAGE": "d2/tma/ring", "ROLES": "producer", "GRID": "persistent"},
        {"STAGE": "d2x2/cp/ring", "CACHE": "last"},
    ),
}


@pytest.mark.parametrize("name", ["cross-entropy", "entropy"])
def test_movement_moves_no_bit(name: str) -> None:
    expr = folded(150, N, 200)[name]
    common = {**INSIDE, "REDUCE": "s128", "EXP": "ex2"}
    found, arrays = set(), None
    for text, moves in MOVES.items():
        for move in moves:
            kernel = optimize(expr, "sm_90", {**common, "TILE@d": tile(f"{text}/k2"), **move})
            arrays = arrays or inputs(kernel, fresh_rng())
            found.add(np.asarray(kernel.run(backend="sim", **arrays)).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", folded(M, N, D))
def test_where_columns_are_folded_moves_no_bit(name: str) -> None:
    """In the same brackets: a block of the fold is a part, and one warp has all of it."""
    expr = folded(M, N, D)[name]
    exact = {"PLACE": "fold=fuse", "REDUCE": "s128", "EXP": "ex2", "SUM": "block", "BASE": "max"}
    one, other = (
        optimize(expr, "sm_90", {**exact, "TILE@d": tile(f"w2x1/f1x16/k{k}"), "EPILOGUE": way})
        for k, way in ((2, "inside"), (2, "apart"))
    )
    assert (in_columns(one), in_columns(other)) == (True, False)
    arrays = inputs(one, fresh_rng())
    bits = {np.asarray(each.run(backend="sim", **arrays)).tobytes() for each in (one, other)}
    assert len(bits) == 1


@pytest.mark.parametrize("move", [{"STAGE": "d2/tma/ring"}, {"STAGE": "d2/cp/ring"}])
def test_each_synchronisation_is_needed(move: dict[str, str]) -> None:
    expr = folded(20, 64, 160)["cross-entropy"]
    pins = {**INSIDE, "REDUCE": "g1", "TILE@d": tile("w1x4/f1x2/k1"), **move}
    kernel = optimize(expr, "sm_90", pins)
    assert in_columns(kernel)
    arrays = inputs(kernel, fresh_rng(), 64)
    held = {b.name: np.zeros(b.shape, b.dtype.storage) for b in kernel.plan.buffers}
    run(kernel.ptx, kernel.plan.launches, held | arrays, target="sm_90")
    for line, text in without_each(kernel.ptx):
        objects = False
        for seed in range(3):
            try:
                run(text, kernel.plan.launches, held | arrays, target="sm_90", seed=seed)
            except SimulationError:
                objects = True
        assert objects, f"nothing is amiss without {line}"


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::egraph_flash.notices.SpillWarning")  # slower, no other bits
@pytest.mark.parametrize("geometry", ["w2x4/f4x8/k2", "w4x2/f2x16/k2", "w4x1/f1x32/k2"])
@pytest.mark.parametrize("name", ["cross-entropy", "entropy", "index of the maximum"])
def test_a_gpu_has_the_same_bits(name: str, geometry: str) -> None:
    target = runtime.present_target()
    assert target is not None
    pins = {**INSIDE, "REDUCE": "s256", "TILE@d": tile(geometry)}
    kernel = optimize(folded(300, 1000, 512)[name], target, pins)
    arrays = inputs(kernel, fresh_rng(), 1000)
    wanted, out = (np.asarray(kernel.run(backend=on, **arrays)) for on in ("sim", "gpu"))
    if "lg2.approx" in kernel.ptx:  # of which the simulator knows no bits
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(out.view(np.uint32), wanted.view(np.uint32))


# ---- plans ---------------------------------------------------------------------------------------


def test_a_long_fold_of_products_is_cut_into_columns_unasked() -> None:
    expr = folded(8192, 1 << 17, 512)["cross-entropy"]
    kernel = optimize(expr, "sm_90")
    apart = optimize(expr, "sm_90", {"EPILOGUE": "apart"})
    assert kernel.schedule["EPILOGUE"] == "inside"
    assert kernel.schedule["REDUCE@n"] in ("s128", "s256")
    assert kernel.cost.total_us < 0.8 * apart.cost.total_us
    again = optimize(expr, "sm_90", dict(kernel.schedule))
    assert again.schedule == kernel.schedule
    assert again.ptx == kernel.ptx


@pytest.mark.parametrize("n", [1 << 14, 50257])
@pytest.mark.parametrize("name", ["cross-entropy", "entropy"])
def test_accumulators_stay_in_registers(name: str, n: int) -> None:
    pins = {**INSIDE, "REDUCE": "s256", "TILE@d": tile("w2x4/f4x8/k2"), "EXP": "fold"}
    kernel = optimize(folded(4096, n, 512)[name], "sm_90", pins)
    assert [entry.spill_bytes for entry in kernel.assembly.entries] == [0, 0]


@pytest.mark.parametrize(
    ("pins", "why"),
    [
        ({"EPILOGUE": "inside", "REDUCE": "g1"}, "changes nothing here.*nearest legal value is ap"),
        ({"EPILOGUE": "inside", "REDUCE": "s1024"}, "nearest legal value is apart"),
        ({**INSIDE, "REDUCE": "s256", "TILE@d": tile("w2x2/f1x8/k2")}, "128 columns, fewer than "),
    ],
)
def test_what_no_block_holds_is_refused(pins: dict[str, str], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        optimize(folded(M, 2000, D)["cross-entropy"], "sm_90", pins)


def test_columns_that_a_call_counts_are_refused() -> None:
    m, d, n = Axis("m", M), Axis("d", D), Axis("n", "columns", hint=4096)
    s = (Tensor("hidden", (m, d), f16) * Tensor("weight", (n, d), f16)).sum(d)
    with pytest.raises(ScheduleError, match="such parts; the nearest legal value is apart"):
        optimize(s.max(n), "sm_90", {**INSIDE, "REDUCE@n": "g4"})
