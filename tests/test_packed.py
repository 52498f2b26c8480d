"""Operands that are products of two 16-bit loads, multiplied as they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, bf16, evaluate, f16, f32, optimize
from egraph_flash.dtypes import Array
from tests.support.forms import decoded, inputs
from tests.support.fresh import fresh_rng


def scaled_product(m: int, n: int, e: int, dtype: Any, *, by: str) -> Any:
    """Σ (x g) w, with a factor for each element, or for some of the axes."""
    M, N, E = Axis.many(m=m, n=n, e=e)
    g = Tensor("g", {"depth": (N,), "element": (M, N), "row": (M,)}[by], dtype)
    return (Tensor("x", (M, N), dtype) * g * Tensor("w", (N, E), dtype)).sum(N)


@pytest.mark.parametrize("n", [128, 130])
@pytest.mark.parametrize("by", ["depth", "element"])
@pytest.mark.parametrize(("dtype", "kind"), [(f16, "f16"), (bf16, "bf16")])
@pytest.mark.parametrize("stage", ["d0", "d2/cp/ring", "d2/tma/ring"])
def test_halves_are_multiplied_two_at_a_time(
    dtype: Any, kind: str, stage: str, by: str, n: int
) -> None:
    """At lengths that blocks do not divide too: past the end both halves are zero."""
    expr = scaled_product(40, n, 48, dtype, by=by)
    staged = {} if n % 8 and "tma" in stage else {"STAGE": stage}
    kernel = optimize(expr, "sm_120", {**staged, "REDUCE": "g1"})
    assert f"mul.rn.{kind}x2" in kernel.ptx
    rounded(expr, kernel, kind)


def test_a_factor_that_does_not_end_is_multiplied_as_a_real() -> None:
    """It may be infinite where the other one is zero: in the sum that would be no zero."""
    expr = (scaled_product(40, 130, 48, f16, by="row")).cast(f32)
    kernel = optimize(expr, "sm_120", {"PLACE": "fold=fuse", "REDUCE": "g1"})
    arrays: dict[str, Array] = inputs(kernel, fresh_rng())
    out = np.asarray(kernel.run(backend="sim", **arrays))
    wanted = evaluate(expr, decoded(kernel, arrays))
    assert (np.abs(out - wanted) <= 2.0**-10 * np.abs(wanted).max()).all()


def rounded(expr: Any, kernel: Any, kind: str) -> None:
    """The result, against float64 sums of products that are rounded once."""
    arrays: dict[str, Array] = inputs(kernel, fresh_rng())
    given = decoded(kernel, arrays)
    product = np.float64(given["x"]) * given["g"]
    spec = next(spec for spec in kernel.inputs if spec.name == "x")
    x = spec.dtype.decode(spec.dtype.encode(product))
    wanted = np.float64(x) @ given["w"]
    out = kernel.outputs[0].dtype.decode(kernel.run(backend="sim", **arrays))
    bound = (2.0**-11 if kind == "f16" else 2.0**-8) * np.abs(wanted) + 1e-5
    assert (np.abs(out - wanted) <= bound).all()
    assert np.abs(wanted - evaluate(expr, given)).max() > 0.0  # the roundings are there
