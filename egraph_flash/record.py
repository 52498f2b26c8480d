"""What of a compiled kernel is kept: all that was found for it, as text and numbers."""

from __future__ import annotations

import functools
import json
import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .data_checks import Check
from .dtypes import DTYPES, Dtype
from .open_plan import (
    BufferMap,
    Extent,
    Length,
    Lengths,
    OpenArgument,
    OpenBuffer,
    OpenLaunch,
    OpenPlan,
    Stride,
    Tiles,
    number,
)
from .plan import Pointer, Scalar
from .tensor_map import TensorMap


@dataclass(frozen=True)
class Spec:
    """One input or output: an array of `shape`, one axis name a dimension.

    `lengths` names the extents that a call gives, for which `shape` has typical numbers; it
    is empty where there is none. `placed`: some elements may get no value.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    axes: tuple[str, ...]
    lengths: tuple[str | None, ...] = ()
    placed: bool = False

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Numbers, and the names of lengths that a call gives."""
        if not self.lengths:
            return self.shape
        return tuple(name or n for name, n in zip(self.lengths, self.shape, strict=True))

    def at(self, lengths: Lengths) -> Spec:
        """The same with the lengths of one call."""
        shape = tuple(number(extent, lengths) for extent in self.extents)
        return Spec(self.name, shape, self.dtype, self.axes, (), self.placed)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} [{self.sizes}]"

    @property
    def sizes(self) -> str:
        """Each axis with its extent, as messages show them."""
        pairs = zip(self.axes, self.extents, strict=True)
        return ", ".join(f"{axis}={extent}" for axis, extent in pairs)


@dataclass(frozen=True)
class Step:
    """One member of the root class on the way from the naive term to the chosen one.

    `laws` are the names that this member needs beyond the step before, `law_family` their family;
    `unsafe` counts exponentials whose argument is not proved <= 0; `max_error` is the largest
    difference from the naive term on sampled inputs in float64 (None: not sampled).
    """

    law_family: str
    laws: tuple[str, ...]
    term: str
    passes: int
    unsafe: int
    cost_us: float
    max_error: float | None = None

    def __str__(self) -> str:
        laws = f" ({', '.join(self.laws)})" if self.laws else ""
        error = "" if self.max_error is None else f", differs by {self.max_error:.1e} at most"
        facts = f"passes {self.passes}, unsafe {self.unsafe}, {self.cost_us:,.1f} µs{error}"
        return f"{self.law_family}{laws}: {facts}\n{textwrap.indent(self.term, '    ')}"


@dataclass(frozen=True)
class Derivation:
    """The chain of members, naive first; `hits` counts how often each law fired, by its name."""

    steps: tuple[Step, ...]
    hits: Mapping[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        lines = [f"{number}. {step}" for number, step in enumerate(self.steps)]
        fired = ", ".join(f"{law} {count}" for law, count in self.hits.items() if count)
        return "\n".join([*lines, f"hits: {fired}"] if fired else lines)


class Schedule(Mapping[str, str]):
    """Each knob with its value as spelled in a pin; prints one `NAME=value` a line."""

    def __init__(self, knobs: Mapping[str, str]) -> None:
        self._knobs = dict(knobs)

    def __getitem__(self, name: str) -> str:
        return self._knobs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._knobs)

    def __len__(self) -> int:
        return len(self._knobs)

    def __str__(self) -> str:
        return "\n".join(f"{name}={value}" for name, value in self._knobs.items())

    __repr__ = __str__


@dataclass(frozen=True)
class Cost:
    """What the cost model predicts on `machine`, in µs: in all, and for each resource alone."""

    machine: str
    total_us: float
    by_resource_us: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [*self.by_resource_us.items(), ("total", self.total_us)]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}} {value_us:12,.1f} µs" for name, value_us in rows]
        return "\n".join([f"predicted on {self.machine}", *lines])


@dataclass(frozen=True)
class Record:
    """One compiled kernel. `term` and `tile` are printed forms; `plan.ptx` is what runs.

    `asked` is the request that it was made for (`request.read_request`), under `pins`; from it
    kernels for arrays of other strides are made. `contractions` has the extents of the axes of
    each contraction in it. `passes` counts those over a streamed axis, summed over the plan.
    """

    name: str
    target: str
    derivation: Derivation
    term: str
    schedule: Schedule
    cost: Cost
    passes: int
    tile: str
    plan: OpenPlan
    checks: tuple[Check, ...]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    asked: str
    pins: Mapping[str, str]
    contractions: tuple[tuple[Extent, ...], ...] = ()

    @functools.cached_property
    def lengths(self) -> dict[str, int]:
        """The lengths that a call gives, by name, with typical numbers."""
        named = [
            (extent, n)
            for spec in (*self.inputs, *self.outputs)
            for extent, n in zip(spec.extents, spec.shape, strict=True)
            if isinstance(extent, str)
        ]
        return {**dict(named), **self.plan.hints}

    def flop_at(self, lengths: Lengths) -> float | None:
        """Multiplications and additions of the contractions; None where there are none."""
        products = (
            math.prod(float(number(extent, lengths)) for extent in extents)
            for extents in self.contractions
        )
        return 2 * sum(products) or None


