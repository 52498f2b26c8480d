"""What expressions mean in float64: the conventions for absent elements, folds, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, bf16, evaluate, exp, f16, f32, i32, inf, log, softmax, where
from egraph_flash.dtypes import encode_bf16
from egraph_flash.errors import InputError
from egraph_flash.terms import make
from tests.support.fresh import fresh_rng
from tests.support.sums import assert_same_sums

M, N, E = Axis.many(m=3, n=5, e=2)
X, Y = Tensor("x", (M, N), f32), Tensor("y", (N,), f32)
V = Tensor("v", (N, E), f32)
KEEP = Tensor("keep", (M, N), i32)
MASKED = where(KEEP.expr == 1.0, X, -inf)


def _arrays(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    keep = (random.random((3, 5)) < 0.5).astype(np.int32)
    keep[0], keep[1, 0] = 0, 1
    return {
        "x": random.standard_normal((3, 5)),
        "y": random.standard_normal(5),
        "v": random.standard_normal((5, 2)),
        "keep": keep,
    }


# ---- against numpy -------------------------------------------------------------------------------


def test_arithmetic_is_numpys(seed: int) -> None:
    arrays = _arrays(seed)
    x, y = arrays["x"], arrays["y"]
    got = evaluate(exp(X * 0.5) + Y / 3.0 - abs(X), arrays)
    np.testing.assert_allclose(got, np.exp(x * 0.5) + y / 3.0 - np.abs(x), rtol=1e-15)


def test_softmax_is_the_usual_one(seed: int) -> None:
    arrays = _arrays(seed)
    weights = np.exp(arrays["x"] - arrays["x"].max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    got = evaluate((softmax(X, N) * V).sum(N), arrays)
    magnitude = weights @ np.abs(arrays["v"])
    assert_same_sums(got, weights @ arrays["v"], magnitude, relative=1e-14)


def test_axes_stand_in_order_of_appearance(seed: int) -> None:
    arrays = _arrays(seed)
    product = (X * V).sum(N)
    assert evaluate(product, arrays).shape == (3, 2)
    turned = evaluate(product.order(E, M), arrays)
    np.testing.assert_array_equal(turned, evaluate(product, arrays).T)


def test_several_outputs(seed: int) -> None:
    arrays = _arrays(seed)
    both = evaluate((X.sum(N), X.max(N)), arrays)
    assert [found.shape for found in both] == [(3,), (3,)]


def test_indices_may_be_restricted(seed: int) -> None:
    arrays = _arrays(seed)
    whole = evaluate((softmax(X, N) * V).sum(N), arrays)
    part = evaluate((softmax(X, N) * V).sum(N), arrays, at={"m": [2, 0], "e": [1]})
    np.testing.assert_array_equal(part, whole[[2, 0]][:, [1]])


def test_casts_round() -> None:
    (n,) = Axis.many(n=2)
    x = Tensor("x", (n,), f32)
    values = np.array([1.0 + 2.0**-13, 65505.0])
    assert evaluate(x.cast(f16), {"x": values}).tolist() == [1.0, 65504.0]
    assert evaluate(x.cast(bf16), {"x": values}).tolist() == [1.0, 65536.0]


def test_bf16_may_be_given_as_bits() -> None:
    (n,) = Axis.many(n=2)
    x = Tensor("x", (n,), bf16)
    values = np.array([1.5, -3.0])
    assert evaluate(x.expr * 2.0, {"x": encode_bf16(values)}).tolist() == [3.0, -6.0]


def test_loads_through_a_table() -> None:
    pages, rows = Axis.many(pages=2, rows=3)
    (n,) = Axis.many(n=4)
    table = Tensor("table", (pages,), i32)
    cache = Tensor("cache", (Axis("frames", 5), Axis("slot", 2)), f32)
    arrays = {"table": np.array([4, 1]), "cache": np.arange(10.0).reshape(5, 2)}
    got = evaluate(cache[table[n // 2], n % 2], arrays)
    assert got.tolist() == [8.0, 9.0, 2.0, 3.0]
    assert rows.size == 3


# ---- conventions ---------------------------------------------------------------------------------


def test_a_row_without_elements(seed: int) -> None:
    """Output 0 and log-sum-exp -inf, without warnings or NaN."""
    arrays = _arrays(seed)
    out = evaluate((softmax(MASKED, N) * V).sum(N), arrays)
    assert out[0].tolist() == [0.0, 0.0]
    assert np.isfinite(out).all()
    top = MASKED.max(N)
    lse = evaluate(top + log(exp(MASKED - top).sum(N)), arrays)
    assert lse[0] == -np.inf
    assert np.isfinite(lse[1])


def test_masked_elements_do_not_count(seed: int) -> None:
    """A masked softmax is the softmax over what is left."""
    arrays = _arrays(seed)
    out = evaluate(softmax(MASKED, N), arrays)
    for row in (1, 2):
        kept = arrays["keep"][row] == 1
        x = arrays["x"][row][kept]
        if kept.any():
            np.testing.assert_allclose(out[row][kept], np.exp(x) / np.exp(x).sum(), rtol=1e-14)
        assert np.all(out[row][~kept] == 0)


def test_an_empty_axis_gives_the_identity() -> None:
    m, n = Axis.many(m=2, n=0)
    x = Tensor("x", (m, n), f32)
    arrays = {"x": np.zeros((2, 0))}
    assert evaluate(x.sum(n), arrays).tolist() == [0.0, 0.0]
    assert evaluate(x.max(n), arrays).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda gone, zero: gone - gone, -np.inf),  # (-inf) - (-inf)
        (lambda gone, zero: exp(gone) / exp(gone), 0.0),  # 0 / 0
        (lambda gone, zero: exp(gone) * exp(-gone), 0.0),  # 0 * inf
        (lambda gone, zero: gone * 0.5, -np.inf),
        (lambda gone, zero: gone + zero, -np.inf),
        (lambda gone, zero: exp(gone), 0.0),
        (lambda gone, zero: log(exp(gone)), -np.inf),
    ],
)
def test_absent_elements_annihilate(build: Any, value: float) -> None:
    (n,) = Axis.many(n=2)
    x = Tensor("x", (n,), f32)
    gone = where(n.index < 0, x, -inf)
    found = evaluate(build(gone, x.expr), {"x": np.array([1.0, -2.0])})
    assert found.tolist() == [value, value]


def test_infinities_of_inputs_are_not_absent() -> None:
    """Products and differences of inputs follow IEEE."""
    (n,) = Axis.many(n=1)
    x = Tensor("x", (n,), f32)
    arrays = {"x": np.array([-np.inf])}
    assert np.isnan(evaluate(x.expr - x.expr, arrays)).all()
    assert np.isnan(evaluate(x.expr * 0.0, arrays)).all()


def test_nan_of_inputs_propagates() -> None:
    (n,) = Axis.many(n=3)
    x = Tensor("x", (n,), f32)
    assert np.isnan(evaluate(x.max(n), {"x": np.array([1.0, np.nan, 2.0])}))


# ---- folds ---------------------------------------------------------------------------------------


def _tower(axis: Any, block: int, share: int, channels: tuple[Any, ...]) -> Any:
    outer = make("Outer", axis, block)
    tile = make("Fold", make("Inner", axis, block), make("Tile"), make("Lift", channels))
    steps = make("Fold", make("Inner", outer, share), make("Serial"), tile)
    return make("Fold", make("Outer", outer, share), make("Grid"), steps)


@pytest.mark.parametrize("block", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("share", [1, 2, 4])
def test_towers_fold_what_flat_folds_do(block: int, share: int, seed: int) -> None:
    """Blocks that do not divide the length are padded with the identity."""
    arrays = _arrays(seed)
    base = make("Ch", make("Max"), MASKED)
    twisted = make("Tw", make("Rep", "Scale"), (base,), V.expr)
    flat = make("Fold", N, make("Flat"), make("Lift", (base, twisted)))
    want = evaluate(make("Get", flat, twisted), arrays)
    got = evaluate(make("Get", _tower(N, block, share, (base, twisted)), twisted), arrays)
    magnitude = evaluate(make("Get", flat, twisted), arrays | {"v": np.abs(arrays["v"])})
    assert_same_sums(got, want, magnitude, relative=1e-14)
    assert np.all(got[0] == 0)


def test_a_carrier_needs_its_bases() -> None:
    base = make("Ch", make("Max"), X.expr)
    twisted = make("Tw", make("Rep", "Scale"), (base,), V.expr)
    alone = make("Fold", N, make("Flat"), make("Lift", (twisted,)))
    with pytest.raises(AssertionError, match="a channel's base is not in its carrier"):
        evaluate(make("Get", alone, twisted), _arrays(0))


def test_stores_and_risks_change_no_value(seed: int) -> None:
    arrays = _arrays(seed)
    for head in ("Mat", "Risk"):
        np.testing.assert_array_equal(
            evaluate(make(head, X.sum(N)), arrays), evaluate(X.sum(N), arrays)
        )


def test_a_symbolic_length_is_the_arrays() -> None:
    n = Axis("n", "seq", hint=100)
    x = Tensor("x", (n,), f32)
    for length in (0, 1, 7):
        assert evaluate(x.expr.sum(n), {"x": np.ones(length)}) == length


# ---- errors --------------------------------------------------------------------------------------


def test_a_missing_array() -> None:
    with pytest.raises(InputError, match=r"evaluate: no array for the tensor 'y', got \['x'\]"):
        evaluate(X + Y, {"x": np.zeros((3, 5))})


def test_a_wrong_rank() -> None:
    with pytest.raises(InputError, match="y: got 2 dimensions, wants 1"):
        evaluate(Y.expr, {"y": np.zeros((5, 1))})


def test_a_wrong_shape() -> None:
    with pytest.raises(InputError, match=r"x: got shape \(3, 6\), wants \(3, 5\)"):
        evaluate(X.expr, {"x": np.zeros((3, 6))})


def test_symbolic_lengths_must_agree() -> None:
    n = Axis("n", "seq", hint=4)
    a, b = Tensor("a", (n,), f32), Tensor("b", (n,), f32)
    with pytest.raises(InputError, match="b: got shape"):
        evaluate(a + b, {"a": np.zeros(3), "b": np.zeros(4)})


def test_a_fold_takes_all_of_an_axis_of_which_a_part_is_asked_for() -> None:
    """A restriction is of the result: what is folded over the same axis needs every element."""
    M, N = Axis.many(m=6, n=9)
    x = Tensor("x", (M, N), f32).expr
    arrays = {"x": fresh_rng().standard_normal((6, 9))}
    whole = evaluate(softmax(x, N), arrays)
    rows, columns = [1, 4], [0, 3, 8]
    found = evaluate(softmax(x, N), arrays, at={"m": rows, "n": columns})
    np.testing.assert_array_equal(found, whole[np.ix_(rows, columns)])
