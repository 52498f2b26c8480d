"""Which pins a stage takes: their scopes, the geometries that honour them, and clear refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .axes import Axis
from .candidates import Candidate, candidates, legal_atoms, unchecked
from .candidates import why_not as why_not_laid_out
from .choices import Choices
from .errors import ScheduleError
from .knobs import KNOBS, Tile
from .machines import Machine
from .preconditions import Refusal, why_not
from .realizations import STAGE_KNOBS, fitted, honours, operands, realizations, traits, value_of
from .shapes import shape_of
from .stages import Stage

Pins = Mapping[str, Any]
Option = tuple[Candidate, Choices]


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


def check_scopes(given: Pins, names: list[dict[Axis, str]], stages: Sequence[Stage]) -> None:
    """Every scope names something in the plan."""
    own = [f"stage{i}" for i in range(len(stages))]
    legal: dict[str, list[str]] = {
        "TILE": [name for each in names for name in each.values()],
        "STAGE": list(dict.fromkeys(name for stage in stages for name in operands(stage))),
        "PLACE": [],
        **dict.fromkeys(STAGE_KNOBS, own),
    }
    for name in given:
        knob, at, scope = name.partition("@")
        if at and scope not in legal[knob]:
            wanted = ", ".join(f"{knob}@{each}" for each in legal[knob]) or knob
            raise ScheduleError(
                f"pin {name}: {KNOBS[knob].name} is chosen for {KNOBS[knob].scope}; "
                f"got {scope!r}, wants {wanted}"
            )


def tile_pins(given: Pins, names: Mapping[Axis, str]) -> dict[str, Tile]:
    """The TILE pins that concern a stage, by their names."""
    wanted = {"TILE", *(f"TILE@{name}" for name in names.values())}
    return {name: value for name, value in given.items() if name in wanted}


def own_pins(given: Pins, index: int, stage: Stage) -> tuple[dict[str, Any], dict[str, Any]]:
    """The realization pins of a stage by knob: those that name it, and those that name none."""
    named: dict[str, Any] = {}
    common: dict[str, Any] = {}
    for name, value in given.items():
        knob, at, scope = name.partition("@")
        if knob == "STAGE":
            if at and scope in operands(stage):
                named[name] = value
            elif not at:
                common[name] = value
        elif knob in STAGE_KNOBS:
            if scope == f"stage{index}":
                named[knob] = value
            elif not at:
                common[knob] = value
    return named, {knob: value for knob, value in common.items() if knob not in named}


# ---- what honours them ---------------------------------------------------------------------------


def matching(
    laid_out: list[Candidate], pins: Mapping[str, Tile], names: Mapping[Axis, str]
) -> list[Candidate]:
    """The geometries with every scoped tile; an unscoped one in as many places as there are."""
    kept = [
        c
        for c in laid_out
        if all(_tile(c, names, pin) == tile for pin, tile in pins.items() if "@" in pin)
    ]
    if "TILE" in pins and kept:
        counts = [sum(tile == pins["TILE"] for _, tile in c.tiles) for c in kept]
        kept = [c for c, count in zip(kept, counts, strict=True) if count == max(counts)]
    return kept


def has_tile(candidate: Candidate, tile: Tile) -> bool:
    return any(each == tile for _, each in candidate.tiles)


def _tile(candidate: Candidate, names: Mapping[Axis, str], pin: str) -> Tile:
    return next(tile for axis, tile in candidate.tiles if f"TILE@{names[axis]}" == pin)


def options(
    stage: Stage, laid_out: Sequence[Candidate], pins: Pins, machine: Machine
) -> list[Option]:
    """Every legal realization of these geometries."""
    return [
        (candidate, choices)
        for candidate in laid_out
        for choices in realizations(stage, candidate, pins)
        if why_not(stage, candidate, choices, machine) is None
    ]


# ---- refusals ------------------------------------------------------------------------------------


def refused_tile(
    stage: Stage, pins: Mapping[str, Tile], names: Mapping[Axis, str], own: Pins, machine: Machine
) -> ScheduleError:
    """No legal geometry has the pinned tiles: why, and the nearest that is."""
    pin, tile = next((p, t) for p, t in pins.items() if "@" in p or len(pins) == 1)
    laid_out = candidates(stage, [tile])
    under_pins = options(stage, laid_out, own, machine)
    every = under_pins or options(stage, laid_out, {}, machine)
    for_pin = pin if "@" in pin else f"TILE@{next(iter(names.values()))}"
    reason = _tile_reason(stage, for_pin, tile, names, own, machine)
    if not every:
        return ScheduleError(f"pin {pin}={tile}: {reason}")
    scoped = {p: t for p, t in pins.items() if "@" in p} or {for_pin: tile}

    def apart(option: Option) -> float:
        return sum(t.distance(_tile(option[0], names, p)) for p, t in scoped.items())

    best = min(every, key=apart)[0]
    others = [
        f"{p}={_tile(best, names, p)}"
        for p, t in scoped.items()
        if p != for_pin and _tile(best, names, p) != t
    ]
    also = f" with {', '.join(others)}" if others else ""
    nearest = f"{_tile(best, names, for_pin)}{also}"
    if not under_pins:
        nearest += f", without {', '.join(f'{name}={value}' for name, value in own.items())}"
    return ScheduleError(f"pin {pin}={tile}: {reason}; the nearest legal value is {nearest}")


def _tile_reason(
    stage: Stage, pin: str, tile: Tile, names: Mapping[Axis, str], own: Pins, machine: Machine
) -> str:
    """Why no legal geometry has this tile, from the geometry that comes nearest to having it."""
    atoms = [row.name for row in legal_atoms(stage)]
    if tile.atom not in atoms:
        return f"the atom {tile.atom} does not take its operands; {', '.join(atoms)} would"
    having = [c for c in unchecked(stage, [tile]) if _tile(c, names, pin) == tile]
    for candidate in having:
        reason = why_not_laid_out(stage, candidate)
        refusal = None if reason else first_refusal(stage, candidate, own, machine)
        if reason or refusal:
            return reason or (refusal.why if refusal else "")
    return "no geometry has it: its columns and depth steps must fit the other tiles and the axis"


def first_refusal(
    stage: Stage, candidate: Candidate, own: Pins, machine: Machine
) -> Refusal | None:
    """Why a geometry has no legal realization under these pins."""
    found = realizations(stage, candidate, own)
    if not found:
        wanted = fitted(stage, traits(stage, candidate), own)
        wrong = next((n for n, v in own.items() if not honours(wanted, {n: v})), None)
        if wrong is None:
            return None
        precondition = KNOBS[wrong.split("@")[0]].precondition
        return Refusal(wrong, f"it changes nothing here; it wants: {precondition}")
    refusals = [r for c in found if (r := why_not(stage, candidate, c, machine)) is not None]
    return max(refusals, key=lambda refusal: refusal.held, default=None)


def refused_pins(
    stage: Stage, laid_out: Sequence[Candidate], own: Pins, machine: Machine
) -> ScheduleError:
    """The realization pins that no geometry takes: which, and why."""
    found = [first_refusal(stage, c, own, machine) for c in laid_out]
    reasons = [refusal for refusal in found if refusal is not None]
    if not reasons:
        return ScheduleError("no geometry is legal")
    nearest = max(reasons, key=lambda refusal: refusal.held)
    mine = [n for n in own if n.split("@")[0] == nearest.knob.split("@")[0]]
    pinned = ", ".join(f"{name}={own[name]}" for name in mine or own)
    instead = "" if "legal" in nearest.why else _instead(stage, laid_out, own, machine)
    why = f"{nearest.why}{instead}"
    return ScheduleError(f"pin {pinned}: {why}" if pinned else why)


def _instead(stage: Stage, laid_out: Sequence[Candidate], own: Pins, machine: Machine) -> str:
    """The value that a pin would have if it were left to the search."""
    for name in own:
        others = {other: value for other, value in own.items() if other != name}
        found = options(stage, laid_out[:1], others, machine)
        if found:
            value = value_of(found[0][1], name)
            return f"; the nearest legal value of {name} is {value}" if value is not None else ""
    return ""
