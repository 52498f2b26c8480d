"""What a law is: premises and conclusions as our own terms, and how they become egglog text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..notation import number, text
from ..terms import Term, subterms
from .facts import KINDS, Fact, fact

# The phases, in the order in which a round of saturation visits them; see `egraph.saturate`.
PHASES = (
    "analysis",
    "splitting",
    "units",
    "homomorphism",
    "twist",
    "tupling",
    "absorption",
    "bracketing",
    "placement",
    "combine",
)


@dataclass(frozen=True, eq=False)
class Equal:
    """Both sides are one value: a pattern to find as a premise, a union as a conclusion."""

    left: Any
    right: Any

    def __repr__(self) -> str:
        return f"{self.left} = {self.right}"


Clause = Equal | Fact


@dataclass(frozen=True, eq=False)
class Row:
    """What every rule of the e-graph has: a unique `family/effect`, a phase, a source, an example.

    `example` is an expression whose saturation must fire the rule.
    """

    name: str
    phase: str
    source: str
    example: Any

    def __post_init__(self) -> None:
        assert re.fullmatch(r"[a-z]+(/[a-z0-9-]+)+", self.name), f"law {self.name!r}: family/effect"
        assert self.phase in PHASES, f"law {self.name}: got the phase {self.phase!r}"
        assert self.source, f"law {self.name}: wants a source"

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]

    @property
    def egglog(self) -> str:
        raise NotImplementedError

    @property
    def equates(self) -> bool:
        """Whether it makes terms equal; other rules only find facts and steer."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Law(Row):
    """Whenever all of `given` holds, all of `then` does, for all real values of the variables.

    A value may be absent, -inf or 0. Absent elements of `linear` variables are 0 only: -inf stands
    in exponents and maxima, while divisors and the factors of a split are always linear.

    A law with `retire` hides that term from matching once the equation is known. `max_ulp` bounds
    the relative difference of the two sides in float64, in units of 2^-52, where values are of
    moderate size.
    """

    given: tuple[Clause, ...]
    then: tuple[Clause, ...]
    retire: Term | None = None
    linear: tuple[Any, ...] = ()
    max_ulp: int = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.given, f"law {self.name}: wants premises"
        assert self.then, f"law {self.name}: wants conclusions"
        unknown = variables(self.then) - variables(self.given)
        assert not unknown, f"law {self.name}: concludes about unbound {sorted(unknown)}"

    @property
    def equates(self) -> bool:
        return any(isinstance(clause, Equal) for clause in self.then)

    @property
    def egglog(self) -> str:
        premises = " ".join(_premise(clause, i) for i, clause in enumerate(self.given))
        actions = [_action(clause) for clause in self.then]
        if self.retire is not None:
            actions.append(f"(subsume {text(self.retire)})")
        return _rule(premises, " ".join(actions), self)


@dataclass(frozen=True, eq=False)
class Steering(Row):
    """A rule that only steers the engine, as egglog text: demand, pooling, derived tables."""

    premises: str
    actions: str

    @property
    def equates(self) -> bool:
        return "(union " in self.actions

    @property
    def egglog(self) -> str:
        return _rule(self.premises, self.actions, self)


def rewrite(
    name: str,
    lhs: Any,
    rhs: Any,
    *,
    phase: str,
    source: str,
    example: Any,
    given: Sequence[Clause] = (),
    retire: bool = False,
    max_ulp: int = 4096,
) -> Law:
    """The law that an expression of the form `lhs` equals `rhs`.

    A retired product is still on record, for derivations to show.
    """
    from .patterns import E

    whole = E("whole")
    recorded = retire and lhs.head == "Mul" and lhs.args[0].head == "Exp"
    note = (fact("retired", whole, *lhs.args),) if recorded else ()
    return Law(
        name=name,
        phase=phase,
        source=source,
        example=example,
        given=(Equal(whole, lhs), *given),
        then=(Equal(whole, rhs), *note),
        retire=lhs if retire else None,
        max_ulp=max_ulp,
    )


def terms_of(clause: Clause) -> tuple[Any, ...]:
    sides = (clause.left, clause.right) if isinstance(clause, Equal) else clause.args
    return tuple(side for side in sides if isinstance(side, Term))


def variables(clauses: Sequence[Clause]) -> set[str]:
    """The names of the pattern variables."""
    terms = [term for clause in clauses for term in terms_of(clause)]
    return {node.args[0] for node in subterms(*terms) if node.head == "Var"}


def _rule(premises: str, actions: str, row: Row) -> str:
    return f'(rule ({premises}) ({actions}) :ruleset {row.phase} :name "{row.name}")'


def _written(arg: Any) -> str:
    if isinstance(arg, Term):
        return text(arg)
    return number(arg) if isinstance(arg, float) else str(arg)


def _premise(clause: Clause, place: int) -> str:
    if isinstance(clause, Equal):
        return f"(= {text(clause.left)} {text(clause.right)})"
    if clause.kind.name in ("invariant", "depends"):
        test = "set-not-contains" if clause.kind.name == "invariant" else "set-contains"
        expr, axis = map(_written, clause.args)
        return f"(= free{place} (free {expr})) ({test} free{place} {axis})"
    return f"({clause.kind.name} {' '.join(map(_written, clause.args))})"


def _action(clause: Clause) -> str:
    if isinstance(clause, Equal):
        return f"(union {text(clause.left)} {text(clause.right)})"
    assert not clause.kind.primitive, f"{clause} cannot be concluded"
    return f"({clause.kind.name} {' '.join(map(_written, clause.args))})"


_CONTAINERS = {
    "Vec Extent": "Extents",
    "Vec Expr": "Exprs",
    "Vec Chan": "Chans",
    "Set Chan": "ChanSet",
}


def sort_name(sort: str) -> str:
    """The name under which egglog knows a sort of the heads table."""
    return _CONTAINERS.get(sort, sort)


def declarations() -> str:
    """The sorts, the heads, the relations of all kinds of facts, and the phases as rulesets."""
    from ..terms import HEADS, SORTS

    blocks = []
    for sort in SORTS:
        rows = [head for head in HEADS.values() if head.result == sort]
        variants = (" ".join([head.name, *map(sort_name, head.arguments)]) for head in rows)
        blocks.append(f"({sort} {' '.join(f'({variant})' for variant in variants)})")
    blocks += [f"(sort {name} ({sort}))" for sort, name in _CONTAINERS.items()]
    lines = [f"(datatype* {' '.join(blocks)})", "(sort Axes (Set Axis))"]
    for kind in KINDS.values():
        if kind.primitive or kind.name in ("invariant", "depends"):
            continue
        lines.append(f"(relation {kind.name} ({' '.join(map(sort_name, kind.arguments))}))")
    # which axes an expression depends on: equal expressions depend on what all of them mention
    lines.append("(function free (Expr) Axes :merge (set-intersect old new))")
    # the channels that one pass over an axis can fold together
    lines.append("(function pool (Axis) ChanSet :merge (set-union old new))")
    lines += [f"(ruleset {phase})" for phase in PHASES]
    return "\n".join(lines)
