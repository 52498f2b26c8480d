"""Between which indices of an axis a predicate can hold, and between which it holds for sure.

The answers are terms of a tile's place: of its first and last row, and of what is the same for all
of the tile. They are found by interval reasoning on index arithmetic: every comparison is solved
for the axis, and the other side bounded over the rows of the tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .axes import Axis
from .codegen.affine import affine
from .dtypes import DTYPES
from .expressions import maximum, minimum, where
from .free import free
from .notation import pretty
from .terms import make, subterms, variable

FIRST_ROW, LAST_ROW = variable("Expr", "first row"), variable("Expr", "last row")

# an end of an interval: a term, or None where it has no end on that side
End = Any | None


@dataclass(frozen=True, eq=False)
class Interval:
    """The indices from `low` on and before `high`; None: without an end."""

    low: End = None
    high: End = None

    def __and__(self, other: Interval) -> Interval:
        return Interval(_both(maximum, self.low, other.low), _both(minimum, self.high, other.high))

    def __or__(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(
            _either(minimum, self.low, other.low), _either(maximum, self.high, other.high)
        )

    def __str__(self) -> str:
        low, high = ("" if end is None else pretty(end) for end in (self.low, self.high))
        return f"[{low}, {high})"


ALL = Interval()
_ZERO = make("Num", 0.0)
NOTHING = Interval(_ZERO, _ZERO)


@dataclass(frozen=True, eq=False)
class Span:
    """Where along an axis a predicate can hold for some row of a tile (`live`), and where it
    holds for all rows of it (`full`)."""

    live: Interval
    full: Interval

    def __and__(self, other: Span) -> Span:
        return Span(self.live & other.live, self.full & other.full)


UNKNOWN = Span(ALL, NOTHING)


def span_of(predicate: Any, axis: Axis, row: Axis | None) -> Span:
    """The span of a predicate along `axis`, for a tile of rows from FIRST_ROW to LAST_ROW."""
    return _Reasoning(axis, row).span(predicate, holds=True)


@dataclass(frozen=True, eq=False)
class Truth:
    """Terms of one index of an axis: whether a predicate can hold there for some row of a tile,
    and whether it holds there for all rows of it.

    They read `least` and `greatest` of what `loads` hold for the tile's rows.
    """

    may: Any
    must: Any
    loads: tuple[Any, ...]


def truth_of(predicate: Any, axis: Axis, row: Axis | None) -> Truth | None:
    """The truth of a predicate at each index of `axis`, or None where its form tells nothing."""
    reasoning = _Reasoning(axis, row, with_loads=True)
    try:
        may, must = reasoning.truth(predicate, holds=True)
    except _Opaque:
        return None
    return Truth(may, must, tuple(reasoning.loads))


def least(load: Any) -> Any:
    """The least value of a load over a tile's rows."""
    return variable("Expr", f"least {pretty(load)}")


def greatest(load: Any) -> Any:
    """The greatest value of a load over a tile's rows."""
    return variable("Expr", f"greatest {pretty(load)}")


class _Opaque(Exception):
    """A term that interval reasoning says nothing about."""


