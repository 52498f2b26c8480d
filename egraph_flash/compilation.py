"""How a request is compiled: laws, extraction, schedule, lowering, in that order."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from . import debug
from .axes import Axis, extent_of, size_of
from .codegen.kernel import generate
from .data_bounds import checks_of
from .derivation import derive
from .dtypes import DTYPES
from .extraction import bracket, extract
from .knobs import Place, spell
from .machines import machine
from .notation import text
from .open_plan import Extent
from .record import Cost, Record, Schedule, Spec
from .request import Request, Root
from .scheduling import Scheduled, schedule
from .shapes import shape_of
from .stages import Stage, split
from .terms import subterms


def compile_request(request: Request, timings: dict[str, float]) -> Record:
    """The record of the kernel; `timings` gets the seconds of each step."""
    chip = machine(request.target)
    with _timed(timings, "extraction"):
        found = extract(tuple(root.expr for root in request.outputs), chip, request.pins)
    timings["saturation"] = found.saturation.seconds
    debug.show(debug.EGRAPH, lambda: f"e-graph of {request.name}: {found.saturation}")
    roots = [
        replace(root, expr=term) for root, term in zip(request.outputs, found.roots, strict=True)
    ]
    taken = [str(array.args[0]) for array in request.inputs]
    with _timed(timings, "schedule"):
        stages = split(roots, taken, request.layouts)
        place = _place(request, found.roots)
        planned = schedule(stages, chip, request.pins, place)
    with _timed(timings, "lowering"):
        made = generate(planned.stages, request.inputs, request.target)
    with _timed(timings, "derivation"):
        blocks = _blocks(planned.stages)
        final = bracket(found, blocks)
        derivation = derive(found, blocks)
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


def _blocks(stages: Sequence[Scheduled]) -> dict[Axis, int]:
    """The fold block of each axis, where it splits the axis and all passes over it agree; where
    several stages fold one axis in different blocks, its folds stay flat in the term."""
    found: dict[Axis, set[int]] = {}
    for each in stages:
        if each.stage.fold is not None:
            found.setdefault(each.stage.fold, set()).add(each.candidate.block)
    return {
        axis: min(blocks)
        for axis, blocks in found.items()
        if len(blocks) == 1 and min(blocks) < axis.size
    }


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - started


def _place(request: Request, terms: tuple[Any, ...]) -> Place:
    """What PLACE came to: as pinned, else whether the chosen terms go through memory."""
    if "PLACE" in request.pins:
        return Place.parse(request.pins["PLACE"])
    return Place("cut" if any(node.head == "Mat" for node in subterms(*terms)) else "fuse")


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
