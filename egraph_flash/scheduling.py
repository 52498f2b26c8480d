"""Which schedule a plan gets: the cheapest legal option of each stage, under the pins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import debug
from .axes import Axis
from .candidates import Candidate, candidates, legal_atoms
from .choices import Choices
from .cost import Cost, predict
from .errors import ScheduleError
from .joining import common_axes
from .knobs import Place, knob_of
from .likeness import Likeness
from .machines import Machine
from .pinning import (
    Option,
    check_scopes,
    has_tile,
    matching,
    options,
    own_pins,
    refused_pins,
    refused_tile,
    scopes,
    tile_pins,
)
from .preconditions import why_not
from .profiles import profile
from .realizations import ORDERS, STAGE_KNOBS, facts, relevant, traits
from .stages import Stage
from .workload import work_of

REORDERED = 24  # of the cheapest options, whose row tiles are tried in other orders


@dataclass(frozen=True)
class Scheduled:
    """A stage with its geometry, its realization and its predicted cost."""

    stage: Stage
    candidate: Candidate
    choices: Choices
    cost: Cost


@dataclass(frozen=True)
class ScheduledPlan:
    """The stages of a plan, and every knob's value by its name, `NAME` or `NAME@scope`."""

    stages: tuple[Scheduled, ...]
    knobs: dict[str, Any]


class Scheduler:
    """Schedules plans for a machine under pins.

    It remembers the schedule of each stage where nothing is pinned: stages that differ in names
    alone, of one plan or of several, are searched once.
    """

    def __init__(self, machine: Machine, pins: Mapping[str, str]) -> None:
        self.machine, self.pins = machine, pins
        self._known: dict[Stage, tuple[Likeness, Scheduled]] = {}

    def schedule(
        self, stages: Sequence[Stage], place: Place, most_us: float = math.inf
    ) -> ScheduledPlan | None:
        """A schedule for every stage of a plan whose folds are placed as `place` says; None where
        they cannot take less than `most_us` together.

        Raises ScheduleError for a pin that is unknown, malformed or not legal anywhere; it names
        the pin, the reason and the nearest legal value.
        """
        given = {name: knob_of(name).parse(value) for name, value in self.pins.items()}
        names = scopes(stages)
        check_scopes(given, names, stages)
        common = _Common(given)
        planned = self._planned(stages, names, given, common, most_us)
        if planned is None:
            return None
        common.check()
        return ScheduledPlan(planned, _values(planned, names, place))

    def _planned(
        self,
        stages: Sequence[Stage],
        names: Sequence[Mapping[Axis, str]],
        given: Mapping[str, Any],
        common: _Common,
        most_us: float,
    ) -> tuple[Scheduled, ...] | None:
        """The schedules of all stages: those first that take little to find, so that a plan that is
        too slow shows early. Under pins they come in their order, as their refusals do."""
        pinned = any(name != "PLACE" for name in given)
        likes = [None if pinned or stage.joins else Likeness.of(stage) for stage in stages]
        least = [self._least_us(stage, like) for stage, like in zip(stages, likes, strict=True)]
        order = range(len(stages))
        found: dict[int, Scheduled] = {}
        for index in order if pinned else sorted(order, key=lambda place: _effort(stages[place])):
            if sum(least) >= most_us:
                return None
            stage, like = stages[index], likes[index]
            known = self._recalled(stage, like)
            if known is None:
                before = found[index - 1] if stage.joins else None
                search = _Search(stage, index, names[index], given, self.machine, before)
                known = search.best()
                common.hear(search)
            found[index] = known
            least[index] = known.cost.total_us
            if like is not None:
                self._known.setdefault(like.stage, (like, known))
        return tuple(found[index] for index in order) if sum(least) < most_us else None

    def _recalled(self, stage: Stage, like: Likeness | None) -> Scheduled | None:
        if like is None or like.stage not in self._known:
            return None
        other, known = self._known[like.stage]
        candidate, choices = like.told(known.candidate, known.choices, other)
        debug.show(debug.CANDIDATES, lambda: f"{_named(stage)}: as {_named(known.stage)}")
        return Scheduled(stage, candidate, choices, known.cost)

    def _least_us(self, stage: Stage, like: Likeness | None) -> float:
        """What a stage takes where that is known, else what it takes at least."""
        if like is not None and like.stage in self._known:
            return self._known[like.stage][1].cost.total_us
        return least_us(stage, self.machine)


