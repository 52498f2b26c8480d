"""What each rung of the ladder costs at a shape: measured, simulated, or by the cost model."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from . import bench, checking, climbing, execution, runtime
from .climbing import Compiled, Counted, Order, Progress
from .cost import Occupancy, Work
from .dtypes import Array
from .errors import DeviceError, EgraphFlashError, ScheduleError
from .kernel import Kernel
from .machines import machine
from .problem import Problem
from .rungs import RUNGS, Rung, pins_by_rung

Backend = Literal["gpu", "sim", "model"]
PEER = "fa2"


class LadderError(EgraphFlashError, ValueError):
    """Rungs that differ in movement alone, and yet in bits."""


@dataclass(frozen=True)
class Row:
    """One rung at a shape; None is what the backend does not know.

    `us` is measured on a GPU and predicted by the model; `predicted_us` is known of every rung
    that compiles. `knobs` is the schedule as emitted, of a refused rung its pins; `ctas` is how
    many blocks an SM holds.
    """

    rung: Rung
    knobs: str
    refusal: str | None = None
    us: float | None = None
    us_fa2: float | None = None
    predicted_us: float | None = None
    registers: int | None = None
    ctas: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    lsu: int | None = None
    ld_conflicts: int | None = None
    mma: int | None = None
    barrier_waits: int | None = None
    digest: str | None = None
    max_err: float | None = None

    @property
    def time_us(self) -> float | None:
        """Measured where it was, else predicted."""
        return self.predicted_us if self.us is None else self.us

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return {
            "rung": self.rung.name,
            "knobs": self.knobs,
            "us": self.us,
            "us_fa2": self.us_fa2,
            "registers": self.registers,
            "spills": self.spills,
            "shared_bytes": self.shared_bytes,
            "lsu": self.lsu,
            "ld_conflicts": self.ld_conflicts,
            "mma": self.mma,
            "hash": self.digest,
            "max_err": self.max_err,
        }


@dataclass(frozen=True)
class Ladder:
    """All rungs of one run, bottom first, and what they ran on."""

    problem: Problem
    target: str
    backend: Backend
    device: str
    seed: int | None
    rounds: int | None
    checked: int | None  # elements of each output, against float64
    rows: tuple[Row, ...]
    max_err_fa2: float | None = None

    def filled(self, found: Mapping[str, Mapping[str, Any]]) -> Ladder:
        """With further fields of its rows, by the names of their rungs."""
        rows = (replace(row, **found.get(row.rung.name, {})) for row in self.rows)
        return replace(self, rows=tuple(rows))

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.rung.name == name)

    @property
    def us_fa2(self) -> float | None:
        return next((row.us_fa2 for row in self.rows if row.us_fa2 is not None), None)

    @property
    def roofline_us(self) -> float:
        """The least time that mma.sync needs for both products."""
        return self.problem.flop / machine(self.target).mma_tflops / 1e6

    def agreement(self) -> dict[str, dict[str, list[str]]]:
        """Of each set of brackets, which rungs computed which bits: name, hash, rungs."""
        found: dict[str, dict[str, list[str]]] = {}
        for row in self.rows:
            if row.digest is not None:
                same = found.setdefault(row.rung.brackets, {})
                same.setdefault(row.digest, []).append(row.rung.name)
        return found

    def check_bits(self) -> None:
        """LadderError where movement changed bits."""
        for brackets, hashes in self.agreement().items():
            if len(hashes) > 1:
                each = "; ".join(f"{digest} of {', '.join(who)}" for digest, who in hashes.items())
                raise LadderError(
                    f"ladder: rungs with the brackets {brackets!r} differ in movement alone, got "
                    f"the hashes {each}; wants one"
                )


def climb(
    problem: Problem,
    backend: Backend,
    *,
    target: str | None = None,
    rungs: Sequence[Rung] = RUNGS,
    rounds: int = 30,
    seed: int | None = None,
    jobs: int | None = None,
    progress: Progress = lambda step: None,
) -> Ladder:
    """Compile all rungs and price them.

    "gpu" times them beside FlashAttention-2, replays of CUDA graphs interleaved in one run, and
    checks and hashes every output; "sim" runs them in the simulator, which counts; "model" runs
    nothing, and its µs are predicted. Up to `jobs` processes (as many as there are processors)
    compile and simulate at a time.

    Raises DeviceError where no GPU fits, ScheduleError where no rung compiles.
    """
    target = target or runtime.present_target() or "sm_120"
    chip = machine(target)
    if backend == "gpu":
        need_gpu(target)
    seed = secrets.randbits(32) if seed is None else seed
    jobs = jobs or os.cpu_count() or 1
    pins = pins_by_rung(problem.shape[3], problem.dtype)
    orders = [Order(rung.name, problem, target, pins[rung.name]) for rung in rungs]
    compiled = _compile(orders, jobs, progress)
    rows = [
        _row(rung, order, made) for rung, order, made in zip(rungs, orders, compiled, strict=True)
    ]
    ladder = Ladder(problem, target, backend, chip.name, None, None, None, tuple(rows))
    built = [made for made in compiled if made.refusal is None]
    if not built:
        reasons = "\n".join(f"  {made.rung}: {made.refusal}" for made in compiled)
        raise ScheduleError(f"ladder: no rung compiles at {problem} for {target}:\n{reasons}")
    if backend == "gpu":
        return _measure(ladder, built, rounds, seed, progress)
    if backend == "sim":
        return _simulate(ladder, built, seed, jobs, progress)
    return _predict(ladder, built)


def need_gpu(target: str) -> None:
    """DeviceError where no GPU runs kernels for a target."""
    if runtime.device.fitting(target) is None:
        here = runtime.device.listed()
        raise DeviceError(f"ladder: no GPU fits target {target}; present: {here}")


def _compile(orders: Sequence[Order], jobs: int, progress: Progress) -> list[Compiled]:
    doing = f"of {len(orders)} rungs for {orders[0].target}"
    progress(f"compiling 1 {doing}")
    return climbing.each(
        climbing.compile_one, orders, jobs, lambda done: progress(f"compiled {done} {doing}")
    )


def _row(rung: Rung, order: Order, compiled: Compiled) -> Row:
    """What is known of a rung before it runs."""
    if compiled.refusal is not None:
        return Row(rung, _spelled(order.pins), compiled.refusal)
    kernel = compiled.kernel
    entries = {entry.name: entry for entry in kernel.assembly.entries}
    used = [(step, entries[step.entry]) for step in kernel.plan.launches]
    shapes = [
        Work(
            warps_per_cta=-(-step.threads // 32),
            registers_per_thread=entry.registers,
            shared_bytes_per_cta=step.shared_bytes + entry.shared_bytes,
        )
        for step, entry in used
    ]
    return Row(
        rung,
        _spelled(kernel.schedule),
        predicted_us=kernel.cost.total_us,
        registers=max(shape.registers_per_thread for shape in shapes),
        ctas=min(Occupancy(shape, machine(order.target)).ctas for shape in shapes),
        spills=sum(entry.spill_bytes for entry in entries.values()),
        shared_bytes=max(shape.shared_bytes_per_cta for shape in shapes),
    )


def _spelled(knobs: Mapping[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in knobs.items())


def _predict(ladder: Ladder, built: Sequence[Compiled]) -> Ladder:
    """Counts that follow from the plan, and the model's time as the time."""
    found = {}
    for made in built:
        counts = climbing.planned(made.kernel) or Counted()
        us = ladder.row(made.rung).predicted_us
        found[made.rung] = {"us": us, "lsu": counts.lsu, "mma": counts.mma}
    return ladder.filled(found)


