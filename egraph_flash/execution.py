"""Where a call runs, on a GPU that fits or in the simulator, and how its outputs come back."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import debug, runtime
from .binding import Bound
from .dtypes import Array
from .errors import DeviceError, InputError
from .plan import Launch, Plan
from .record import Record
from .runtime import device, results, streams
from .runtime.assembler import Assembly
from .runtime.launch import place

if TYPE_CHECKING:
    from .simulator import Counters

Backend = Literal["gpu", "sim"]
BACKENDS = ("gpu", "sim")
PATIENCE_S = 60.0


def choose(record: Record, bound: Bound, forced: str | None) -> Backend:
    """The backend of a call; InputError or DeviceError where `forced` cannot be honoured."""
    if forced not in (None, *BACKENDS):
        raise InputError(f"{record.name}: got backend={forced!r}, wants 'gpu' or 'sim'")
    if bound.device is not None:
        if forced == "sim":
            raise InputError(
                f"{record.name}: backend='sim' takes arrays in host memory, got CUDA device "
                f"{bound.device}; pass copies on the host"
            )
        place(record.target, bound.inputs, record.name)
        return "gpu"
    if forced == "sim":
        return "sim"
    fits = device.fitting(record.target) is not None
    if forced == "gpu" and not fits:
        place(record.target, {}, record.name)
    return "gpu" if fits else "sim"


def simulation_s(plan: Plan) -> float | None:
    """About how long simulating one call takes, in seconds; None where the work is not known."""
    from .simulator import predicted_seconds

    launches = _launches(plan)
    if not all(launch.instructions for launch in launches):
        return None
    return sum(
        predicted_seconds(launch.instructions, math.prod(launch.grid) * -(-launch.threads // 32))
        for launch in launches
    )


def simulation_notice(record: Record, plan: Plan) -> str:
    """What a user reads before a simulation that they did not ask for.

    Raises DeviceError where it would take longer than a user wants to wait.
    """
    seconds = simulation_s(plan)
    takes = "for an unknown time" if seconds is None else f"for about {max(1, round(seconds))} s"
    what = f"{record.name}: no GPU fits target {record.target} (present: {device.listed()})"
    if seconds is not None and seconds > PATIENCE_S:
        raise DeviceError(
            f"{what}, and the simulator would run {takes}; run(..., backend='sim') does it anyway"
        )
    tables = "" if record.target.startswith("sm_90") else "; ex2 and rcp use tables of an sm_90"
    modelled = ", ".join(unpredicted(record.plan.ptx))
    rounded = f"; {modelled} give rounded values, not the hardware's bits" if modelled else ""
    return f"{what}; the simulator runs it, {takes}{tables}{rounded}"


def unpredicted(ptx: str) -> tuple[str, ...]:
    """The mnemonics in a PTX text whose bits the simulator does not predict, in the table's order.

    >>> unpredicted("lg2.approx.ftz.f32 %f1, %f0; add.rn.f32 %f2, %f1, %f0;")
    ('lg2.approx.ftz.f32',)
    """
    from .codegen.isa import ROWS

    used = set(ptx.split())
    return tuple(row.mnemonic for row in ROWS.values() if not row.exact and row.mnemonic in used)


def simulate(record: Record, plan: Plan, bound: Bound) -> tuple[Any, Counters]:
    """Run in the simulator; the outputs, and what it counted."""
    from .simulator import run

    held = _host_buffers(record, plan, bound)
    started = time.perf_counter()
    counters = run(
        plan.ptx,
        _launches(plan),
        held,
        target=record.target,
        uninitialised=[
            *(spec.name for spec in record.outputs if not spec.placed),
            *(buffer.name for buffer in plan.having("workspace")),
        ],
        complete=[spec.name for spec in record.outputs if not spec.placed],
        trace=debug.say if debug.level() >= debug.TRACE else None,
    )
    debug.show(
        1, lambda: _line(record, plan, f"simulated in {time.perf_counter() - started:.2f} s")
    )
    return _hand_back(record, bound, held), counters


def run_on_gpu(record: Record, plan: Plan, bound: Bound, assembly: Assembly, stream: Any) -> Any:
    """Run on a GPU; host arrays are copied there and back, arrays on it are used where they lie."""
    options: dict[str, Any] = {
        "target": record.target,
        "name": record.name,
        "assembly": assembly,
        "timed": debug.level() >= 1,
    }
    if bound.device is None:
        buffers: dict[str, Any] = dict(_host_buffers(record, plan, bound))
        outputs = tuple(spec.name for spec in record.outputs)
        options |= {"stream": stream, "outputs": outputs}
        elapsed_us = runtime.run(plan.ptx, _launches(plan), buffers, **options)
        result = _hand_back(record, bound, buffers)
    else:
        handle = streams.choose(stream, bound.inputs.values())
        buffers, result = _device_buffers(record, plan, bound, handle, chosen=stream is not None)
        elapsed_us = runtime.run(plan.ptx, _launches(plan), buffers, stream=handle, **options)
    debug.show(1, lambda: _line(record, plan, f"measured {elapsed_us:,.1f} µs", assembly))
    return result


def _launches(plan: Plan) -> Sequence[Launch]:
    return [launch for launch in plan.launches if 0 not in launch.grid]


def _host_buffers(record: Record, plan: Plan, bound: Bound) -> dict[str, Array]:
    """All buffers as numpy; what is to be written starts as NaN, so that a gap would show.

    Outputs whose values are put at indices start as what the caller's array holds, or 0.
    """
    given = dict(zip((spec.name for spec in record.outputs), bound.outputs, strict=True))
    placed = {spec.name for spec in record.outputs if spec.placed}
    held: dict[str, Array] = {}
    for buffer in plan.buffers:
        if buffer.role == "input":
            host = bound.inputs[buffer.name].host
            assert host is not None
            held[buffer.name] = host
        else:
            shift_bytes = bound.shifts.get(buffer.name, 0)
            byte = 0 if buffer.role == "counter" else 0xFF
            held[buffer.name] = results.empty_on_host(
                buffer.shape, buffer.strides, buffer.dtype.storage, shift_bytes, byte
            )
            if buffer.name in placed:
                before = given[buffer.name]
                held[buffer.name][...] = 0 if before is None else before.host
    return held


def _hand_back(record: Record, bound: Bound, held: dict[str, Array]) -> Any:
    """The outputs, in the caller's arrays where given; these are written only now."""
    made = []
    for spec, given in zip(record.outputs, bound.outputs, strict=True):
        result = held[spec.name]
        if given is None:
            made.append(results.from_host(bound.first, result, spec.dtype))
        else:
            assert given.host is not None
            given.host[...] = result
            made.append(given.source)
    return made[0] if len(made) == 1 else tuple(made)


