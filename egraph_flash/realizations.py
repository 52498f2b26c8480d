"""Which realizations a stage may have: the usual styles, under the pins, made to fit the stage."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .axes import size_of
from .candidates import Candidate
from .choices import PLAIN, Choices, Drain, Exponential, Staging
from .codegen.atoms import atom
from .exponentials import exponentials, subtracts_a_base
from .shapes import free_base, shape_of, stays_in_lanes, tiles_of
from .skipping import scan_of, skips, uneven
from .stages import Stage
from .terms import subterms

STAGE_KNOBS = (
    *("SLAB", "HANDOFF", "HOIST", "DRAIN", "EXP", "TANH", "SUM", "BASE", "START", "SKEW", "SKIP"),
    *("ROLES", "GRID", "ORDER", "CACHE", "TURNS", "REGS"),
)

# what is tried where nothing is pinned: how operands move, crossed with the form of the algebra
_MOVES = (
    {"STAGE": Staging(), "SLAB": "raw", "ROLES": "all", "SKEW": "off", "DRAIN": Drain(2)},
    {"STAGE": Staging(2, 1, "cp", True), "SLAB": "xor", "ROLES": "all", "SKEW": "off"},
    {"STAGE": Staging(2, 1, "tma", True), "SLAB": "xor", "ROLES": "rotate", "SKEW": "off"},
    {"STAGE": Staging(4, 1, "tma", True), "SLAB": "xor", "ROLES": "rotate", "SKEW": "off"},
    {"STAGE": Staging(2, 2, "tma", True), "SLAB": "xor", "ROLES": "rotate", "SKEW": "off"},
    {"STAGE": Staging(2, 4, "tma", True), "SLAB": "xor", "ROLES": "rotate", "SKEW": "off"},
    {"STAGE": Staging(2, 4, "tma", True), "SLAB": "xor", "ROLES": "rotate", "SKEW": "on"},
)
_ALGEBRAS = (
    {"BASE": "max", "SUM": "block", "EXP": Exponential("ex2")},
    {"BASE": "lazy", "SUM": "lane", "EXP": Exponential("fold")},
    {"BASE": "max", "SUM": "lane", "EXP": Exponential("fold")},
)
_ALWAYS = {"HANDOFF": "repack", "DRAIN": Drain(4), "ORDER": "heavy"}
_KEEPING = ({"HOIST": "registers"}, {"HOIST": "shared"})
ORDERS = ("pair", "fold")  # beside "heavy"


@lru_cache(maxsize=256)
def operands(stage: Stage) -> tuple[str, ...]:
    """The arrays that may be staged: plain loads that a contraction reads along the fold, and
    tiles of the body."""
    sides = [s for found in shape_of(stage).contractions for s in (found.left, found.right)]
    found = [side for side in sides if side.head == "Load" and stage.roles.fold in side.axes]
    loads = [*found, *(tiles_of(stage) if found else ())]
    return _arrays(loads)


def _arrays(loads: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(x.args[0].args[0]) for x in loads if _has_elements(x)))


def _has_elements(load: Any) -> bool:
    return all(size_of(extent) > 0 for extent in load.args[0].args[2])


@dataclass(frozen=True)
class Facts:
    """What of a stage decides which knobs matter, whatever its geometry."""

    streamed: bool  # it folds something
    hands_over: bool  # a tile of the body is an operand of a contraction over the fold
    still: bool  # some operand does not vary along the fold
    tanhs: bool
    row_sums: bool
    free_bases: bool
    early: bool  # part of the body does not depend on the state
    inner: bool
    skip: str  # how a tile best finds the part of the fold that it needs


@lru_cache(maxsize=256)
def facts(stage: Stage) -> Facts:
    sums, fold = shape_of(stage), stage.roles.fold
    sides = [s for found in sums.contractions for s in (found.left, found.right)]
    return Facts(
        streamed=fold is not None,
        hands_over=sums.hands_over,
        still=any(
            side.head == "Load" and fold not in side.axes and _has_elements(side) for side in sides
        ),
        tanhs=any(node.head == "Tanh" for node in _nodes(stage)),
        row_sums=any(stays_in_lanes(stage, channel) for channel in sums.plain),
        free_bases=any(free_base(stage, channel) for channel in stage.channels),
        early=bool(sums.inner or sums.serial),
        inner=bool(sums.inner),
        skip=best_skip(stage),
    )


def _nodes(stage: Stage) -> list[Any]:
    """All terms that the stage's own stand for."""
    return subterms(*stage.channels, *(target.expr for target in stage.targets))


def best_skip(stage: Stage) -> str:
    if stage.fold is None:
        return "none"
    return "data" if scan_of(stage) is not None else "index" if skips(stage) else "none"


@dataclass(frozen=True)
class Traits:
    """What of a geometry decides which knobs matter: few kinds, however many geometries."""

    on_tensor_cores: bool
    several_warps: bool
    uneven: bool  # some row tiles have more to do than others


