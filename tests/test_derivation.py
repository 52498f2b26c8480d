"""The derivation: a chain of checked members from the naive term to the chosen one."""

from __future__ import annotations

import pytest

from egraph_flash import Axis, Tensor, f16, softmax
from egraph_flash.derivation import derive
from egraph_flash.extraction import extract
from egraph_flash.listing import listing
from egraph_flash.machines import machine
from egraph_flash.miniature import Miniature
from egraph_flash.record import Derivation
from egraph_flash.rules import laws
from tests.support.workloads import WORKLOADS, attention

CHIP = machine("sm_120")


def _derive(name: str, pins: dict[str, str] | None = None, block: int = 4) -> Derivation:
    made = WORKLOADS[name]()
    roots = made if isinstance(made, tuple) else (made,)
    found = extract(roots, CHIP, pins or {})
    return derive(found, dict.fromkeys(found.passes_by_axis, block))


def _families(derivation: Derivation) -> list[str]:
    return [step.law_family for step in derivation]


FULL = ["naive", "homomorphism", "tupling", "twist", "absorption", "bracketing"]


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("attention", FULL),
        ("attention_causal", FULL),
        ("without_max", FULL),
        ("kernel_regression", FULL),
        ("log_sum_exp", ["naive", "tupling", "twist", "bracketing"]),
        ("variance", ["naive", "twist", "bracketing"]),
        ("product", ["naive", "bracketing"]),
    ],
)
def test_the_chain(name: str, families: list[str]) -> None:
    """Each family of laws makes its step; steps that change nothing are left out."""
    derivation = _derive(name)
    assert _families(derivation) == families
    assert derivation.steps[-1].passes == 1
    assert derivation.steps[-1].unsafe == 0


def test_the_cut_plan_has_its_own_chain() -> None:
    derivation = _derive("attention", {"PLACE": "fold=cut"})
    assert _families(derivation) == ["naive", "homomorphism", "placement", "bracketing"]
    assert derivation.steps[-1].passes == 4


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_step_agrees_with_naive(name: str) -> None:
    """The recorded error is from a small instance, in float64; members are checked on the way."""
    pins = {"PLACE": "fold=fuse"} if name == "block" else {}
    for step in _derive(name, pins):
        assert step.max_error is not None
        assert step.max_error < 1e-12, step


def test_costs_and_passes_go_down() -> None:
    derivation = _derive("attention")
    first, last = derivation.steps[0], derivation.steps[-1]
    assert (first.passes, last.passes) == (3, 1)
    assert last.cost_us < first.cost_us
    assert max(step.unsafe for step in derivation) > 0  # the untwisted form is on the way


def test_laws_are_named_and_fired() -> None:
    derivation = _derive("attention")
    for step in derivation.steps[1:]:
        assert step.laws, step
        for law in step.laws:
            assert laws()[law].family == step.law_family
            assert derivation.hits[law] > 0
    assert list(derivation.hits) == sorted(derivation.hits)


def test_the_printed_chain() -> None:
    """What a user reads: names for shared parts, a carrier a line, the user's own axes."""
    b, h, m, n, d, e = Axis.many(b=1, h=8, m=4096, n=4096, d=64, e=64)
    q, k, v = (
        Tensor("q", (b, h, m, d), f16),
        Tensor("k", (b, h, n, d), f16),
        Tensor("v", (b, h, n, e), f16),
    )
    root = (softmax((q * k).sum(d) * 64**-0.5, n) * v).sum(n)
    found = extract((root,), CHIP, {})
    derivation = derive(found, {n: 64})
    score = "Σ_d(q[b, h, m, d] * k[b, h, n, d]) * 0.125"
    assert derivation.steps[0].term.splitlines() == [
        f"a = {score}",
        "c = exp(a - max_n(a))",
        "Σ_n(c / Σ_n(c) * v[b, h, n, e])",
    ]
    assert derivation.steps[-1].term.splitlines() == [
        f"F = fold serial n/64 tile n%64 {{m: max {score}; "
        "t1: Scale[m] v[b, h, n, e]; t2: Scale[m] 1}",
        "1 / F.t2 * F.t1",
    ]
    assert "6. " not in str(derivation)
    assert str(derivation).startswith("0. naive: passes 3, unsafe 0")


# ---- listings ------------------------------------------------------------------------------------


def test_a_listing_avoids_the_users_names() -> None:
    a, n = Axis.many(a=3, n=4)
    x = Tensor("c", (a, n), f16).expr
    top = x.max(n)
    assert listing(top * top + top).splitlines() == ["b = max_n(c[a, n])", "b * b + b"]


def test_a_listing_of_unshared_terms_is_one_line() -> None:
    (n,) = Axis.many(n=4)
    x = Tensor("x", (n,), f16).expr
    assert listing(x.sum(n)) == "Σ_n(x[n])"


def test_a_listing_is_not_exponential() -> None:
    (n,) = Axis.many(n=4)
    term = Tensor("x", (n,), f16).expr
    for _ in range(200):
        term = term * term + 1.0
    assert len(listing(term)) < 20_000


# ---- small instances -----------------------------------------------------------------------------


def test_a_small_instance_keeps_counts() -> None:
    """A number that is an axis' extent shrinks with it, so that a mean stays a mean."""
    root = WORKLOADS["variance"](m=4096, n=4096)
    found = extract((root,), CHIP, {})
    assert found.passes == 1
    small = Miniature((root,), found.roots)
    assert max(array.size for array in small.arrays.values()) < 200
    assert small.differs(found.term, root) < 1e-12


def test_a_small_instance_keeps_index_arithmetic() -> None:
    for root in (attention(h=32, m=512, n=2048, d=64, e=64, group=8), WORKLOADS["paged"](n=4096)):
        found = extract((root,), CHIP, {})
        small = Miniature((root,), found.roots)
        assert max(array.size for array in small.arrays.values()) < 20_000
        assert small.differs(found.term, root) < 1e-12


def test_a_small_instance_notices_a_difference() -> None:
    root = attention()
    assert Miniature((root,), (root * 2.0,)).differs(root * 2.0, root) > 1e-3
