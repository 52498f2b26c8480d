"""Which part of a fold a tile of its rows needs: where its elements are not the identity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .absence import known_to_hold
from .carriers import bases_of, closure, identity, lift_of
from .choices import Choices
from .free import free
from .indices import bounds
from .intervals import ALL, FIRST_ROW, LAST_ROW, NOTHING, Interval, Truth, span_of, truth_of
from .roles import placeholder, summand
from .stages import Stage
from .terms import make, rewrite, subterms

Conjuncts = frozenset[Any]
_NONE: Conjuncts = frozenset()


@dataclass(frozen=True, eq=False)
class Extent:
    """Where along its fold a tile of a stage has elements that count (`live`), and where all the
    conditions `assumed` hold for all of its rows (`full`).

    `early` are those of them that hold for all elements before the end of `full`.

    Past `bound`, if there is one, no row has elements that count: it is a length given in a mask,
    and what memory holds past it is never used.
    """

    live: Interval
    full: Interval
    assumed: Conjuncts
    early: Conjuncts = _NONE
    bound: Any | None = None
    scan: Truth | None = None  # what a tile finds out about each element, where that takes data


@lru_cache(maxsize=256)
def extent_of_fold(stage: Stage) -> Extent:
    """The part of the fold that a tile of rows needs, as terms of its first and last row."""
    fold, row = stage.roles.fold, stage.roles.row
    assert fold is not None, "a stage without a fold has no part of it"
    live, given = ALL, ALL
    for condition in needed(stage):
        holds = span_of(condition, fold, row).live
        live = live & holds
        if row is None or row not in free(condition):
            given = given & holds
    found = {condition: span_of(condition, fold, row).full for condition in conditions(stage)}
    found = {condition: full for condition, full in found.items() if not _is_empty(full)}
    full = ALL
    for each in found.values():
        full = full & each
    full = full & Interval(None, given.high)
    early = frozenset(condition for condition, each in found.items() if each.low is None)
    return Extent(live, full, frozenset(found), early, given.high)


@lru_cache(maxsize=256)
def scan_of(stage: Stage) -> Truth | None:
    """Whether each element of the fold counts for a tile, where data decides: masks that index
    arithmetic does not solve, but that compare what a row has with what an element has."""
    fold, row = stage.roles.fold, stage.roles.row
    assert fold is not None, "a stage without a fold has no elements"
    found = []
    for condition in needed(stage):
        if _is_empty(span_of(condition, fold, row).full):
            truth = truth_of(condition, fold, row)
            found += [truth] if truth is not None else []
    if not found:
        return None
    may, must = found[0].may, found[0].must
    for other in found[1:]:
        may, must = may & other.may, must & other.must
    return Truth(may, must, tuple(dict.fromkeys(load for truth in found for load in truth.loads)))


def scanned(stage: Stage) -> Conjuncts:
    """The conditions that a scan decides."""
    fold, row = stage.roles.fold, stage.roles.row
    assert fold is not None, "a stage without a fold has no elements"
    return frozenset(
        condition
        for condition in needed(stage)
        if _is_empty(span_of(condition, fold, row).full)
        and truth_of(condition, fold, row) is not None
    )


def is_static(stage: Stage, choices: Choices) -> bool:
    """Whether every tile works on all blocks of the fold, whose number is known."""
    fold = stage.roles.fold
    if fold is None:
        return True
    known = fold.extent.head == "Known" and extent_of_fold(stage).bound is None
    return known and choices.skip == "none"


def skips(stage: Stage) -> bool:
    """Whether index arithmetic tells that some tile may need less than the whole fold, or its masks
    in a part of it alone."""
    extent = extent_of_fold(stage)
    live = extent.live
    return live.low is not None or live.high is not None or bool(extent.assumed)


def part_of_fold(stage: Stage, choices: Choices) -> Extent:
    """The part that a tile works on: all of it, up to a given length, where nothing is skipped."""
    found = extent_of_fold(stage)
    if choices.skip == "data":
        return replace(found, assumed=found.assumed | scanned(stage), scan=scan_of(stage))
    if choices.skip != "none":
        return found
    up_to = Interval(None, found.bound)
    return Extent(up_to, up_to, _NONE, _NONE, found.bound)


@lru_cache(maxsize=256)
def end_of_rows(stage: Stage) -> Any | None:
    """Before which row every row lies whose values some output takes, as a term; None: all may."""
    row = stage.roles.row
    if row is None or any(target.where is None for target in stage.targets):
        return None
    wanted = NOTHING
    for target in stage.targets:
        found = ALL
        for condition in sorted(_conjuncts(target.where), key=_text):
            others = set(free(condition)) - {row, *stage.roles.batch}
            found = found if others else found & span_of(condition, row, None).live
        wanted = found if wanted is NOTHING else wanted | found
    return wanted.high


def end_of_columns(stage: Stage) -> Any | None:
    """Before which column every one lies that a fold over columns takes; None: it takes all."""
    return extent_of_fold(stage.columns).bound if stage.columns is not None else None


def before_the_end(stage: Stage) -> Conjuncts:
    """The conditions that say no more than where a fold ends, whatever the row."""
    fold, row = stage.roles.fold, stage.roles.row
    assert fold is not None, "a stage without a fold has no end of it"
    spans = {c: span_of(c, fold, row) for c in needed(stage) if row is None or row not in free(c)}
    return frozenset(c for c, span in spans.items() if _ends_alike(span.live, span.full))


def _ends_alike(one: Interval, other: Interval) -> bool:
    return one.low is None and other.low is None and one.high is other.high


@lru_cache(maxsize=1024)
def weights(stage: Stage, rows: int) -> tuple[int, ...]:
    """How many elements of the fold each row tile works on, at typical lengths.

    Where that depends on data, as many as there are.
    """
    fold, row = stage.roles.fold, stage.roles.row
    assert fold is not None, "a stage without a fold has no part of it"
    if row is None:
        return (fold.size,)
    live = extent_of_fold(stage).live
    tiles = [(first, min(first + rows, row.size) - 1) for first in range(0, row.size, rows)]
    lows, highs = _numbers(live.low, tiles, 0), _numbers(live.high, tiles, fold.size)
    return tuple(
        max(min(high, fold.size) - max(low, 0), 0) for low, high in zip(lows, highs, strict=True)
    )


def uneven(stage: Stage, rows: int) -> bool:
    """Whether some row tiles have more to do than others."""
    return len(set(weights(stage, rows))) > 1


def heavy_last(stage: Stage, rows: int) -> bool:
    """Whether row tiles tend to grow heavier with their number."""
    found = weights(stage, rows)
    half = len(found) // 2
    return sum(found[len(found) - half :]) >= sum(found[:half])


def _numbers(end: Any, tiles: Sequence[tuple[int, int]], otherwise: int) -> list[int]:
    """The value of an interval's end for each tile (its first row, its last row)."""
    if end is None:
        return [otherwise] * len(tiles)
    if {FIRST_ROW, LAST_ROW}.isdisjoint(subterms(end)):
        return [_number(end, 0, 0, otherwise)] * len(tiles)
    return [_number(end, first, last, otherwise) for first, last in tiles]


