"""Monoids and laws of one's own: checked before they count, and then rows like all others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egraph_flash import (
    Axis,
    Monoid,
    Tensor,
    evaluate,
    exp,
    f16,
    f32,
    inf,
    log,
    minimum,
    optimize,
    register,
    softmax,
    where,
)
from egraph_flash.absence import folded_kinds
from egraph_flash.carriers import channels_of
from egraph_flash.dtypes import Array
from egraph_flash.errors import ExpressionError, LawError
from egraph_flash.evaluation import Value as Evaluated
from egraph_flash.evaluation import _reduced
from egraph_flash.monoids import MONOIDS
from egraph_flash.notation import text
from egraph_flash.registration import definitions
from egraph_flash.rules import Law, laws, rewrite
from egraph_flash.rules.law import Steering
from egraph_flash.rules.patterns import E, k, peak, reduce, total
from egraph_flash.terms import HEADS, subterms
from tests.support.fresh import fresh_rng
from tests.support.own import ANY, LOG_ADD_EXP, MIN, OWN, PARITY, PROD, WRONG

m, n, d = Axis.many(m=5, n=77, d=16)
x = Tensor("x", (m, n), f32)
q, w = Tensor("q", (m, d), f16), Tensor("w", (n, d), f16)
ROOT = Path(__file__).parent.parent
IDS = [row.name for row in OWN]


@pytest.fixture
def own() -> Iterator[None]:
    with register(*OWN):
        yield


def arrays(rng: np.random.Generator) -> dict[str, Array]:
    return {
        "x": rng.standard_normal((5, 77)).astype(np.float32),
        "q": rng.standard_normal((5, 16)).astype(np.float16),
        "w": rng.standard_normal((77, 16)).astype(np.float16),
    }


def element(row: Monoid, value: Any) -> Any:
    """A value of the monoid's domain, such that no fold of them leaves f32."""
    if row is ANY:
        return where(value > 2.0, 1.0, 0.0)
    if row in (PROD, PARITY):
        return 0.4 + 0.1 * value if row is PARITY else 1.0 + 0.1 * value
    return abs(value) if row.domain is not None else value * 1.0


def run(expr: Any, pins: dict[str, str] | None = None) -> Any:
    """The kernel, whose result was compared with float64."""
    kernel = optimize(expr.cast(f32), "sm_120", pins)
    given = {name: array for name, array in arrays(fresh_rng()).items() if name in _inputs(kernel)}
    wanted = evaluate(expr, given)
    assert not np.isnan(wanted).any()
    result = kernel.run(backend="sim", **given)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(result[~finite], wanted[~finite])
    error = np.abs(result[finite] - wanted[finite])
    assert error.max() <= 2e-5 * max(1.0, np.abs(wanted[finite]).max())
    return kernel


def _inputs(kernel: Any) -> set[str]:
    return {spec.name for spec in kernel.inputs}


# ---- kernels -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("row", OWN, ids=IDS)
@pytest.mark.parametrize("pins", [{}, {"REDUCE": "s32"}], ids=["whole", "shared"])
def test_a_fold_is_what_its_combine_says(row: Monoid, pins: dict[str, str]) -> None:
    """77 elements in blocks of 32: the last one is padded with the identity."""
    kernel = run(element(row, x).fold(row, n), pins)
    assert kernel.passes == 1
    assert ("fold grid" in str(kernel.derivation)) == bool(pins)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("row", OWN, ids=IDS)
def test_masked_elements_are_the_identity(row: Monoid) -> None:
    """Row 0 has no element left; blocks that the mask removes are skipped."""
    masked = where(n.index < 16 * m.index, element(row, x), row.identity)
    kernel = run(masked.fold(row, n))
    assert kernel.schedule["SKIP"] == "index"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("row", OWN, ids=IDS)
def test_it_folds_scores_of_tensor_cores(row: Monoid) -> None:
    scores = (q * w).sum(d) * 0.25
    kernel = run(element(row, scores).fold(row, n), {"TILE@d": "a:mma_m16n8k16_f16/w1x1/f1x4/k1"})
    assert kernel.passes == 1


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("row", OWN, ids=IDS)
def test_it_shares_the_pass_of_other_folds(row: Monoid) -> None:
    scores = (q * w).sum(d) * 0.25
    expr = (softmax(scores, n) * x).sum(n) + element(row, scores).fold(row, n)
    kernel = run(expr)
    assert kernel.passes == len(kernel.plan.launches) == 1
    states = {node.args[0] for node in subterms(*kernel.terms) if node.head == "Get"}
    assert {len(channels_of(state)) for state in states} == {4}


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("row", OWN, ids=IDS)
def test_it_may_stand_inside_of_another_fold(row: Monoid) -> None:
    """A reduction in the body: a loop in each lane, then a butterfly."""
    inner = element(row, q * w).fold(row, d)
    assert run(inner.max(n)).passes == 1


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("row", OWN, ids=IDS)
def test_nothing_folds_to_the_identity(row: Monoid) -> None:
    (none,) = Axis.many(none=0)
    y = Tensor("y", (none,), f32)
    assert evaluate(y.expr.fold(row, none), {"y": np.zeros(0)}) == row.identity


