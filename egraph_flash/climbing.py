"""How one rung is compiled, assembled and simulated, in this process or in several beside it."""

from __future__ import annotations

import math
import multiprocessing
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from . import checking, pipeline
from .dtypes import Array
from .errors import EgraphFlashError, LoweringError, ScheduleError
from .kernel import Kernel
from .notices import SpillWarning
from .problem import NAME, Problem
from .record import from_json, to_json

if TYPE_CHECKING:
    from .runtime.assembler import Assembly
    from .simulator import Counters

Progress = Callable[[str], None]
Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Order:
    """A rung to compile: everything as plain values, so that another process can take it."""

    rung: str
    problem: Problem
    target: str
    pins: Mapping[str, str]


@dataclass(frozen=True)
class Compiled:
    """A compiled rung as text and bytes, or why it was refused."""

    rung: str
    record: str = ""
    assembly: Assembly | None = None
    refusal: str | None = None

    @property
    def kernel(self) -> Kernel:
        """With the assembly that came along, so that nothing is assembled twice."""
        made = Kernel(from_json(self.record))
        made.__dict__["assembly"] = self.assembly
        return made


@dataclass(frozen=True)
class Counted:
    """What no timing changes, summed over a plan's launches; instructions are counted per warp."""

    lsu: int | None = None
    mma: int | None = None
    ld_conflicts: int | None = None
    barrier_waits: int | None = None


@dataclass(frozen=True)
class Simulated:
    """A simulated rung: its outputs as stored, and what was counted."""

    rung: str
    outputs: tuple[Array, ...]
    counted: Counted


def compile_one(order: Order) -> Compiled:
    """Compile and assemble; a schedule that is refused is a result, all else an error."""
    try:
        kernel = pipeline.optimize(
            order.problem.expression, order.target, dict(order.pins), f"{NAME}, {order.rung}"
        )
    except (ScheduleError, LoweringError) as error:
        return Compiled(order.rung, refusal=str(error))
    with _named(order.rung), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)  # spills are a column of the table
        return Compiled(order.rung, to_json(kernel.record), kernel.assembly)


def simulate_one(given: tuple[Compiled, int]) -> Simulated:
    """Run a compiled rung on the inputs of a seed."""
    compiled, seed = given
    kernel = compiled.kernel
    arrays = checking.random_inputs(kernel.inputs, np.random.default_rng(seed))
    with _named(compiled.rung):
        result = kernel.run(backend="sim", **arrays)
    assert kernel.counters is not None
    outputs = result if isinstance(result, tuple) else (result,)
    return Simulated(compiled.rung, outputs, counted(kernel.counters))


@contextmanager
def _named(rung: str) -> Iterator[None]:
    """Put the rung's name before an error."""
    try:
        yield
    except EgraphFlashError as error:
        raise type(error)(f"rung {rung}: {error}") from error


LSU = ("lsu_global", "lsu_shared", "copy")
LOAD = re.compile(r"(@!?%\w+\s+)?(ld\.|ldmatrix)")


def counted(counters: Counters) -> Counted:
    """What the scoreboard shows of a simulation; conflicts are those of shared loads."""
    total = counters.total
    conflicts = sum(
        line.conflicts
        for launch in counters.launches
        for line in launch.shared.values()
        if LOAD.match(line.text)
    )
    return Counted(total.lsu, total.mma, conflicts, total.barrier_waits)


def planned(kernel: Kernel) -> Counted | None:
    """What the plan says that its warps execute; None where it does not say."""
    lsu = mma = 0.0
    for step in kernel.plan.launches:
        if not step.instructions:
            return None
        warps = math.prod(step.grid) * -(-step.threads // 32)
        mma += warps * step.instructions.get("mma", 0)
        lsu += warps * sum(count for name, count in step.instructions.items() if name in LSU)
    return Counted(round(lsu), round(mma))


def each(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    jobs: int,
    progress: Callable[[int], None],
) -> list[Result]:
    """`work` of every task, in order, in up to `jobs` processes; `progress` hears the number done.

    With one job nothing leaves this process.
    """
    jobs = min(jobs, len(tasks))
    found = []
    for result in _results(work, tasks, jobs):
        found.append(result)
        progress(len(found))
    return found


def _results(work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int) -> Iterator[Result]:
    if jobs <= 1:
        yield from map(work, tasks)
        return
    # spawned, not forked: a process that has met the CUDA driver must not fork
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            yield from pool.map(work, tasks)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