def _device_buffers(
    record: Record, plan: Plan, bound: Bound, stream: int, *, chosen: bool
) -> tuple[dict[str, Any], Any]:
    """All buffers on the inputs' GPU, and what the call returns."""
    assert bound.device is not None
    buffers: dict[str, Any] = dict(bound.inputs)
    for buffer in plan.having("workspace"):
        held = runtime.DeviceArray(buffer.shape, buffer.dtype, bound.device, stream)
        buffers[buffer.name] = held
    for buffer in plan.having("counter"):
        buffers[buffer.name] = runtime.counter(buffer.shape, buffer.dtype, bound.device, stream)
    made = []
    for buffer, spec, given in zip(
        plan.having("output"), record.outputs, bound.outputs, strict=True
    ):
        if given is None:
            assert bound.first is not None
            array = results.empty_on_device(
                bound.first, buffer.shape, buffer.strides, buffer.dtype, stream, chosen=chosen
            )
            if spec.placed:
                results.clear(array, bound.device, stream)
            buffers[buffer.name] = array
            made.append(array)
        else:
            buffers[buffer.name] = given
            made.append(given.source)
    return buffers, made[0] if len(made) == 1 else tuple(made)


def _line(record: Record, plan: Plan, took: str, assembly: Assembly | None = None) -> str:
    entries = {entry.name: entry for entry in assembly.entries} if assembly else {}
    parts = []
    for launch in plan.launches:
        entry = entries.get(launch.entry)
        taken = f", {entry.registers} registers" if entry else ""
        parts.append(f"{launch}{taken}")
    return f"{record.name}: predicted {record.cost.total_us:,.1f} µs, {took}; {'; '.join(parts)}"
