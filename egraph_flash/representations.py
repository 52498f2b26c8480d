"""How a channel is carried along when its base moves: the actions that twist a carrier."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from .expressions import Expr, exp, lift, where
from .monoids import MONOIDS
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
    """How a channel moves with its bases, which are the lower rows of a vector of channels.

    A state is kept at a point, which its own bases stand for. Moves from point to point compose,
    and each is a homomorphism of the monoid that the channel folds in; this is all that a combine
    needs. Of a group, a representation of (R, +), every move has an inverse, and a state can be
    kept at the origin 0 as well, where its bases say nothing. Otherwise moves lead upwards alone,
    from a base to a combination of it with others.

    - `monoids`: the monoid of each base channel, in order; or the representation by which the
      bases before it twist it, where a base moves with them.
    - `parameter(*bases)`: the point that the bases stand for, in a group an element of it.
    - `act(bases, start, end, x)`: the channel's row of the move from one point to another, on the
      state (bases, x).
    - `charts`: the elements that the laws recognise.
    - `monoid`: the one that the channel folds in, once its bases agree.
    - `overflows`: whether the untwisted sum leaves the range of floats, so that tupling it with
      its base pays even where nobody asked for the base.
    - `slack`: how far an element's parameter may exceed the base that is kept, where any base will
      do; None where the base must be the fold of the elements' own.
    """

    name: str
    monoids: tuple[str, ...]
    parameter: Callable[..., Expr] = field(repr=False, compare=False)
    act: Callable[[Bases, Expr, Expr, Expr], Expr] = field(repr=False, compare=False)
    charts: tuple[Chart, ...] = field(repr=False, compare=False)
    source: str
    monoid: str = "Sum"
    is_group: bool = True
    overflows: bool = False
    slack: float | None = None

    @property
    def scales(self) -> bool:
        """Whether the action multiplies a channel by what bases and element alone decide."""
        bases = tuple(variable("Expr", f"base{place}") for place in range(len(self.monoids)))
        x, start, end = (variable("Expr", name) for name in ("x", "start", "end"))
        return x in _factors(self.act(bases, start, end, x))

    def transport(self, x: Expr, old: Bases, new: Bases) -> Expr:
        """The channel value `x`, kept at the bases `old`, as it reads at the bases `new`."""
        return self.act(old, self.parameter(*old), self.parameter(*new), x)


def _factors(term: Expr) -> set[Expr]:
    if term.head != "Mul":
        return {term}
    left, right = term.args
    return _factors(left) | _factors(right)


_u, _w, _x, _r = (variable("Expr", name) for name in "uwxr")


def _scale(bases: Bases, start: Expr, end: Expr, x: Expr) -> Expr:
    return exp(start - end) * x


def _affine(bases: Bases, start: Expr, end: Expr, x: Expr) -> Expr:
    return exp(start - end) * (x + (start - end) * bases[1])


def _shift(bases: Bases, start: Expr, end: Expr, x: Expr) -> Expr:
    return x + bases[0] * ((start - end) * (start - end))


def _select_linear(bases: Bases, start: Expr, end: Expr, x: Expr) -> Expr:
    return where(start == end, 1.0, 0.0) * x


def selection_name(monoid: str) -> str:
    return "Select" if monoid == "Sum" else f"Select{monoid}"


def selection(monoid: str) -> Representation:
    """What the elements at the maximum have, folded in a monoid: a larger one drops it.

    A sum is multiplied by 0 or 1, so that it may be a matrix product.
    """
    identity = MONOIDS[monoid].identity

    def select(bases: Bases, start: Expr, end: Expr, x: Expr) -> Expr:
        return where(start == end, x, identity)

    linear = monoid == "Sum"
    charts = (Chart("weighted", (_u,), _u, _r),)
    return Representation(
        name=selection_name(monoid),
        monoids=("Max",),
        parameter=lambda m: m,
        act=_select_linear if linear else select,
        charts=(*charts, Chart("plain", (_u,), _u, lift(1.0))) if linear else charts,
        monoid=monoid,
        is_group=False,
        source="(m, x) at m' > m is the identity; the argmax of a maximum, as in reverse-mode max",
    )


REPRESENTATIONS: dict[str, Representation] = {
    row.name: row
    for row in (
        Representation(
            name="Scale",
            monoids=("Max",),
            parameter=lambda m: m,
            act=_scale,
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
            act=_affine,
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
            act=_shift,
            charts=(
                Chart("plain", (lift(1.0), _x), _x, lift(0.0)),
                Chart("weighted", (_w, _w * _x), _x, lift(0.0), positive=(_w,)),
                Chart("plain-spread", (lift(1.0), _x), _x, _r),
            ),
            source="second moments about the mean; Welford 1962, Chan, Golub & LeVeque 1983",
        ),
        *map(selection, MONOIDS),
    )
}
