"""Which facts a law may ask for or conclude, and what each of them says about numbers.

Every fact is a relation of the e-graph. A fact with a meaning is tested like an equation: wherever
a law concludes it, it must hold on sampled values. Facts without one only steer the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..terms import Term

Parts = tuple[Any, ...]
# `of(term)` gives a term's sampled values, a float64 array in which absent elements are -inf or 0,
# with one dimension for each axis of the sample; `size(axis)` gives an axis' extent.
Meaning = Callable[["Sample", Parts], bool]


class Sample:
    """What a fact's meaning may look at: the values of terms, and the extents of axes."""

    def of(self, term: Any) -> Any:
        raise NotImplementedError

    def size(self, axis: Any) -> int:
        raise NotImplementedError

    def varies(self, term: Any, axis: Any) -> bool:
        raise NotImplementedError

    def same(self, left: Any, right: Any) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class Kind:
    """A kind of fact: the sorts of its arguments and a sentence that says what it claims."""

    name: str
    arguments: tuple[str, ...]
    says: str
    holds: Meaning | None = field(default=None, repr=False, compare=False)
    primitive: bool = False  # a test that the engine computes on literals, not a stored relation

    @property
    def steers(self) -> bool:
        return self.holds is None


@dataclass(frozen=True, eq=False)
class Fact:
    """A fact about terms, such as `nonpositive(x)`."""

    kind: Kind
    args: Parts

    def __repr__(self) -> str:
        return f"{self.kind.name}({', '.join(map(repr, self.args))})"


def fact(name: str, *args: Any) -> Fact:
    """A fact of a declared kind, its arguments checked against the sorts."""
    kind = KINDS[name]
    assert len(args) == len(kind.arguments), f"{name} takes {kind.arguments}, got {args}"
    for sort, arg in zip(kind.arguments, args, strict=True):
        fits = not isinstance(arg, Term) or not arg.sort or arg.sort == sort
        assert fits, f"{name} takes {kind.arguments}, got {arg!r} of sort {arg.sort}"
    return Fact(kind, args)


def _registry(rows: Iterable[Kind]) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for row in rows:
        assert row.name not in found, f"two kinds of facts are called {row.name}"
        found[row.name] = row
    return found


def _compare(name: str, relation: Callable[[float, float], bool]) -> Kind:
    return Kind(
        name, ("f64", "f64"), f"a {name} b", lambda sample, args: relation(*args), primitive=True
    )


def _vanishes(sample: Sample, args: Parts) -> bool:
    value, exponent = np.broadcast_arrays(sample.of(args[0]), sample.of(args[1]))
    return bool(np.all(value[exponent == -np.inf] == 0))


def _split(sample: Sample, args: Parts) -> bool:
    from ..expressions import exp

    whole, axis, factor, fixed, exponent, rest = args
    product = factor * exp(fixed) * exp(exponent) * rest
    free_parts = not sample.varies(factor, axis) and not sample.varies(fixed, axis)
    return free_parts and sample.same(whole, product)


def _shifted(sample: Sample, args: Parts) -> bool:
    whole, axis, fixed, rest = args
    return not sample.varies(fixed, axis) and sample.same(whole, fixed + rest)


KINDS: dict[str, Kind] = _registry(
    (
        _compare("<=", lambda a, b: a <= b),
        _compare("<", lambda a, b: a < b),
        _compare(">=", lambda a, b: a >= b),
        _compare(">", lambda a, b: a > b),
        Kind("!=", ("Expr", "Expr"), "a and b are not known to be equal", primitive=True),
        Kind(
            "invariant",
            ("Expr", "Axis"),
            "x does not depend on the axis",
            lambda sample, args: not sample.varies(*args),
        ),
        Kind("depends", ("Expr", "Axis"), "x is not known to be invariant in the axis"),
        Kind(
            "nonpositive",
            ("Expr",),
            "x <= 0 everywhere, so that exp(x) cannot overflow",
            lambda sample, args: bool(np.all(sample.of(args[0]) <= 0)),
        ),
        Kind(
            "nonnegative",
            ("Expr",),
            "x >= 0 everywhere",
            lambda sample, args: bool(np.all(sample.of(args[0]) >= 0)),
        ),
        Kind(
            "positive",
            ("Expr",),
            "x > 0 everywhere",
            lambda sample, args: bool(np.all(sample.of(args[0]) > 0)),
        ),
        Kind(
            "bounded",
            ("Expr", "Expr"),
            "a <= b everywhere",
            lambda sample, args: bool(np.all(sample.of(args[0]) <= sample.of(args[1]))),
        ),
        Kind(
            "finite",
            ("Expr",),
            "x is a finite number everywhere, none of it absent",
            lambda sample, args: bool(np.all(np.isfinite(sample.of(args[0])))),
        ),
        Kind("vanishes", ("Expr", "Expr"), "x is absent, 0, wherever a is -inf", _vanishes),
        Kind(
            "split",
            ("Expr", "Axis", "Expr", "Expr", "Expr", "Expr"),
            "e = c exp(i) exp(u) r, with c and i invariant in the axis",
            _split,
        ),
        Kind(
            "shifted",
            ("Expr", "Axis", "Expr", "Expr"),
            "x = i + d, with i invariant in the axis",
            _shifted,
        ),
        Kind(
            "retired",
            ("Expr", "Expr", "Expr"),
            "x = a * b, a product that no law reads any more",
            lambda sample, args: sample.same(args[0], args[1] * args[2]),
        ),
        Kind(
            "count",
            ("Axis", "f64"),
            "the axis has this many elements",
            lambda sample, args: sample.size(args[0]) == args[1],
        ),
        Kind(
            "inhabited",
            ("Axis",),
            "the axis has at least one element",
            lambda sample, args: sample.size(args[0]) > 0,
        ),
        # ---- steering ----------------------------------------------------------------------------
        Kind("result", ("i64", "Expr"), "the expression that the user asked for, by position"),
        Kind("origin", ("i64", "Expr"), "a load as the user wrote it, by position"),
        Kind("reduces", ("Axis",), "some reduction of the term binds the axis"),
        Kind("factor", ("Expr", "Axis"), "the split of this summand is wanted"),
        Kind("weighs", ("Expr", "Axis"), "a sum of exponentials that vary along the axis"),
        Kind("shift", ("Expr", "Axis"), "the invariant part of this exponent is wanted"),
        Kind("atom-factor", ("Expr",), "a product takes the expression as it is"),
        Kind("atom-exponent", ("Expr",), "an exponent takes the expression as it is"),
        Kind("streams", ("Expr", "Axis"), "one pass over the axis computes the expression"),
        Kind("carrier", ("Set Chan", "Axis"), "one pass over the axis folds these channels"),
        Kind("narrow", ("Set Chan", "Axis"), "the fold with only these channels is wanted"),
        Kind("tile", ("Axis", "i64"), "a fold block of this many elements is wanted"),
        Kind("share", ("Axis", "i64"), "this many serial steps for each block of the grid"),
    )
)
