"""Which schedule a stage gets: the cheapest legal option, under the pins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import debug
from .axes import Axis
from .candidates import Candidate, candidates
from .choices import PLAIN, Choices
from .cost import Cost, predict
from .errors import ScheduleError
from .joining import common_axes
from .machines import Machine
from .pinning import (
    Option,
    has_tile,
    matching,
    options,
    own_pins,
    refused_pins,
    refused_tile,
    tile_pins,
)
from .preconditions import why_not
from .realizations import ORDERS, facts
from .skipping import uneven
from .stages import Stage
from .workload import least_work, work_of

REORDERED = 24  # of the cheapest options, whose row tiles are tried in other orders
ROUNDED = 1 - 1e-9  # of a bound, whose sums are rounded otherwise than those that it bounds


@dataclass(frozen=True)
class Scheduled:
    """A stage with its geometry, its realization and its predicted cost."""

    stage: Stage
    candidate: Candidate
    choices: Choices
    cost: Cost


class Search:
    """The search of one stage: pins that name it must hold, the others where they can.

    `honoured` are the pins that its options have, `refusals` say why it has not the others.
    """

    def __init__(
        self,
        stage: Stage,
        index: int,
        names: Mapping[Axis, str],
        given: Mapping[str, Any],
        machine: Machine,
        before: Scheduled | None,
    ) -> None:
        self.stage, self.names, self.machine = stage, names, machine
        self.tiles = tile_pins(given, names)
        self.named, self.common = own_pins(given, index, stage)
        seeds = [value for name, value in given.items() if name.split("@")[0] == "TILE"]
        self.laid_out = candidates(stage, seeds)
        self.before = before
        if before is not None:
            asked = matching(self.laid_out, self.tiles, names)
            kept = [c for c in self.laid_out if c.warps == before.candidate.warps]
            if not kept or (asked and not any(c in kept for c in asked)):
                raise _unlike(stage, before.candidate.warps)
            self.laid_out = kept
        self.honoured: set[str] = set()
        self.refusals: dict[str, ScheduleError] = {}

    def best(self) -> Scheduled:
        found = self.priced()
        first = sorted(found, key=_by_cost)[:REORDERED]
        for place, option in enumerate(self.reordered([each.option for each in first])):
            found.append(_Priced((len(self.laid_out), place), option, self.cost(option)))
        debug.show(debug.CANDIDATES, lambda: _table(self.stage, found))
        chosen = min(found, key=_by_cost)
        return Scheduled(self.stage, *chosen.option, chosen.cost)

    def priced(self) -> list[_Priced]:
        """The legal options that may be among the cheapest, and `REORDERED` of those for certain.

        Geometries come in the order of what they take at least, until that is more than so many
        options take; all of them where every candidate is to be shown.
        """
        kept = self.geometries()
        pins = {**self.named, **self.acceptable(kept)}
        floors = list(map(self.least_us, kept))
        found: list[_Priced] = []
        cheapest: list[float] = []
        for place in sorted(range(len(kept)), key=lambda place: (floors[place], place)):
            if len(cheapest) == REORDERED and floors[place] > cheapest[-1]:
                break
            legal = options(self.stage, [kept[place]], pins, self.machine)
            priced = [_Priced((place, i), each, self.cost(each)) for i, each in enumerate(legal)]
            cheapest = sorted([*cheapest, *(each.cost.total_us for each in priced)])[:REORDERED]
            found += priced
        if not found:
            raise self.refused(kept, pins)
        self.honoured |= set(pins) & set(self.common)
        return found

    def least_us(self, candidate: Candidate) -> float:
        """What any realization of a geometry takes, or less: of last blocks nothing is known, and
        nothing is counted where every candidate is shown.

        Blocks that have unequal parts of a fold may fill the SMs in any order evenly at best.
        """
        if self.before is not None or debug.level() >= debug.CANDIDATES:
            return 0.0
        skip = facts(self.stage).skip
        work = least_work(self.stage, candidate, replace(PLAIN, skip=skip))
        if skip != "none" and uneven(self.stage, candidate.rows):
            work = replace(work, ctas=self.machine.sms)
        return predict(work, self.machine).total_us * ROUNDED

    def cost(self, option: Option) -> Cost:
        """Of a stage that joins, last blocks do the work of several, without a launch."""
        work = work_of(self.stage, *option)
        if self.before is None:
            return predict(work, self.machine)
        blocks = math.prod(axis.size for axis in common_axes(self.before.stage, self.stage))
        in_turn = -(-work.ctas // max(blocks, 1))
        work = replace(
            work,
            ctas=-(-work.ctas // in_turn),
            serial_steps=work.serial_steps * in_turn,
            chain_clocks=work.chain_clocks * in_turn,
        )
        cost = predict(work, self.machine)
        return replace(cost, total_us=cost.total_us - cost.launch_us, launch_us=0.0)

    def reordered(self, found: Sequence[Option]) -> Iterator[Option]:
        """The same with their row tiles in other orders, where that matters and is not pinned."""
        pinned = {**self.common, **self.named}
        for (candidate, choices), order in itertools.product(found, ORDERS):
            other = replace(choices, order=order)
            if (
                "ORDER" not in pinned
                and choices.order == "heavy"
                and why_not(self.stage, candidate, other, self.machine) is None
            ):
                yield candidate, other

    def refused(self, kept: Sequence[Candidate], pins: Mapping[str, Any]) -> ScheduleError:
        """Why no option of these geometries has the pins."""
        if self.tiles and options(self.stage, self.laid_out, pins, self.machine):
            return refused_tile(self.stage, self.tiles, self.names, pins, self.machine)
        return refused_pins(self.stage, kept, pins, self.machine)

    def geometries(self) -> list[Candidate]:
        kept = matching(self.laid_out, self.tiles, self.names)
        if not kept:
            raise refused_tile(self.stage, self.tiles, self.names, self.named, self.machine)
        if "TILE" in self.tiles:
            if any(has_tile(candidate, self.tiles["TILE"]) for candidate in kept):
                self.honoured.add("TILE")
            else:
                self.refusals["TILE"] = refused_tile(
                    self.stage, self.tiles, self.names, self.named, self.machine
                )
        return kept

    def acceptable(self, kept: Sequence[Candidate]) -> dict[str, Any]:
        """The pins that name no stage and that this one can have: all, or each taken alone."""
        if not self.common or self.has(kept, self.common):
            return dict(self.common)
        found = {}
        for name, value in self.common.items():
            alone = {**self.named, name: value}
            if self.has(kept, {name: value}):
                found[name] = value
            else:
                self.refusals[name] = refused_pins(self.stage, kept, alone, self.machine)
        return found

    def has(self, kept: Sequence[Candidate], common: Mapping[str, Any]) -> bool:
        """Whether some option has these pins and those that name the stage."""
        pins = {**self.named, **common}
        first = options(self.stage, kept[:1], pins, self.machine)
        return bool(first or options(self.stage, kept, pins, self.machine))


def _unlike(stage: Stage, warps: int) -> ScheduleError:
    return ScheduleError(
        f"TILE: the stage that takes up {stage.fold} has no tile, or none that is pinned, of the "
        f"{warps} warps of the blocks that store what it folds; the nearest legal value is one of "
        f"{warps} warps, or REDUCE without /last"
    )


@dataclass(frozen=True)
class _Priced:
    """A legal option: its place among all, which decides between equals, and its cost."""

    place: tuple[int, int]
    option: Option
    cost: Cost


def _by_cost(each: _Priced) -> tuple[float, tuple[int, int]]:
    return each.cost.total_us, each.place


def _table(stage: Stage, found: Sequence[_Priced]) -> str:
    lines = [f"candidates of {named(stage)}:"]
    for each in sorted(found, key=_by_cost):
        candidate, choices = each.option
        tiles = ", ".join(f"{axis}: {tile}" for axis, tile in candidate.tiles)
        lines.append(f"  {each.cost.total_us:12.1f} us  {tiles}; {choices}")
    return "\n".join(lines)


def named(stage: Stage) -> str:
    """The arrays that a stage writes."""
    return ", ".join(target.name for target in stage.targets)