def traits(stage: Stage, candidate: Candidate) -> Traits:
    return Traits(
        on_tensor_cores=atom(candidate.inner.atom).on_tensor_cores,
        several_warps=candidate.inner.warps > 1,
        uneven=facts(stage).skip != "none" and uneven(stage, candidate.rows),
    )


def relevant(stage: Stage, kind: Traits, choices: Choices) -> set[str]:
    """The knobs that change what is emitted, given the others; `STAGE@name` for each operand."""
    known = facts(stage)
    found = {"GRID", "REGS"} | ({"TANH"} if known.tanhs else set())
    found |= {"EXP"} if _form_matters(stage, choices) else set()
    if not known.streamed:
        return found
    staged = any(each.depth for _, each in choices.stage)
    hands_over = known.hands_over and kind.on_tensor_cores
    keeps = known.still and kind.on_tensor_cores
    in_slabs = staged or (keeps and choices.hoist == "shared")
    if kind.on_tensor_cores:
        found |= {f"STAGE@{name}" for name in operands(stage)}
    matters = {
        "HOIST": keeps,
        "HANDOFF": hands_over,
        "SLAB": in_slabs or (hands_over and choices.handoff != "repack"),
        "DRAIN": in_slabs,
        "ROLES": staged,
        "CACHE": staged,
        "ORDER": choices.skip != "none" and kind.uneven,
        "SUM": known.row_sums,
        "BASE": known.free_bases,
        "START": known.free_bases and known.inner and choices.base != "max",
        "SKEW": known.early,
        "SKIP": known.skip != "none",
        "TURNS": known.inner and kind.on_tensor_cores and kind.several_warps,
    }
    return found | {name for name, does in matters.items() if does}


def _form_matters(stage: Stage, choices: Choices) -> bool:
    """Whether the form of exp that is chosen, or another in its place, changes what is emitted."""
    if choices.exp.form in ("fold", "poly"):
        return subtracts_a_base(stage.read, choices.start)
    return exponentials(stage.read).by_element


def fitted(stage: Stage, kind: Traits, wanted: Mapping[str, Any]) -> Choices:
    """The realization with these values, those that do not matter being plain."""
    common = wanted.get("STAGE", Staging())
    stage_of = tuple((name, wanted.get(f"STAGE@{name}", common)) for name in operands(stage))
    fields = {name.lower(): wanted[name] for name in STAGE_KNOBS if name in wanted}
    choices = Choices(stage=stage_of, **fields)
    while True:
        matters = relevant(stage, kind, choices)
        plain = {
            name.lower(): getattr(PLAIN, name.lower())
            for name in STAGE_KNOBS
            if name not in matters
        }
        streams = tuple(
            (name, value if f"STAGE@{name}" in matters else Staging())
            for name, value in choices.stage
        )
        smaller = replace(choices, stage=streams, **plain)
        if smaller == choices:
            return choices
        choices = smaller


def honours(choices: Choices, pins: Mapping[str, Any]) -> bool:
    """Whether a realization has the pinned values; STAGE without a scope, for some operand."""
    staged = [value for _, value in choices.stage] or [Staging()]
    return all(
        value in staged if name == "STAGE" else value_of(choices, name) == value
        for name, value in pins.items()
    )


def value_of(choices: Choices, name: str) -> Any:
    """A knob's value; None for an operand that the stage does not stage, STAGE of all of them."""
    if name == "STAGE":
        values = {value for _, value in choices.stage}
        return values.pop() if len(values) == 1 else None
    if name.startswith("STAGE@"):
        return dict(choices.stage).get(name.removeprefix("STAGE@"))
    return getattr(choices, name.lower())


def _leaving(stage: Stage) -> tuple[dict[str, Any], ...]:
    """Whether tiles of the body come as the operands do, or stay in global memory."""
    tiles = {f"STAGE@{name}": Staging() for name in _arrays(tiles_of(stage))}
    return ({}, tiles) if tiles else ({},)


def realizations(stage: Stage, candidate: Candidate, pins: Mapping[str, Any]) -> list[Choices]:
    """The usual styles with the pinned values, each once; those that cannot have them left out."""
    return list(_styles(stage, traits(stage, candidate), tuple(pins.items())))


@lru_cache(maxsize=1024)
def _styles(stage: Stage, kind: Traits, pinned: tuple[tuple[str, Any], ...]) -> tuple[Choices, ...]:
    pins = dict(pinned)
    found: dict[Choices, None] = {}
    for styles in itertools.product(_MOVES, _leaving(stage), _KEEPING, _ALGEBRAS):
        wanted = {**_ALWAYS, "SKIP": facts(stage).skip}
        for style in styles:
            wanted |= style
        choices = fitted(stage, kind, {**wanted, **pins})
        if honours(choices, pins):
            found[choices] = None
    return tuple(found)