class _Reasoning:
    def __init__(self, axis: Axis, row: Axis | None, *, with_loads: bool = False) -> None:
        self.axis, self.row, self.with_loads = axis, row, with_loads
        self.loads: dict[Any, None] = {}  # those that vary over the rows

    def span(self, predicate: Any, *, holds: bool) -> Span:
        """The span of a predicate, or of its negation."""
        head = predicate.head
        try:
            if head == "Not":
                return self.span(predicate.args[0], holds=not holds)
            if head in ("And", "Or"):
                parts = [self.span(part, holds=holds) for part in predicate.args]
                return parts[0] & parts[1] if (head == "And") == holds else _union(*parts)
            if head == "Num":
                truth = bool(predicate.args[0]) == holds
                return Span(ALL, ALL) if truth else Span(NOTHING, NOTHING)
            if head in ("Lt", "Le", "Eq", "Ne"):
                return self.comparison(head, *predicate.args, holds=holds)
        except _Opaque:
            pass
        return UNKNOWN

    def comparison(self, head: str, a: Any, b: Any, *, holds: bool) -> Span:
        """a < b is a + 1 <= b: indices are whole numbers."""
        if not (_is_index(a) and _is_index(b)):
            return UNKNOWN
        if head in ("Eq", "Ne"):
            if (head == "Eq") != holds:
                return UNKNOWN
            return self.at_most(a, b) & self.at_most(b, a)
        if not holds:
            return self.at_most(b if head == "Lt" else b + 1, a)
        return self.at_most(a + 1 if head == "Lt" else a, b)

    def at_most(self, a: Any, b: Any) -> Span:
        """The span of a <= b."""
        form = affine(a - b)
        parts = [(make("Idx", axis), scale) for axis, scale in form.axes]
        parts += list(form.terms)
        mine = [(term, scale) for term, scale in parts if self.axis in free(term)]
        rest: Any = make("Num", float(form.constant))
        for term, scale in parts:
            if self.axis not in free(term):
                rest = rest + scale * term
        if not mine:
            low, high = self.bounds(rest)
            return Span(_where(low <= 0), _where(high <= 0))
        if len(mine) > 1:
            raise _Opaque
        term, scale = mine[0]
        # scale * term <= -rest
        if scale > 0:
            return self.upper(term, -rest // scale if scale > 1 else -rest)
        least = rest if scale == -1 else -(-rest // -scale)
        return self.lower(term, least)

    def upper(self, term: Any, most: Any) -> Span:
        """The span of term <= most."""
        if term.head == "Idx":
            low, high = self.bounds(most)
            return Span(Interval(None, self.after(high)), Interval(None, self.after(low)))
        if term.head == "FloorDiv" and term.args[1].head == "Num":
            size = term.args[1].args[0]
            return self.at_most(term.args[0], most * size + (size - 1))
        if term.head == "Abs":
            return self.at_most(term.args[0], most) & self.at_most(-term.args[0], most)
        if term.head == "Max2":
            return self.at_most(term.args[0], most) & self.at_most(term.args[1], most)
        raise _Opaque

    def after(self, most: Any) -> Any:
        """The end of what goes up to `most`; what data says may be the largest number there is."""
        end = _tidy(most + 1)
        reads = any(node.head == "Load" for node in subterms(most))
        if reads and affine(end).constant > 0:
            return minimum(_tidy(most), self.axis.length - 1) + 1
        return end

    def lower(self, term: Any, least: Any) -> Span:
        """The span of least <= term."""
        if term.head == "Idx":
            low, high = self.bounds(least)
            return Span(Interval(_tidy(low), None), Interval(_tidy(high), None))
        if term.head == "FloorDiv" and term.args[1].head == "Num":
            return self.at_most(least * term.args[1].args[0], term.args[0])
        if term.head == "Min2":
            return self.at_most(least, term.args[0]) & self.at_most(least, term.args[1])
        raise _Opaque

    # ---- index by index --------------------------------------------------------------------------

    def truth(self, predicate: Any, *, holds: bool) -> tuple[Any, Any]:
        """Whether a predicate, or its negation, may hold at an index, and whether it must."""
        head, args = predicate.head, predicate.args
        if head == "Not":
            return self.truth(args[0], holds=not holds)
        if head in ("And", "Or"):
            (a, b), (c, d) = (self.truth(part, holds=holds) for part in args)
            return (a & c, b & d) if (head == "And") == holds else (a | c, b | d)
        if head in ("Ne", "Eq"):
            if not (_is_index(args[0]) and _is_index(args[1])):
                raise _Opaque
            (a, b), (c, d) = map(self.bounds, args)
            may, must = (a <= d) & (c <= b), (b <= c) & (d <= a)
            return (may, must) if (head == "Eq") == holds else (~must, ~may)
        if head in ("Lt", "Le") and _is_index(args[0]) and _is_index(args[1]):
            (a, b), (c, d) = map(self.bounds, args)
            may, must = make(head, a, d), make(head, b, c)
            return (may, must) if holds else (~must, ~may)
        if self.row is None or self.row not in free(predicate):
            return (predicate, predicate) if holds else (~predicate, ~predicate)
        raise _Opaque

    # ---- over the rows of the tile ---------------------------------------------------------------

    def bounds(self, term: Any) -> tuple[Any, Any]:
        """The least and the greatest value that a term takes over the tile's rows."""
        if self.row is None or self.row not in free(term):
            return term, term
        head = term.head
        if head == "Idx":
            return FIRST_ROW, LAST_ROW
        if head == "Load" and self.with_loads and self.axis not in free(term):
            self.loads[term] = None
            return least(term), greatest(term)
        if head in ("Add", "Max2", "Min2"):
            (a, b), (c, d) = map(self.bounds, term.args)
            return make(head, a, c), make(head, b, d)
        if head == "Sub":
            (a, b), (c, d) = map(self.bounds, term.args)
            return a - d, b - c
        if head == "Neg":
            a, b = self.bounds(term.args[0])
            return -b, -a
        if head == "Mul":
            for constant, other in (term.args, tuple(reversed(term.args))):
                if constant.head == "Num":
                    ends = [constant * end for end in self.bounds(other)]
                    return (ends[0], ends[1]) if constant.args[0] >= 0 else (ends[1], ends[0])
        if head == "FloorDiv" and term.args[1].head == "Num":
            a, b = self.bounds(term.args[0])
            return a // term.args[1], b // term.args[1]
        if head == "Mod" and term.args[1].head == "Num":
            return _ZERO, term.args[1] - 1
        raise _Opaque


def _where(condition: Any) -> Interval:
    """Everything where a condition holds that is the same for all of a tile, else nothing."""
    if condition.head == "Le" and all(side.head == "Num" for side in condition.args):
        return ALL if condition.args[0].args[0] <= condition.args[1].args[0] else NOTHING
    return Interval(None, where(condition, make("Num", float(_FAR)), 0))


_FAR = 2**31 - 1


def _union(a: Span, b: Span) -> Span:
    """Where one of two predicates can hold; where one of them does for sure, if both begin, or
    both end, where the axis does."""
    full = NOTHING
    if a.full.low is None and b.full.low is None:
        full = Interval(None, _either(maximum, a.full.high, b.full.high))
    elif a.full.high is None and b.full.high is None:
        full = Interval(_either(minimum, a.full.low, b.full.low), None)
    elif b.full is NOTHING or a.full is NOTHING:
        full = a.full if b.full is NOTHING else b.full
    return Span(a.live | b.live, full)


def _tidy(term: Any) -> Any:
    """A sum as people write it: what is added first, and no terms that cancel."""
    form = affine(term)
    parts = [(make("Idx", axis), scale) for axis, scale in form.axes] + list(form.terms)
    parts = sorted(parts, key=lambda part: part[1] < 0)
    if not parts:
        return make("Num", float(form.constant))
    total: Any = None
    for part, scale in parts:
        size = part if abs(scale) == 1 else abs(scale) * part
        if total is None:
            total = size if scale > 0 else -size
        else:
            total = total + size if scale > 0 else total - size
    if not form.constant:
        return total
    return total + form.constant if form.constant > 0 else total - -form.constant


def _both(choose: Any, a: End, b: End) -> End:
    if a is None or b is None:
        return a if b is None else b
    return a if b in _chosen_from(a, "Max2" if choose is maximum else "Min2") else choose(a, b)


def _chosen_from(end: Any, head: str) -> list[Any]:
    """What an end is the least or the greatest of."""
    if end.head != head:
        return [end]
    return [part for arg in end.args for part in _chosen_from(arg, head)]


def _either(choose: Any, a: End, b: End) -> End:
    return None if a is None or b is None else a if a is b else choose(a, b)


def _is_index(term: Any) -> bool:
    """Whether a term is a whole number: index arithmetic, or an element of an integer tensor."""
    if term.head == "Num":
        return bool(term.args[0] == int(term.args[0])) if abs(term.args[0]) < _FAR else False
    if term.head == "Load":
        return DTYPES[term.args[0].args[1]].is_integer
    if term.head in ("Add", "Sub", "Mul", "Neg", "FloorDiv", "Mod", "Max2", "Min2", "Abs"):
        return all(_is_index(part) for part in term.args)
    return term.head in ("Idx", "Len")
