"""How far every rung is from float64: random normals, and q, k, v of a real model.

    python benchmarks/numerics.py [--target sm_90] [--rungs NAME,NAME…] [--seed N] [--json]

Largest and mean absolute error at [1, 4, 128, 64], with outputs of f16 and of f32, and of
examples/data/minilm_layer3_qkv.npz ([1, 12, 128, 32]), from the simulator, and from the GPU where
one fits the target; `bits` says whether the two agree bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # works uninstalled too

NORMALS = (1, 4, 128, 64)
REAL = ROOT / "examples" / "data" / "minilm_layer3_qkv.npz"


def measure(target: str, names: str | None, seed: int) -> list[dict[str, Any]]:
    """A row for each input and rung."""
    import numpy as np

    from egraph_flash import climbing, rungs
    from egraph_flash.loading import read_arrays
    from egraph_flash.printing import progress
    from egraph_flash.problem import Problem

    real = read_arrays(REAL)
    rng = np.random.default_rng(seed)
    normals = {name: rng.standard_normal(NORMALS).astype(np.float16) for name in real}
    chosen = rungs.choose(names)
    found = []
    with progress() as step:
        for label, arrays, output in (
            ("normals", normals, None),
            ("normals, f32 output", normals, "f32"),
            ("minilm", real, None),
        ):
            batch, heads, rows, depth = arrays["q"].shape
            problem = Problem((batch, heads, rows, depth), output=output)
            pins = rungs.pins_by_rung(depth, problem.dtype)
            orders = [climbing.Order(r.name, problem, target, pins[r.name]) for r in chosen]
            step(f"compiling for {label}")
            compiled = climbing.each(
                climbing.compile_one, orders, os.cpu_count() or 1, lambda done: None
            )
            for made in compiled:
                step(f"running {made.rung} on {label}")
                found.append({"inputs": label, "rung": made.rung, **errors(problem, made, arrays)})
    return found


def errors(problem: Any, made: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Errors of one rung, on each backend that is here."""
    from egraph_flash import bench, checking
    from egraph_flash.runtime import device

    if made.refusal is not None:
        return {"refused": made.refusal}
    kernel = made.kernel
    expected = checking.oracle(problem.expression, arrays, {})
    row: dict[str, Any] = {}
    digests = set()
    backends = ("sim", "gpu") if device.fitting(kernel.target) else ("sim",)
    for backend in backends:
        result = kernel.run(backend=backend, **arrays)
        (error,) = checking.errors(kernel.outputs, expected, result, {})
        row |= {f"{backend}_max": error.max_abs, f"{backend}_mean": error.mean_abs}
        digests.add(bench.digest((result,)))
    row["hash"] = "/".join(sorted(digests))
    row["bits"] = None if len(backends) == 1 else len(digests) == 1
    return row


def show(target: str, seed: int, found: list[dict[str, Any]]) -> None:
    from egraph_flash.printing import Cell, table

    def number(row: Mapping[str, Any], name: str) -> str:
        return f"{row[name]:.3e}" if name in row else "–"

    keys = ("sim_max", "sim_mean", "gpu_max", "gpu_mean")
    bits = {None: "–", True: "equal", False: "DIFFERENT"}
    rows: list[list[Cell]] = [
        [
            row["inputs"],
            row["rung"],
            *(number(row, key) for key in keys),
            bits[row.get("bits")],
            row.get("hash", row.get("refused", "")),
        ]
        for row in found
    ]
    columns = ["inputs", "rung", *(f"{key.replace('_', ', ')} |error|" for key in keys)]
    title = f"against float64, for {target}; normals of seed {seed} at {list(NORMALS)}"
    table(title, [*columns, "bits", "hash"], rows, words=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", help="by default that of the GPU, else sm_90")
    parser.add_argument("--rungs", metavar="NAME,NAME…")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    from egraph_flash.runtime import present_target

    target = given.target or present_target() or "sm_90"
    found = measure(target, given.rungs, given.seed)
    if given.json:
        print(json.dumps(found))
    else:
        show(target, given.seed, found)


if __name__ == "__main__":
    main()
