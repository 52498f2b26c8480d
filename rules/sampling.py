"""Random instances of a law: values for its variables under which all of its premises hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..axes import Axis
from ..carriers import channels_of
from ..dtypes import Array
from ..evaluation import Evaluator, Value, spread
from ..expressions import exp
from ..terms import Term, make, rewrite, subterms, variable
from .facts import Fact, Sample
from .law import Clause, Equal, Law, terms_of

MONOIDS = ("Sum", "Max")
NUMBERS = (-np.inf, -2.5, -1.0, 0.0, 0.5, 1.0, 3.0, np.inf)
SAMPLES, ENOUGH, TRIES = 30, 20, 200
_OPAQUE = ("Tensor", "String", "Vec Expr", "Vec Chan")  # sorts that no value is sampled for


class Unusable(Exception):
    """The sampled values do not fulfil the premises, or the equation is undefined there."""


class LawSample(Sample):
    """One instance: `of` evaluates terms over the law's variables.

    Variables that an equation or a split defines follow from the others; the others are leaves.
    A leaf's elements may be absent (-inf or 0) unless a premise says otherwise, and those of the
    variables named in `wild` may be infinite too.
    """

    def __init__(
        self, law: Law, random: np.random.Generator, wild: frozenset[str] = frozenset()
    ) -> None:
        self.law, self.random, self.wild = law, random, wild
        self.parallel = (Axis("i", 2), Axis("j", 3))
        self.change: dict[Any, Any] = {}
        self._instantiate()
        self.evaluator = Evaluator(make("Num", 0.0), {}, {})
        self.given = tuple(self._concrete(clause) for clause in law.given)
        self._assign()

    # ---- variables that are not expressions ------------------------------------------------------

    def _instantiate(self) -> None:
        states = {c.left: c.right for c in self.law.given if isinstance(c, Equal)}
        for hole in _variables(self.law.given):
            sort, name = hole.sort, hole.args[0]
            if sort == "Axis":
                self.change[hole] = Axis(name, int(self.random.integers(0, 6)))
            elif sort == "Monoid":
                self.change[hole] = make(str(self.random.choice(MONOIDS)))
            elif sort == "State" and hole not in states:
                self.change[hole] = make("Lift", self._carrier())
            elif sort == "Chan":
                self.change[hole] = self._channel(name)
        clauses = (*self.law.given, *self.law.then)
        terms = [term for term in _terms(clauses) if term.head != "Var"]
        for fact in (c for c in self.law.given if isinstance(c, Fact)):
            if fact.kind.name == "count":
                self.change[fact.args[1]] = float(self.change[fact.args[0]].size)
        for node in subterms(*terms):
            self._numbers(node)
        for hole, meaning in states.items():
            if hole.sort == "State":
                self.change[hole] = rewrite(meaning, self.change)

    def _numbers(self, node: Any) -> None:
        """Numbers and block sizes stand inside other nodes, as holes without a sort."""
        for place, arg in enumerate(node.args):
            if not isinstance(arg, Term) or arg.head != "Var" or arg in self.change:
                continue
            if node.head == "Num":
                self.change[arg] = float(self.random.choice(NUMBERS))
            elif node.head in ("Outer", "Inner") and place == 1:
                self.change[arg] = int(self.random.integers(1, 5))
            elif node.head == "Cast" and place == 0:
                self.change[arg] = "f32"

    def _channel(self, name: str) -> Any:
        return make("Ch", make(str(self.random.choice(MONOIDS))), variable("Expr", f"lift-{name}"))

    def _carrier(self) -> tuple[Any, ...]:
        """A maximum, a sum, and a channel twisted by the maximum."""
        base = make("Ch", make("Max"), variable("Expr", "lift-base"))
        twisted = make("Tw", make("Rep", "Scale"), (base,), variable("Expr", "lift-twisted"))
        return base, twisted, self._channel("plain")

    def _concrete(self, clause: Clause) -> Clause:
        if isinstance(clause, Equal):
            return Equal(rewrite(clause.left, self.change), rewrite(clause.right, self.change))
        return Fact(clause.kind, tuple(self._replaced(arg) for arg in clause.args))

    def _replaced(self, arg: Any) -> Any:
        if not isinstance(arg, Term):
            return arg
        if arg.head != "Var":
            return rewrite(arg, self.change)
        return self.change[arg] if arg in self.change else rewrite(arg, self.change)

    # ---- values ----------------------------------------------------------------------------------

    def _assign(self) -> None:
        defined = self._definitions()
        facts = [clause for clause in self.given if isinstance(clause, Fact)]
        terms = [*_terms(self.given), *defined.values()]
        terms += [self.change[hole] for hole in self.change if isinstance(self.change[hole], Term)]
        predicates = {node.args[0] for node in subterms(*terms) if node.head == "Where"}
        leaves = [v for v in _expressions(terms) if v not in defined]
        for leaf in leaves:
            self._leaf(leaf, facts, leaf in predicates)
        for node in subterms(*terms):
            if node.head == "Eq" and node.args[0] in leaves and node.args[1].head == "Idx":
                self._place(node.args[0], node.args[1].args[0])
        self._define(defined)
        changed = [self._relate(fact, defined) for fact in facts]
        if any(changed):
            self._define(defined)
        for fact in facts:
            if fact.kind.holds is not None and not fact.kind.holds(self, fact.args):
                raise Unusable(f"{fact} does not hold")

    def _define(self, defined: dict[Any, Any]) -> None:
        kept = {
            v: x for v, x in self.evaluator.values.items() if v.head == "Var" and v not in defined
        }
        self.evaluator.values, self.evaluator.states = kept, {}
        for name, meaning in defined.items():
            self.evaluator.values[name] = self.value(meaning)

    def _definitions(self) -> dict[Any, Any]:
        """Variables that the premises define, each after those that it is defined by."""
        found: dict[Any, Any] = {}
        for clause in self.given:
            if isinstance(clause, Equal) and clause.left.head == "Var":
                holes = _variables((clause,))
                if not any(hole.sort in _OPAQUE for hole in holes) and clause.left.sort == "Expr":
                    found[clause.left] = clause.right
            elif isinstance(clause, Fact) and clause.kind.name == "split":
                whole, _, factor, fixed, exponent, rest = clause.args
                found.setdefault(whole, factor * exp(fixed) * exp(exponent) * rest)
            elif isinstance(clause, Fact) and clause.kind.name == "shifted":
                whole, _, fixed, rest = clause.args
                found.setdefault(whole, fixed + rest)
        ordered: dict[Any, Any] = {}
        while found:
            ready = [v for v, m in found.items() if not set(_expressions([m])) & set(found)]
            assert ready, f"{self.law.name}: premises that define each other"
            for name in ready:
                ordered[name] = found.pop(name)
        return ordered

    def _leaf(self, leaf: Any, facts: list[Fact], predicate: bool) -> None:
        about = {fact.kind.name for fact in facts if fact.args[0] is leaf}
        fixed = [f.args[1] for f in facts if f.kind.name == "invariant" and f.args[0] is leaf]
        fixed += [f.args[1] for f in facts if f.kind.name == "split" and leaf in f.args[2:4]]
        fixed += [f.args[1] for f in facts if f.kind.name == "shifted" and leaf is f.args[2]]
        axes = [a for a in (*self.parallel, *self._axes()) if self.random.random() < 0.7]
        must = [f.args[1] for f in facts if f.kind.name == "depends" and f.args[0] is leaf]
        axes = [a for a in dict.fromkeys([*axes, *must]) if a not in fixed]
        shape = tuple(axis.size for axis in axes)
        array = self.random.standard_normal(shape) * self.random.choice([0.3, 1.0, 3.0])
        if predicate:
            array = (array > 0).astype(np.float64)
        absent = np.zeros(shape, bool)
        finite = "finite" in about
        if about & {"positive", "nonnegative"}:
            array = np.abs(array) + (0.05 if "positive" in about else 0.0)
        if "nonpositive" in about:
            array = -np.abs(array)
        if not finite and not predicate and "positive" not in about:
            array, absent = self._with_absent(array, leaf not in self._linear(facts))
        if finite and not about & {"positive", "negative"}:
            array = np.where(self.random.random(shape) < 0.1, 0.0, array)
        if not finite and leaf.args[0] in self.wild:
            array = np.where(self.random.random(shape) < 0.3, np.inf, array)
        self.evaluator.values[leaf] = Value(np.asarray(array), tuple(axes), absent)

    def _place(self, leaf: Any, axis: Any) -> None:
        """What is compared with an index is one, of the axis or just past it."""
        found = self.evaluator.values[leaf]
        whole = self.random.integers(0, axis.size + 1, found.array.shape)
        self.evaluator.values[leaf] = replace(found, array=whole.astype(np.float64))

    def _linear(self, facts: list[Fact]) -> set[Any]:
        """Variables whose absent elements are 0: factors of splits, divisors, and what is >= 0."""
        found = {rewrite(term, self.change) for term in self.law.linear}
        for fact in facts:
            if fact.kind.name == "split":
                found |= {fact.args[2], fact.args[5]}
            if fact.kind.name == "nonnegative":
                found.add(fact.args[0])
        terms = [*_terms(self.given), *_terms(self.law.then)]
        return found | {node.args[1] for node in subterms(*terms) if node.head == "Div"}

    def _with_absent(self, array: Array, logarithmic: bool) -> tuple[Array, Array]:
        """Some elements replaced by what a mask leaves: -inf, or 0."""
        kind = self.random.choice(["none", "zero", "log"])
        absent = self.random.random(array.shape) < self.random.choice([0.3, 1.0])
        if kind == "none" or (kind == "log" and not logarithmic):
            return array, np.zeros(array.shape, bool)
        return np.where(absent, 0.0 if kind == "zero" else -np.inf, array), np.asarray(absent)

    def _relate(self, fact: Fact, defined: dict[Any, Any]) -> bool:
        """Make a premise about two values hold by changing a leaf; whether it did."""
        if fact.kind.name not in ("bounded", "vanishes"):
            return False
        first, second = fact.args
        if (second if fact.kind.name == "bounded" else first) in defined:
            return False
        a, b = self.value(first), self.evaluator.values[second]
        axes = tuple(dict.fromkeys((*a.axes, *b.axes)))
        x, y = (spread(v.array, v.axes, axes) for v in (a, b))
        p, q = (spread(v.absent, v.axes, axes) for v in (a, b))
        if fact.kind.name == "bounded":
            value = Value(np.maximum(x, y), axes, p & q)
            self.evaluator.values[second] = value
        else:
            gone = np.broadcast_to(y == -np.inf, np.broadcast_shapes(x.shape, y.shape))
            self.evaluator.values[first] = Value(np.where(gone, 0.0, x), axes, p | gone)
        return True

    def _axes(self) -> list[Any]:
        return [found for found in self.change.values() if isinstance(found, Axis)]

    # ---- what facts may ask ----------------------------------------------------------------------

    def value(self, term: Any) -> Value:
        concrete = self._replaced(term) if isinstance(term, Term) else make("Num", term)
        return self.evaluator.value(concrete)

    def of(self, term: Any) -> Array:
        found = self.value(term)
        axes = (*self.parallel, *dict.fromkeys([*self._axes(), *found.axes]))
        order = tuple(dict.fromkeys(axes))
        return np.asarray(spread(found.array, found.axes, order))

    def size(self, axis: Any) -> int:
        return int(self.change.get(axis, axis).size)

    def varies(self, term: Any, axis: Any) -> bool:
        found = self.value(term)
        return self.change.get(axis, axis) in found.axes

    def same(self, left: Any, right: Any) -> bool:
        """Whether both sides agree element by element; Unusable where neither has a value."""
        if left.sort == "State":
            return self._same_states(self._replaced(left), self._replaced(right))
        a, b = np.broadcast_arrays(self.of(left), self.of(right))
        undefined = np.isnan(a) & np.isnan(b)
        with np.errstate(invalid="ignore"):
            bound = self.law.max_ulp * 2.0**-52 * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
            close = (a == b) | (np.isfinite(bound) & (np.abs(a - b) <= bound))
        if undefined.all():
            raise Unusable("undefined on both sides")
        return bool(np.all(close | undefined))

    def _same_states(self, left: Any, right: Any) -> bool:
        channels = channels_of(left)
        return all(self.same(make("Get", left, c), make("Get", right, c)) for c in channels)

    def __str__(self) -> str:
        """The values of the variables, and of both sides of what the law says is equal."""
        held = (clause for clause in self.law.then if isinstance(clause, Equal))
        both = [each for clause in held for each in (clause.left, clause.right)]
        leaves = [v for v in self.evaluator.values if v.head == "Var"]
        values = {term: self.value(term) for term in (*leaves, *both) if term.sort == "Expr"}
        axes = ", ".join(f"{axis} = {axis.size}" for axis in (*self.parallel, *self._axes()))
        lines = [
            f"{term}[{', '.join(map(repr, found.axes))}] = {found.array.tolist()}"
            for term, found in values.items()
        ]
        return "\n".join([f"axes {axes}", *lines])


def is_claim(law: Law) -> bool:
    """Whether a law says something about numbers, not only to the engine."""
    return any(isinstance(clause, Equal) or not clause.kind.steers for clause in law.then)


def conclusions_hold(sample: LawSample, law: Law) -> bool:
    """Whether all that a law concludes is true of a sample of its premises."""
    held, judged = True, 0
    for clause in law.then:
        try:
            if isinstance(clause, Equal):
                held = held and sample.same(clause.left, clause.right)
            elif clause.kind.holds is not None:
                held = held and clause.kind.holds(sample, clause.args)
            else:
                continue
        except Unusable:
            continue
        judged += 1
    if not judged:
        raise Unusable("no conclusion could be judged")
    return held


def refutation(law: Law, seed: int = 0) -> str | None:
    """Values on which the premises of a law hold and not what it concludes; None where none are.

    Too few samples on which it could be judged refute it too.
    """
    random = np.random.default_rng(seed)
    usable = 0
    for _ in range(TRIES):
        if usable == SAMPLES:
            break
        try:
            sample = LawSample(law, random)
            held = conclusions_hold(sample, law)
        except Unusable:
            continue
        if not held:
            return f"{_joined(law.given)} does not give {_joined(law.then)} on\n{sample}"
        usable += 1
    return None if usable >= ENOUGH else f"only {usable} of {TRIES} samples were usable"


def _joined(clauses: Iterable[Clause]) -> str:
    return " and ".join(map(str, clauses))


def _terms(clauses: Any) -> list[Any]:
    return [term for clause in clauses for term in terms_of(clause)]


def _variables(clauses: Any) -> list[Any]:
    return [node for node in subterms(*_terms(clauses)) if node.head == "Var"]


def _expressions(terms: list[Any]) -> list[Any]:
    return [n for n in subterms(*terms) if n.head == "Var" and n.sort == "Expr"]
