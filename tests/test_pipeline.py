"""`optimize`: what it refuses and how it says so, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, bf16, exp, f16, f32, i32, optimize, softmax
from egraph_flash.errors import ExpressionError, ScheduleError
from egraph_flash.kernel import Kernel
from tests.support.forms import attention, inputs
from tests.support.fresh import fresh_rng

m, n, d = Axis.many(m=20, n=30, d=16)
x = Tensor("x", (m, n), f32)


def test_output_dtype_and_axes() -> None:
    """The first input's dtype and the order of appearance, unless said otherwise."""
    q, k = Tensor("q", (m, d), bf16), Tensor("k", (n, d), f16)
    product = (q * k).sum(d)
    (spec,) = optimize(product, "sm_120").outputs
    assert (spec.dtype, spec.axes, spec.shape) == (bf16, ("m", "n"), (20, 30))
    (spec,) = optimize(product.cast(f32), "sm_120").outputs
    assert spec.dtype is f32
    kernel = optimize(product.order(n, m), "sm_120")
    assert kernel.outputs[0].axes == ("n", "m")
    arrays = inputs(kernel, fresh_rng())
    reals = bf16.decode(arrays["q"]) @ f16.decode(arrays["k"]).T
    result = bf16.decode(kernel.run(backend="sim", **arrays))
    assert np.abs(result - reals.T).max() <= 2**-8 * np.abs(reals).max()


def test_several_outputs_share_a_pass() -> None:
    kernel = optimize((softmax(x, n).sum(n), x.max(n)), "sm_120")
    assert [spec.name for spec in kernel.outputs] == ["out0", "out1"]
    assert kernel.passes == 1


def test_outputs_never_take_an_inputs_name() -> None:
    kernel = optimize((Tensor("out0", (m, n), f32).expr.max(n), x.max(n)), "sm_120")
    assert [spec.name for spec in kernel.outputs] == ["out0_", "out1"]


def test_a_kernel_is_found_again() -> None:
    first = optimize(attention(1, 1, 20, 30, 16), "sm_120", name="found")
    again = optimize(attention(1, 1, 20, 30, 16), "sm_120", name="found")
    assert "extraction" in first.timings
    assert "extraction" not in again.timings
    assert again.ptx == first.ptx
    assert again.term is first.term
    assert str(again.derivation) == str(first.derivation)


def test_the_target_is_in_the_ptx() -> None:
    texts = {t: optimize(attention(1, 1, 20, 30, 16), t).ptx for t in ("sm_90", "sm_120")}
    assert all(f".target {target}" in text for target, text in texts.items())


def refuses(error: type[Exception], expr: object, **options: object) -> str:
    with pytest.raises(error) as refused:
        optimize(expr, **options)  # type: ignore[arg-type]
    return str(refused.value)


def test_expressions_that_are_refused() -> None:
    assert "reads no tensor" in refuses(ExpressionError, m.index + 1)
    assert "got no expression" in refuses(ExpressionError, ())
    clash = Tensor("x", (m, d), f32)
    message = refuses(ExpressionError, x.expr.sum(n) + clash.expr.sum(d))
    assert "two tensors are called 'x'" in message
    whole = Tensor("c", (m,), i32)
    assert "write expr.cast(f32)" in refuses(ExpressionError, whole.expr + 1)


def test_sums_that_no_contraction_computes_still_compile() -> None:
    """A kernel of distances: no product of two operands, so a loop in each lane."""
    q, k = Tensor("q", (m, d), f32), Tensor("k", (n, d), f32)
    far = abs(q - k).sum(d)
    expr = (exp(-far) * Tensor("v", (n, Axis("e", 8)), f32)).sum(n)
    kernel: Kernel = optimize(expr, "sm_120")
    arrays = inputs(kernel, fresh_rng())
    distance = np.abs(arrays["q"][:, None] - arrays["k"][None]).sum(-1, dtype=np.float64)
    result = kernel.run(backend="sim", **arrays)
    assert np.abs(result - np.exp(-distance) @ arrays["v"].astype(np.float64)).max() < 1e-5


def test_pins_are_checked_before_anything_runs() -> None:
    message = refuses(ScheduleError, x.max(n), pins={"TILE": "big"})
    assert "TILE: got 'big', wants a:<atom>" in message
