"""What the forms of exp act on: the exponentials of a stage that are taken element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .axes import Axis
from .carriers import bases_of, monoid_of
from .free import free
from .roles import placeholder, summand
from .shapes import multiple_of, shape_of
from .stages import Stage
from .terms import Chan, fill

_ELSEWHERE = ("Red", "Get")  # values that a tile or a channel holds already
_NO_MAXIMA: dict[Any, Chan] = {}


@dataclass(frozen=True)
class Exponentials:
    """Whether some exponential has a value for each element of a tile, and the maxima that such
    exponents subtract in the body of the fold."""

    by_element: bool
    subtracted: frozenset[Chan]


@dataclass(frozen=True)
class _Place:
    """An expression, the axes of the tile that it is computed for, and what in it is a maximum."""

    expr: Any
    row: Axis | None
    column: Axis | None
    maxima: dict[Any, Chan]


@lru_cache(maxsize=256)
def exponentials(stage: Stage) -> Exponentials:
    """Those of the body, of operands that are computed, and of outputs."""
    inside = [each for place in _body(stage) for each in _subtracted(place)]
    after = [each for place in _outputs(stage) for each in _subtracted(place)]
    return Exponentials(
        by_element=bool(inside or after),
        subtracted=frozenset(each for each in inside if each is not None),
    )


def subtracts_a_base(stage: Stage, start: str) -> bool:
    """Whether some exponent by element subtracts a maximum in the body, with this value of START:
    a contraction that starts at its base leaves nothing to subtract."""
    maxima = exponentials(stage).subtracted
    return any(start == "zero" or multiple_of(stage, each) is None for each in maxima)


def _body(stage: Stage) -> Iterator[_Place]:
    sums, row, column, fold = shape_of(stage), stage.roles.row, stage.roles.column, stage.fold
    maxima = {placeholder(c): c for c in stage.channels if c.head == "Ch" and monoid_of(c) == "Max"}
    for channel in stage.channels:
        yield _Place(_element(channel), row, fold, maxima)
    for _, found in sums.inner:
        yield _Place(found.left, row, found.depth, _NO_MAXIMA)
        yield _Place(found.right, found.depth, fold, _NO_MAXIMA)
    for red in sums.serial:
        yield _Place(red.args[2], row, fold, _NO_MAXIMA)
    for _, found in sums.outer:
        yield _Place(found.right, fold, column, _NO_MAXIMA)


def _outputs(stage: Stage) -> Iterator[_Place]:
    for target in stage.targets:
        yield _Place(target.expr, stage.roles.row, stage.roles.column, _NO_MAXIMA)


def _element(channel: Chan) -> Any:
    """What one element of the fold adds to a channel, at placeholders for its bases."""
    return summand(channel, {base: placeholder(base) for base in bases_of(channel)})


def _subtracted(place: _Place) -> Iterator[Chan | None]:
    """For each exponential by element, the maximum that its exponent subtracts, or None."""
    uses = _uses(place)
    for node in uses:
        if node.head == "Exp" and all(uses[node]):
            exponent = node.args[0]
            differs = exponent.head == "Sub" and uses[exponent.args[0]][1]
            yield place.maxima.get(exponent.args[1]) if differs else None


def _uses(place: _Place) -> dict[Any, tuple[bool, bool]]:
    """Whether the value of each part differs between rows, and between columns."""
    known: dict[Any, tuple[bool, bool]] = {}

    def parts(node: Any) -> list[Any]:
        here = node.head not in _ELSEWHERE
        return [child for child in node.children if child.sort == "Expr"] if here else []

    def compute(node: Any) -> tuple[bool, bool]:
        below = [known[part] for part in parts(node)]
        axes = free(node) if node.head in ("Idx", *_ELSEWHERE) else ()
        held = node.head in ("Var", "Get")  # one value a row, if not one an element
        row = held or place.row in axes or any(row for row, _ in below)
        return row, place.column in axes or any(column for _, column in below)

    fill(place.expr, known, compute, parts)
    return known
