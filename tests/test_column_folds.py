"""Folds over the columns of accumulators, in the kernel that makes these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import (
    Axis,
    Tensor,
    bf16,
    evaluate,
    exp,
    f16,
    f32,
    i32,
    inf,
    log,
    optimize,
    softmax,
    where,
)
from egraph_flash.dtypes import Array
from egraph_flash.kernel import Kernel
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