@pytest.mark.parametrize("row", [row for row in MONOIDS.values() if row.reduce is not None])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 8])
def test_what_numpy_folds_is_what_the_combine_says(row: Monoid, length: int) -> None:
    values = fresh_rng().integers(-9, 9, (3, length)).astype(np.float64)
    found = _reduced(row, Evaluated(values, (m, n), np.zeros(values.shape, bool)))
    assert row.reduce is not None
    np.testing.assert_array_equal(found.array, row.reduce(values, 1))


@pytest.mark.usefixtures("own")
def test_where_folds_may_be_absent() -> None:
    """A maximum of logarithms is one; a sum of them is a logarithm wherever one of them is."""
    log_domain = frozenset({"log"})
    for name in ("Sum", "Max", "LogAddExp", "Min"):
        assert folded_kinds(name, log_domain) == log_domain


def test_it_may_be_the_first_thing_that_a_process_does() -> None:
    """The package's own laws are not generated yet."""
    code = """
from egraph_flash import Axis, Monoid, Tensor, f32, inf, minimum, optimize, register
register(Monoid("Min", "min", minimum, inf))
m, n = Axis.many(m=3, n=5)
assert optimize(Tensor("x", (m, n), f32).expr.fold("Min", n), "sm_120").passes == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_monoid_is_refused(name: str) -> None:
    """With the values on which its claim fails, and nothing is left of it."""
    row, message = WRONG[name]
    before = dict(MONOIDS), dict(HEADS)
    with pytest.raises(LawError, match=message):
        register(MIN, row)
    assert before == (MONOIDS, HEADS)


def test_a_combine_reads_its_arguments_alone() -> None:
    y = Tensor("y", (n,), f32)
    with pytest.raises(LawError, match=r"Off: its combine reads .*, wants a pointwise expression"):
        register(Monoid("Off", "off", lambda a, b: a + b + y, 0.0))
    with pytest.raises(LawError, match="Off: its domain reads"):
        register(Monoid("Off", "off", lambda a, b: a + b, 0.0, domain=lambda a: y > a))


@pytest.mark.parametrize(
    ("name", "symbol", "identity", "message"),
    [
        ("min", "min", inf, "got the name 'min', wants a word that begins with a capital"),
        ("Min ", "min", inf, "got the name 'Min '"),
        ("Min", "", inf, "monoid Min: got the symbol '', wants a word or a sign"),
        ("Min", "min", 1e300, "monoid Min: got the identity 1e"),
        ("Min", "min", float("nan"), "monoid Min: got the identity nan"),
    ],
)
def test_a_row_is_checked(name: str, symbol: str, identity: float, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        Monoid(name, symbol, minimum, identity)


def test_an_unknown_monoid_is_told_the_known_ones() -> None:
    message = r"fold: got the monoid 'Min', wants one of Sum, Max, or another after .*register"
    with pytest.raises(ExpressionError, match=message):
        x.fold("Min", n)
    with pytest.raises(ExpressionError, match=message):
        x.fold(MIN, n)
    with register(MIN), pytest.raises(ExpressionError, match="fold: got the monoid 'Min'"):
        x.fold(Monoid("Min", "min", lambda a, b: a + b, 0.0), n)
    with pytest.raises(ExpressionError, match=message):
        reduce("Min", k, e)
    with register(MIN), pytest.raises(ExpressionError, match="min: got axis d"):
        x.fold(MIN, d)


def test_the_same_again_is_nothing_new() -> None:
    with register(MIN):
        with register(Monoid("Min", "min", lambda a, b: minimum(a, b), inf)):
            pass
        assert x.fold("Min", n).axes == (m,)
        other = Monoid("Min", "min", minimum, inf, domain=lambda a: a >= 0.0)
        with pytest.raises(LawError, match="monoid Min: the name is taken"):
            register(other)
    assert "Min" not in MONOIDS
    assert "Min" not in HEADS


# ---- other expressions ---------------------------------------------------------------------------


def test_others_keep_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither their key nor a byte of their PTX moves, whatever monoids there are."""
    monkeypatch.setenv("EGRAPH_FLASH_CACHE", "off")
    expr = (softmax(x, n) * x).sum(n)
    alone = optimize(expr, "sm_120").ptx
    with register(*OWN):
        assert definitions(str(expr)) == ()
        assert optimize(expr, "sm_120").ptx == alone