def to_json(record: Record) -> str:
    """The record as JSON text, from which `from_json` builds an equal one."""
    return json.dumps(
        {
            "name": record.name,
            "target": record.target,
            "steps": [asdict(step) for step in record.derivation],
            "hits": dict(record.derivation.hits),
            "term": record.term,
            "schedule": dict(record.schedule),
            "cost": asdict(record.cost),
            "passes": record.passes,
            "tile": record.tile,
            "ptx": record.plan.ptx,
            "checks": [asdict(check) for check in record.checks],
            "launches": [_launch_fields(launch) for launch in record.plan.launches],
            "hints": dict(record.plan.hints),
            "buffers": [
                _fields(buffer, "role", "strides", "alignment_bytes")
                for buffer in record.plan.buffers
            ],
            "inputs": [_fields(spec, "axes", "lengths", "placed") for spec in record.inputs],
            "outputs": [_fields(spec, "axes", "lengths", "placed") for spec in record.outputs],
            "asked": record.asked,
            "pins": dict(record.pins),
            "contractions": record.contractions,
        }
    )


def from_json(text: str) -> Record:
    """The record that `to_json` wrote; ValueError, KeyError or TypeError for any other text."""
    read = json.loads(text)
    buffers = tuple(map(_read_buffer, read["buffers"]))
    launches = tuple(_read_launch(launch) for launch in read["launches"])
    steps = tuple(Step(**{**step, "laws": tuple(step["laws"])}) for step in read["steps"])
    return Record(
        name=read["name"],
        target=read["target"],
        derivation=Derivation(steps, read["hits"]),
        term=read["term"],
        schedule=Schedule(read["schedule"]),
        cost=Cost(**read["cost"]),
        passes=read["passes"],
        tile=read["tile"],
        plan=OpenPlan(read["ptx"], read["target"], launches, buffers, read["hints"]),
        checks=tuple(Check(**check) for check in read["checks"]),
        inputs=tuple(map(_read_spec, read["inputs"])),
        outputs=tuple(map(_read_spec, read["outputs"])),
        asked=read["asked"],
        pins=read["pins"],
        contractions=tuple(map(tuple, read["contractions"])),
    )


def _fields(row: Spec | OpenBuffer, *others: str) -> dict[str, Any]:
    plain = {"name": row.name, "shape": row.shape, "dtype": row.dtype.name}
    return plain | {name: getattr(row, name) for name in others}


def _read_buffer(read: dict[str, Any]) -> OpenBuffer:
    shape, strides = tuple(read["shape"]), tuple(read["strides"])
    dtype, role = DTYPES[read["dtype"]], read["role"]
    return OpenBuffer(read["name"], shape, dtype, role, strides, read["alignment_bytes"])


def _read_spec(read: dict[str, Any]) -> Spec:
    shape, axes, lengths = (tuple(read[name]) for name in ("shape", "axes", "lengths"))
    return Spec(read["name"], shape, DTYPES[read["dtype"]], axes, lengths, read["placed"])


def _launch_fields(launch: OpenLaunch) -> dict[str, Any]:
    return {
        "entry": launch.entry,
        "factors": launch.tiles.factors,
        "most": launch.tiles.most,
        "block": launch.block,
        "shared_bytes": launch.shared_bytes,
        "arguments": [_argument_fields(argument) for argument in launch.arguments],
        "instructions": dict(launch.instructions),
    }


def _argument_fields(argument: OpenArgument) -> list[Any]:
    """Its kind, then what stands in it: `pointer`, `length`, …, else a scalar's PTX type."""
    match argument:
        case Pointer(buffer):
            return ["pointer", buffer]
        case Scalar(type_, value):
            return [type_, value]
        case Length(name):
            return ["length", name]
        case Stride(buffer, dim):
            return ["stride", buffer, dim]
        case BufferMap(buffer, dtype, box, swizzle):
            return ["buffer map", buffer, dtype.name, box, swizzle]
        case TensorMap(buffer, dtype, sizes, strides_bytes, box, swizzle):
            return ["tensor map", buffer, dtype.name, sizes, strides_bytes, box, swizzle]


def _read_argument(kind: str, *rest: Any) -> OpenArgument:
    if kind == "pointer":
        return Pointer(*rest)
    if kind == "length":
        return Length(*rest)
    if kind == "stride":
        return Stride(*rest)
    if kind == "buffer map":
        buffer, dtype, box, swizzle = rest
        return BufferMap(buffer, DTYPES[dtype], tuple(box), swizzle)
    if kind == "tensor map":
        buffer, dtype, sizes, strides_bytes, box, swizzle = rest
        view = tuple(sizes), tuple(strides_bytes), tuple(box)
        return TensorMap(buffer, DTYPES[dtype], *view, swizzle)
    return Scalar(kind, *rest)


def _read_launch(read: dict[str, Any]) -> OpenLaunch:
    factors = tuple((extent, per) for extent, per in read["factors"])
    bx, by, bz = read["block"]
    arguments = tuple(_read_argument(*each) for each in read["arguments"])
    return OpenLaunch(
        read["entry"],
        Tiles(factors, read["most"]),
        (bx, by, bz),
        read["shared_bytes"],
        arguments,
        read["instructions"],
    )
