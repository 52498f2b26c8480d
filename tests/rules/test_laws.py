"""Every law holds on sampled values, and every rule fires on its example."""

from __future__ import annotations

from typing import Any

import pytest

from egraph_flash import Axis, Tensor, f32
from egraph_flash.egraph import Session
from egraph_flash.extraction import bracket, extract
from egraph_flash.machines import machine
from egraph_flash.rules import Law, Row, examples, gauge, laws, rewrite
from egraph_flash.rules.facts import KINDS, fact
from egraph_flash.rules.law import Equal, Steering
from egraph_flash.rules.patterns import E, k, total
from egraph_flash.rules.sampling import is_claim, refutation

CLAIMS = [law for law in laws().values() if isinstance(law, Law) and is_claim(law)]
CLAIMS += gauge.laws()


@pytest.mark.parametrize("law", CLAIMS, ids=lambda law: law.name)
def test_law_holds(law: Law, seed: int) -> None:
    """What a law concludes holds wherever its premises do; too few usable samples is a failure."""
    found = refutation(law, seed)
    assert found is None, f"{law.name}: {found}"


def _by_example() -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for law in laws().values():
        found.setdefault(law.example, []).append(law)
    return found


EXAMPLES = _by_example()


@pytest.fixture(scope="module")
def engine() -> Session:
    """An e-graph that has read the laws."""
    return Session((examples.x,))


@pytest.mark.parametrize("rows", EXAMPLES.values(), ids=lambda rows: rows[0].name)
def test_rule_fires(rows: list[Row], engine: Session) -> None:
    """Every rule, law or steering, matches while its example saturates."""
    example = rows[0].example
    if any(row.phase in ("bracketing", "absorption") for row in rows):
        found = extract((example,), machine("sm_90"), {})
        (axis,) = found.passes_by_axis
        bracket(found, {axis: 3}, {axis: 2})
        hits = found.search.session.hits
    else:
        with engine.aside(example) as session:
            session.saturate()
        hits = session.hits
    silent = [row.name for row in rows if not hits[row.name]]
    assert not silent, f"on {example}"


def test_every_family_is_there() -> None:
    families = {law.family for law in laws().values()}
    assert families >= {
        "homomorphism",
        "tupling",
        "twist",
        "absorption",
        "bracketing",
        "placement",
    }


# ---- rows are validated where they are built -----------------------------------------------------


def test_a_law_may_not_conclude_about_unbound_variables() -> None:
    a, b = E("a b")
    with pytest.raises(AssertionError, match=r"units/wrong: concludes about unbound \['b'\]"):
        rewrite("units/wrong", a * 1.0, b, phase="units", source="none", example=a)


@pytest.mark.parametrize(
    ("name", "phase", "source", "message"),
    [
        ("wrong", "units", "x", "family/effect"),
        ("units/Wrong", "units", "x", "family/effect"),
        ("units/wrong", "never", "x", "got the phase 'never'"),
        ("units/wrong", "units", "", "wants a source"),
    ],
)
def test_a_row_is_checked(name: str, phase: str, source: str, message: str) -> None:
    a = E("a")
    with pytest.raises(AssertionError, match=message):
        Steering(name, phase, source, a, "(= a b)", "(union a b)")


def test_a_fact_is_checked() -> None:
    with pytest.raises(AssertionError, match="nonpositive takes"):
        fact("nonpositive", k)
    with pytest.raises(AssertionError, match="bounded takes"):
        fact("bounded", E("a"))


def test_premises_of_literals_cannot_be_concluded() -> None:
    a = E("a")
    law = Law("units/wrong", "units", "x", a, (Equal(a, a * 1.0),), (fact("<=", 1.0, 2.0),))
    with pytest.raises(AssertionError, match="cannot be concluded"):
        _ = law.egglog


def test_printed_laws() -> None:
    """The text of one law of each kind, as egglog reads it."""
    assert laws()["units/one-times"].egglog == (
        "(rule ((= whole (Mul (Num 1.0) x))) ((union whole x) (subsume (Mul (Num 1.0) x)))"
        ' :ruleset units :name "units/one-times")'
    )
    assert laws()["homomorphism/hoist"].egglog == (
        "(rule ((= x (Red (Sum) k e)) (split e k c i u r) (= free2 (free u))"
        " (set-not-contains free2 k)) ((union x (Mul c (Mul (Exp i) (Red (Sum) k"
        ' (Mul (Exp u) r)))))) :ruleset homomorphism :name "homomorphism/hoist")'
    )


def test_steering_facts_say_what_they_are_for() -> None:
    for kind in KINDS.values():
        assert kind.says, kind.name
        assert not kind.primitive or kind.name in ("<=", "<", ">=", ">", "!=")


def test_a_law_is_generated_for_each_chart() -> None:
    from egraph_flash.representations import REPRESENTATIONS

    for row in REPRESENTATIONS.values():
        for chart in row.charts:
            for kind in ("orbit", "unfold", *(("transport",) if row.is_group else ())):
                assert f"twist/{kind}-{row.name.lower()}-{chart.name}" in laws()


def test_sums_stay_sums_of_nothing() -> None:
    """A law on a sum holds on an empty axis too; the sampler has such axes."""
    (n,) = Axis.many(n=0)
    session = Session((Tensor("x", (n,), f32).expr.sum(n) * 1.0,))
    session.saturate()
    assert session.holds(0, total(n, Tensor("x", (n,), f32).expr))
