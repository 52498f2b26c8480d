"""The combine of a twisted channel, derived in an e-graph from what its action does."""

from __future__ import annotations

from dataclasses import dataclass

from .dtypes import f32
from .egraph import Session
from .expressions import Expr, Tensor
from .frozen import read
from .machines import MACHINES
from .passes import Analyst
from .representations import Representation
from .rules import combine
from .solver import Solver

_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class Combination:
    """Two states, as scalar inputs, and their combined channel in its safest form."""

    left: tuple[Expr, ...]  # the bases
    right: tuple[Expr, ...]
    x: Expr  # the channel over the left bases
    y: Expr
    derived: Expr
    unsafe: int  # exponentials of `derived` that may overflow
    session: Session

    def equals(self, term: Expr) -> bool:
        """Whether the e-graph knows the term to be the combined channel."""
        return self.session.holds(_RESULT, term)


_RESULT = 1000  # the place of the combined channel among the outputs, after all inputs


def derive(rep: Representation) -> Combination:
    """Saturate the definition of the combine and extract the form whose exponents are safe."""
    places = range(len(rep.monoids))
    left = tuple(Tensor(f"b{place}", (), f32).expr for place in places)
    right = tuple(Tensor(f"c{place}", (), f32).expr for place in places)
    x, y = Tensor("x", (), f32).expr, Tensor("y", (), f32).expr
    inputs = (*left, *right, x, y)
    session = Session(inputs, [combine.DECLARATIONS, *(r.egglog for r in combine.laws(rep))])
    session.run(combine.assumptions(rep, left, right, x, y))
    session.run(f"(result {_RESULT} {combine.definition(rep, left, right, x, y)})")
    for _ in range(_ROUNDS):
        session.run("(run-schedule (repeat 3 (run combine)) (saturate (run analysis)))")
        session.run("(run-schedule (repeat 4 (run units)) (saturate (run analysis)))")
    solver = Solver(read(session.engine, list(inputs)), Analyst(MACHINES["sm_120"]))
    found = solver.solve(lambda klass, node: not node.retired, lambda klass, term: False)
    assert found is not None, f"{rep.name}: the definition has no form without moves"
    (unsafe, *_), _ = solver.joint(found[-1:])
    return Combination(left, right, x, y, found[-1], unsafe, session)
