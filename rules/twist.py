"""How a sum that is taken against a moving base becomes one channel of a twisted carrier.

All laws here are generated from the table of representations. For bases b that stand for the point
g(b), moves x -> act(b, p, q, x) from p to q, and elements (b_k, r_k):

    orbit      Σ_k act(b_k, g(b_k), g(B), r_k)   =  {B; T}.T     with B the folded bases
    transport  {B; Σ act(b_k, g(b_k), 0, r_k)}.Σ  =  act(B, g(B), 0, {B; T}.T)      of a group

where {B; T} is the fold whose channel T is kept in coordinates at its own base, which for a group
is the transport of structure along (B, D) -> (B, act(B, 0, g(B), D)). Σ is the channel's monoid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..carriers import base_channels
from ..representations import REPRESENTATIONS, Chart, Representation
from ..terms import make, rewrite, subterms, variable
from . import examples as at
from .facts import Fact, fact
from .law import Clause, Equal, Law
from .patterns import E, fold_one, get, k, number, one, plain, reduce, total, zero

x = E("whole")
Parts = tuple[Any, ...]


def simplified(term: Any) -> Any:
    """A pattern without products with 1 and sums with 0."""
    if term.head == "Var":
        return term
    change = {child: simplified(child) for child in term.children if child.sort == "Expr"}
    node = make(term.head, *(_changed(arg, change) for arg in term.args)) if change else term
    unit = {"Mul": one, "Add": zero, "Div": one, "Sub": zero}.get(node.head)
    if unit is None or len(node.args) < 2:
        return node
    left, right = node.args
    if right is unit:
        return left
    return right if left is unit and node.head in ("Mul", "Add") else node


def _changed(arg: Any, change: dict[Any, Any]) -> Any:
    return arg if isinstance(arg, tuple) else change.get(arg, arg)


def channels(rep: Representation, chart: Chart) -> tuple[Parts, Any]:
    """(the base channels, the twisted channel) of a chart."""
    bases = base_channels(rep, chart.bases)
    return bases, make("Tw", make("Rep", rep.name), bases, chart.lift)


def folded(rep: Representation, chart: Chart) -> tuple[Any, ...]:
    """The folds of the bases over k: reductions, or channels of a fold of their own."""
    return tuple(map(_alone, base_channels(rep, chart.bases)))


def _alone(channel: Any) -> Any:
    if channel.head == "Ch":
        return reduce(channel.args[0], k, channel.args[1])
    return get(fold_one(k, *channel.args[1], channel), channel)


def _counted(term: Any) -> tuple[Any, tuple[Fact, ...]]:
    """Σ_k 1 written as the number of elements, which users write as a number."""
    ones = total(k, one)
    if not any(node is ones for node in subterms(term)):
        return term, ()
    return rewrite(term, {ones: make("Num", number)}), (fact("count", k, number),)


def _needs(chart: Chart) -> tuple[Fact, ...]:
    return tuple(fact("positive", term) for term in chart.positive)


def _projections(state: Any, bases: Parts, sums: tuple[Any, ...]) -> Iterator[Equal]:
    """The base channels of a fold are the folds of the bases."""
    for channel, value in zip(bases, sums, strict=True):
        yield Equal(_counted(value)[0], get(state, channel))


def _linear(rep: Representation, chart: Chart) -> tuple[Any, ...]:
    """What an element adds is a real number; -inf is for what another monoid folds."""
    pairs = zip(rep.monoids, chart.bases, strict=True)
    added = [base for kind, base in pairs if kind in REPRESENTATIONS]
    added += [*chart.linear, *([chart.lift] if rep.monoid == "Sum" else [])]
    return tuple(term for term in added if term.head == "Var")


def orbit(rep: Representation, chart: Chart) -> Law:
    """What the elements are at the folded bases folds to the twisted channel."""
    bases, twisted = channels(rep, chart)
    sums = folded(rep, chart)
    state = fold_one(k, *bases, twisted)
    moved = rep.act(chart.bases, chart.point, rep.point(*sums), chart.lift)
    body, counted = _counted(simplified(moved))
    return Law(
        name=f"twist/orbit-{rep.name.lower()}-{chart.name}",
        phase="twist",
        source=rep.source,
        example=at.orbit(rep, chart),
        given=(Equal(x, reduce(rep.monoid, k, body)), *counted, *_needs(chart)),
        then=(Equal(x, get(state, twisted)), *_projections(state, bases, sums)),
        linear=_linear(rep, chart),
    )


def unfold(rep: Representation, chart: Chart) -> Law:
    """The same equation read from right to left: the sum in one more pass than its bases take."""
    bases, twisted = channels(rep, chart)
    centre = rep.point(*folded(rep, chart))
    moved = rep.act(chart.bases, chart.point, centre, chart.lift)
    body, counted = _counted(simplified(moved))
    return Law(
        name=f"twist/unfold-{rep.name.lower()}-{chart.name}",
        phase="twist",
        source=rep.source,
        example=at.unfolded(rep, chart),
        given=(
            Equal(x, get(fold_one(k, *bases, twisted), twisted)),
            *counted,
            *_needs(chart),
        ),
        then=(Equal(x, reduce(rep.monoid, k, body)),),
        linear=_linear(rep, chart),
    )


def transport(rep: Representation, chart: Chart) -> Law:
    """A carrier that holds a plain sum beside its bases, in coordinates at the bases."""
    bases, twisted = channels(rep, chart)
    sums = folded(rep, chart)
    summand = simplified(rep.act(chart.bases, chart.point, rep.origin, chart.lift))
    channel = plain("Sum", summand)
    state = fold_one(k, *bases, twisted)
    back = rep.act(sums, rep.point(*sums), rep.origin, get(state, twisted))
    value, counted = _counted(simplified(back))
    return Law(
        name=f"twist/transport-{rep.name.lower()}-{chart.name}",
        phase="twist",
        source=rep.source,
        example=at.TRANSPORTED[rep.name, chart.name],
        given=(
            Equal(x, get(fold_one(k, *bases, channel), channel)),
            *counted,
            *_needs(chart),
        ),
        then=(Equal(x, value), *_projections(state, bases, sums)),
        linear=_linear(rep, chart),
    )


def vanishing(rep: Representation, chart: Chart) -> Law:
    """Nothing is left of a twisted channel whose base never left the identity."""
    bases, twisted = channels(rep, chart)
    sums = folded(rep, chart)
    given: tuple[Clause, ...] = (Equal(x, get(fold_one(k, *bases, twisted), twisted)),)
    return Law(
        name=f"finiteness/vanishing-{rep.name.lower()}-{chart.name}",
        phase="analysis",
        source="a row without elements keeps the identity",
        example=at.TRANSPORTED[rep.name, chart.name],
        given=(*given, Equal(variable("Expr", "base"), sums[0])),
        then=(fact("vanishes", x, variable("Expr", "base")),),
    )


def laws(rep: Representation) -> Iterator[Law]:
    """The laws of one representation."""
    for chart in rep.charts:
        yield orbit(rep, chart)
        yield unfold(rep, chart)
        if rep.is_group:
            yield transport(rep, chart)
        if rep.overflows:
            yield vanishing(rep, chart)


LAWS: tuple[Law, ...] = tuple(law for rep in REPRESENTATIONS.values() for law in laws(rep))
