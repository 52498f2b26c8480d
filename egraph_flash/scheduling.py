"""Which schedule a plan gets: the cheapest legal geometry of each stage, under the pins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import debug
from .axes import Axis
from .candidates import Candidate, candidates, legal_atoms, unchecked, why_not
from .cost import Cost, predict
from .errors import ScheduleError
from .knobs import KNOBS, Place, Registers, Tile, knob_of
from .machines import Machine
from .shapes import shape_of
from .stages import Stage
from .workload import work_of


@dataclass(frozen=True)
class Scheduled:
    """A stage with its geometry, its register limits and its predicted cost."""

    stage: Stage
    candidate: Candidate
    registers: Registers
    cost: Cost


@dataclass(frozen=True)
class ScheduledPlan:
    """The stages of a plan, and every knob's value by its name, `NAME` or `NAME@scope`."""

    stages: tuple[Scheduled, ...]
    knobs: dict[str, Any]


def schedule(
    stages: Sequence[Stage], machine: Machine, pins: Mapping[str, str], place: Place
) -> ScheduledPlan:
    """A schedule for every stage of a plan whose folds are placed as `place` says.

    Raises ScheduleError for a pin that is unknown, malformed or not legal anywhere; it names the
    pin, the reason and the nearest legal value.
    """
    given = {name: knob_of(name).parse(value) for name, value in pins.items()}
    names = scopes(stages)
    _check_scopes(given, names, len(stages))
    chosen, used = [], set()
    for index, stage in enumerate(stages):
        mine = _pins_of(given, "TILE", names[index].values())
        seeds = [value for name, value in given.items() if name.split("@")[0] == "TILE"]
        legal = candidates(stage, machine, seeds)
        kept, honoured = _honour(stage, legal, mine, names[index], machine)
        used |= honoured
        registers = _registers(given, index, len(stages))
        best = min(((_cost(stage, c, machine), i) for i, c in enumerate(kept)), key=_by_time)
        debug.show(debug.CANDIDATES, lambda: _table(stage, kept, machine))  # noqa: B023
        chosen.append(Scheduled(stage, kept[best[1]], registers, best[0]))
    if "TILE" in given and "TILE" not in used:
        raise _refused("TILE", given["TILE"], stages, machine, given)
    return ScheduledPlan(tuple(chosen), _values(chosen, names, place))


def _by_time(pair: tuple[Cost, int]) -> tuple[float, int]:
    return pair[0].total_us, pair[1]


def _cost(stage: Stage, candidate: Candidate, machine: Machine) -> Cost:
    return predict(work_of(stage, candidate), machine)


# ---- names ---------------------------------------------------------------------------------------


def scopes(stages: Sequence[Stage]) -> list[dict[Axis, str]]:
    """For each stage, the name in `TILE@name` of each axis that a tile belongs to.

    It is the axis's own name where only one stage has such a tile, else `axis.stage`.
    """
    axes = [_tiled_axes(stage) for stage in stages]
    seen: dict[str, int] = {}
    for each in axes:
        for axis in each:
            seen[axis.name] = seen.get(axis.name, 0) + 1
    return [
        {axis: axis.name if seen[axis.name] == 1 else f"{axis.name}.{index}" for axis in each}
        for index, each in enumerate(axes)
    ]


def _tiled_axes(stage: Stage) -> tuple[Axis, ...]:
    depths = shape_of(stage).depths
    named = depths or tuple(a for a in (stage.fold, stage.roles.column, stage.roles.row) if a)[:1]
    return tuple(named)


def _check_scopes(given: Mapping[str, Any], names: list[dict[Axis, str]], stages: int) -> None:
    tiles = [name for each in names for name in each.values()]
    legal = {"TILE": tiles, "REGS": [f"stage{i}" for i in range(stages)], "PLACE": []}
    for name in given:
        knob, at, scope = name.partition("@")
        if at and scope not in legal[knob]:
            wanted = ", ".join(f"{knob}@{each}" for each in legal[knob]) or knob
            raise ScheduleError(
                f"pin {name}: {KNOBS[knob].name} is chosen for {KNOBS[knob].scope}; "
                f"got {scope!r}, wants {wanted}"
            )


def _registers(given: Mapping[str, Any], index: int, stages: int) -> Registers:
    for name in (f"REGS@stage{index}", "REGS"):
        if name in given:
            value: Registers = given[name]
            return value
    return Registers(255, 1)


