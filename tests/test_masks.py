"""Masks, biases and sinks: one pass on tensor cores, right element by element, refused when off."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from egraph_flash import (
    Axis,
    Tensor,
    alibi,
    boolean,
    causal,
    distance,
    evaluate,
    exp,
    f16,
    f32,
    i32,
    inf,
    log,
    maximum,
    optimize,
    prefix,
    same_document,
    softcap,
    softmax,
    where,
    window,
)
from egraph_flash.dtypes import Array, Dtype, bf16
from egraph_flash.errors import ExpressionError
from egraph_flash.kernel import Kernel
from tests.support.fresh import fresh_rng
from tests.support.scores import (
    CASES,
    Scored,
    bound,
    masked,
    operands,
    random_arrays,
    reals,
    shifted,
    sink,
    weighted,
)

BOTH = ("everything", "capped_window", "sink_of_zero", "keep", "two_kinds")
RUNS = [(name, f16) for name in CASES] + [(name, bf16) for name in BOTH]


def compiled(scored: Any, dtype: Dtype) -> Kernel:
    """On tensor cores."""
    return optimize(scored, "sm_120", {"TILE@d": f"a:mma_m16n8k16_{dtype}/w4x1/f1x4/k4"})


def check(scored: Scored, kernel: Kernel, arrays: dict[str, Array], dtype: Dtype) -> None:
    given = reals(kernel, arrays)
    result = dtype.decode(np.asarray(kernel.run(backend="sim", **arrays)))
    off = np.abs(result - evaluate(scored.output, given)) / bound(scored, given, dtype)
    assert off.max() <= 1.0, f"off by {off.max():.2f} times the bound"


@pytest.mark.parametrize(("name", "dtype"), RUNS)
def test_one_safe_pass_on_tensor_cores(name: str, dtype: Dtype) -> None:
    scored = CASES[name](operands(dtype))
    kernel = compiled(scored.output, dtype)
    assert kernel.passes == len(kernel.plan.launches) == 1
    assert kernel.outputs[0].dtype is dtype
    assert kernel.schedule["TILE@n"].startswith(f"a:mma_m16n8k16_{dtype}")
    assert kernel.derivation.steps[-1].unsafe == (1 if name == "bent" else 0)
    check(scored, kernel, random_arrays(kernel, fresh_rng()), dtype)


def test_weights_of_no_contraction_are_an_operand_too() -> None:
    """Squared distances, which a serial fold computes; their exponentials go to tensor cores."""
    m, n, d, e = Axis.many(m=37, n=64, d=32, e=32)
    x, y, v = Tensor("x", (m, d), f16), Tensor("y", (n, d), f16), Tensor("v", (n, e), f16)
    scores = -0.1 * abs(x - y).sum(d)
    scored = Scored((softmax(scores, n) * v).sum(n), scores)
    kernel = optimize(scored.output, "sm_120")
    assert kernel.passes == len(kernel.plan.launches) == 1
    assert kernel.schedule["TILE@n"].startswith("a:mma_m16n8k16_f16")
    check(scored, kernel, random_arrays(kernel, fresh_rng()), f16)


@pytest.mark.parametrize("shift", [-100.0, 100.0])
def test_shifted_scores_stay_right(shift: float) -> None:
    """Far from 0 on either side of the sink, which then takes all of the weight or none."""
    scored = shifted(operands(f16))
    kernel = compiled(scored.output, f16)
    arrays = random_arrays(kernel, fresh_rng())
    arrays["shift"] = (arrays["shift"] + shift).astype(np.float32)
    check(scored, kernel, arrays, f16)


# ---- rows that see nothing -----------------------------------------------------------------------


@pytest.mark.parametrize("with_sink", [False, True])
def test_a_row_that_sees_nothing_gives_zero(with_sink: bool) -> None:
    """27 more queries than keys: the first ones stand before every key."""
    o = operands(f16, m=64, n=37)
    scores = where(causal(o.m, o.n), o.s, -inf)
    extra = sink(o) if with_sink else None
    top = maximum(scores.max(o.n), extra) if with_sink else scores.max(o.n)
    total = exp(scores - top).sum(o.n)
    total = total + exp(extra - top) if with_sink else total
    outputs = weighted(o, scores, extra).output, (top + log(total)).cast(f32)
    kernel = compiled(outputs, f16)
    assert kernel.passes == 1
    arrays = random_arrays(kernel, fresh_rng())
    result, spread = kernel.run(backend="sim", **arrays)
    wanted, reference = evaluate(outputs, reals(kernel, arrays))
    assert (result[:, :, :27] == 0).all()
    assert (np.abs(result[:, :, 27:]).max(axis=-1) > 0).all()
    assert np.abs(result - wanted).max() < 1e-2
    empty = arrays["sink"][None, :, None] if with_sink else -np.inf
    np.testing.assert_array_equal(spread[:, :, :27], np.broadcast_to(empty, (1, 2, 27)))
    np.testing.assert_allclose(spread[:, :, 27:], reference[:, :, 27:], rtol=0, atol=1e-5)


def test_what_is_no_number_spreads_as_in_float64() -> None:
    """A row of NaN, a row of infinities, a key of NaN that only later queries see."""
    o = operands(f16, m=64)
    scored = masked(o, causal(o.m, o.n), softcap(o.s, 30.0), sink(o))
    kernel = compiled(scored.output, f16)
    arrays = random_arrays(kernel, fresh_rng())
    arrays["q"][0, 0, 5] = np.nan
    arrays["q"][0, 1, 7, 3] = np.inf
    arrays["k"][0, 0, 50] = np.nan
    given = reals(kernel, arrays)
    wanted = evaluate(scored.output, given)
    result = kernel.run(backend="sim", **arrays)
    seen = np.ones(result.shape, bool)
    seen[0, 0, :50] = False  # rows to which a mask hides what is no number
    seen[0, 0, 5] = True
    np.testing.assert_array_equal(np.isnan(result)[seen], np.isnan(wanted)[seen])
    assert np.isnan(result[0, 0, 5]).all()
    assert np.isnan(result[0, 0, 50:]).all()
    assert np.isfinite(result[0, 1]).all()
    assert np.abs(result[0, 1] - wanted[0, 1]).max() < 1e-2


# ---- truths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(8, 64), (9, 37)])
def test_truths_come_as_bool_or_as_bytes(m: int, n: int) -> None:
    """Rows of 64 are read in wider words than rows of 37, and any byte but 0 is true."""
    o = operands(f16, m=m, n=n)
    keep = Tensor("keep", (o.b, o.m, o.n), boolean)
    kernel = compiled(masked(o, keep).output, f16)
    arrays = random_arrays(kernel, fresh_rng())
    assert arrays["keep"].dtype == np.bool_
    result = kernel.run(backend="sim", **arrays)
    arrays["keep"] = arrays["keep"].astype(np.uint8) * np.uint8(128)
    np.testing.assert_array_equal(kernel.run(backend="sim", **arrays), result)


def test_truths_are_no_numbers() -> None:
    (n,) = Axis.many(n=4)
    keep, x = Tensor("keep", (n,), boolean), Tensor("x", (n,), f16)
    uses: tuple[Callable[[], Any], ...] = (
        lambda: keep * x,
        lambda: where(x > 0, keep, x),
        lambda: keep.sum(n),
        lambda: keep.cast(f32),
    )
    for wrong in uses:
        with pytest.raises(ExpressionError, match="got keep, a tensor of bool, wants numbers"):
            wrong()
    with pytest.raises(ExpressionError, match="cast: got bool"):
        x.cast(boolean)
    with pytest.raises(ExpressionError, match=r"its output keep\[n\] is bool"):
        optimize(keep, "sm_120")
    with pytest.raises(ExpressionError, match="reads the bool tensor keep"):
        x[keep.expr]


def test_the_outputs_dtype_is_that_of_the_first_real_input() -> None:
    o = operands(f16)
    keep = Tensor("keep", (o.b, o.m, o.n), boolean)
    assert optimize(masked(o, keep).output, "sm_120").outputs[0].dtype is f16


# ---- what the helpers write ----------------------------------------------------------------------


def test_queries_are_aligned_with_the_last_keys() -> None:
    m, n = Axis.many(m=2, n=5)
    np.testing.assert_array_equal(
        evaluate(causal(m, n).order(m, n), {}), [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    )
    np.testing.assert_array_equal(
        evaluate(window(m, n, left=1, right=0).order(m, n), {}), [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    )
    np.testing.assert_array_equal(
        evaluate(distance(m, n).order(m, n), {}), [[-3, -2, -1, 0, 1], [-4, -3, -2, -1, 0]]
    )
    documents = Tensor("doc", (n,), i32)
    np.testing.assert_array_equal(
        evaluate(same_document(documents, m, n).order(m, n), {"doc": np.array([0, 0, 1, 1, 2])}),
        [[0, 0, 1, 1, 0], [0, 0, 0, 0, 1]],
    )


def test_an_extra_element_takes_weight_and_gives_none() -> None:
    (n,) = Axis.many(n=3)
    x = Tensor("x", (n,), f32)
    given = {"x": np.log([1.0, 2.0, 3.0])}
    np.testing.assert_allclose(evaluate(softmax(x, n, extra=np.log(4.0)), given), [0.1, 0.2, 0.3])


def test_open_lengths_are_aligned_alike() -> None:
    m, n = Axis("m", "rows", hint=4), Axis("n", "keys", hint=8)
    assert str(causal(m, n)) == "n <= m + (|n| - |m|)"
    assert str(causal(m, Axis("t", "rows", hint=4))) == "t <= m"
    given = {"x": np.zeros(3), "y": np.zeros(5)}
    seen = where(causal(m, n), 1.0, 0.0) + Tensor("x", (m,), f32) + Tensor("y", (n,), f32)
    np.testing.assert_array_equal(evaluate(seen.order(m, n), given), np.tri(3, 5, 2))


# ---- what is refused -----------------------------------------------------------------------------

M, N, H = Axis.many(m=8, n=16, h=2)
DOCUMENTS = Tensor("doc", (N,), i32)
NO_AXIS: Any = 16
NO_AXES: Any = (M.index, DOCUMENTS)
NO_LIMIT: Any = 0.5
NO_TENSOR: Any = DOCUMENTS.expr


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: causal(M, M), "causal: got the axis m twice"),
        (lambda: causal(M, NO_AXIS), "causal: got 16 (int), wants an Axis"),
        (lambda: causal(NO_AXES[0], N), "causal: got m (Expr), wants an Axis"),
        (lambda: window(M, N), "window: got neither left nor right"),
        (lambda: window(M, N, left=-1), "window: got left=-1, wants an int >= 0, or None"),
        (lambda: window(M, N, right=NO_LIMIT), "window: got right=0.5"),
        (lambda: window(N, N, left=1), "window: got the axis n twice"),
        (lambda: prefix(N, -1), "prefix: got the length -1"),
        (lambda: prefix(N, 2.5), "prefix: got the length 2.5"),
        (lambda: prefix(N, N.index), "prefix: the length n varies along n"),
        (lambda: prefix(NO_AXES[1], 3), "prefix: got doc[n] (Tensor), wants an Axis"),
        (lambda: same_document(Tensor("doc", (), i32), M, N), "wants axes [*batch, 16]"),
        (lambda: same_document(Tensor("doc", (H,), i32), M, N), "wants axes [*batch, 16]"),
        (lambda: same_document(Tensor("doc", (M, N), i32), M, N), "batch axes other than m and n"),
        (lambda: same_document(Tensor("doc", (N,), f32), M, N), "got f32, wants a tensor of i32"),
        (lambda: same_document(NO_TENSOR, M, N), "got Expr, wants a tensor of i32"),
        (lambda: same_document(Tensor("doc", (M,), i32), N, M), "16 queries and 8 keys"),
        (lambda: same_document(DOCUMENTS, N, N), "same_document: got the axis n twice"),
        (lambda: alibi(Tensor("s", (N,), f32), M, N), "the slopes s[n] vary along m or n"),
        (lambda: alibi(0.5, M, M), "alibi: got the axis m twice"),
        (lambda: distance(M, M), "distance: got the axis m twice"),
        (lambda: softcap(M.index, 0.0), "softcap: got the cap 0.0"),
        (lambda: softcap(M.index, inf), "softcap: got the cap inf"),
        (lambda: softmax(Tensor("x", (N,), f32), N, extra=N.index), "varies along n"),
    ],
)
def test_wrong_use_is_refused(wrong: Any, says: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(says)):
        wrong()


@pytest.mark.parametrize("first", [0, 24, 57])
def test_a_factor_of_zero_keeps_nothing_of_what_is_masked(first: int) -> None:
    """A pick of logarithms of which a mask leaves some: 0 times one that is masked is 0, of which
    0 times an infinite input is not."""
    rows, columns = Axis.many(rows=9, columns=57)
    x, label = Tensor("x", (rows, columns), f32), Tensor("label", (rows,), i32)
    seen = where(columns.index >= first, x, -inf)
    picked = where(label.expr == columns.index, 1.0, 0.0) * log(softmax(seen, columns))
    top = seen.max(columns)
    kept = where(label.expr == columns.index, 1.0, 0.0) * (seen - top)
    for expr in (picked.sum(columns), kept.sum(columns)):
        kernel = optimize(expr, "sm_90")
        rng = fresh_rng()
        arrays = {
            "x": rng.standard_normal((9, 57)).astype(np.float32),
            "label": rng.integers(0, 57, 9).astype(np.int32),
        }
        arrays["label"][:3] = 0, 56, 24
        wanted, out = evaluate(expr, arrays), kernel.run(backend="sim", **arrays)
        assert not np.isnan(wanted).any()
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
        arrays["x"][:, -1] = np.nan
        wanted, out = evaluate(expr, arrays), kernel.run(backend="sim", **arrays)
        np.testing.assert_array_equal(np.isnan(out), np.isnan(wanted))
