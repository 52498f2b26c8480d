"""How an expression becomes a kernel: laws, extraction, schedule, lowering, in that order."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import cache, debug
from .axes import Axis, size_of
from .dtypes import DTYPES, Dtype
from .errors import ExpressionError, LoweringError
from .expressions import Expr, Output, lift
from .kernel import Kernel
from .knobs import Place, knob_of, spell
from .machines import machine
from .notation import text
from .record import Cost, Derivation, Record, Schedule, Spec
from .shapes import shape_of
from .stages import Root, Stage, split
from .terms import subterms


@dataclass(frozen=True)
class Request:
    """What the user asked for, once its form is checked: outputs with their axes and dtypes."""

    name: str
    outputs: tuple[Root, ...]
    inputs: tuple[Any, ...]  # the Array terms, in order of first appearance
    target: str
    pins: Mapping[str, str]

    @property
    def text(self) -> str:
        lines = [self.name]
        for name, expr, axes, dtype in self.outputs:
            lines.append(f"{name} {dtype} {' '.join(map(text, axes))} {text(expr)}")
        return "\n".join(lines)


def optimize(
    expr: Any,
    target: str | None = None,
    pins: Mapping[str, str] | None = None,
    name: str = "kernel",
) -> Kernel:
    """Derive, schedule and emit a kernel for an expression, or for a tuple of expressions.

    `target` is an architecture such as "sm_120"; None means the GPU that is present, else sm_120.
    `pins` force knobs, spelled as `kernel.schedule` prints them: `{"TILE": "a:fma_f32/…"}`.
    `name` stands in messages. The kernel comes from the disk cache where it was made before.

    Raises ExpressionError for an expression that is not well formed, ScheduleError for a target
    or pin that is unknown or cannot be honoured, LoweringError for what is not lowered yet.
    """
    timings: dict[str, float] = {}
    with _timed(timings, "total"):
        request = _request(expr, target, dict(pins or {}), name)
        found = cache.kernel_key(request.text, request.target, request.pins)
        record = cache.load_record(found)
        if record is None:
            record = _compile(request, timings)
            cache.store_record(found, record)
    kernel = Kernel(record)
    kernel.timings.update(timings)
    debug.show(debug.EGRAPH, lambda: f"hits per law: {dict(record.derivation.hits)}")
    debug.show(debug.SCHEDULE, lambda: f"{record.schedule}\n{record.cost}")
    debug.show(debug.PTX, lambda: record.plan.ptx)
    return kernel


def _compile(request: Request, timings: dict[str, float]) -> Record:
    from .codegen.kernel import generate
    from .derivation import derive
    from .extraction import bracket, extract
    from .scheduling import schedule

    chip = machine(request.target)
    with _timed(timings, "extraction"):
        found = extract(tuple(root[1] for root in request.outputs), chip, request.pins)
    roots = [
        (name, term, axes, dtype)
        for (name, _, axes, dtype), term in zip(request.outputs, found.roots, strict=True)
    ]
    taken = [str(array.args[0]) for array in request.inputs]
    with _timed(timings, "schedule"):
        stages = split(roots, taken)
        place = _place(request, found.roots)
        planned = schedule(stages, chip, request.pins, place)
    with _timed(timings, "lowering"):
        made = generate(planned.stages, request.inputs, request.target)
    with _timed(timings, "derivation"):
        blocks = {
            each.stage.fold: each.candidate.block
            for each in planned.stages
            if each.stage.fold is not None and each.candidate.block < each.stage.fold.size
        }
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
        inputs=tuple(_input(array, request) for array in request.inputs),
        outputs=tuple(_output(root) for root in request.outputs),
        flop=_flop(stages) or None,
    )


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - started


# ---- the request ---------------------------------------------------------------------------------


def _request(expr: Any, target: str | None, pins: dict[str, str], name: str) -> Request:
    given = expr if isinstance(expr, tuple) else (expr,)
    if not given:
        raise ExpressionError(f"{name}: got no expression, wants one or more")
    inputs: dict[Any, None] = {}
    roots = []
    for item in given:
        term = item.expr if isinstance(item, Output) else lift(item)
        for node in subterms(term):
            if node.head == "Array":
                inputs[node] = None
        roots.append((term, item.axes if isinstance(item, Output) else None))
    _check_inputs(name, list(inputs))
    for pin, value in pins.items():
        knob_of(pin).parse(value)
    names = _output_names(len(roots), {array.args[0] for array in inputs})
    outputs = tuple(
        _root(name, label, term, axes, next(iter(inputs)))
        for label, (term, axes) in zip(names, roots, strict=True)
    )
    return Request(name, outputs, tuple(inputs), _target(target), pins)


def _root(
    name: str, label: str, term: Expr, axes: tuple[Axis, ...] | None, first: Any
) -> Root:
    """An output: the cast at its top, if there is one, is its dtype; else its first input's."""
    dtype: Dtype = DTYPES[first.args[1]]
    if term.head == "Cast":
        dtype, term = DTYPES[term.args[0]], term.args[1]
    elif dtype.is_integer:
        raise ExpressionError(
            f"{name}: its first input {first.args[0]} is {dtype}, so the output's dtype must be "
            "said: write expr.cast(f32)"
        )
    return label, term, axes if axes is not None else term.axes, dtype


