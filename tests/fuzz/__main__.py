"""Runs the fuzzer: `python -m tests.fuzz -n 2000 [--backend gpu] [--seed S] [--keep FILE]`."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from . import report
from .drawing import KINDS, drawn
from .shrinking import shrunk
from .trials import Outcome, Trial, prepare_all, read_trial, run

WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

ON_GPU = 8  # processes that share it, most of whose time goes into judging


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    if given.again is not None:
        lines = given.again.read_text().splitlines()
        trials = [read_trial(line) for line in lines if line]
    else:
        trials = drawn(given.number, seed, given.kind)
    if given.keep is not None:
        given.keep.write_text("".join(f"{trial}\n" for trial in trials))
    print(f"seed {seed}: {len(trials)} cases on {WORKERS} processes", flush=True)
    if given.compile_for is not None:
        _compile([trial.on(given.compile_for) for trial in trials])
        return 0
    started = time.perf_counter()
    source = _on_gpu(trials) if given.backend == "gpu" else _simulated(trials)
    found = list(report.watched(source, len(trials)))
    report.table([outcome for _, outcome in found], seed, time.perf_counter() - started)
    failures = [(trial, outcome) for trial, outcome in found if outcome.is_failure]
    for trial, outcome in failures[: given.shrink]:
        _shrink(trial, outcome, given.backend)
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("-n", "--number", type=int, default=200, help="how many cases")
    parser.add_argument("--backend", choices=("sim", "gpu"), default="sim")
    parser.add_argument("--seed", type=int, help="of the cases; fresh by default")
    parser.add_argument("--kind", choices=tuple(KINDS), default="all", help="of the cases")
    parser.add_argument("--keep", type=Path, help="write the commands of all cases to a file")
    parser.add_argument("--again", type=Path, help="the cases of such a file, not new ones")
    parser.add_argument("--compile-for", metavar="TARGET", help="only fill EGRAPH_FLASH_CACHE")
    parser.add_argument("--shrink", type=int, default=5, help="how many failures to make smaller")
    return parser


def _simulated(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Outcome]]:
    with ProcessPoolExecutor(WORKERS) as pool:
        jobs = {pool.submit(run, trial): trial for trial in trials}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def _on_gpu(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Outcome]]:
    """Compile on all CPUs, into the disk cache; then run in a few processes."""
    from egraph_flash.runtime import present_target

    target = present_target()
    if target is None:
        raise SystemExit("fuzz: no GPU of sm_90 or sm_120 is here; the simulator is --backend sim")
    here = [trial.on(target) for trial in trials]
    _compile(here)
    # spawned, not forked: a process that has met the CUDA driver must not fork
    with ProcessPoolExecutor(min(WORKERS, ON_GPU), get_context("spawn")) as pool:
        jobs = {pool.submit(run, trial, "gpu"): trial for trial in here}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def _compile(trials: Sequence[Trial]) -> None:
    """All that the trials need, into the disk cache, on all CPUs."""
    with ProcessPoolExecutor(WORKERS) as pool:
        for _ in report.counted(pool.map(prepare_all, trials, chunksize=4), len(trials)):
            pass


def _shrink(trial: Trial, outcome: Outcome, backend: str) -> None:
    smallest = shrunk(trial, lambda other: run(other, backend).kind == outcome.kind)
    report.console.print("shrunk:")
    report.tell(smallest, run(smallest, backend))


if __name__ == "__main__":
    if "EGRAPH_FLASH_CACHE" in os.environ:
        sys.exit(main())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EGRAPH_FLASH_CACHE"] = folder
        sys.exit(main())