def _simulate(
    ladder: Ladder, built: Sequence[Compiled], seed: int, jobs: int, progress: Progress
) -> Ladder:
    kernels = {made.rung: made.kernel for made in built}
    seconds = [execution.simulation_s(kernel.plan) or 0.0 for kernel in kernels.values()]
    about_s = max(sum(seconds) / min(jobs, len(built)), *seconds, 1.0)
    doing = f"of {len(built)} rungs; about {about_s:,.0f} s in all"
    progress(f"simulating 1 {doing}")
    simulated = climbing.each(
        climbing.simulate_one,
        [(made, seed) for made in built],
        jobs,
        lambda done: progress(f"simulated {done} {doing}"),
    )
    progress("checking against float64")
    first = next(iter(kernels.values()))
    rng = np.random.default_rng(seed)
    arrays = checking.random_inputs(first.inputs, rng)
    at = checking.sample(first.inputs, first.outputs, rng)
    expected = checking.oracle(ladder.problem.expression, arrays, at)
    found = {
        run.rung: {
            "digest": bench.digest(run.outputs),
            "max_err": _largest(kernels[run.rung], expected, run.outputs, at),
            **vars(run.counted),
        }
        for run in simulated
    }
    checked = sum(value.size for value in expected)
    return replace(ladder, seed=seed, checked=checked).filled(found)


def _largest(
    kernel: Kernel,
    expected: Sequence[Array],
    outputs: tuple[Array, ...],
    at: Mapping[str, list[int]],
) -> float:
    errors = checking.errors(kernel.outputs, expected, outputs, at)
    return max(error.max_abs for error in errors)


def _measure(
    ladder: Ladder, built: Sequence[Compiled], rounds: int, seed: int, progress: Progress
) -> Ladder:
    kernels = {made.rung: made.kernel for made in built}
    loaded = ladder.problem.loaded
    table = bench.bench(loaded, kernels, [PEER], rounds=rounds, seed=seed, progress=progress)
    measured = {row.label: row for row in table.rows}
    found = {
        rung: {
            "us": measured[rung].time_us,
            "us_fa2": measured[PEER].time_us,
            "digest": measured[rung].digest,
            "max_err": measured[rung].max_error,
        }
        for rung in kernels
    }
    run = replace(
        ladder, device=table.device, seed=seed, rounds=table.rounds, checked=table.checked,
        max_err_fa2=measured[PEER].max_error,
    )  # fmt: skip
    return run.filled(found)
