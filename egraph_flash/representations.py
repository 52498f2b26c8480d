"""How a channel is carried along when its base moves: the actions that twist a carrier."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from .expressions import Expr, exp, lift, where
from .monoids import MONOIDS
from .terms import variable

Bases = tuple[Expr, ...]
Point = tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Chart:
    """The bases of one element, in pattern variables, where its point has a closed form.

    `point` is that form, and `positive` what must be positive for it to hold; absent elements of
    `linear` are 0 only. `lift` is the element's own value: a variable, or the constant of the
    plain case.
    """

    name: str
    bases: Bases
    point: Point
    lift: Expr
    positive: tuple[Expr, ...] = ()
    linear: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Representation:
    """How a channel moves with its bases, which are the lower rows of a vector of channels.

    A state is kept at a point, which its own bases stand for. Moves from point to point compose,
    and each is a homomorphism of the monoid that the channel folds in; this is all that a combine
    needs. Of a group, a representation of (R^n, +), every move has an inverse, and a state can be
    kept at the origin 0 as well, where its bases say nothing. Otherwise moves lead upwards alone,
    from a base to a combination of it with others.

    - `monoids`: the monoid of each base channel, in order; or the representation by which the
      bases before it twist it, where a base moves with them.
    - `point(*bases)`: the point that the bases stand for, as its coordinates.
    - `act(bases, start, end, x)`: the channel's row of the move from one point to another, on the
      state (bases, x).
    - `charts`: the elements that the laws recognise.
    - `monoid`: the one that the channel folds in, once its bases agree.
    - `overflows`: whether the untwisted sum leaves the range of floats, so that tupling it with
      its base pays even where nobody asked for the base.
    - `slack`: how far an element's point may exceed the base that is kept, where any base will
      do; None where the base must be the fold of the elements' own.
    """

    name: str
    monoids: tuple[str, ...]
    point: Callable[..., Point] = field(repr=False, compare=False)
    act: Callable[[Bases, Point, Point, Expr], Expr] = field(repr=False, compare=False)
    charts: tuple[Chart, ...] = field(repr=False, compare=False)
    source: str
    monoid: str = "Sum"
    is_group: bool = True
    overflows: bool = False
    slack: float | None = None

    @property
    def origin(self) -> Point:
        """The point of a group from which coordinates count."""
        return (lift(0.0),) * len(self.charts[0].point)

    @property
    def scales(self) -> bool:
        """Whether the action multiplies a channel by what bases and points alone decide."""
        bases, start, end = (
            tuple(variable("Expr", f"{name}{place}") for place in range(count))
            for name, count in (
                ("base", len(self.monoids)),
                ("start", len(self.origin)),
                ("end", len(self.origin)),
            )
        )
        x = variable("Expr", "x")
        return x in _factors(self.act(bases, start, end, x))

    def transport(self, x: Expr, old: Bases, new: Bases) -> Expr:
        """The channel value `x`, kept at the bases `old`, as it reads at the bases `new`."""
        return self.act(old, self.point(*old), self.point(*new), x)


def _factors(term: Expr) -> set[Expr]:
    if term.head != "Mul":
        return {term}
    left, right = term.args
    return _factors(left) | _factors(right)


_u, _w, _x, _r = (variable("Expr", name) for name in "uwxr")


def _scale(bases: Bases, start: Point, end: Point, x: Expr) -> Expr:
    return exp(start[0] - end[0]) * x


def _affine(bases: Bases, start: Point, end: Point, x: Expr) -> Expr:
    return exp(start[0] - end[0]) * (x + (start[0] - end[0]) * bases[1])


def _shift(bases: Bases, start: Point, end: Point, x: Expr) -> Expr:
    return x + bases[0] * ((start[0] - end[0]) * (start[0] - end[0]))


def _center(bases: Bases, start: Point, end: Point, x: Expr) -> Expr:
    return x + (start[0] - end[0]) * bases[2]


def _comoment(bases: Bases, start: Point, end: Point, x: Expr) -> Expr:
    return x + bases[0] * ((start[0] - end[0]) * (start[1] - end[1]))


def _spread(bases: Bases, start: Point, end: Point, x: Expr) -> Expr:
    return exp(start[0] - end[0]) * _shift(bases[1:], start[1:], end[1:], x)


def _select_linear(bases: Bases, start: Point, end: Point, x: Expr) -> Expr:
    return where(start[0] == end[0], 1.0, 0.0) * x


def selection_name(monoid: str) -> str:
    return "Select" if monoid == "Sum" else f"Select{monoid}"


def selection(monoid: str) -> Representation:
    """What the elements at the maximum have, folded in a monoid: a larger one drops it.

    A sum is multiplied by 0 or 1, so that it may be a matrix product.
    """
    identity = MONOIDS[monoid].identity

    def select(bases: Bases, start: Point, end: Point, x: Expr) -> Expr:
        return where(start[0] == end[0], x, identity)

    linear = monoid == "Sum"
    charts = (Chart("weighted", (_u,), (_u,), _r),)
    return Representation(
        name=selection_name(monoid),
        monoids=("Max",),
        point=lambda m: (m,),
        act=_select_linear if linear else select,
        charts=(*charts, Chart("plain", (_u,), (_u,), lift(1.0))) if linear else charts,
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
            point=lambda m: (m,),
            act=_scale,
            charts=(
                Chart("weighted", (_u,), (_u,), _r),
                Chart("plain", (_u,), (_u,), lift(1.0)),
            ),
            overflows=True,
            slack=8 * math.log(2.0),  # weights stay below 2^8, which 16-bit floats hold as well
            source="(m, D) -> (m, exp(-m) D); Milakov & Gimelshein 2018, algorithm 3",
        ),
        Representation(
            name="Affine",
            monoids=("Max", "Scale"),
            point=lambda m, z: (m,),
            act=_affine,
            charts=(
                Chart("plain", (_u, lift(1.0)), (_u,), lift(0.0)),
                Chart("weighted", (_u, _r), (_u,), lift(0.0)),
            ),
            source="(m, Z, T) -> (m, exp(-m) Z, exp(-m) (T - m Z)): sums of u exp(u), which move "
            "by a multiple of the sum of exp(u) as well; a unipotent block times a scalar",
        ),
        Representation(
            name="Shift",
            monoids=("Sum", "Sum"),
            point=lambda n, s: (s / n,),
            act=_shift,
            charts=(
                Chart("plain", (lift(1.0), _x), (_x,), lift(0.0)),
                Chart("weighted", (_w, _w * _x), (_x,), lift(0.0), positive=(_w,)),
                Chart("plain-spread", (lift(1.0), _x), (_x,), _r),
            ),
            source="second moments about the mean; Welford 1962, Chan, Golub & LeVeque 1983",
        ),
        Representation(
            name="Center",
            monoids=("Sum", "Sum", "Sum"),
            point=lambda n, s, r: (s / n,),
            act=_center,
            charts=(Chart("plain", (lift(1.0), _x, _r), (_x,), lift(0.0), linear=(_x, _r)),),
            source="Σ (x - mean x) r moves by a multiple of Σ r; Chan, Golub & LeVeque 1983",
        ),
        Representation(
            name="Comoment",
            monoids=("Sum", "Sum", "Sum"),
            point=lambda n, s, r: (s / n, r / n),
            act=_comoment,
            charts=(Chart("plain", (lift(1.0), _x, _r), (_x, _r), lift(0.0), linear=(_x, _r)),),
            source="comoments about both means; Chan, Golub & LeVeque 1983",
        ),
        Representation(
            name="Spread",
            monoids=("Max", "Scale", "Scale"),
            point=lambda m, z, s: (m, s / z),
            act=_spread,
            charts=(
                Chart("plain", (_u, lift(1.0), _x), (_u, _x), lift(0.0)),
                Chart("weighted", (_u, _w, _w * _x), (_u, _x), lift(0.0), positive=(_w,)),
            ),
            source="second moments of weights exp(u): Shift, over sums that Scale moves",
        ),
        *map(selection, MONOIDS),
    )
}
