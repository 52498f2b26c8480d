"""How a channel is carried along when its base moves: the actions that twist a carrier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .expressions import Expr, exp

Bases = tuple[Expr, ...]


@dataclass(frozen=True)
class Representation:
    """A representation of (R, +) on a vector of channels whose lower rows are the bases.

    A state is kept in coordinates at its own base: `x = act(bases, -parameter(bases), D)` of the
    plain sum D. Moving from the base `b` to the base `c` therefore applies the group element
    `parameter(b) - parameter(c)`; that actions compose is the only law the combine needs.

    - `monoids`: the monoid of each base channel, in order.
    - `parameter(*bases)`: the group element that the bases stand for.
    - `act(bases, shift, x)`: the channel's row of the action, on the state (bases, x).
    """

    name: str
    monoids: tuple[str, ...]
    parameter: Callable[..., Expr] = field(repr=False, compare=False)
    act: Callable[[Bases, Expr, Expr], Expr] = field(repr=False, compare=False)
    source: str

    def transport(self, x: Expr, old: Bases, new: Bases) -> Expr:
        """The channel value `x`, kept at the bases `old`, as it reads at the bases `new`."""
        return self.act(old, self.parameter(*old) - self.parameter(*new), x)


REPRESENTATIONS: dict[str, Representation] = {
    row.name: row
    for row in (
        Representation(
            name="Scale",
            monoids=("Max",),
            parameter=lambda m: m,
            act=lambda bases, shift, x: exp(shift) * x,
            source="(m, D) -> (m, exp(-m) D); Milakov & Gimelshein 2018, algorithm 3",
        ),
        Representation(
            name="Shift",
            monoids=("Sum", "Sum"),
            parameter=lambda n, s: s / n,
            act=lambda bases, shift, x: x + bases[0] * (shift * shift),
            source="second moments about the mean; Welford 1962, Chan, Golub & LeVeque 1983",
        ),
    )
}