def _number(end: Any, first: int, last: int, otherwise: int) -> int:
    """The same for one tile, if it depends on the tile alone."""
    term = rewrite(end, {FIRST_ROW: make("Num", float(first)), LAST_ROW: make("Num", float(last))})
    lengths = {
        node: make("Num", float(node.args[0].size)) for node in subterms(term) if node.head == "Len"
    }
    low, high = bounds(rewrite(term, lengths))
    return int(low) if low == high else otherwise


def _is_empty(interval: Interval) -> bool:
    """Whether an interval is known to hold nothing, whatever the tile."""
    return interval.low is not None and interval.low is interval.high


def needed(stage: Stage) -> tuple[Any, ...]:
    """Conditions without any of which an element of the fold changes no channel of the state.

    An element is the identity of a channel where a `where` puts what comes to it: -inf in a
    maximum and below an exp, 0 in a sum.
    """
    found: Conjuncts | None = None
    for channel in closure(stage.channels):
        mine = _present(summand(channel, _placeholders(channel)), identity(channel))
        found = mine if found is None else found & mine
    order = {node: place for place, node in enumerate(_nodes(stage))}
    known = (condition for condition in found or _NONE if _known_to_tiles(stage, condition))
    return tuple(sorted(known, key=lambda condition: order[condition]))


