"""How two states of a carrier combine: derived from its channels, never written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .axes import Axis
from .expressions import Expr
from .monoids import MONOIDS
from .representations import REPRESENTATIONS, Representation
from .terms import Chan, State, make

Values = Mapping[Chan, Expr]


def channels_of(state: State) -> tuple[Chan, ...]:
    """The channels of a tower of folds, or of the lift below it."""
    while state.head == "Fold":
        state = state.args[2]
    return state.args[0]  # type: ignore[no-any-return]


def tower_of(state: State) -> tuple[tuple[Axis, str], ...]:
    """The (axis, level name) of each fold of a tower, outermost first."""
    levels = []
    while state.head == "Fold":
        levels.append((state.args[0], state.args[1].head))
        state = state.args[2]
    return tuple(levels)


def is_twisted(channel: Chan) -> bool:
    return channel.head == "Tw"


def bases_of(channel: Chan) -> tuple[Chan, ...]:
    return channel.args[1] if is_twisted(channel) else ()


def lift_of(channel: Chan) -> Expr:
    """What one element contributes, in coordinates at the element's own base."""
    return channel.args[2] if is_twisted(channel) else channel.args[1]  # type: ignore[no-any-return]


def monoid_of(channel: Chan) -> str:
    """The monoid that it folds in, of a twisted channel once its bases agree."""
    if is_twisted(channel):
        return representation_of(channel).monoid
    return channel.args[0].head  # type: ignore[no-any-return]


def representation_of(channel: Chan) -> Representation:
    return REPRESENTATIONS[channel.args[0].args[0]]


def base_channels(rep: Representation, lifts: Sequence[Expr]) -> tuple[Chan, ...]:
    """The bases of a channel that `rep` twists, to which an element lifts like this."""
    found: list[Chan] = []
    for kind, value in zip(rep.monoids, lifts, strict=True):
        if kind in MONOIDS:
            found.append(make("Ch", make(kind), value))
        else:
            below = tuple(found[: len(REPRESENTATIONS[kind].monoids)])
            found.append(make("Tw", make("Rep", kind), below, value))
    return tuple(found)


def closure(channels: Sequence[Chan]) -> tuple[Chan, ...]:
    """The channels and all their bases, bases first, each once."""
    found: dict[Chan, None] = {}
    for channel in channels:
        for base in closure(bases_of(channel)):
            found[base] = None
        found[channel] = None
    return tuple(found)


def identity(channel: Chan) -> float:
    return MONOIDS[monoid_of(channel)].identity


def plain(monoid: str, a: Expr, b: Expr) -> Expr:
    """Two values combined."""
    return MONOIDS[monoid].combine(a, b)  # type: ignore[no-any-return]


def combine(channels: Sequence[Chan], a: Values, b: Values) -> dict[Chan, Expr]:
    """The combined state, channel by channel, as expressions in the two states' values.

    A twisted channel is transported from each side's bases to the combined ones, then combined.
    """
    out: dict[Chan, Expr] = {}
    for channel in closure(channels):
        if not is_twisted(channel):
            out[channel] = plain(monoid_of(channel), a[channel], b[channel])
            continue
        action, bases = representation_of(channel), bases_of(channel)
        new = tuple(out[base] for base in bases)
        left = action.transport(a[channel], tuple(a[base] for base in bases), new)
        right = action.transport(b[channel], tuple(b[base] for base in bases), new)
        out[channel] = plain(monoid_of(channel), left, right)
    return out
