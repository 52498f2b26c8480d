"""Which contractions a stage holds, and what their operands are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from .arithmetic import normal_reciprocal
from .axes import Axis
from .carriers import bases_of, is_twisted, lift_of, monoid_of, representation_of
from .codegen.affine import linear
from .dtypes import DTYPES
from .free import free
from .roles import Contraction, beside, contraction, factors, placeholder, product, summand
from .stages import Stage
from .terms import Chan, make, rewrite, subterms

MINUS_INFINITY = make("Num", float("-inf"))
LEAST, GREATEST = 2.0**-126, 2.0**127  # of a factor of minus infinity, in f32


@dataclass(frozen=True)
class Shape:
    """The sums of a stage, by kind.

    - `inner`: reductions in the fold's body that are contractions of its rows and the fold axis.
    - `serial`: reductions in the body that are none, which a loop computes.
    - `outer`: channels that are contractions over the fold axis.
    - `plain`: the other channels, which reduce a tile along its rows.
    """

    inner: tuple[tuple[Any, Contraction], ...]
    serial: tuple[Any, ...]
    outer: tuple[tuple[Chan, Contraction], ...]
    plain: tuple[Chan, ...]

    @property
    def contractions(self) -> tuple[Contraction, ...]:
        return tuple(found for _, found in (*self.inner, *self.outer))

    @property
    def depths(self) -> tuple[Axis, ...]:
        """The axes that something is contracted over, inner ones first."""
        return tuple(dict.fromkeys(found.depth for found in self.contractions))

    @cached_property
    def hands_over(self) -> bool:
        """Whether a tile that the body computes is an operand of a contraction over the fold."""
        tiles = {*(red for red, _ in self.inner), *self.serial}
        return any(not tiles.isdisjoint(subterms(found.left)) for _, found in self.outer)


@lru_cache(maxsize=256)
def shape_of(stage: Stage) -> Shape:
    roles = stage.roles
    inner: list[tuple[Any, Contraction]] = []
    serial: list[Any] = []
    outer: list[tuple[Chan, Contraction]] = []
    plain: list[Chan] = []
    if stage.fold is None or roles.fold is None:
        return Shape((), (), (), ())
    rows = {roles.row} if roles.row is not None else set()
    for channel in stage.channels:
        expr = summand(channel, {base: placeholder(base) for base in bases_of(channel)})
        for red in reductions(lift_of(channel)):
            found = inner_contraction(red, rows, roles.fold)
            if found is None and red not in serial:
                serial.append(red)
            elif found is not None and all(red is not known for known, _ in inner):
                inner.append((red, found))
        columned = roles.column is not None and roles.column in free(channel)
        whole = (
            beside(product(factors(expr)), roles.fold, rows, {roles.column})
            if columned and monoid_of(channel) == "Sum" and roles.column is not None
            else None
        )
        if whole is not None:
            outer.append((channel, whole))
        else:
            plain.append(channel)
    return Shape(tuple(inner), tuple(serial), tuple(outer), tuple(plain))


def free_base(stage: Stage, base: Chan) -> bool:
    """Whether channels are kept relative to this one, and any value near it would do."""
    over = [c for c in stage.channels if base in bases_of(c)]
    return bool(over) and all(representation_of(c).slack is not None for c in over)


def stays_in_lanes(stage: Stage, channel: Chan) -> bool:
    """Whether each lane may keep its own part of a channel with one value a row until the end.

    It is a sum that nothing else is kept relative to, and that a base moves by a factor: what an
    action adds would be added in every lane.
    """
    scales = not is_twisted(channel) or representation_of(channel).scales
    is_base = any(channel in bases_of(other) for other in stage.channels)
    return monoid_of(channel) == "Sum" and scales and not is_base


@lru_cache(maxsize=256)
def tiles_of(stage: Stage) -> tuple[Any, ...]:
    """The loads of the fold's body that are tiles of their own: 16 bits for each row and element,
    neighbours along the fold, and no operand of a contraction."""
    roles, sums = stage.roles, shape_of(stage)
    operands = {side for found in sums.contractions for side in (found.left, found.right)}
    below = [node for red, _ in sums.inner for node in subterms(red)]
    inside = {*operands, *below, *(node for red in sums.serial for node in subterms(red))}
    nodes = subterms(*(lift_of(channel) for channel in stage.channels))
    return tuple(
        node
        for node in nodes
        if node.head == "Load"
        and node not in inside
        and DTYPES[node.args[0].args[1]].size_bytes == 2
        and {roles.row, roles.fold} <= set(free(node))
        and linear(node).coefficient(roles.fold) == 1
        and roles.column not in free(node)
    )


def inner_contraction(red: Any, rows: set[Axis], fold: Axis) -> Contraction | None:
    """A reduction of the body as a contraction of its rows with the fold axis, if it is one."""
    if red.args[0].head != "Sum":
        return None
    return contraction(red.args[2], red.args[1], rows, {fold})


def reductions(expr: Any) -> tuple[Any, ...]:
    """The outermost reductions of an expression, in order."""
    if expr.head == "Red":
        return (expr,)
    found = dict.fromkeys(
        red for child in expr.children if child.sort == "Expr" for red in reductions(child)
    )
    return tuple(found)


def loads_of(expr: Any) -> tuple[Any, ...]:
    """The loads of real-valued arrays below an expression, in order."""
    return tuple(
        node
        for node in subterms(expr)
        if node.head == "Load" and DTYPES[node.args[0].args[1]].is_real
    )


def scaled(term: Any) -> tuple[Any, float]:
    """A term as (x, c) with c * x equal to it, c > 0; c = 1 where it has no such factor."""
    if term.head == "Div":
        x, divisor = term.args
        reciprocal = normal_reciprocal(divisor.args[0]) if divisor.head == "Num" else None
        if x.head != "Num" and reciprocal is not None and reciprocal > 0:
            return x, reciprocal
    if term.head == "Mul":
        for factor, other in (term.args, reversed(term.args)):
            if factor.head == "Num" and other.head != "Num" and 0.0 < factor.args[0] < math.inf:
                return other, factor.args[0]
    return term, 1.0


def monotone(monoid: str, element: Any) -> tuple[Any, float]:
    """An element as c * x where the fold may be taken of x and scaled once a row, and c.

    A maximum commutes with a positive factor, and so it does with the factor's rounding.
    """
    return scaled(element) if monoid == "Max" else (element, 1.0)


def scales_outward(expr: Any) -> Any:
    """The expression with positive factors taken out of masks that put -inf: the same values, and
    a factor of every element stands where what follows can take it up."""
    change: dict[Any, Any] = {}
    for node in subterms(expr):
        new = rewrite(node, change)
        if new.head == "Where" and new.args[2] is MINUS_INFINITY:
            new = _scale_outside(new)
        if new is not node:
            change[node] = new
    return change.get(expr, expr)


def _scale_outside(masked: Any) -> Any:
    condition, chosen, absent = masked.args
    x, factor = scaled(chosen)
    if x is chosen or not LEAST <= factor <= GREATEST:
        return masked
    inside = _scale_outside(make("Where", condition, x, absent))
    return make(chosen.head, *(inside if each is x else each for each in chosen.args))


def multiple_of(stage: Stage, channel: Chan) -> Any | None:
    """The contraction of the body of which each element of a channel is a positive multiple."""
    found = scaled(lift_of(channel))[0]
    return found if any(found is red for red, _ in shape_of(stage).inner) else None


@lru_cache(maxsize=256)
def riders(stage: Stage) -> dict[Chan, Chan]:
    """Sums that may ride a contraction, as a column of ones, by the channel of the contraction:
    those of exactly the weights that are its left operand."""
    found: dict[Chan, Chan] = {}
    sums = shape_of(stage)
    for channel, product_of in sums.outer:
        for other in sums.plain:
            if other not in found.values() and _weights(other) is product_of.left:
                found[channel] = other
                break
    return found


def _weights(channel: Chan) -> Any | None:
    """What a sum adds for each element, at placeholders for its bases."""
    if monoid_of(channel) != "Sum":
        return None
    return summand(channel, {base: placeholder(base) for base in bases_of(channel)})