def conditions(stage: Stage) -> tuple[Any, ...]:
    """The conditions of every `where` in the fold's body that tiles know about, conjunctions taken
    apart."""
    found: dict[Any, None] = {}
    for node in _nodes(stage):
        if node.head == "Where":
            found |= dict.fromkeys(sorted(_conjuncts(node.args[0]), key=_text))
    return tuple(condition for condition in found if _known_to_tiles(stage, condition))


def _known_to_tiles(stage: Stage, condition: Any) -> bool:
    """Whether a condition varies along nothing but the fold, the rows, and what all of a tile
    share: not along columns, or an axis that something in the body is contracted over."""
    roles = stage.roles
    return set(free(condition)) <= {roles.fold, roles.row, *roles.batch}


def assume(expr: Any, held: Conjuncts) -> Any:
    """The expression where these conditions hold."""
    found = [node for node in subterms(expr) if node in held]
    return rewrite(expr, {node: known_to_hold(node) for node in found})


def _nodes(stage: Stage) -> list[Any]:
    return subterms(*(lift_of(channel) for channel in closure(stage.channels)))


def _placeholders(channel: Any) -> dict[Any, Any]:
    return {base: placeholder(base) for base in bases_of(channel)}


def _conjuncts(condition: Any) -> Conjuncts:
    if condition.head == "And":
        return _conjuncts(condition.args[0]) | _conjuncts(condition.args[1])
    return frozenset((condition,))


def _text(condition: Any) -> str:
    from .notation import text

    return text(condition)


def _present(expr: Any, absent: float) -> Conjuncts:
    """Conditions that all hold wherever an expression is not this number, an identity."""
    head, args = expr.head, expr.args
    if head == "Where":
        if _is_absent(args[2], absent):
            return _conjuncts(args[0]) | _present(args[1], absent)
        return _present(args[1], absent) & _present(args[2], absent)
    if head in ("Cast", "Risk", "Mat"):
        return _present(args[-1], absent)
    if head in ("Max2", "Min2") and absent == -math.inf:
        parts = [_present(arg, absent) for arg in args]
        return parts[0] & parts[1] if head == "Max2" else parts[0] | parts[1]
    if absent == -math.inf:
        return _present_log(expr)
    return _present_zero(expr) if absent == 0.0 else _NONE


def _is_absent(expr: Any, absent: float) -> bool:
    """Whether a constant is the number."""
    if absent == 0.0 and expr is make("Exp", make("Num", -math.inf)):
        return True
    return expr is make("Num", absent)


def _present_log(expr: Any) -> Conjuncts:
    head, args = expr.head, expr.args
    if head == "Add":
        return _present(args[0], -math.inf) | _present(args[1], -math.inf)
    if head == "Sub":
        return _present(args[0], -math.inf)
    if head == "Mul":
        for constant, other in (args, args[::-1]):
            if constant.head == "Num" and constant.args[0] > 0:
                return _present(other, -math.inf)
    if head == "Div" and args[1].head == "Num" and args[1].args[0] > 0:
        return _present(args[0], -math.inf)
    return _present(args[0], 0.0) if head == "Log" else _NONE


def _present_zero(expr: Any) -> Conjuncts:
    head, args = expr.head, expr.args
    if head == "Mul":
        return _present(args[0], 0.0) | _present(args[1], 0.0)
    if head in ("Add", "Sub"):
        return _present(args[0], 0.0) & _present(args[1], 0.0)
    if head in ("Div", "Neg", "Abs", "Sqrt", "Tanh"):
        return _present(args[0], 0.0)
    return _present(args[0], -math.inf) if head == "Exp" else _NONE
