"""How an index moves along an axis whose elements a table finds a run at a time, as in pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..axes import Axis
from .affine import affine


@dataclass(frozen=True)
class Stepping:
    """An index moves by `step` with each element of an aligned run of `run`; 0: of all runs."""

    step: int
    run: int = 0


def stepping(index: Any, axis: Axis) -> Stepping | None:
    """How the index moves along the axis, or None where that has no regular form.

    With runs of 16, `n // 16` stands still, `n % 16` moves one to one, and so does what a table
    holds at `n // 16`, plus `n % 16`.
    """
    form = affine(index)
    found = [Stepping(form.coefficient(axis))]
    for term, scale in form.terms:
        inner = _of_term(term, axis)
        if inner is None:
            return None
        found.append(Stepping(scale * inner.step, inner.run))
    return Stepping(sum(each.step for each in found), math.gcd(*(each.run for each in found)))


def _of_term(term: Any, axis: Axis) -> Stepping | None:
    if axis not in term.axes:
        return Stepping(0)
    if term.head in ("FloorDiv", "Mod"):
        return _of_division(term, axis)
    if term.head != "Load":
        return None
    found = [stepping(index, axis) for index in term.args[1]]
    if any(each is None or each.step for each in found):
        return None
    return Stepping(0, math.gcd(*(each.run for each in found if each is not None)))


def _of_division(term: Any, axis: Axis) -> Stepping | None:
    """By a constant, of the axis itself or of it plus what the constant divides."""
    form, by = affine(term.args[0]), int(term.args[1].args[0])
    others = [scale for other, scale in (*form.axes, *form.terms) if other is not axis]
    if form.coefficient(axis) != 1 or math.gcd(by, form.constant, *others) != by:
        return None
    if any(axis in other.axes for other, _ in form.terms):
        return None
    return Stepping(0 if term.head == "FloorDiv" else 1, by)