def least_us(stage: Stage, machine: Machine) -> float:
    """A launch, and the bytes or the products that a stage must have: no schedule takes less.

    Of a fold that leaves parts out, products count for nothing.
    """
    known = profile(stage)
    bytes_us = known.hbm_bytes / (machine.hbm_gbps * 1e3)
    found = (dict.fromkeys((*c.left.axes, *c.right.axes)) for c in (*known.inner, *known.outer))
    flop = sum(2.0 * math.prod(axis.size for axis in axes) for axes in found)
    flop = flop if facts(stage).skip == "none" else 0.0
    launch_us = 0.0 if stage.joins else machine.launch_us
    return launch_us + max(bytes_us, flop / (machine.mma_tflops * 1e6))


def _effort(stage: Stage) -> tuple[bool, bool]:
    """What is searched late: a stage that joins another one, and what has the most realizations."""
    return stage.joins, any(row.on_tensor_cores for row in legal_atoms(stage))


class _Common:
    """The pins that name no stage: each has to hold for some stage of the plan."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.left = {name for name in given if "@" not in name and name != "PLACE"}
        self.refusals: dict[str, ScheduleError] = {}

    def hear(self, search: _Search) -> None:
        """Which of them a stage has, and why it has not the others."""
        self.refusals |= {name: why for name, why in search.refusals.items() if name in self.left}
        self.left -= search.honoured

    def check(self) -> None:
        for name, refusal in self.refusals.items():
            if name in self.left:
                raise refusal


class _Search:
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
        legal = self.legal()
        costs = [self.cost(option) for option in legal]
        first = sorted(range(len(legal)), key=lambda place: (costs[place].total_us, place))
        for option in self.reordered([legal[place] for place in first[:REORDERED]]):
            legal.append(option)
            costs.append(self.cost(option))
        debug.show(debug.CANDIDATES, lambda: _table(self.stage, legal, costs))
        chosen = min(range(len(legal)), key=lambda place: (costs[place].total_us, place))
        return Scheduled(self.stage, *legal[chosen], costs[chosen])

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

    def legal(self) -> list[Option]:
        kept = self.geometries()
        pins = {**self.named, **self.acceptable(kept)}
        found = options(self.stage, kept, pins, self.machine)
        if found:
            self.honoured |= set(pins) & set(self.common)
            return found
        if self.tiles and options(self.stage, self.laid_out, pins, self.machine):
            raise refused_tile(self.stage, self.tiles, self.names, pins, self.machine)
        raise refused_pins(self.stage, kept, pins, self.machine)

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


def _values(
    planned: Sequence[Scheduled], names: Sequence[Mapping[Axis, str]], place: Place
) -> dict[str, Any]:
    """Every knob that matters, by its name."""
    values: dict[str, Any] = {"PLACE": place}
    for index, (each, name_of) in enumerate(zip(planned, names, strict=True)):
        for axis, tile in each.candidate.tiles:
            values[f"TILE@{name_of[axis]}"] = tile
        matters = relevant(each.stage, traits(each.stage, each.candidate), each.choices)
        for operand, staging in each.choices.stage:
            if f"STAGE@{operand}" in matters:
                values[f"STAGE@{operand}"] = staging
        for knob in STAGE_KNOBS:
            if knob in matters:
                name = f"{knob}@stage{index}" if len(planned) > 1 else knob
                values[name] = getattr(each.choices, knob.lower())
    return values


def _table(stage: Stage, legal: Sequence[Option], costs: Sequence[Cost]) -> str:
    order = sorted(range(len(legal)), key=lambda place: costs[place].total_us)
    lines = [f"candidates of {_named(stage)}:"]
    for place in order:
        candidate, choices = legal[place]
        tiles = ", ".join(f"{axis}: {tile}" for axis, tile in candidate.tiles)
        lines.append(f"  {costs[place].total_us:12.1f} us  {tiles}; {choices}")
    return "\n".join(lines)


def _named(stage: Stage) -> str:
    return ", ".join(target.name for target in stage.targets)
