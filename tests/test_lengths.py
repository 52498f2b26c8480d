"""Lengths that an expression leaves open: told by shapes, given as numbers, or refused."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, f16, f32, inf, optimize, softmax, where
from egraph_flash.dtypes import Array
from egraph_flash.errors import ExpressionError, InputError
from egraph_flash.evaluation import evaluate
from egraph_flash.kernel import Kernel
from egraph_flash.lengths import MOST, lengths_of
from tests.support.fresh import fresh_rng
from tests.support.plain import assert_close_as_plain, plain_attention

b, m = Axis("b", "batch", hint=2), Axis("m", "rows", hint=20)
h, n, d, e = Axis.many(h=2, n=24, d=16, e=16)
Q = Tensor("q", (b, h, m, d), f16)
K = Tensor("k", (b, h, n, d), f16)
V = Tensor("v", (b, h, n, e), f16)
ATTENTION = (softmax((Q * K).sum(d) * 16**-0.5, n) * V).sum(n)
X = Tensor("x", (n,), f32)
SHIFTED = X * 2 + m.index  # of the rows, no input tells


@pytest.fixture(scope="module")
def attention() -> Kernel:
    return optimize(ATTENTION, "sm_120", name="attention")


@pytest.fixture(scope="module")
def shifted() -> Kernel:
    return optimize(SHIFTED, "sm_120", name="shifted")


def arrays(batch: int, rows: int) -> dict[str, Array]:
    rng = fresh_rng()
    shapes = {"q": (batch, 2, rows, 16), "k": (batch, 2, 24, 16), "v": (batch, 2, 24, 16)}
    return {name: rng.standard_normal(s).astype(np.float16) for name, s in shapes.items()}


@pytest.mark.parametrize("place", ["fuse", "cut"])
@pytest.mark.parametrize(("batch", "rows"), [(2, 20), (1, 1), (3, 50), (1, 17), (0, 3), (2, 0)])
def test_one_text_serves_every_length(batch: int, rows: int, place: str) -> None:
    made = optimize(ATTENTION, "sm_120", {"PLACE": f"fold={place}"})
    given = arrays(batch, rows)
    result = made.run(backend="sim", **given)
    assert result.shape == (batch, 2, rows, 16)
    if result.size:
        plain = plain_attention(given, f16)
        assert_close_as_plain(result.astype(float), plain, evaluate(ATTENTION, given), f16)


def test_what_it_shows_has_the_names(attention: Kernel) -> None:
    assert "q: f16 [b=batch, h=2, m=rows, d=16]" in repr(attention)
    assert attention.record.lengths == {"batch": 2, "rows": 20}
    assert attention.plan.launches[0].grid == (2 * 2 * 2, 1, 1)


def test_numbers_of_what_shapes_tell_must_agree(attention: Kernel) -> None:
    given = arrays(1, 5)
    agreed = attention.run(backend="sim", **given, rows=np.int32(5), batch=1)
    np.testing.assert_array_equal(agreed, attention.run(backend="sim", **given))
    message = r"attention: length 'rows' is 6 as given and 5 by axis 'm' of input 'q'; wants one"
    with pytest.raises(InputError, match=message):
        attention.run(backend="sim", **given, rows=6)


def test_arrays_that_disagree_are_both_named(attention: Kernel) -> None:
    given = arrays(2, 5) | {"v": arrays(3, 5)["v"]}
    message = r"length 'batch' is 2 by axis 'b' of input 'q' and 3 by axis 'b' of input 'v'; wants"
    with pytest.raises(InputError, match=message):
        attention.run(backend="sim", **given)
    out = np.empty((2, 2, 6, 16), np.float16)
    message = r"length 'rows' is 5 by axis 'm' of input 'q' and 6 by axis 'm' of output 'out'"
    with pytest.raises(InputError, match=message):
        attention.run(backend="sim", **arrays(2, 5), out=out)


def test_other_axes_are_checked_as_ever(attention: Kernel) -> None:
    given = arrays(2, 5)
    given["k"] = given["k"][:, :, :23]
    message = r"input 'k': axis 'n' is 23, wants 24; got .*, wants f16 \[b=batch, h=2, n=24, d=16\]"
    with pytest.raises(InputError, match=message):
        attention.run(backend="sim", **given)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_lengths_that_no_shape_tells_are_numbers_of_the_call(shifted: Kernel, rows: int) -> None:
    x = np.arange(24, dtype=np.float32)
    wanted = evaluate(SHIFTED, {"x": x}, lengths={"rows": rows})
    assert wanted.shape == (24, rows)
    np.testing.assert_array_equal(shifted.run(backend="sim", x=x, rows=rows), wanted)
    out = np.empty((24, rows), np.float32)
    np.testing.assert_array_equal(shifted.run(backend="sim", x=x, out=out), wanted)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "shifted: missing length rows, which no shape tells; pass rows=<number>"),
        ({"rows": -1}, f"shifted: length 'rows': got -1, wants an int from 0 to {MOST}"),
        ({"rows": 2**31}, f"shifted: length 'rows': got {2**31}, wants an int"),
        ({"rows": 2.0}, "shifted: length 'rows': got float, wants an int"),
        ({"rows": True}, "shifted: length 'rows': got bool, wants an int"),
        ({"rows": np.zeros((3, 4))}, "shifted: length 'rows': got ndarray, wants an int"),
        (
            {"rows": 3, "seq": 3},
            "shifted: got no use for input seq; wants x, and rows as numbers where no shape tells",
        ),
    ],
)
def test_bad_lengths_are_refused(shifted: Kernel, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        shifted.run(backend="sim", x=np.zeros(24, np.float32), **given)
    assert message in str(caught.value)


def test_lengths_of_no_kernel_are_refused(shifted: Kernel) -> None:
    with pytest.raises(InputError, match="shifted: got no use for length 'seq'; has rows"):
        lengths_of(shifted.record, {}, {"seq": 3})
    assert lengths_of(shifted.record, {}, {}, {"rows": 9}) == {"rows": 9}


@pytest.mark.parametrize("name", ["out", "stream", "backend", "x"])
def test_lengths_share_no_name_with_inputs_and_options(name: str) -> None:
    what = "an input" if name == "x" else "an option of the call"
    with pytest.raises(ExpressionError, match=f"a length is called {name!r}, as {what} is"):
        optimize(X * Axis("m", name, hint=3).index, "sm_120")


def test_one_length_has_one_hint() -> None:
    other = Tensor("y", (Axis("k", "rows", hint=21),), f32)
    with pytest.raises(ExpressionError, match="length 'rows' has the hints 20 and 21"):
        optimize(Tensor("w", (m,), f32) * other, "sm_120")


STREAMED = [
    {"STAGE": "d0", "SKEW": "off"},
    {"STAGE": "d2/cp/ring", "SKEW": "off"},
    {"STAGE": "d2x2/tma/ring", "SLAB": "xor", "ROLES": "rotate", "SKEW": "on"},
    {"STAGE": "d3/tma/ring", "SLAB": "xor", "ROLES": "producer"},
]


@pytest.mark.parametrize("pins", STREAMED, ids=lambda pins: str(pins["STAGE"]))
def test_one_text_folds_every_length(pins: dict[str, str]) -> None:
    """The fold's own length is open: bits are those of a kernel made for that length."""
    exact = {"TILE@d": "a:mma_m16n8k16_f16/w2x1/f1x2/k1", "BASE": "max", "EXP": "ex2", **pins}
    exact["REDUCE"] = "g1"
    keys = Axis("n", "keys", hint=100)
    made = optimize(_masked(Axis("m", "rows", hint=50), keys), "sm_90", {**exact, "SUM": "block"})
    texts = set()
    for rows, length in ((8, 16), (37, 64), (64, 37), (1, 130), (5, 0), (0, 5)):
        static = _masked(Axis("m", rows), Axis("n", length))
        rng = fresh_rng()
        shapes = {"q": (2, 2, rows, 16), "k": (2, 2, length, 16), "v": (2, 2, length, 16)}
        given = {name: rng.standard_normal(s).astype(np.float16) for name, s in shapes.items()}
        result = made.run(backend="sim", **given)
        if rows and length:
            same = optimize(static, "sm_90", {**exact, "SUM": "block"})
            assert result.tobytes() == same.run(backend="sim", **given).tobytes(), (rows, length)
        difference = np.abs(result.astype(float) - evaluate(static, given))
        assert difference.max(initial=0.0) < 4e-3
        texts.add(made.ptx)
    assert len(texts) == 1


