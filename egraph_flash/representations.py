"""How a channel is carried along when its base moves: the actions that twist a carrier."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from .expressions import Expr, exp, lift
from .terms import variable

Bases = tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Chart:
    """The bases of one element, in pattern variables, where its group element has a closed form.

    `parameter` is that form, and `positive` what must be positive for it to hold. `lift` is the
    element's own value: a variable, or the constant of the plain case.
    """

    name: str
    bases: Bases
    parameter: Expr
    lift: Expr
    positive: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Representation:
    """A representation of (R, +) on a vector of channels whose lower rows are the bases.

    A state is kept in coordinates at its own base: `x = act(bases, -parameter(bases), D)` of the
    plain sum D. Moving from the base `b` to the base `c` therefore applies the group element
    `parameter(b) - parameter(c)`; that actions compose is the only law the combine needs.

    - `monoids`: the monoid of each base channel, in order; or the representation by which the
      bases before it twist it, where a base moves with them.
    - `parameter(*bases)`: the group element that the bases stand for.
    - `act(bases, shift, x)`: the channel's row of the action, on the state (bases, x).
    - `charts`: the elements that the laws recognise.
    - `overflows`: whether the untwisted sum leaves the range of floats, so that tupling it with
      its base pays even where nobody asked for the base.
    - `slack`: how far an element's parameter may exceed the base that is kept, where any base will
      do; None where the base must be the fold of the elements' own.
    """

    name: str
    monoids: tuple[str, ...]
    parameter: Callable[..., Expr] = field(repr=False, compare=False)
    act: Callable[[Bases, Expr, Expr], Expr] = field(repr=False, compare=False)
    charts: tuple[Chart, ...] = field(repr=False, compare=False)
    source: str
    overflows: bool = False
    slack: float | None = None

    @property
    def scales(self) -> bool:
        """Whether the action multiplies a channel by what bases and element alone decide."""
        bases = tuple(variable("Expr", f"base{place}") for place in range(len(self.monoids)))
        x = variable("Expr", "x")
        return x in _factors(self.act(bases, variable("Expr", "element"), x))

    def transport(self, x: Expr, old: Bases, new: Bases) -> Expr:
        """The channel value `x`, kept at the bases `old`, as it reads at the bases `new`."""
        return self.act(old, self.parameter(*old) - self.parameter(*new), x)


def _factors(term: Expr) -> set[Expr]:
    if term.head != "Mul":
        return {term}
    left, right = term.args
    return _factors(left) | _factors(right)


_u, _w, _x, _r = (variable("Expr", name) for name in "uwxr")

REPRESENTATIONS: dict[str, Representation] = {
    row.name: row
    for row in (
        Representation(
            name="Scale",
            monoids=("Max",),
            parameter=lambda m: m,
            act=lambda bases, shift, x: exp(shift) * x,
            charts=(
                Chart("weighted", (_u,), _u, _r),
                Chart("plain", (_u,), _u, lift(1.0)),
            ),
            overflows=True,
            slack=8 * math.log(2.0),  # weights stay below 2^8, which 16-bit floats hold as well
            source="(m, D) -> (m, exp(-m) D); Milakov & Gimelshein 2018, algorithm 3",
        ),
        Representation(
            name="Affine",
            monoids=("Max", "Scale"),
            parameter=lambda m, z: m,
            act=lambda bases, shift, x: exp(shift) * (x + shift * bases[1]),
            charts=(
                Chart("plain", (_u, lift(1.0)), _u, lift(0.0)),
                Chart("weighted", (_u, _r), _u, lift(0.0)),
            ),
            source="(m, Z, T) -> (m, exp(-m) Z, exp(-m) (T - m Z)): sums of u exp(u), which move "
            "by a multiple of the sum of exp(u) as well; a unipotent block times a scalar",
        ),
        Representation(
            name="Shift",
            monoids=("Sum", "Sum"),
            parameter=lambda n, s: s / n,
            act=lambda bases, shift, x: x + bases[0] * (shift * shift),
            charts=(
                Chart("plain", (lift(1.0), _x), _x, lift(0.0)),
                Chart("weighted", (_w, _w * _x), _x, lift(0.0), positive=(_w,)),
                Chart("plain-spread", (lift(1.0), _x), _x, _r),
            ),
            source="second moments about the mean; Welford 1962, Chan, Golub & LeVeque 1983",
        ),
    )
}
