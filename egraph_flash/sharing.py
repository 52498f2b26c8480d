"""The outermost bracket: a fold that blocks of the grid share, each folding its part of the axis.

A fold over an axis is a fold, over the shares of that axis, of the fold over the elements of each.
The state of a share is an element of the outer fold like any other: its channels are what the
element lifts to, in coordinates at the element's own bases. So nothing is needed that combines
states but the fold itself, and the states of the shares, which go through memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .axes import Axis
from .carriers import (
    bases_of,
    channels_of,
    closure,
    identity,
    is_twisted,
    lift_of,
    representation_of,
)
from .expressions import exp, inf, lift, where
from .terms import Chan, Term, make, rewrite, subterms

FINE = 16  # elements: parts begin where copies of 16-bit elements are aligned,
COARSE = 128  # and longer ones where a block of the fold does


def passes_over(term: Any) -> tuple[Axis, ...]:
    """The axes that the folds of a term go over, each once, in order of first appearance."""
    folds = (node.args[0].args[0] for node in subterms(term) if node.head == "Get")
    return tuple(dict.fromkeys(folds))


@dataclass(frozen=True, eq=False)
class Cut:
    """`axis` in `count` parts, which begin `size` elements apart; `part` is the axis of one part's.

    The part of an axis of known length has its name and as many elements. That of an open one is
    the axis itself: a mask says how many of its elements a part has.
    """

    axis: Axis
    count: int
    size: Any
    part: Axis

    @classmethod
    def known(cls, axis: Axis, size: int) -> Cut:
        """In parts of `size` elements, the last one shorter."""
        return cls(axis, -(-axis.size // size), lift(size).expr, Axis(axis.name, size))

    @classmethod
    def open(cls, axis: Axis, count: int) -> Cut:
        """In so many parts of one size, whole blocks of the fold, the last ones perhaps empty."""
        size = (axis.length + (count * COARSE - 1)) // (count * COARSE) * COARSE
        return cls(axis, count, size.expr, axis)

    @classmethod
    def even(cls, axis: Axis, count: int) -> Cut:
        """An axis of known length in about so many parts, that begin where blocks do."""
        size = max(-(-axis.size // count), 1)
        to = 1 if size < FINE else FINE if size < 4 * COARSE else COARSE
        return cls.known(axis, -(-size // to) * to)

    @property
    def is_open(self) -> bool:
        return self.part is self.axis

    def exists(self, element: Any) -> Any | None:
        """Whether a part has the element at an index of the axis; None where all have."""
        if self.is_open:
            return (self.part.index < self.size) & (element < self.axis.length)
        return element < self.axis.size if self.axis.size % self.part.size else None


def shared(term: Any, cut: Cut) -> Any:
    """`term` with every fold over the axis of a cut as a fold over the folds of its parts."""
    taken = {node.args[0] for node in subterms(term) if node.head == "Ax"}
    sharing = _Sharing(cut, Axis(fresh(f"{cut.axis.name}_share", taken), cut.count))
    for node in subterms(term):  # those below first
        if node.head == "Get" and node.args[0].args[0] is cut.axis:
            sharing.share(node)
    return rewrite(term, sharing.change)


def axis_of(fold: Any) -> Axis:
    """The user's axis that a reduction, or the fold that a channel is read of, goes over."""
    axis: Axis = fold.args[0].args[0] if fold.head == "Get" else fold.args[1]
    return axis.root


def fresh(name: str, taken: set[str]) -> str:
    """A name that none of `taken` is."""
    while name in taken:
        name += "_"
    return name


class _Sharing:
    """Folds over one axis being shared: what stands for each channel that is read of them."""

    def __init__(self, cut: Cut, parts: Axis) -> None:
        self.axis, self.parts, self.part = cut.axis, parts, cut.part
        self.element = parts.index * cut.size + cut.part.index
        self.exists = cut.exists(self.element)
        self.change: dict[Any, Any] = {}

    def share(self, get: Any) -> None:
        state, channel = get.args
        channels = closure(channels_of(state))
        within = {each: self.within(each) for each in channels}
        below = make("Fold", self.part, make("Flat"), make("Lift", tuple(within.values())))
        above: dict[Chan, Chan] = {}
        for each in channels:
            value = make("Mat", make("Get", below, within[each]))
            above[each] = _lifting(each, tuple(above[base] for base in bases_of(each)), value)
        whole = make("Fold", self.parts, make("Flat"), make("Lift", tuple(above.values())))
        self.change[get] = make("Get", whole, above[channel])

    def within(self, channel: Chan) -> Chan:
        """The channel over a part's own elements, of which those past the end are the identity."""
        bases = tuple(map(self.within, bases_of(channel)))
        value = self.at_element(lift_of(channel))
        vanishes = any(identity(base) != 0.0 for base in bases) and _is_group(channel)
        absent = lift(identity(channel)).expr  # as it is, where an element adds nothing of its own
        if self.exists is not None and not vanishes and value is not absent:
            value = where(self.exists, value, _absent(identity(channel)))
        return _lifting(channel, bases, value)

    def at_element(self, term: Any) -> Any:
        """A lift, in which no index is bound but by folds of its own."""
        if term.head in ("Get", "Red") and axis_of(term) is self.axis:
            return self.change.get(term, term)
        if term.head == "Idx" and term.args[0] is self.axis:
            return self.element.expr
        args = tuple(
            self.at_element(arg)
            if isinstance(arg, Term)
            else tuple(map(self.at_element, arg))
            if isinstance(arg, tuple)
            else arg
            for arg in term.args
        )
        return make(term.head, *args) if args else term


def _is_group(channel: Chan) -> bool:
    """Whether what a channel has at an identity of its bases is nothing at any other."""
    return is_twisted(channel) and representation_of(channel).is_group


def _absent(value: float) -> Any:
    """The identity of a sum or a maximum as a value that is absent, so that 0 / 0 of it is 0."""
    return exp(lift(-inf)) if value == 0.0 else lift(value)


def _lifting(channel: Chan, bases: tuple[Chan, ...], value: Any) -> Chan:
    """A channel like another with these bases, to which an element lifts as `value`."""
    if is_twisted(channel):
        made: Chan = make("Tw", channel.args[0], bases, lift(value).expr)
        return made
    made = make("Ch", channel.args[0], lift(value).expr)
    return made