def _masked(rows: Axis, keys: Axis) -> Any:
    """Under a mask aligned at the bottom right, whatever the lengths."""
    bb, hh, dd, ee = Axis.many(b=2, h=2, d=16, e=16)
    q, k = Tensor("q", (bb, hh, rows, dd), f16), Tensor("k", (bb, hh, keys, dd), f16)
    v = Tensor("v", (bb, hh, keys, ee), f16)
    seen = keys.index <= rows.index + (keys.length - rows.length)
    return (softmax(where(seen, (q * k).sum(dd) * 0.25, -inf), keys) * v).sum(keys)


def test_strides_and_lengths_are_open_together(attention: Kernel) -> None:
    """One kernel of a class, whatever the lengths; the base kernel takes slices along rows."""
    made = Kernel(attention.record)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch, rows in itertools.product((1, 2), (4, 9)):
            given = arrays(batch, rows)
            wanted = made.run(backend="sim", **given)
            cache = np.full((batch, 2, 30, 16), np.nan, np.float16)
            cache[:, :, 3 : 3 + rows] = given["q"]
            assert made.specialized(**given | {"q": cache[:, :, 3 : 3 + rows]}) is made
            found = made.run(backend="sim", **given | {"q": cache[:, :, 3 : 3 + rows]})
            np.testing.assert_array_equal(found, wanted)
            turned = np.ascontiguousarray(given["q"].swapaxes(1, 2)).swapaxes(1, 2)
            found = made.run(backend="sim", **given | {"q": turned})
            np.testing.assert_array_equal(found, wanted)
            assert found.strides[2] > found.strides[1]
    assert len(made._variants) == 1
