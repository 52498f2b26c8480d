"""What users write: operators and reductions over named axes, and what is refused and how."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from egraph_flash import (
    Axis,
    Expr,
    Tensor,
    bf16,
    exp,
    f16,
    f32,
    i32,
    inf,
    log,
    maximum,
    minimum,
    softmax,
    sqrt,
    tanh,
    where,
)
from egraph_flash.errors import ExpressionError
from egraph_flash.expressions import lift
from egraph_flash.indices import bounds
from egraph_flash.notation import pretty
from egraph_flash.terms import make, rewrite, subterms, variable

M, N, D = Axis.many(m=4, n=8, d=16)
X = Tensor("x", (M, N), f16)
Y = Tensor("y", (N,), f32)
Q, K = Tensor("q", (M, D), f16), Tensor("k", (N, D), f16)


# ---- terms ---------------------------------------------------------------------------------------


def test_equal_terms_are_one_object() -> None:
    assert (X + 1.0) is (X + 1.0)
    assert (X + 1.0) is not (X + 2.0)
    assert Axis("m", 4) is M
    assert lift(1) is lift(1.0)
    assert lift(0.0) is lift(-0.0)


def test_terms_are_immutable() -> None:
    with pytest.raises(AttributeError, match="terms are immutable: cannot set 'head'"):
        X.expr.head = "Sub"


def test_terms_survive_pickling() -> None:
    term = softmax(X, N)
    assert pickle.loads(pickle.dumps(term)) is term


def test_comparisons_are_terms_and_have_no_truth() -> None:
    assert isinstance(X == 1.0, Expr)
    assert (X == Y).head == "Eq"
    with pytest.raises(TypeError, match="the truth of an expression is not known before it runs"):
        bool(X.expr < 1.0)


def test_terms_stand_in_lists_and_dictionaries() -> None:
    terms = [X + 1.0, X + 2.0]
    assert {term: i for i, term in enumerate(terms)}[X + 2.0] == 1
    assert terms.index(X + 2.0) == 1


def test_rewriting() -> None:
    term = exp(X + Y) * (X + Y)
    changed = rewrite(term, {X + Y: X - Y})
    assert changed is exp(X - Y) * (X - Y)
    assert rewrite(term, {}) is term


def test_subterms_come_children_first() -> None:
    term = exp(X + Y)
    places = {node: place for place, node in enumerate(subterms(term))}
    assert places[X.expr] < places[X + Y] < places[term] == len(places) - 1


def test_an_axis_is_no_value_in_a_comparison() -> None:
    with pytest.raises(ExpressionError, match=r"axis n is not a value: write n\.index"):
        _ = X == N
    other: object = N.extent
    assert X.expr != other  # of another sort: just unequal


def test_channels_are_a_set() -> None:
    a, b = (make("Ch", make(name), X.expr) for name in ("Max", "Sum"))
    assert make("Lift", (a, b, a)) is make("Lift", (b, a))


def test_a_pattern_stands_for_any_term_of_its_sort() -> None:
    assert variable("Expr", "x") is variable("Expr", "x")
    assert variable("Expr", "x") is not variable("Axis", "x")
    assert repr(make("Num", variable("f64", "c"))) == "c"


# ---- axes ----------------------------------------------------------------------------------------


def test_axes_broadcast_by_name() -> None:
    assert (X * Y).axes == (M, N)
    assert (Y * X).axes == (N, M)
    assert (Q * K).axes == (M, D, N)
    assert (Q * K).sum(D).axes == (M, N)


def test_axes_of_inputs_come_first() -> None:
    assert where(N.index <= M.index, Y, 0.0).axes == (N, M)


def test_axes_of_index_arithmetic() -> None:
    (h,) = Axis.many(h=8)
    g = Axis("g", 2)
    k = Tensor("k", (g, N), f16)[h // 4, N]
    assert k.axes == (h, N)
    pages = Tensor("pages", (Axis("p", 2),), i32)
    assert Tensor("v", (Axis("s", 4), D), f16)[pages[N // 4], D].axes == (N, D)


def test_sums_are_innermost_first() -> None:
    assert X.sum(N, M) is X.sum(N).sum(M)
    assert X.sum(N, M).axes == ()


def test_an_order_of_the_output() -> None:
    assert softmax(X, N).order(N, M).axes == (N, M)
    assert repr(softmax(X, N).order(N, M)).endswith("ordered (n, m)")


def test_softmax_is_its_definition() -> None:
    weights = exp(X - X.max(N))
    assert softmax(X, N) is weights / weights.sum(N)


def test_a_symbolic_extent() -> None:
    n = Axis("n", "seq", hint=128)
    assert n.size == 128
    assert repr(n.extent) == "seq"


@pytest.mark.parametrize(
    ("term", "written"),
    [
        (X + Y * 2.0, "x[m, n] + y[n] * 2"),
        ((X + Y) * 2.0, "(x[m, n] + y[n]) * 2"),
        (X - (Y - 1.0), "x[m, n] - (y[n] - 1)"),
        (-X / Y, "-x[m, n] / y[n]"),
        (-(X + Y), "-(x[m, n] + y[n])"),
        (1.0 / sqrt(Y), "1 / sqrt(y[n])"),
        (where(N.index <= M.index, X, -inf), "where(n <= m, x[m, n], -inf)"),
        ((N.index < 3) & ~(M.index == 1), "n < 3 & not(m == 1)"),
        (maximum(X, Y) - minimum(X, Y), "max(x[m, n], y[n]) - min(x[m, n], y[n])"),
        (log(exp(tanh(X))).max(N), "max_n(log(exp(tanh(x[m, n]))))"),
        (abs(X).cast(bf16), "bf16(abs(x[m, n]))"),
        (N // 4 + N % 4, "n // 4 + n % 4"),
    ],
)
def test_how_terms_print(term: Any, written: str) -> None:
    assert pretty(term) == written


# ---- bounds of index expressions -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "low", "high"),
    [
        (N.index, 0, 7),
        (N + 3, 3, 10),
        (N * 2 - M.index, -3, 14),
        (N // 4, 0, 1),
        (N % 4, 0, 3),
        ((M % 4), 0, 3),
        (maximum(N.index, 3.0), 3, 7),
        (minimum(N - 2, 0.0), -2, 0),
        (N.index < 8, 1, 1),
        (N.index < 0, 0, 0),
        (N.index <= M.index, 0, 1),
        (make("Len", N), 8, 8),
        (make("Len", Axis("t", "seq", hint=4)), 0, inf),
    ],
)
def test_bounds(index: Any, low: float, high: float) -> None:
    assert bounds(index) == (low, high)


def test_bounds_within_a_tile() -> None:
    assert bounds(N.index <= M.index, {N: (0, 1), M: (2, 3)}) == (1, 1)
    assert bounds(N.index <= M.index, {N: (6, 7), M: (2, 3)}) == (0, 0)


def test_an_axis_without_elements_leads_nowhere() -> None:
    """Keys that are not there are read by no head, whatever the arithmetic of their index."""
    h, n = Axis.many(h=4, n=0)
    keys = Tensor("k", (Axis("g", 2), n), f32)
    assert keys[h // 2, n].axes == (h, n)
    assert keys[h // 2, n + 3].axes == (h, n)


# ---- errors: each says what, got, wanted ---------------------------------------------------------

_OTHER = Tensor("z", (Axis("n", 9),), f32)
_TABLE = Tensor("table", (N,), i32)
_ANY: Any = "n"
_ORDERED: Any = X.expr.order(M, N)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Axis("2n", 4), r"axis: got the name '2n', wants an identifier such as 'n'"),
        (lambda: Axis("n", -1), r"axis 'n': got the extent -1, wants an int >= 0"),
        (lambda: Axis("n", True), r"axis 'n': got the extent True, wants an int >= 0"),
        (lambda: Axis("n", "seq"), r"the symbolic extent 'seq' wants hint=<a typical length>"),
        (lambda: Tensor("a b", (N,), f32), r"tensor: got the name 'a b', wants an identifier"),
        (lambda: Tensor("a", (N, N), f32), r"tensor 'a': got axes \(n, n\), wants each axis once"),
        (
            lambda: Tensor("a", (N, Axis("n", 9)), f32),
            r"tensor 'a': axis 'n' has extent 8 in one operand and 9 in another",
        ),
        (
            lambda: Y + _OTHER,
            r"add: axis 'n' has extent 8 in one operand and 9 in another; axes agree by name",
        ),
        (lambda: X.sum(), r"sum: got no axis, wants one of \(m, n\)"),
        (lambda: X.sum(D), r"sum: got axis d, wants one of \(m, n\), the axes of x\[m, n\]"),
        (lambda: X.max(_ANY), r"max: got axis 'n', wants one of \(m, n\)"),
        (lambda: X + float("nan"), r"constant: got nan, wants a number"),
        (lambda: X + N, r"axis n is not a value: write n.index"),
        (lambda: X + "1", r"operand: got str, wants a tensor or a number"),
        (lambda: _ORDERED + 1.0, r"unsupported operand"),
        (lambda: X + _ORDERED, r"an ordered output is no operand: call order\(...\) last"),
        (lambda: X.expr.order(M), r"order: got axes \(m,\), wants \(m, n\) in some order"),
        (lambda: X.cast(i32), r"cast: got i32, wants one of f16, bf16, f32"),
        (lambda: X[M], r"x: got 1 indices, wants 2, one for each of its axes \(m, n\)"),
        (lambda: X[M, N + 1], r"x: the index n \+ 1 of axis 'n' reaches 8, wants < 8"),
        (lambda: X[M, N - 1], r"x: the index n - 1 of axis 'n' reaches -1, wants >= 0"),
        (lambda: X[M, 0.5], r"has the constant 0.5, which is no integer"),
        (lambda: X[M, exp(N.index)], r"uses Exp; an index may use axes"),
        (lambda: X[M, N // 0], r"got the divisor 0, wants a positive whole constant"),
        (lambda: X[M, Y[N]], r"reads the f32 tensor y"),
        (lambda: X[M, _TABLE[_TABLE[N]]], r"reads a tensor inside the index of another"),
        (lambda: X[M, N.index * 0 + N.index // N.index], r"got the divisor n, wants a positive"),
    ],
)
def test_construction_errors(build: Any, message: str) -> None:
    with pytest.raises((ExpressionError, TypeError), match=message):
        build()
