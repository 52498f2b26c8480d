"""Which folds go over the columns of accumulators, in the kernel that makes these.

A fold in whose body rows and the fold's own axis are contracted is turned around: the contraction's
depth becomes the fold of the kernel, the fold's axis the columns of its accumulators, and once the
depth is done, the fold takes the tile that they are. So the contraction is a matrix product like
any other, streamed and tiled as one; but a block has to hold all that the fold goes over.
"""

from __future__ import annotations

from dataclasses import replace

from .choices import MOST_COLUMNS
from .roles import Roles
from .shapes import shape_of
from .stages import Stage
from .terms import make


def turns(stage: Stage) -> bool:
    """Whether a fold could be turned around if it were short enough."""
    fold, sums, free = stage.fold, shape_of(stage), stage.roles.column is None
    known = fold is not None and fold.extent.head == "Known"
    alone = len(sums.inner) == 1 and not sums.serial and not sums.outer
    return known and free and alone and not stage.joins and not stage.epilogue


def turned(stage: Stage) -> Stage | None:
    """The stage with its fold over the columns of accumulators, or None where that cannot be."""
    roles, fold = stage.roles, stage.fold
    if fold is None or not turns(stage) or not 0 < fold.size <= MOST_COLUMNS:
        return None
    ((red, _),) = shape_of(stage).inner
    monoid, depth, body = red.args
    channel = make("Ch", monoid, body)
    state = make("Fold", depth, make("Flat"), make("Lift", (channel,)))
    over = Roles(roles.batch, roles.row, fold, depth)
    return replace(stage, state=state, channels=(channel,), roles=over, columns=stage)
