"""Which schedule a plan gets: the cheapest legal option of each of its stages, under the pins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import debug
from .axes import Axis
from .candidates import legal_atoms
from .errors import ScheduleError
from .knobs import Place, knob_of
from .likeness import Likeness
from .machines import Machine
from .pinning import check_scopes, scopes
from .profiles import profile
from .realizations import STAGE_KNOBS, facts, relevant, traits
from .searching import Scheduled, Search, named
from .stages import Stage


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
                search = Search(stage, index, names[index], given, self.machine, before)
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
        debug.show(debug.CANDIDATES, lambda: f"{named(stage)}: as {named(known.stage)}")
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

    def hear(self, search: Search) -> None:
        """Which of them a stage has, and why it has not the others."""
        self.refusals |= {name: why for name, why in search.refusals.items() if name in self.left}
        self.left -= search.honoured

    def check(self) -> None:
        for name, refusal in self.refusals.items():
            if name in self.left:
                raise refusal


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
