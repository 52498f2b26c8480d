"""Which stages run in the launch of the one before them, whose last blocks to come take them up.

The blocks that store what some tiles of the second stage read count themselves at one counter; the
last of them works on those tiles. Which tiles those are, axes tell that both stages have in their
grids, and by which the second reads nothing but what blocks of the same index store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from .axes import Axis
from .carriers import lift_of
from .errors import ScheduleError
from .stages import Stage, Target
from .terms import subterms


def joined(stages: Sequence[Stage], parts: Collection[Axis]) -> tuple[Stage, ...]:
    """The stages, those that fold over one of the axes `parts` in the launch before.

    Raises ScheduleError where what such a stage folds is not stored by the one before it.
    """
    found = list(stages)
    for place, stage in enumerate(stages):
        if stage.fold not in parts:
            continue
        before = found[place - 1] if place else None
        if before is None or before.joins or not any(_reads(stage, before)):
            raise ScheduleError(
                f"REDUCE: got /last, but no stage right before the one that takes up {stage.fold} "
                "stores what it folds; the nearest legal value is the same without /last"
            )
        found[place - 1] = replace(before, followed=True)
        found[place] = replace(stage, joins=True)
    return tuple(found)


def common_axes(first: Stage, second: Stage) -> tuple[Axis, ...]:
    """The axes by whose indices the blocks of two stages belong together, outermost first."""
    return tuple(
        axis
        for axis in first.roles.batch
        if axis in second.roles.batch
        and all(_is_same(axis, target, load) for target, load in _reads(second, first))
    )


def _is_same(axis: Axis, target: Target, load: Any) -> bool:
    """Whether a load has the axis's index where the target that it reads has it."""
    places = [place for place, index in enumerate(target.at) if index is axis.index]
    return any(load.args[1][place] is axis.index for place in places)


def _reads(stage: Stage, other: Stage) -> Iterator[tuple[Target, Any]]:
    """The loads of a stage from what another one stores, each with the target that it reads."""
    stored = {target.name: target for target in other.targets}
    terms = [target.expr for target in stage.targets]
    terms += [lift_of(channel) for channel in stage.channels]
    for node in subterms(*terms):
        if node.head == "Load" and str(node.args[0].args[0]) in stored:
            yield stored[str(node.args[0].args[0])], node
