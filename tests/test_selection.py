"""What elements at a maximum have, of naive definitions: one pass, whatever they are folded in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import (
    Axis,
    Tensor,
    argmax,
    evaluate,
    f16,
    f32,
    inf,
    log,
    optimize,
    register,
    softmax,
    where,
)
from egraph_flash.carriers import channels_of
from egraph_flash.errors import ExpressionError
from egraph_flash.representations import REPRESENTATIONS
from egraph_flash.rules import Law, of_representation
from egraph_flash.rules.sampling import refutation
from egraph_flash.terms import subterms
from tests.support.fresh import fresh_rng
from tests.support.own import MIN, OWN

m, n, d, e = Axis.many(m=40, n=300, d=16, e=16)
x, gate = Tensor("x", (m, n), f32).expr, Tensor("gate", (n,), f32).expr
q, k = Tensor("q", (m, d), f16), Tensor("k", (n, d), f16)
v = Tensor("v", (n, e), f16)
scores = (q * k).sum(d) * 0.25
masked = where(n.index < 4 * m.index, scores, -inf)  # row 0 sees nothing
top, best = x.max(n), scores.max(n)


def is_top(s: Any = x) -> Any:
    return where(s == s.max(n), 1.0, 0.0)


def arrays(kernel: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Few whole numbers, so that maxima are exact and many elements have them."""
    return {
        spec.name: rng.integers(-3, 4, spec.shape).astype(spec.dtype.storage)
        for spec in kernel.inputs
    }


# an expression, the representations of its carrier, and its passes as written
CASES: dict[str, tuple[Any, list[str], int]] = {
    "argmax": (argmax(x, n), ["SelectMax"], 2),
    "argmax of scores": (argmax(scores, n), ["SelectMax"], 2),
    "argmax under a mask": (argmax(masked, n), ["SelectMax"], 2),
    "how many": (is_top().sum(n), ["Select"], 2),
    "how many, turned round": (where(top == x, 1.0, 0.0).sum(n), ["Select"], 2),
    "how many are not below": (where(x >= top, 1.0, 0.0).sum(n), ["Select"], 2),
    "how many are not less": (where(~(x < top), 1.0, 0.0).sum(n), ["Select"], 2),
    "their sum": (where(x == top, gate, 0.0).sum(n), ["Select"], 2),
    "their mean": ((is_top() * gate).sum(n) / is_top().sum(n), ["Select", "Select"], 3),
    "their largest": (where(x == top, gate, -inf).max(n), ["SelectMax"], 2),
    "their rows": (where(x == top, v, 0.0).sum(n), ["Select"], 2),
    "their gated rows": ((v * is_top() * gate).sum(n), ["Select"], 2),
    "their rows, gated first": ((gate * (is_top() * v)).sum(n), ["Select"], 2),
    "rows of the best": (
        (is_top(scores) * v).sum(n) / is_top(scores).sum(n),
        ["Select", "Select"],
        3,
    ),
    "weights and their argmax": (
        (softmax(scores, n) * v).sum(n) + argmax(scores, n),
        ["Scale", "Scale", "SelectMax"],
        4,
    ),
}
COLUMNS = [name for name, (expr, *_) in CASES.items() if e in expr.axes]


def run(expr: Any, pins: dict[str, str] | None = None) -> Any:
    kernel = optimize(expr.cast(f32), "sm_120", pins)
    given = arrays(kernel, fresh_rng())
    wanted = evaluate(expr, given)
    assert not np.isnan(wanted).any()
    result = kernel.run(backend="sim", **given)
    assert np.abs(result - wanted).max() <= 1e-3 * max(1.0, np.abs(wanted).max())
    if not any(node.head == "Exp" for node in subterms(expr)):
        assert np.abs(result - wanted).max() <= 1e-6 * max(1.0, np.abs(wanted).max())
    return kernel


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "pins", [{}, {"REDUCE": "s128", "PLACE": "fold=fuse"}], ids=["whole", "shared"]
)
def test_one_pass(name: str, pins: dict[str, str]) -> None:
    """The base is the maximum; what a larger one drops is folded beside it, over ties too."""
    expr, representations, naive = CASES[name]
    kernel = run(expr, pins)
    assert kernel.derivation.steps[0].passes == naive
    assert kernel.passes == 1
    states = [node.args[0] for node in subterms(*kernel.terms) if node.head == "Get"]
    channels = channels_of(states[0])
    assert all(state is states[0] for state in states)
    twisted = [channel.args[0].args[0] for channel in channels if channel.head == "Tw"]
    assert sorted(twisted) == sorted(representations)
    assert len(channels) == 1 + len(twisted)


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_the_best_are_a_matrix_product(name: str) -> None:
    """Of 0 and 1 with the rows: on tensor cores, as any other weights."""
    kernel = optimize(CASES[name][0], "sm_120")
    assert kernel.schedule["TILE@n"].startswith("a:mma_m16n8k16_f16")


def test_a_row_without_elements_has_the_first_of_them() -> None:
    """By the definition: all of its elements equal the maximum, -inf."""
    kernel = optimize(argmax(masked, n).cast(f32), "sm_120")
    given = arrays(kernel, fresh_rng())
    assert kernel.run(backend="sim", **given)[0] == evaluate(argmax(masked, n), given)[0] == 0.0


def test_the_index_of_nothing() -> None:
    (none,) = Axis.many(none=0)
    assert evaluate(argmax(Tensor("y", (none,), f32), none), {"y": np.zeros(0)}) == inf


def test_an_open_axis() -> None:
    seq = Axis("n", "seq", hint=64)
    y = Tensor("y", (m, seq), f32)
    kernel = optimize(argmax(y, seq), "sm_120")
    assert kernel.passes == 1
    for length in (1, 45, 130):
        values = fresh_rng().integers(-9, 9, (40, length)).astype(np.float32)
        result = kernel.run(backend="sim", y=values)
        np.testing.assert_array_equal(result, values.argmax(axis=1))


def test_indices_are_whole_numbers_of_f32() -> None:
    long = Axis("n", 2**24 + 1)
    with pytest.raises(ExpressionError, match="argmax: got the axis n of 16777217 elements"):
        argmax(Tensor("y", (long,), f32), long)


def test_a_monoid_of_ones_own_selects_too() -> None:
    """Registered, it folds what the elements at the maximum have: here the first index."""
    with register(MIN):
        first = where(x == top, n.index, inf).fold(MIN, n)
        kernel = run(first)
        assert kernel.passes == 1
        assert "SelectMin" in str(kernel.derivation)
    assert "SelectMin" not in REPRESENTATIONS


@pytest.mark.parametrize(
    "row", [row for row in OWN if row.domain is None], ids=lambda row: row.name
)
def test_its_laws_hold(row: Any, seed: int) -> None:
    with register(row):
        made = of_representation(REPRESENTATIONS[f"Select{row.name}"])
        found = [refutation(law, seed) for law in made if isinstance(law, Law)]
    assert found == [None, None]


def test_what_is_no_maximum_is_not_selected() -> None:
    """Elements that equal another value, or another row's maximum, take their passes."""
    (other,) = Axis.many(other=40)
    highest = Tensor("x", (other, n), f32).expr.max(n)
    for expr in (where(x == gate, 1.0, 0.0).sum(n) * top, where(x == highest, 1.0, 0.0).sum(n)):
        kernel = optimize(expr, "sm_120")
        assert "Select" not in str(kernel.derivation)
    assert optimize(log(where(x == -top, 2.0, 1.0).sum(n)), "sm_120").passes == 2
