"""How one carrier absorbs every channel that one pass over its axis can compute.

Splitting pairs of folds has 2^n results. A lattice of channels for each axis, joined once and
late, is linear; extraction drops the channels that nobody reads.
"""

from __future__ import annotations

from . import examples as at
from .law import Row, Steering

_SOURCE = "banana split; Meijer, Fokkinga & Paterson 1991"

LAWS: tuple[Row, ...] = (
    Steering(
        name="absorption/pool",
        phase="tupling",
        source=_SOURCE,
        example=at.normalised,
        premises="(carrier s k)",
        actions="(set (pool k) s)",
    ),
    Steering(  # a fold over fewer channels is a projection of the fold over all of them
        name="absorption/absorb",
        phase="absorption",
        source=_SOURCE,
        example=at.normalised,
        premises="(= p (pool k)) (carrier s k) (= g (Get (Fold k (Flat) (Lift s)) c))",
        actions="(union g (Get (Fold k (Flat) (Lift p)) c)) (carrier p k)",
    ),
    Steering(  # and back, for the channels that are read: `s` is closed under bases
        name="absorption/narrow",
        phase="absorption",
        source=_SOURCE,
        example=at.NARROWED,
        premises=(
            "(narrow s k) (= p (pool k)) (= g (Get (Fold k (Flat) (Lift p)) c)) (set-contains s c)"
        ),
        actions="(union g (Get (Fold k (Flat) (Lift s)) c)) (carrier s k)",
    ),
)
