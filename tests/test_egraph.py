"""Saturation stops, obeys its limits, and says the same thing in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from egraph_flash import Axis, Expr, Tensor, exp, f32
from egraph_flash.canonical import Naming
from egraph_flash.egraph import Limits, Session
from egraph_flash.errors import EgraphFlashError
from egraph_flash.free import free
from egraph_flash.frozen import read
from egraph_flash.notation import text
from egraph_flash.terms import make, subterms
from tests.support.workloads import WORKLOADS, attention, product


def _roots(name: str) -> tuple[Expr, ...]:
    made = WORKLOADS[name]()
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("name", WORKLOADS)
def test_saturation_settles(name: str) -> None:
    """Every workload settles by itself, in a table of moderate size."""
    session = Session(_roots(name))
    found = session.saturate()
    assert found.stopped == "settled"
    assert found.rounds < Limits().rounds
    assert found.rows < 2500


def test_limits_are_obeyed() -> None:
    roots = _roots("attention")
    assert Session(roots).saturate(Limits(rounds=2)).stopped == "rounds"
    cut = Session(roots).saturate(Limits(rows=100))
    assert cut.stopped == "rows"


def test_no_outputs_is_an_error() -> None:
    with pytest.raises(EgraphFlashError, match="e-graph: got no expression, wants at least one"):
        Session(())


def test_a_term_of_another_class_is_no_member() -> None:
    term = attention()
    session = Session((term,))
    session.saturate()
    assert session.holds(0, term)
    assert not session.holds(0, term * 2.0)
    assert not session.holds(1, term)


def test_carriers_are_asked_for_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A term whose parts are shared over and over is exponentially long when written out."""
    (n,) = Axis.many(n=8)
    y = Tensor("x", (n,), f32).expr
    for _ in range(14):
        y = y * y
    session = Session((y.sum(n),))
    programs: list[str] = []
    run = session.run

    def recorded(program: str) -> Any:
        programs.append(program)
        return run(program)

    monkeypatch.setattr(session, "run", recorded)
    for _ in range(2):  # each time under names of their own
        session.narrow([(n, (make("Ch", make("Sum"), y),))])
    assert max(map(len, programs)) < 2000
    assert session.holds(0, y.sum(n))


def test_hits_count_the_laws_that_matched() -> None:
    session = Session((attention(),))
    session.saturate()
    assert session.hits["twist/orbit-scale-weighted"] >= 1
    assert session.hits["twist/orbit-shift-plain"] == 0


def test_the_tables_read_back() -> None:
    """Every subterm of the input is found in the frozen tables, in the class of the output."""
    root = attention(mask="causal")
    session = Session((root,))
    session.saturate()
    loads = [node for node in subterms(root) if node.head == "Load"]
    frozen = read(session.engine, loads)
    assert frozen.find(root) is frozen.roots[0]
    assert frozen.find(root * 3.0) is None
    for load in loads:
        klass = frozen.find(load)
        assert klass is not None
        assert klass.free == frozenset(free(load))
        assert frozen.loads[klass] is load


def test_loads_keep_their_index_arithmetic() -> None:
    """The axes of a load are those of its index expressions, divided or looked up."""
    root = WORKLOADS["paged"]()
    session = Session((root,))
    session.saturate()
    loads = [node for node in subterms(root) if node.head == "Load"]
    frozen = read(session.engine, loads)
    for load in loads:
        klass = frozen.find(load)
        assert klass is not None
        assert klass.free == frozenset(free(load))


def test_symbolic_extents_have_no_count() -> None:
    """Where the length is not known, no law may use it."""
    n = Axis("n", "seq", hint=128)
    m = Axis("m", 4)
    x = Tensor("x", (m, n), f32)
    mean = x.expr.sum(n) / 128.0
    session = Session((((x - mean) * (x - mean)).sum(n),))
    session.saturate()
    assert session.hits["twist/orbit-shift-plain"] == 0
    assert session.sizes()["count"] == 1


def test_masked_rows_are_not_finite() -> None:
    """exp(-a) exp(a) x does not cancel where a may be -inf and x stays."""
    m, n = Axis.many(m=3, n=4)
    x = Tensor("x", (m, n), f32).expr
    top = make("Where", n.index <= m.index, x, make("Num", float("-inf"))).max(n)
    root = exp(-top) * (exp(top) * Tensor("g", (m,), f32))
    session = Session((root,))
    session.saturate()
    assert not session.holds(0, Tensor("g", (m,), f32).expr)


# ---- determinism ---------------------------------------------------------------------------------

_PROGRAM = """
import sys
from egraph_flash.extraction import bracket, extract
from egraph_flash.derivation import derive
from egraph_flash.machines import machine
from egraph_flash.notation import text
from tests.support.workloads import WORKLOADS
for name in sys.argv[1:]:
    made = WORKLOADS[name]()
    roots = made if isinstance(made, tuple) else (made,)
    for pins in ({}, {"PLACE": "fold=cut"}):
        found = extract(roots, machine("sm_120"), pins)
        blocks = {axis: 4 for axis in found.passes_by_axis}
        print(*map(text, bracket(found, blocks)), found.cost_us, derive(found, blocks))
"""


def _run(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."}
    names = ["attention_causal", "entropy", "layer_norm_matmul", "two_outputs"]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *names],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_every_process_says_the_same() -> None:
    """Terms, costs and derivations do not depend on PYTHONHASHSEED or on the process."""
    first = _run("0")
    assert len(first) > 1000
    assert _run("1") == first
    assert _run("random") == first


def test_canonical_names_go_there_and_back() -> None:
    root = attention(group=4, h=8)
    naming = Naming((root,))
    renamed = naming.canonical(root)
    assert naming.original(renamed) is root
    assert {n.args[0] for n in subterms(renamed) if n.head == "Ax"} == {
        f"a{i}" for i in range(len(root.axes) + 2)
    }
    assert Naming((renamed,)).canonical(renamed) is renamed
    assert text(renamed) != text(root)


def test_canonical_names_do_not_depend_on_names() -> None:
    m, n, e = Axis.many(row=3, col=11, out=4)
    other = (Tensor("left", (m, n), f32) * Tensor("right", (n, e), f32)).sum(n)
    mine = product()
    assert _shape(Naming((other,)).canonical(other)) == _shape(Naming((mine,)).canonical(mine))


def _shape(term: Expr) -> str:
    return text(term).replace('"f32"', '"?"').replace('"f16"', '"?"')