def _output_names(count: int, taken: set[str]) -> list[str]:
    names = ["out"] if count == 1 else [f"out{i}" for i in range(count)]
    return [next(n for n in (f"{label}{'_' * i}" for i in range(99)) if n not in taken) for label in names]


def _check_inputs(name: str, inputs: list[Any]) -> None:
    if not inputs:
        raise ExpressionError(f"{name}: the expression reads no tensor, so there is nothing to run")
    seen: dict[str, Any] = {}
    for array in inputs:
        other = seen.setdefault(array.args[0], array)
        if other is not array:
            raise ExpressionError(
                f"{name}: two tensors are called {array.args[0]!r}: {text(other)} and {text(array)}"
            )
        for extent in array.args[2]:
            if extent.head == "Symbol":
                raise LoweringError(
                    f"{name}: tensor {array.args[0]!r} has the symbolic extent {extent}, which is "
                    "not lowered yet; a number would be"
                )


def _target(given: str | None) -> str:
    if given is None:
        from .runtime import present_target

        given = present_target() or "sm_120"
    machine(given)
    return given


def _place(request: Request, terms: tuple[Any, ...]) -> Place:
    """What PLACE came to: as pinned, else whether the chosen terms go through memory."""
    if "PLACE" in request.pins:
        return Place.parse(request.pins["PLACE"])
    return Place("cut" if any(node.head == "Mat" for node in subterms(*terms)) else "fuse")


# ---- what the record says ------------------------------------------------------------------------


def _input(array: Any, request: Request) -> Spec:
    """An input's shape, its axes named as the first load that reads it by plain axes does."""
    name, dtype, extents = array.args
    axes: list[str] = [f"axis {i}" for i in range(len(extents))]
    for _, expr, _, _ in request.outputs:
        for node in subterms(expr):
            if node.head == "Load" and node.args[0] is array:
                for place, index in enumerate(node.args[1]):
                    if index.head == "Idx" and axes[place].startswith("axis "):
                        axes[place] = index.args[0].name
    return Spec(name, tuple(map(size_of, extents)), DTYPES[dtype], tuple(axes))


def _output(root: Root) -> Spec:
    name, _, axes, dtype = root
    return Spec(name, tuple(axis.size for axis in axes), dtype, tuple(axis.name for axis in axes))


def _flop(stages: tuple[Stage, ...]) -> float:
    """Multiplications and additions of the contractions, as their terms ask for."""
    total = 0.0
    for stage in stages:
        for found in shape_of(stage).contractions:
            axes = dict.fromkeys((*found.left.axes, *found.right.axes))
            total += 2.0 * math.prod(axis.size for axis in axes)
    return total