def test_a_key_holds_what_is_meant() -> None:
    """The definition of a monoid that is used, and laws that may fire."""
    with register(MIN, PROD):
        one = definitions(text(x.fold(MIN, n)))
        assert "Prod" not in str(one)
    with register(Monoid("Min", "least", minimum, inf)):
        other = definitions(text(x.fold("Min", n)))
    assert one[0] != other[0]
    assert one[1:] == other[1:]  # what Min makes of the elements at a maximum
    with register(LOG_ADD_EXP), register(log_sum()):
        assert definitions(text(x.sum(n))) == ()  # there is nothing that it could fire on
        assert "own/log-sum" in str(definitions(text(x.fold("LogAddExp", n))))
    halves = rewrite("own/halves", e * 0.5, e / 2.0, **_row(x.sum(n) * 0.5))
    with register(halves):
        assert definitions(text(x.sum(n))) == (halves.egglog,)


def test_the_same_name_makes_another_kernel() -> None:
    """From one cache: a redefined monoid is not taken for the one before it."""
    found = []
    for combine, identity in ((minimum, inf), (lambda a, b: a * b, 1.0)):
        with register(Monoid("Own", "own", combine, identity)):
            found.append(run(x.fold("Own", n) * 1.0).ptx)
    assert found[0] != found[1]


def test_a_name_may_come_to_mean_another_monoid() -> None:
    """Nothing that was found out about the first is taken for the second: blocks may be skipped
    where a mask puts the identity of a product, and not where it puts the least of all values."""
    for combine, identity in ((PROD.combine, 1.0), (minimum, inf)):
        with register(Monoid("Own", "own", combine, identity)):
            masked = where(n.index < 16 * m.index, 2.0 + 0.01 * abs(x), 1.0)
            assert run(masked.fold("Own", n) * 1.0).schedule["SKIP"] == "index"


# ---- laws ----------------------------------------------------------------------------------------

e = E("e")


def log_sum(wrong: Any = None, example: Any = None) -> Law:
    """A log-sum-exp is the logarithm of a sum."""
    return rewrite(
        "own/log-sum",
        reduce("LogAddExp", k, e),
        log(total(k, exp(e) if wrong is None else wrong)),
        phase="homomorphism",
        source="exp is a homomorphism from LogAddExp to Sum",
        example=x.fold("LogAddExp", n) if example is None else example,
    )


def test_a_law_makes_one_pass_of_two() -> None:
    """Weights relative to a log-sum-exp of one's own come to the carrier that all weights do."""
    scores = (q * w).sum(d) * 0.25
    with register(LOG_ADD_EXP):
        expr = (exp(scores - scores.fold("LogAddExp", n)) * x).sum(n)
        before = run(expr)
        with register(log_sum()):
            after = run(expr)
            assert "own/log-sum" in after.derivation.steps[1].laws
        assert run(expr).passes == before.passes == 2
    assert after.passes == len(after.plan.launches) == 1
    assert after.derivation.steps[-1].unsafe == 0
    (state,) = {node.args[0] for node in subterms(*after.terms) if node.head == "Get"}
    assert sorted(channel.head for channel in channels_of(state)) == ["Ch", "Tw", "Tw"]


def test_a_law_that_does_not_hold_is_refused() -> None:
    before = dict(laws())
    with register(LOG_ADD_EXP):
        with pytest.raises(LawError) as refused:
            register(log_sum(wrong=e))
        assert "own/log-sum: whole = logsumexp_k(e) does not give whole = log(Σ_k(e)) on" in str(
            refused.value
        )
        assert "\ne[" in str(refused.value)
        assert "\nlog(Σ_k(e))[" in str(refused.value)
        with pytest.raises(LawError, match="does not fire while its example"):
            register(log_sum(example=x.max(n)))
        with pytest.raises(LawError, match="law units/one-times: the name is taken"):
            register(rewrite("units/one-times", peak(k, e), e, **_row(x.max(n))))
    assert laws() == before


def test_a_law_goes_with_the_monoid_that_it_names() -> None:
    before = dict(laws())
    monoid = register(LOG_ADD_EXP)
    law = register(log_sum())
    monoid.remove()
    assert laws() == before
    law.remove()
    assert optimize((softmax(x, n) * x).sum(n), "sm_120").passes == 1


def test_only_what_is_claimed_can_be_registered() -> None:
    steering = Steering(
        "own/pool", "tupling", "none", x.max(n), "(carrier s k)", "(set (pool k) s)"
    )
    with pytest.raises(LawError, match="register: got 'own/pool', wants a Monoid, or a Law"):
        register(steering)
    with pytest.raises(LawError, match="register: got 3, wants a Monoid, or a Law"):
        register(3)  # type: ignore[arg-type]


def _row(example: Any) -> dict[str, Any]:
    return {"phase": "units", "source": "none", "example": example}
