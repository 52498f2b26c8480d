"""Every mistake in a law is caught by the samples that the law is tested on."""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash.rules import Law, gauge, laws
from egraph_flash.rules.facts import Fact
from egraph_flash.rules.sampling import LawSample, Unusable, conclusions_hold, is_claim
from tests.support.mutants import mutants

TRIES = 400

# Mutants that are true as well: what the missing premise is for instead.
TRUE_TOO = {
    ("finiteness/merge-below", "without bounded(b, a)"): "it keeps the exponent below 0, safe",
    ("homomorphism/hoist", "without invariant(u, k)"): "where u varies, the pair law says more",
    **{
        (f"selection/{name}", "without invariant(p, k)"): "of one element, no part cancels another"
        for name in ("difference", "sum")
    },
    **{
        ("twist/unfold-comoment-plain", what): "one of two factors need be centred, either"
        for what in (
            *("Σ_k(x) with Max", "Σ_k(x) / number with Mul", "x - Σ_k(x) / number with Add"),
            *("Σ_k(r) with Max", "Σ_k(r) / number with Mul", "r - Σ_k(r) / number with Add"),
        )
    },
    **{
        (f"homomorphism/{name}", f"without {sign}"): "with one sign, no part cancels another"
        for name in ("alike", "alike-right")
        for sign in ("nonnegative(p)", "positive(z)", "nonpositive(a)", "nonnegative(c)")
    },
}
CLAIMS = [law for law in laws().values() if isinstance(law, Law) and is_claim(law)]
CLAIMS += gauge.laws()


@pytest.mark.parametrize("law", CLAIMS, ids=lambda law: law.name)
def test_every_mutant_is_caught(law: Law, seed: int) -> None:
    wild = frozenset(_finite_variables(law))
    for what, mutant in mutants(law):
        if (law.name, what) in TRUE_TOO:
            continue
        assert _is_caught(mutant, seed, wild), f"{law.name} {what} passes {TRIES} samples"


def _is_caught(mutant: Law, seed: int, wild: frozenset[str]) -> bool:
    random = np.random.default_rng(seed)
    for _ in range(TRIES):
        try:
            if not conclusions_hold(LawSample(mutant, random, wild), mutant):
                return True
        except Unusable:
            continue
    return False


def _finite_variables(law: Law) -> list[str]:
    facts = [clause for clause in law.given if isinstance(clause, Fact)]
    return [clause.args[0].args[0] for clause in facts if clause.kind.name == "finite"]


def test_there_are_mutants_of_each_kind() -> None:
    names = [what for law in CLAIMS for what, _ in mutants(law)]
    for kind in ("without ", " with ", "without its sign", "without factor", "of the opposite"):
        assert any(kind in name for name in names), kind
    assert len(names) > 300


def test_exempt_mutants_exist() -> None:
    every = {(law.name, what) for law in CLAIMS for what, _ in mutants(law)}
    assert every >= set(TRUE_TOO)


def test_a_forgotten_rescale_is_caught(seed: int) -> None:
    """The classic mistake: states against different maxima added without the weights."""
    law = laws()["twist/transport-scale-weighted"]
    assert isinstance(law, Law)
    forgotten = [mutant for what, mutant in mutants(law) if "without factor 0" in what]
    assert forgotten
    assert all(_is_caught(mutant, seed, frozenset()) for mutant in forgotten)
