"""The three forms that come out of one lowering: right on every shape, and as exact as promised."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egraph_flash import bf16, evaluate, f16, f32, optimize
from egraph_flash.dtypes import Array, Dtype
from egraph_flash.kernel import Kernel
from tests.support.forms import (
    CUDA_CORES,
    FORMS,
    MATERIALIZED,
    TENSOR_CORES,
    attention,
    decoded,
    inputs,
    pins,
)
from tests.support.fresh import fresh_rng
from tests.support.pairs import pairwise
from tests.support.plain import assert_close_as_plain, plain_attention

DEPTHS = tuple(range(16, 129, 16))
DTYPES = (f16, bf16)
MASKS = (False, True)
LENGTHS = (1, 17, 100, 128, 200)
REAL = Path(__file__).parent.parent / "examples" / "data" / "minilm_layer3_qkv.npz"


@functools.cache
def compiled(
    form: str, depth: int, dtype: Dtype, causal: bool, rows: int, columns: int, target: str
) -> tuple[Any, Kernel]:
    expr = attention(1, 2, rows, columns, depth, dtype, causal=causal)
    return expr, optimize(expr, target, pins(form, depth, depth, dtype), name=form)


def check(form: str, depth: int, dtype: Dtype, causal: bool, length: int) -> None:
    """A form at a length that is the keys', and (reversed) the queries' on another day."""
    expr, kernel = compiled(form, depth, dtype, causal, 33, length, "sm_120")
    arrays = inputs(kernel, fresh_rng())
    result = dtype.decode(kernel.run(backend="sim", **arrays))
    plain = plain_attention(arrays, dtype, causal=causal)
    assert_close_as_plain(result, plain, evaluate(expr, decoded(kernel, arrays)), dtype)


@pytest.mark.parametrize(
    ("depth", "dtype", "causal", "length", "form"),
    pairwise(DEPTHS, DTYPES, MASKS, LENGTHS, FORMS),
)
def test_forms_are_right(depth: int, dtype: Dtype, causal: bool, length: int, form: str) -> None:
    check(form, depth, dtype, causal, length)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("depth", "dtype", "causal", "length", "form"),
    list(itertools.product(DEPTHS, DTYPES, MASKS, LENGTHS, FORMS)),
)
def test_forms_are_right_everywhere(
    depth: int, dtype: Dtype, causal: bool, length: int, form: str
) -> None:
    check(form, depth, dtype, causal, length)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 17, 64, 100])
def test_rows_need_not_fill_a_tile(form: str, rows: int) -> None:
    expr, kernel = compiled(form, 32, f16, False, rows, 70, "sm_120")
    arrays = inputs(kernel, fresh_rng())
    result = kernel.run(backend="sim", **arrays).astype(np.float64)
    plain = plain_attention(arrays, f16)
    assert_close_as_plain(result, plain, evaluate(expr, decoded(kernel, arrays)), f16)


@pytest.mark.parametrize("form", [CUDA_CORES, TENSOR_CORES])
def test_assembles_without_spills(form: str) -> None:
    for depth, dtype, causal in pairwise(DEPTHS, DTYPES, MASKS):
        _, kernel = compiled(form, depth, dtype, causal, 33, 200, "sm_120")
        spills = [entry.spill_bytes for entry in kernel.assembly.entries]
        assert spills == [0], f"D = {depth}, {dtype}, causal {causal}: spills {spills} bytes"


def test_tensor_cores_are_used() -> None:
    _, kernel = compiled(TENSOR_CORES, 64, f16, False, 33, 200, "sm_120")
    assert "HMMA.16816.F32" in kernel.sass
    _, scalar = compiled(CUDA_CORES, 64, f16, False, 33, 200, "sm_120")
    assert "HMMA" not in scalar.sass


# ---- the listing shape and the real file ---------------------------------------------------------


def normals() -> tuple[Any, dict[str, Array]]:
    expr = attention(1, 4, 128, 128, 64)
    rng = fresh_rng()
    shape = (1, 4, 128, 64)
    return expr, {name: rng.standard_normal(shape).astype(np.float16) for name in "qkv"}


def real_file() -> tuple[Any, dict[str, Array]]:
    return attention(1, 12, 128, 128, 32), dict(np.load(REAL))


def f32_bound(q: Array, k: Array, v: Array) -> Array:
    """By how much attention in f32 may be off, of q, k and v [b, h, rows, depth].

    A score s that is off by e moves the output o by p (v - o) e. Of a sum of n terms the roundings
    have nothing to do with each other, and come to no more than √n of one (Higham & Mary 2019): n
    is the depth for a score and the number of keys for a sum of weights. Four more are of a score's
    scale and difference and of its exp, and of a weight's product and quotient.
    """
    depth, keys = k.shape[-1], k.shape[-2]
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(depth)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    apart = np.abs(v[..., None, :, :] - (weights @ v)[..., None, :])  # [b, h, rows, keys, depth]
    spread = (weights[..., None, :] @ apart)[..., 0, :]
    of_scores = (np.sqrt(depth) + 4) * np.abs(scores).max(axis=-1, keepdims=True) * spread
    return np.asarray(2.0**-24 * (of_scores + (np.sqrt(keys) + 4) * (weights @ np.abs(v))))


@pytest.mark.parametrize("case", [normals, real_file])
def test_cuda_cores_keep_f32_accuracy(case: Any) -> None:
    expr, arrays = case()
    depth = arrays["q"].shape[-1]
    kernel = optimize(expr.cast(f32), "sm_120", pins(CUDA_CORES, depth, depth, f16))
    assert kernel.outputs[0].dtype is f32
    result = kernel.run(backend="sim", **arrays)
    values = decoded(kernel, arrays)
    assert (np.abs(result - evaluate(expr, values)) <= f32_bound(**values)).all()


@pytest.mark.parametrize("case", [normals, real_file])
def test_tensor_cores_err_no_more_than_plain_f16(case: Any) -> None:
    expr, arrays = case()
    depth = arrays["q"].shape[-1]
    kernel = optimize(expr, "sm_120", pins(TENSOR_CORES, depth, depth, f16))
    reference = evaluate(expr, decoded(kernel, arrays))
    ours = np.abs(kernel.run(backend="sim", **arrays).astype(np.float64) - reference)
    plain = np.abs(plain_attention(arrays, f16) - reference)
    assert ours.max() <= plain.max()
    assert ours.mean() <= plain.mean()


@pytest.mark.parametrize("form", FORMS)
def test_a_fully_masked_row_gives_zero(form: str) -> None:
    from egraph_flash import Axis, Tensor, inf, softmax, where

    b, m, n, d, e = Axis.many(b=1, m=80, n=100, d=32, e=32)
    q, k, v = Tensor("q", (b, m, d), f16), Tensor("k", (b, n, d), f16), Tensor("v", (b, n, e), f16)
    s = where(n.index <= m.index - 20, (q * k).sum(d), -inf)
    expr = (softmax(s, n) * v).sum(n)
    kernel = optimize(expr, "sm_120", pins(form, 32, 32, f16))
    arrays = inputs(kernel, fresh_rng())
    result = kernel.run(backend="sim", **arrays)
    assert (result[:, :20] == 0).all()
    reference = evaluate(expr, decoded(kernel, arrays))
    assert np.abs(result - reference).max() < 1e-2
    assert (np.abs(result[:, 20:]).max(axis=-1) > 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_what_lies_past_the_end_never_counts(form: str) -> None:
    """Heads lie end to end: a tile that runs past one head's rows and keys meets the next's NaN."""
    _, kernel = compiled(form, 32, f16, False, 33, 100, "sm_120")
    arrays = inputs(kernel, fresh_rng())
    clean = kernel.run(backend="sim", **arrays)
    for array in arrays.values():
        array[:, 1] = np.nan
    poisoned = kernel.run(backend="sim", **arrays)
    np.testing.assert_array_equal(clean[:, 0].view(np.uint16), poisoned[:, 0].view(np.uint16))
    assert np.isnan(poisoned[:, 1]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", [normals, real_file])
def test_gpu_gives_the_simulators_bits(form: str, case: Any) -> None:
    from egraph_flash.runtime import present_target

    expr, arrays = case()
    depth = arrays["q"].shape[-1]
    kernel = optimize(expr, present_target(), pins(form, depth, depth, f16), name=form)
    simulated = kernel.run(backend="sim", **arrays)
    on_gpu = kernel.run(backend="gpu", **arrays)
    np.testing.assert_array_equal(on_gpu.view(np.uint16), simulated.view(np.uint16))


def test_materialized_is_several_kernels() -> None:
    _, kernel = compiled(MATERIALIZED, 64, f16, False, 33, 200, "sm_120")
    assert len(kernel.plan.launches) == 4
    assert kernel.passes == 4
    assert kernel.plan.having("workspace")[0].shape == (1, 2, 33, 200)
    _, fused = compiled(TENSOR_CORES, 64, f16, False, 33, 200, "sm_120")
    assert len(fused.plan.launches) == fused.passes == 1
    assert not fused.plan.having("workspace")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "columns"), [(5, 0), (0, 5), (0, 0)])
def test_axes_may_be_empty(form: str, rows: int, columns: int) -> None:
    expr, kernel = compiled(form, 32, f16, False, rows, columns, "sm_120")
    arrays = inputs(kernel, fresh_rng())
    result = kernel.run(backend="sim", **arrays)
    np.testing.assert_array_equal(result, evaluate(expr, decoded(kernel, arrays)))
