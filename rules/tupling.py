"""When folds over one axis run as one fold whose carrier is a set of channels."""

from __future__ import annotations

from collections.abc import Iterator

from ..expressions import exp
from ..monoids import MONOIDS
from ..representations import REPRESENTATIONS, Representation
from . import examples as at
from .facts import fact
from .law import Equal, Law, Row, Steering
from .patterns import E, fold_one, get, k, monoid, plain, reduce, total
from .twist import channels, folded, simplified

c, e, i, r, u, x = E("c e i r u x")


def singleton() -> Law:
    """A reduction is the fold of a carrier with one channel."""
    channel = plain(monoid, e)
    return Law(
        name="tupling/singleton",
        phase="tupling",
        source="a fold is the unique homomorphism from sequences to a monoid",
        example=at.product,
        given=(Equal(x, reduce(monoid, k, e)),),
        then=(Equal(x, get(fold_one(k, channel), channel)),),
    )


def pair(rep: Representation) -> Law:
    """A sum that may overflow runs beside the fold of its bases: the banana split of the two."""
    chart = rep.charts[0]
    bases, _ = channels(rep, chart)
    summand = simplified(rep.act(chart.bases, chart.point, rep.origin, chart.lift))
    channel = plain("Sum", summand)
    state = fold_one(k, *bases, channel)
    return Law(
        name=f"tupling/pair-{rep.name.lower()}",
        phase="twist",
        source="banana split; Meijer, Fokkinga & Paterson 1991",
        example=at.normalised,
        given=(
            Equal(x, total(k, e)),
            fact("split", e, k, c, i, u, r),
            fact("depends", u, k),
        ),
        then=(
            Equal(x, c * (exp(i) * get(state, channel))),
            Equal(total(k, summand), get(state, channel)),
            *(
                Equal(value, get(state, base))
                for base, value in zip(bases, folded(rep, chart), strict=True)
            ),
        ),
    )


def single_carrier() -> Steering:
    return Steering(
        name="tupling/carrier",
        phase="tupling",
        source="a fold sees each element once",
        example=at.product,
        premises="(= f (Fold k (Flat) (Lift s))) (= c (Ch m e)) (= s (set-of c)) (streams e k)",
        actions="(carrier s k)",
    )


def twisted_carrier(rep: Representation) -> Steering:
    """The bases of a twisted channel and itself, where one pass computes all their lifts."""
    bases = " ".join(f"c{place}" for place in range(len(rep.monoids)))
    lifts = " ".join(
        f"(= c{place} ({_base(kind, place)})) (streams e{place} k)"
        for place, kind in enumerate(rep.monoids)
    )
    return Steering(
        name=f"tupling/carrier-{rep.name.lower()}",
        phase="tupling",
        source="a fold sees each element once",
        example=at.orbit(rep, rep.charts[0]),
        premises=(
            f'(= f (Fold k (Flat) (Lift s))) (= t (Tw (Rep "{rep.name}") v r)) {lifts}'
            f" (= v (vec-of {bases})) (= s (set-of {bases} t)) (streams r k)"
        ),
        actions="(carrier s k)",
    )


def _base(kind: str, place: int) -> str:
    """The pattern of a base channel, which a monoid folds or a representation twists."""
    if kind in MONOIDS:
        return f"Ch ({kind}) e{place}"
    below = " ".join(f"c{number}" for number in range(len(REPRESENTATIONS[kind].monoids)))
    return f'Tw (Rep "{kind}") (vec-of {below}) e{place}'


def rows(rep: Representation) -> Iterator[Row]:
    """Those of one representation."""
    yield twisted_carrier(rep)
    if rep.overflows:
        yield pair(rep)


LAWS: tuple[Row, ...] = (
    singleton(),
    single_carrier(),
    *(row for rep in REPRESENTATIONS.values() for row in rows(rep)),
)
