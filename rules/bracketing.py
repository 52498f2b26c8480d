"""Where the brackets of a fold go: a fold is a tower of folds over blocks of its axis.

Both laws are asked for, by a block size; the last block is padded with the identity.
"""

from __future__ import annotations

from typing import Any

from ..terms import make, variable
from . import examples as at
from .facts import fact
from .law import Equal, Law
from .patterns import fold, k

state: Any = variable("State", "state")
whole: Any = variable("State", "whole")
block: Any = variable("i64", "block")
steps: Any = variable("i64", "steps")
_SOURCE = "associativity of the carrier's monoid"


def _split(axis: Any, size: Any, outer: str, inner: str, body: Any) -> Any:
    """fold(Outer axis) over fold(Inner axis), at the two levels."""
    below = fold(make("Inner", axis, size), body, inner)
    return fold(make("Outer", axis, size), below, outer)


outer_axis = make("Outer", k, block)
tile = fold(make("Inner", k, block), state, "Tile")

LAWS: tuple[Law, ...] = (
    Law(
        name="bracketing/tile",
        phase="bracketing",
        source=_SOURCE,
        example=at.TILED,
        given=(Equal(whole, fold(k, state)), fact("tile", k, block)),
        then=(Equal(whole, _split(k, block, "Serial", "Tile", state)),),
    ),
    Law(
        name="bracketing/grid",
        phase="bracketing",
        source=_SOURCE,
        example=at.SHARED,
        given=(Equal(whole, fold(outer_axis, tile, "Serial")), fact("share", outer_axis, steps)),
        then=(Equal(whole, _split(outer_axis, steps, "Grid", "Serial", tile)),),
    ),
)
