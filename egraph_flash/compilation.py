"""How a request is compiled: laws, extraction, schedule, lowering, in that order."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from . import debug
from .arranging import PLAN_KNOBS, Arrangement, Arranger
from .axes import Axis, extent_of, size_of
from .codegen.kernel import generate
from .data_bounds import checks_of
from .derivation import derive
from .dtypes import DTYPES
from .errors import ScheduleError
from .extraction import Extraction, bracket, place_of, searching
from .knobs import Place, spell
from .machines import Machine, machine
from .notation import text
from .open_plan import Extent
from .record import Cost, Derivation, Record, Schedule, Spec
from .request import Request, Root
from .scheduling import ScheduledPlan, Scheduler
from .searching import Scheduled
from .shapes import shape_of
from .stages import Stage, split
from .terms import subterms


def compile_request(
    request: Request, timings: dict[str, float], derivation: Derivation | None = None
) -> Record:
    """The record of the kernel; `timings` gets the seconds of each step.

    `derivation` is that of a kernel of the same terms and brackets, where there is one.
    """
    outputs, chip = tuple(root.expr for root in request.outputs), machine(request.target)
    with ExitStack() as stack:
        with _timed(timings, "extraction"):
            search = stack.enter_context(searching(outputs, chip))
            found = search.extract(place_of(request.pins), dict(request.pins))
        return _compiled(request, found, timings, derivation)


def _compiled(
    request: Request, found: Extraction, timings: dict[str, float], derivation: Derivation | None
) -> Record:
    """The record, of the extracted terms."""
    chip = found.machine
    timings["saturation"] = found.saturation.seconds
    debug.show(debug.EGRAPH, lambda: f"e-graph of {request.name}: {found.saturation}")
    with _timed(timings, "schedule"):
        found, planned, arrangement = _planned(request, found, chip)
        roots = _roots(request, found)
        stages = split(roots, _taken(request), request.layouts)
    with _timed(timings, "lowering"):
        made = generate(planned.stages, request.inputs, request.target)
    with _timed(timings, "derivation"):
        blocks, shares = _brackets(planned.stages, arrangement)
        final = bracket(found, blocks, shares)
        if derivation is None:
            derivation = derive(found, blocks, shares)
    costs = [each.cost for each in planned.stages]
    resources = {name: sum(c.resource_us[name] for c in costs) for name in costs[0].resource_us}
    resources["launch"] = sum(cost.launch_us for cost in costs)
    return Record(
        name=request.name,
        target=request.target,
        derivation=derivation,
        term="\n".join(map(text, final)),
        schedule=Schedule(spell(planned.knobs)),
        cost=Cost(chip.name, sum(cost.total_us for cost in costs), resources),
        passes=found.passes,
        tile="\n".join(map(str, made.tiles)),
        plan=made.plan,
        checks=checks_of(stages),
        inputs=tuple(_input(array, request) for array in request.inputs),
        outputs=tuple(_output(root) for root in request.outputs),
        asked=request.text,
        pins=dict(request.pins),
        contractions=_contractions(stages),
    )


def _roots(request: Request, found: Extraction) -> tuple[Root, ...]:
    pairs = zip(request.outputs, found.roots, strict=True)
    return tuple(replace(root, expr=term) for root, term in pairs)


def _taken(request: Request) -> tuple[str, ...]:
    return tuple(str(array.args[0]) for array in request.inputs)


Planned = tuple[Extraction, ScheduledPlan, Arrangement]


def _planned(request: Request, found: Extraction, chip: Machine) -> Planned:
    """The cheapest plan of the extracted terms, on the grid as suits it.

    Terms are extracted before they have geometries, and as if blocks shared no fold and packed no
    rows. With those, the terms whose folds are placed the other way may take less time, and have a
    plan too. Raises ScheduleError as of the extracted terms, where no plan is legal.
    """
    plans: list[Planned] = []
    refusals: list[ScheduleError] = []
    pins = {n: v for n, v in request.pins.items() if n.partition("@")[0] not in PLAN_KNOBS}
    scheduler = Scheduler(chip, pins)
    for each in _placements(request, found):
        most_us = min((_time_us(plan[1]) for plan in plans), default=math.inf)
        try:
            plan = _cheapest(request, each, scheduler, most_us)
        except ScheduleError as refusal:
            refusals.append(refusal)
            if _place(request, each).fold == "fuse":
                break  # a pin that one pass cannot have is no reason to take several
        else:
            plans += [(each, *plan)] if plan is not None else []
    if not plans:
        raise refusals[0]
    return min(plans, key=lambda plan: _time_us(plan[1]))


def _placements(request: Request, found: Extraction) -> Iterator[Extraction]:
    """The extracted terms; and those with their folds placed otherwise, unless PLACE is pinned."""
    yield found
    if "PLACE" not in request.pins:
        other = "fuse" if _place(request, found).fold == "cut" else "cut"
        placed = found.search.extract(other, dict(request.pins))
        if placed.unsafe <= found.unsafe:
            yield placed


def _time_us(planned: ScheduledPlan) -> float:
    return sum(each.cost.total_us for each in planned.stages)


def _cheapest(
    request: Request, found: Extraction, scheduler: Scheduler, most_us: float
) -> tuple[ScheduledPlan, Arrangement] | None:
    """The plan of some terms that is predicted to take the least time, of all that pins leave;
    None where not one can take less than `most_us`.

    Raises ScheduleError as of the first arrangement, which is the plainest, where none is legal.
    """
    taken, place = _taken(request), _place(request, found)
    chip, layouts = scheduler.machine, request.layouts
    arranger = Arranger(_roots(request, found), request.pins, chip, taken, layouts)
    plans: list[tuple[ScheduledPlan, Arrangement]] = []
    refusals: list[ScheduleError] = []
    for arrangement in arranger.all():
        stages = arranger.stages(arrangement)
        try:
            planned = scheduler.schedule(stages, place, most_us)
        except ScheduleError as refusal:
            refusals.append(refusal)
            continue
        if planned is not None:
            plans.append((planned, arrangement))
            most_us = _time_us(planned)
    if not plans and refusals:
        raise refusals[0]
    if not plans:
        return None
    planned, arrangement = plans[-1]
    knobs = {"PLACE": place, **arrangement.knobs, **planned.knobs}
    return replace(planned, knobs=knobs), arrangement


def _brackets(
    stages: Sequence[Scheduled], arrangement: Arrangement
) -> tuple[dict[Axis, int], dict[Axis, int]]:
    """The fold block of each axis, and how many of its steps each block of the grid takes.

    An axis has none where all of it is one block, where passes over it disagree or where a part
    ends inside of a block: then its folds stay flat in the term. So do those over the parts of an
    open axis.
    """
    whole = {part: axis for axis, part in arrangement.parts.items()}
    found: dict[Axis, set[int]] = {}
    for each in stages:
        fold, columns = each.stage.read.fold, each.stage.columns is not None
        if fold is not None:
            block = fold.size if columns else each.candidate.block
            found.setdefault(whole.get(fold, fold), set()).add(block)
    blocks = {
        axis: min(sizes)
        for axis, sizes in found.items()
        if len(sizes) == 1 and min(sizes) < axis.size and arrangement.parts.get(axis) is not axis
    }
    parts = {a: part.size for a, part in arrangement.parts.items() if part is not a}
    blocks = {a: n for a, n in blocks.items() if parts.get(a, n) % n == 0}
    return blocks, {axis: size // blocks[axis] for axis, size in parts.items() if axis in blocks}


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - started


def _place(request: Request, found: Extraction) -> Place:
    """What PLACE came to: as pinned, else whether the chosen terms go through memory."""
    if "PLACE" in request.pins:
        return Place.parse(request.pins["PLACE"])
    return Place("cut" if any(node.head == "Mat" for node in subterms(*found.roots)) else "fuse")


# ---- what the record says ------------------------------------------------------------------------


def _input(array: Any, request: Request) -> Spec:
    """An input's shape, its axes named as the first load that reads it by plain axes does."""
    name, dtype, extents, *_ = array.args
    axes: list[str] = [f"axis {i}" for i in range(len(extents))]
    for root in request.outputs:
        for node in subterms(*root.terms):
            if node.head == "Load" and node.args[0] is array:
                for place, index in enumerate(node.args[1]):
                    if index.head == "Idx" and axes[place].startswith("axis "):
                        axes[place] = index.args[0].name
    return _spec(name, extents, dtype, axes)


def _output(root: Root) -> Spec:
    found = _spec(
        root.name,
        [axis.extent for axis in root.axes],
        root.dtype.name,
        [axis.name for axis in root.axes],
    )
    return replace(found, placed=root.is_placed)


def _spec(name: str, extents: Sequence[Any], dtype: str, axes: Sequence[str]) -> Spec:
    lengths = tuple(each.args[0] if each.head == "Symbol" else None for each in extents)
    given = lengths if any(lengths) else ()
    return Spec(name, tuple(map(size_of, extents)), DTYPES[dtype], tuple(axes), given)


def _contractions(stages: tuple[Stage, ...]) -> tuple[tuple[Extent, ...], ...]:
    """The extents of the axes of each contraction, as the terms ask for it."""
    return tuple(
        tuple(
            extent_of(axis.extent) for axis in dict.fromkeys((*found.left.axes, *found.right.axes))
        )
        for stage in stages
        for found in shape_of(stage).contractions
    )
