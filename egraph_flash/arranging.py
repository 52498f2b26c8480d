"""How a plan lies on the grid: which axes are packed into rows, which folds blocks share, what
follows a fold in its own kernel, and which operands are stored before they are contracted.

All are dials of the term, turned before any stage is scheduled: each setting is a plan of its own,
and the cheapest one is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .axes import Axis
from .choices import Reduce
from .errors import ScheduleError
from .joining import joined
from .knobs import KNOBS, knob_of
from .layouts import Layout
from .machines import Machine
from .packing import packed, packings
from .request import Root
from .shapes import shape_of
from .sharing import Cut, passes_over, shared
from .stages import Stage, split
from .turning import turned, turns

PLAN_KNOBS = ("PACK", "REDUCE", "EPILOGUE", "OPERANDS")  # chosen here, and not for a stage

PLAIN = {"PACK": "off", "EPILOGUE": "apart", "OPERANDS": "inside"}  # what all plans can have
TURNED = {"EPILOGUE": "inside", "OPERANDS": "stored"}  # and what some cannot
WAVES = (1, 2)  # how many blocks an SM gets by the splits that are tried
LEAST = 64  # elements of a split that is tried
COLUMNS = (128, 256)  # elements of the parts that are tried as columns of accumulators,
DEEP = 128  # where so many products are summed for each
TILE_ROWS = 16  # of the smallest tile, for an estimate of how many blocks there are


@dataclass(frozen=True)
class Arrangement:
    """A setting of the dials: the roots that it makes, and the knobs that say so.

    `parts` has the axis of one part's elements for each axis that is shared; `taken_up` are the
    axes over whose parts a last block folds.
    """

    roots: tuple[Root, ...]
    knobs: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[Axis, Axis] = field(default_factory=dict)
    epilogues: bool = False
    operands: bool = False
    taken_up: frozenset[Axis] = frozenset()


@dataclass(frozen=True)
class Arranger:
    """The arrangements of some roots under the pins."""

    roots: tuple[Root, ...]
    pins: Mapping[str, str]
    machine: Machine
    taken: tuple[str, ...]
    layouts: Mapping[str, Layout]

    def all(self) -> Iterator[Arrangement]:
        """Every setting that is worth a schedule, or that is pinned."""
        refused = {name: value for name, value in TURNED.items() if self.pins.get(name) == value}
        for plain in self.packs():
            for cut in self.shares(plain):
                for each in self.storings(cut):
                    refused.pop("OPERANDS", None)
                    for found in self.endings(each):
                        refused.pop("EPILOGUE", None)
                        yield found
        for name, value in refused.items():
            raise _idle(name, value)

    def stages(self, arrangement: Arrangement) -> tuple[Stage, ...]:
        stages = split(
            arrangement.roots,
            self.taken,
            self.layouts,
            epilogues=arrangement.epilogues,
            operands=arrangement.operands,
        )
        stages = joined(stages, arrangement.taken_up)
        if not arrangement.epilogues:
            return stages
        return tuple(turned(stage) or stage for stage in stages)

    # ---- epilogues ---------------------------------------------------------------------------

    def endings(self, each: Arrangement) -> Iterator[Arrangement]:
        """The arrangement with what follows a fold apart, and inside of its kernel."""
        pinned = self.pins.get("EPILOGUE")
        if pinned is not None:
            KNOBS["EPILOGUE"].parse(pinned)
        inside = replace(each, epilogues=True, knobs={**each.knobs, "EPILOGUE": "inside"})
        found = any(stage.epilogue or stage.columns for stage in self.stages(inside))
        if pinned != "inside" and not each.epilogues:
            spelled = {**each.knobs, "EPILOGUE": "apart"} if found or pinned else each.knobs
            yield replace(each, knobs=spelled)
        if pinned != "apart" and found:
            yield inside

    # ---- operands ----------------------------------------------------------------------------

    def storings(self, each: Arrangement) -> Iterator[Arrangement]:
        """The arrangement with computed operands computed where they are contracted, and stored."""
        pinned = self.pins.get("OPERANDS")
        if pinned is not None:
            KNOBS["OPERANDS"].parse(pinned)
        stored = replace(each, operands=True, knobs={**each.knobs, "OPERANDS": "stored"})
        found = _values(self.stages(stored)) > _values(self.stages(each))
        if pinned != "stored":
            spelled = {**each.knobs, "OPERANDS": "inside"} if found or pinned else each.knobs
            yield replace(each, knobs=spelled)
        if pinned != "inside" and found:
            yield stored

    # ---- rows --------------------------------------------------------------------------------

    def packs(self) -> Iterator[Arrangement]:
        for name in self.pins:
            knob, at, _ = name.partition("@")
            if at and knob in ("PACK", *TURNED):
                raise ScheduleError(f"pin {name}: {knob} is chosen for the plan; wants {knob}")
        pinned = self.pins.get("PACK")
        if pinned is not None:
            KNOBS["PACK"].parse(pinned)
        known = {} if pinned is None else {"PACK": pinned}
        plain = Arrangement(self.roots, known)
        found = packings(self.stages(plain))
        if pinned == "on" and not found:
            raise _idle("PACK", "on")
        if pinned != "on":
            yield replace(plain, knobs={"PACK": "off"}) if found else plain
        if pinned != "off" and found:
            most = max(found, key=lambda packing: packing.group)
            yield Arrangement(tuple(packed(root, most) for root in self.roots), {"PACK": "on"})

    # ---- folds -------------------------------------------------------------------------------

    def shares(self, plain: Arrangement) -> Iterator[Arrangement]:
        stages = self.stages(plain)
        axes = dict.fromkeys(a for root in plain.roots for a in passes_over(root.expr))
        pinned = self.reduces(tuple(axes), stages)
        seen = set()
        for waves, even in ((0, True), *itertools.product(WAVES, (False, True))):
            splits = {axis: self.splits(axis, stages, waves, even) for axis in axes}
            reduces = {axis: pinned.get(axis, Reduce(count)) for axis, count in splits.items()}
            reduces = self.compatible(plain, reduces)
            if tuple(reduces.values()) not in seen:
                seen.add(tuple(reduces.values()))
                yield _shared(plain, reduces, set(pinned))
        for size in COLUMNS if self.pins.get("EPILOGUE") != "apart" else ():
            parts = {a: Reduce(1, size) for a in axes if self.is_turned(a, size, stages)}
            if parts and not parts.keys() & pinned.keys():
                reduces = {axis: parts.get(axis, pinned.get(axis, Reduce(1))) for axis in axes}
                reduces = self.compatible(plain, reduces)
                yield replace(_shared(plain, reduces, set(pinned)), epilogues=True)

    def reduces(self, axes: Sequence[Axis], stages: Sequence[Stage]) -> dict[Axis, Reduce]:
        """The pinned splits by axis: of an axis that a pin names, or of all that take it."""
        found: dict[Axis, Reduce] = {}
        for name, text in self.pins.items():
            knob, at, scope = name.partition("@")
            if knob != "REDUCE":
                continue
            value = knob_of(name).parse(text)
            asked = [axis for axis in axes if axis.name == scope or not at]
            if not asked:
                listed = ", ".join(f"REDUCE@{axis.name}" for axis in axes) or "a fold"
                raise ScheduleError(
                    f"pin {name}: splits are chosen for the axis of a fold; "
                    f"got {scope or 'nothing that folds'!r}, wants {listed}"
                )
            refusals = {axis: _refusal(axis, value, stages) for axis in asked}
            taking = [axis for axis, refusal in refusals.items() if refusal is None]
            if not taking:
                raise ScheduleError(f"pin {name}={text}: {next(iter(refusals.values()))}")
            found |= {axis: value for axis in taking if at or axis not in found}
        return found

    def compatible(self, plain: Arrangement, reduces: dict[Axis, Reduce]) -> dict[Axis, Reduce]:
        """The splits without those that only go alone.

        Parts of an inner fold go through memory and so have a value for each element of an outer
        one, past the end of its last part too. Inner splits are given up first; a pin that names
        its axis stands.
        """
        roots = plain.roots
        cuts: list[Axis] = []
        for axis, value in reduces.items():
            cut = _cut(axis, value)
            if cut is None:
                continue
            refusal = _refusal(axis, value, self.stages(replace(plain, roots=roots)))
            if refusal is not None:
                loose = [a for a in (*cuts, axis) if f"REDUCE@{a.name}" not in self.pins]
                if not loose:
                    raise ScheduleError(f"pin REDUCE@{axis.name}={value}: {refusal}")
                return self.compatible(plain, {**reduces, loose[0]: Reduce(1)})
            cuts.append(axis)
            roots = _cut_at(roots, cut)
        return reduces

    def splits(self, axis: Axis, stages: Sequence[Stage], waves: int, even: bool) -> int:
        """How many splits give each SM so many blocks, at most; 1 where the plan does without.

        `even`: of splits of one length, whose ends no copy has to stop at.
        """
        blocks = min((_blocks(each) for each in stages if each.fold is axis), default=math.inf)
        if not waves or blocks >= self.machine.sms:
            return 1
        most = min(waves * self.machine.sms // int(blocks), axis.size // LEAST)
        counts = range(most, 1, -1)
        legal = (n for n in counts if _is_legal(axis, Reduce(n), stages))
        return next((n for n in legal if not even or _leaves_no_rest(axis, Reduce(n))), 1)

    def is_turned(self, axis: Axis, size: int, stages: Sequence[Stage]) -> bool:
        """Whether parts of that size are worth a try as columns of accumulators."""
        folds = [stage for stage in stages if stage.fold is axis and turns(stage)]
        deep = any(min(a.size for a in shape_of(each).depths) >= DEEP for each in folds)
        return deep and axis.size > size and _is_legal(axis, Reduce(1, size), stages)


def _idle(name: str, value: str) -> ScheduleError:
    return ScheduleError(
        f"pin {name}={value}: it changes nothing here; it wants: {KNOBS[name].precondition}; "
        f"the nearest legal value is {PLAIN[name]}"
    )


def _shared(
    plain: Arrangement, reduces: Mapping[Axis, Reduce], pinned: Collection[Axis]
) -> Arrangement:
    roots, parts, knobs = plain.roots, dict(plain.parts), dict(plain.knobs)
    taken_up: set[Axis] = set()
    for axis, value in reduces.items():
        if axis in pinned or value != Reduce(1):
            knobs[f"REDUCE@{axis.name}"] = value
        cut = _cut(axis, value)
        if cut is not None:
            before = _passes(roots)
            roots = _cut_at(roots, cut)
            parts[axis] = cut.part
            taken_up |= _passes(roots) - before - {cut.part} if value.last else set()
    return replace(plain, roots=roots, knobs=knobs, parts=parts, taken_up=frozenset(taken_up))


def _values(stages: Sequence[Stage]) -> int:
    """How many arrays the stages store."""
    return sum(len(stage.targets) for stage in stages)


def _passes(roots: Sequence[Root]) -> set[Axis]:
    return {axis for root in roots for axis in passes_over(root.expr)}


def _cut_at(roots: tuple[Root, ...], cut: Cut) -> tuple[Root, ...]:
    return tuple(replace(root, expr=shared(root.expr, cut)) for root in roots)


def _cut(axis: Axis, value: Reduce) -> Cut | None:
    """How an axis is cut; None where all of it is one part."""
    if axis.extent.head != "Known":
        return Cut.open(axis, value.splits) if value.splits > 1 else None
    cut = Cut.known(axis, value.size) if value.size else Cut.even(axis, value.splits)
    return cut if cut.count > 1 else None


def _blocks(stage: Stage) -> int:
    """How many blocks compute a stage, at least."""
    rows = stage.roles.row.size if stage.roles.row is not None else 1
    return max(math.prod(axis.size for axis in stage.roles.batch) * -(-rows // TILE_ROWS), 1)


def _is_legal(axis: Axis, value: Reduce, stages: Sequence[Stage]) -> bool:
    """Whether a fold over an axis can be split like this."""
    if value == Reduce(1):
        return True
    if value.last and _cut(axis, value) is None:
        return False
    if axis.extent.head != "Known":
        return not value.size and not _has_values(axis, stages)
    return (bool(value.size) or _parts(axis, value) == value.splits) and (
        _leaves_no_rest(axis, value) or not _has_values(axis, stages)
    )


def _parts(axis: Axis, value: Reduce) -> int:
    cut = _cut(axis, value)
    return cut.count if cut is not None else 1


def _leaves_no_rest(axis: Axis, value: Reduce) -> bool:
    cut = _cut(axis, value)
    return cut is None or axis.size % cut.part.size == 0


def _refusal(axis: Axis, value: Reduce, stages: Sequence[Stage]) -> str | None:
    """Why a fold over an axis cannot be split like this, and what can; None where it can."""
    if _is_legal(axis, value, stages):
        return None
    name = axis.name
    if value.last and _cut(axis, value) is None:
        plain = Reduce(1, value.size)
        return f"all of {name!r} is one part, and none is last; the nearest legal value is {plain}"
    if axis.extent.head != "Known" and value.size:
        parts = max(-(-axis.size // value.size), 1)
        return (
            f"axis {name!r} has no length before a call, so that the number of parts has to be "
            f"given; the nearest legal value is {Reduce(parts, 0, value.last)}"
        )
    if axis.extent.head != "Known":
        what = f"a pass of its own has a value for each element of {name!r}, which is open"
        return f"{what}; the nearest legal value is g1"
    parts = _parts(axis, value)
    if not value.size and parts != value.splits:
        cut = _cut(axis, value)
        size = cut.part.size if cut is not None else axis.size
        return (
            f"{axis.size} elements of {name!r} in parts of {size} are {parts} parts; "
            f"the nearest legal value is {Reduce(parts, 0, value.last)}"
        )
    counts = sorted(range(1, axis.size + 1), key=lambda count: abs(count - parts))
    nearest = next(n for n in counts if _is_legal(axis, Reduce(n), stages))
    return (
        f"a pass of its own has a value for each of the {axis.size} elements of {name!r}, so that "
        f"all parts have to be equally long; the nearest legal value is g{nearest}"
    )


def _has_values(axis: Axis, stages: Sequence[Stage]) -> bool:
    """Whether a buffer holds a value for each element of an axis that is folded later."""
    targets = [target for stage in stages for target in stage.targets]
    return any(axis in target.axes and not target.is_output for target in targets)
