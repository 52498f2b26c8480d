"""Random members of the class of every workload agree with the naive term in float64."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Expr, Tensor, evaluate, f32
from egraph_flash.egraph import Session
from egraph_flash.frozen import Frozen, read
from egraph_flash.members import Sampler, count
from egraph_flash.terms import make, subterms
from tests.support.members import inputs
from tests.support.workloads import WORKLOADS

MEMBERS, ENOUGH, TRIES, SLACK = 32, 4, 400, 12
FEWER = {"block": 6}  # members of this one are slow to evaluate
BLOCK, STEPS = 3, 2  # neither divides the lengths of the workloads
TOLERANCE = 1e-9  # relative to the larger of 1 and the value


def _saturated(roots: tuple[Expr, ...]) -> Frozen:
    """All laws, towers over every axis and the grid level among them."""
    session = Session(roots)
    assert session.saturate().stopped == "settled"
    axes = dict.fromkeys(node.args[1] for node in subterms(*roots) if node.head == "Red")
    shares = {make("Outer", axis, BLOCK): STEPS for axis in axes}
    session.bracket(dict.fromkeys(axes, BLOCK), shares)
    loads = [node for node in subterms(*roots) if node.head == "Load"]
    return read(session.engine, loads)


@pytest.mark.parametrize("name", WORKLOADS)
def test_members_agree(name: str, seed: int) -> None:
    """Fully masked rows, lengths that no block divides, and every law's results among them."""
    made = WORKLOADS[name]()
    roots = made if isinstance(made, tuple) else (made,)
    frozen = _saturated(roots)
    sampler = Sampler(frozen, random.Random(seed))
    arrays = inputs(roots, np.random.default_rng(seed))
    for root, klass in zip(roots, frozen.roots, strict=True):
        want = evaluate(root, arrays)
        members: dict[Any, None] = {}
        for _ in range(TRIES):
            if len(members) >= FEWER.get(name, MEMBERS):
                break
            term = sampler.member(klass, sampler.rng.randrange(SLACK))
            if term is not None and set(term.axes) == set(root.axes):
                members[term] = None
        assert len(members) >= ENOUGH, f"{name}: only {len(members)} members"
        for term in members:
            got = evaluate(term, arrays)
            got = np.transpose(got, [term.axes.index(axis) for axis in root.axes])
            _agree(got, want, term)


def _agree(got: Any, want: Any, term: Any) -> None:
    """Element by element; NaN agrees with nothing."""
    with np.errstate(invalid="ignore"):
        close = np.abs(got - want) <= TOLERANCE * np.maximum(1.0, np.abs(want))
    wrong = ~(close | (got == want))
    assert not wrong.any(), f"{got[wrong]} is not {want[wrong]} for\n{term}"


def test_fully_masked_rows_give_the_identity(seed: int) -> None:
    """Output 0, log-sum-exp -inf, by every member."""
    for name, value in (("attention_rows", 0.0), ("log_sum_exp_masked", -np.inf)):
        root = WORKLOADS[name]()
        arrays = inputs((root,), np.random.default_rng(seed))
        found = evaluate(root, arrays)
        assert np.all(found[0] == value)  # the first row has no element


def test_a_wrong_law_is_noticed(seed: int) -> None:
    """A rule that forgets the rescale makes members that differ."""
    root = WORKLOADS["divided_outside"]()
    session = Session((root,))
    session.run(
        "(ruleset wrong) (rule ((= e (Exp (Sub a b)))) ((union e (Exp a)))"
        ' :ruleset wrong :name "wrong")'
    )
    session.saturate()
    session.run("(run-schedule (run wrong))")
    frozen = read(session.engine, [n for n in subterms(root) if n.head == "Load"])
    sampler = Sampler(frozen, random.Random(seed))
    arrays = inputs((root,), np.random.default_rng(seed))
    want = evaluate(root, arrays)
    terms = [sampler.member(frozen.roots[0], SLACK) for _ in range(150)]
    wrong = [term for term in terms if term is not None and not _agrees(term, root, arrays)]
    assert wrong
    with pytest.raises(AssertionError, match="is not"):
        _agree(evaluate(wrong[0], arrays), want, wrong[0])


def _agrees(term: Any, root: Any, arrays: Any) -> bool:
    if term.axes != root.axes:
        return True
    return bool(np.allclose(evaluate(term, arrays), evaluate(root, arrays)))


def test_members_are_counted() -> None:
    """A sum of two loads, and its two orders once they are equal; each load is one term."""
    (n,) = Axis.many(n=3)
    a, b = (Tensor(name, (n,), f32).expr for name in "ab")
    session = Session((a + b,))
    loads: list[Any] = [a, b]

    def counted(height: int) -> int:
        frozen = read(session.engine, loads)
        return count(frozen, frozen.roots[0], height)

    assert [counted(height) for height in (0, 1, 2, 3)] == [0, 0, 1, 1]
    session.run(
        "(ruleset order) (rule ((= e (Add x y))) ((union e (Add y x)))"
        ' :ruleset order :name "order")'
    )
    session.run("(run-schedule (run order))")
    assert counted(2) == 2
    session.run('(rule ((= e (Add x y))) ((union e (Neg (Neg e)))) :ruleset order :name "twice")')
    session.run("(run-schedule (run order))")
    assert [counted(height) for height in (2, 3, 4, 5)] == [2, 2, 4, 4]