def _values(
    chosen: Sequence[Scheduled], names: list[dict[Axis, str]], place: Place
) -> dict[str, Any]:
    values: dict[str, Any] = {"PLACE": place}
    for index, (each, name_of) in enumerate(zip(chosen, names, strict=True)):
        for axis, tile in each.candidate.tiles:
            values[f"TILE@{name_of[axis]}"] = tile
        values[f"REGS@stage{index}" if len(chosen) > 1 else "REGS"] = each.registers
    return values


# ---- pins ----------------------------------------------------------------------------------------


def _pins_of(given: Mapping[str, Any], knob: str, scopes_: Any) -> dict[str, Tile]:
    wanted = {knob, *(f"{knob}@{scope}" for scope in scopes_)}
    return {name: value for name, value in given.items() if name in wanted}


def _honour(
    stage: Stage,
    legal: list[Candidate],
    pins: Mapping[str, Tile],
    names: dict[Axis, str],
    machine: Machine,
) -> tuple[list[Candidate], set[str]]:
    """The candidates that honour the pins of this stage, and which pins those are.

    A scoped pin must hold; an unscoped one holds for as many tiles of the stage as accept it.
    """
    if not legal:
        raise ScheduleError(f"no geometry of {[t.name for t in stage.targets]} is legal")
    kept, honoured = legal, set()
    for name, tile in pins.items():
        if "@" not in name:
            continue
        found = [c for c in kept if _tile(c, names, name) == tile]
        if not found:
            raise _nearest(stage, name, tile, legal, names, machine)
        kept = found
        honoured.add(name)
    if "TILE" in pins:
        counts = [sum(tile == pins["TILE"] for _, tile in c.tiles) for c in kept]
        if max(counts) > 0:
            kept = [c for c, count in zip(kept, counts, strict=True) if count == max(counts)]
            honoured.add("TILE")
    return kept, honoured


def _tile(candidate: Candidate, names: dict[Axis, str], pin: str) -> Tile:
    return next(tile for axis, tile in candidate.tiles if f"TILE@{names[axis]}" == pin)


def _nearest(
    stage: Stage,
    pin: str,
    tile: Tile,
    legal: list[Candidate],
    names: dict[Axis, str],
    machine: Machine,
) -> ScheduleError:
    tiles = [_tile(candidate, names, pin) for candidate in legal]
    best = min(tiles, key=tile.distance)
    return ScheduleError(
        f"pin {pin}={tile}: {_reason(stage, pin, tile, names, machine)}; "
        f"the nearest legal value is {best}"
    )


def _reason(stage: Stage, pin: str, tile: Tile, names: dict[Axis, str], machine: Machine) -> str:
    """Why no legal geometry has this tile, from the geometry that comes nearest to having it."""
    atoms = [row.name for row in legal_atoms(stage)]
    if tile.atom not in atoms:
        return f"the atom {tile.atom} does not take its operands; {', '.join(atoms)} would"
    having = [c for c in unchecked(stage, [tile]) if _tile(c, names, pin) == tile]
    reasons = [why for c in having if (why := why_not(stage, c, machine)) is not None]
    if reasons:
        return reasons[0]
    return "no geometry has it: its columns and depth steps must fit the other tiles and the axis"


def _refused(
    pin: str,
    tile: Tile,
    stages: Sequence[Stage],
    machine: Machine,
    given: Mapping[str, Any],
) -> ScheduleError:
    """No stage accepts an unscoped pin: the nearest legal value over all of them."""
    every = [(stage, c) for stage in stages for c in candidates(stage, machine, [tile])]
    tiles = [t for _, candidate in every for _, t in candidate.tiles]
    best = min(tiles, key=tile.distance)
    names = scopes(stages)
    stage, scope = next(
        (stage, name_of)
        for stage, name_of in zip(stages, names, strict=True)
        for c in candidates(stage, machine, [tile])
        if any(t == best for _, t in c.tiles)
    )
    why = {_reason(stage, f"TILE@{name}", tile, scope, machine) for name in scope.values()}
    return ScheduleError(
        f"pin {pin}={tile}: no contraction accepts it ({'; '.join(sorted(why))}); "
        f"the nearest legal value is {best}"
    )


def _table(stage: Stage, kept: Sequence[Candidate], machine: Machine) -> str:
    rows = sorted((_cost(stage, c, machine).total_us, i) for i, c in enumerate(kept))
    lines = [f"candidates of {', '.join(t.name for t in stage.targets)}:"]
    for time_us, index in rows:
        tiles = ", ".join(f"{axis}: {tile}" for axis, tile in kept[index].tiles)
        lines.append(f"  {time_us:12.1f} us  {tiles}")
    return "\n".join(lines)
