"""How long compiling takes, in fresh processes, and what simulating the result costs.

    python benchmarks/compile_time.py [--target sm_120] [--runs 3] [--row LABEL:KNOB=V;…]… [--json]

The perf shape is [1, 8, 4096, 64], the simulated one [1, 4, 128, 64]. Aims: optimize to PTX with
imports under 1.5 s, saturation under 0.2 s, a cache hit after import under 20 ms; simulating under
10 s and 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # works uninstalled too

PERF, SMALL = (1, 8, 4096, 64), (1, 4, 128, 64)

ROWS = [  # what is simulated: a label and pins, as in bench
    "(a) materialized:PLACE=fold=cut",
    "(b) CUDA cores:TILE@d=a:fma_f32/w4x1/f1x8/k8;TILE@n=a:fma_f32/w4x1/f1x64/k8",
    "(c) tensor cores:TILE=a:mma_m16n8k16_f16/w4x1/f1x8/k4",
    "chosen:",
]


def expression(shape: tuple[int, int, int, int]) -> Any:
    """Naive attention over [batch, heads, rows, depth] f16 inputs."""
    from egraph_flash import Axis, Tensor, f16, softmax

    batch, heads, rows, depth = shape
    b, h, m, n, d, e = Axis.many(b=batch, h=heads, m=rows, n=rows, d=depth, e=depth)
    q, k, v = (
        Tensor("q", (b, h, m, d), f16),
        Tensor("k", (b, h, n, d), f16),
        Tensor("v", (b, h, n, e), f16),
    )
    s = (q * k).sum(d) * depth**-0.5
    return (softmax(s, n) * v).sum(n)


# Each of these runs in a fresh process and returns seconds (or MiB) by name.


def import_package(target: str, row: str) -> dict[str, float]:
    started = time.perf_counter()
    import egraph_flash

    assert egraph_flash
    return {"import": time.perf_counter() - started}


def optimize(target: str, row: str) -> dict[str, float]:
    """Also times the assembler."""
    started = time.perf_counter()
    from egraph_flash import optimize

    imported = time.perf_counter()
    kernel = optimize(expression(PERF), target=target)
    assert kernel.ptx
    done = time.perf_counter()
    found = {"optimize, import included": done - started, "optimize": done - imported}
    found |= {f"optimize: {step}": seconds for step, seconds in kernel.timings.items()}
    assert kernel.cubin
    return found | {"assembly": time.perf_counter() - done}


def cache_hit(target: str, row: str) -> dict[str, float]:
    import egraph_flash

    term = expression(PERF)
    started = time.perf_counter()
    assert egraph_flash.optimize(term, target=target).ptx
    return {"cache hit, after import": time.perf_counter() - started}


def simulate(target: str, row: str) -> dict[str, float]:
    """Seconds of the whole call; the peak is of the whole process, so in MiB with Python itself."""
    import resource

    import numpy as np

    from egraph_flash import optimize
    from egraph_flash.checking import random_inputs
    from egraph_flash.loading import parse_row

    label, pins = parse_row(row)
    kernel = optimize(expression(SMALL), target=target, pins=pins or None)
    arrays = random_inputs(kernel.inputs, np.random.default_rng(0))
    started = time.perf_counter()
    kernel.run(**arrays, backend="sim")
    seconds = time.perf_counter() - started
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {f"simulate {label}": seconds, f"simulate {label}: peak MiB": peak_mib}


PARTS: dict[str, Callable[[str, str], dict[str, float]]] = {
    part.__name__: part for part in (import_package, optimize, cache_hit, simulate)
}


def fresh(part: str, target: str, cache: str, row: str = "") -> dict[str, float]:
    """Run one part in a process of its own."""
    command = [sys.executable, __file__, "--part", part, "--target", target, "--given-row", row]
    environment = {**os.environ, "EGRAPH_FLASH_CACHE": cache}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{part} {row} failed with exit code {done.returncode}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def measure(target: str, runs: int, rows: list[str]) -> dict[str, list[float]]:
    """All parts, `runs` times each; simulations once."""
    found: dict[str, list[float]] = {}

    def add(measured: dict[str, float]) -> None:
        for name, value in measured.items():
            found.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory() as folder:
        fresh("cache_hit", target, folder)  # fills the cache
        for part, cache in (("import_package", "off"), ("optimize", "off"), ("cache_hit", folder)):
            for _ in range(runs):
                add(fresh(part, target, cache))
        for row in rows:
            add(fresh("simulate", target, folder, row))
    return found


def show(target: str, found: dict[str, list[float]]) -> None:
    from egraph_flash.printing import table

    def cell(name: str, value: float) -> str:
        return f"{value:.0f}" if name.endswith("MiB") else f"{value * 1e3:,.1f}"

    rows: list[list[str | int | float]] = [
        [name, cell(name, statistics.median(values)), cell(name, max(values)), len(values)]
        for name, values in found.items()
    ]
    title = f"compiling {list(PERF)} and simulating {list(SMALL)} for {target}, fresh processes"
    table(title, ["what", "median ms", "worst ms", "runs"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default="sm_120")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--row", action="append", metavar="LABEL:KNOB=V;…", help="to simulate")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--given-row", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        print(json.dumps(PARTS[given.part](given.target, given.given_row)))
        return
    found = measure(given.target, given.runs, given.row or ROWS)
    if given.json:
        print(json.dumps(found))
    else:
        show(given.target, found)


if __name__ == "__main__":
    main()
