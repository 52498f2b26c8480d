"""The outermost bracket: a fold that blocks of the grid share, each folding its part of the axis.

A fold over an axis is a fold, over the shares of that axis, of the fold over the elements of each.
The state of a share is an element of the outer fold like any other: its channels are what the
element lifts to, in coordinates at the element's own bases. So nothing is needed that combines
states but the fold itself, and the states of the shares, which go through memory.
"""

from __future__ import annotations

from typing import Any

from .axes import Axis
from .carriers import bases_of, channels_of, closure, identity, is_twisted, lift_of
from .expressions import exp, inf, lift, where
from .terms import Chan, Term, make, rewrite, subterms


def passes_over(term: Any) -> tuple[Axis, ...]:
    """The axes that the folds of a term go over, each once, in order of first appearance."""
    folds = (node.args[0].args[0] for node in subterms(term) if node.head == "Get")
    return tuple(dict.fromkeys(folds))


def shared(term: Any, axis: Axis, size: int) -> Any:
    """`term` with every fold over `axis` shared in parts of `size` elements, the last one shorter.

    The axis of a part's elements has the name of `axis`, that of the parts is called by it.
    """
    taken = {node.args[0] for node in subterms(term) if node.head == "Ax"}
    parts = Axis(fresh(f"{axis.name}_share", taken), -(-axis.size // size))
    sharing = _Sharing(axis, parts, Axis(axis.name, size))
    for node in subterms(term):  # those below first
        if node.head == "Get" and node.args[0].args[0] is axis:
            sharing.share(node)
    return rewrite(term, sharing.change)


def fresh(name: str, taken: set[str]) -> str:
    """A name that none of `taken` is."""
    while name in taken:
        name += "_"
    return name


class _Sharing:
    """Folds over one axis being shared: what stands for each channel that is read of them."""

    def __init__(self, axis: Axis, parts: Axis, part: Axis) -> None:
        self.axis, self.parts, self.part = axis, parts, part
        self.element = parts.index * part.size + part.index
        past = parts.size * part.size > axis.size
        self.exists = self.element < axis.size if past else None
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
        vanishes = any(identity(base) != 0.0 for base in bases)  # with its base
        absent = lift(identity(channel)).expr  # as it is, where an element adds nothing of its own
        if self.exists is not None and not vanishes and value is not absent:
            value = where(self.exists, value, _absent(identity(channel)))
        return _lifting(channel, bases, value)

    def at_element(self, term: Any) -> Any:
        """A lift, in which no index is bound but by folds of its own."""
        if term.head in ("Get", "Red") and _axis_of(term).root is self.axis:
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


def _axis_of(fold: Any) -> Axis:
    axis: Axis = fold.args[0].args[0] if fold.head == "Get" else fold.args[1]
    return axis


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
