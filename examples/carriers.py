"""What the laws make of naive definitions: how few passes, and the carrier that each one folds.

    python examples/carriers.py
    python examples/carriers.py --readme     # the same as the README's table
    egraph-flash compile examples/workloads.py:entropy --emit derivation

A channel `Scale[m] v` is a sum of v exp(s) kept relative to the maximum m; `Affine[m, t]` one of
s exp(s), `Shift[n, s]` one of squares about the mean, and `Spread[m, t, s]` one of such squares
times exp(s). `SelectMax[m] v` is the maximum of v where s is m. µs beside others' are measured, and
stand in docs/workloads.json where they were.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from egraph_flash import optimize
from egraph_flash.checking import compare, seeded_inputs
from egraph_flash.kernel import Kernel
from egraph_flash.listing import listing
from egraph_flash.loading import load
from egraph_flash.printing import table

WORKLOADS = Path(__file__).parent / "workloads.py"
README = Path(__file__).parent.parent / "README.md"
MEASURED = README.parent / "docs" / "workloads.json"
COLUMNS = ("workload", "carrier", "passes", "kernels", "laws", "max error")
BEGIN, END = "<!-- python examples/carriers.py --readme -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Row:
    """What one workload comes to; `error` is the largest from float64, of the largest output."""

    name: str
    says: str
    carriers: tuple[str, ...]
    naive_passes: int
    passes: int
    kernels: int
    laws: tuple[str, ...]
    error: float

    @property
    def bound(self) -> str:
        """The next power of ten, so that it doesn't change with every instruction."""
        return f"1e{math.ceil(math.log10(self.error))}" if self.error else "0"

    def cells(self) -> tuple[str, ...]:
        passes = f"{self.naive_passes} → {self.passes}"
        laws = ", ".join(self.laws) or "none"
        return self.says, "\n".join(self.carriers), passes, str(self.kernels), laws, self.bound


def derived() -> Iterator[Row]:
    """Each workload compiled for sm_120 at its small extents, and run there by the simulator."""
    for name, workload in load(f"{WORKLOADS}:attention").module.WORKLOADS.items():
        loaded = load(f"{WORKLOADS}:{name}")
        kernel: Kernel = optimize(loaded.expression, "sm_120", name=name)
        arrays = seeded_inputs(loaded, kernel, seed=1)
        result = kernel.run(backend="sim", **arrays)
        largest = [
            np.abs(each).max() for each in (result if len(kernel.outputs) > 1 else (result,))
        ]
        errors = compare(loaded, kernel, arrays, result)
        steps = kernel.derivation.steps
        yield Row(
            name,
            workload.says,
            carriers(kernel),
            steps[0].passes,
            kernel.passes,
            len(kernel.plan.launches),
            tuple(dict.fromkeys(step.law_family for step in steps if step.laws)),
            max(error.max_abs / most for (_, error), most in zip(errors, largest, strict=True)),
        )


def carriers(kernel: Kernel) -> tuple[str, ...]:
    """The channels of each fold, after what they name: `a = label[m] == n`."""
    lines = listing(*kernel.terms).splitlines()
    last = max(place for place, line in enumerate(lines) if " = fold " in line)
    shown = [re.sub(r" = fold [^{]*", " = ", line) for line in lines[: last + 1]]
    return (*shown[:-1], shown[-1].partition(" = ")[2])


# ---- the README's table --------------------------------------------------------------------------


def markdown(rows: list[Row], measured: dict[str, Any]) -> str:
    """The table as the README has it, with µs where `measured` (docs/workloads.json) has them."""
    columns = [*COLUMNS, *(["at", "µs", "beside"] if measured else [])]
    lines = [columns, ["---"] * 2 + ["--:"] * 2 + ["---"] * (len(columns) - 4)]
    for row in rows:
        says, _, *others = row.cells()
        folds = "<br>".join(f"`{line.replace('|', chr(92) + '|')}`" for line in row.carriers)
        cells = [says, folds, *others]
        if measured:
            found = measured["rows"].get(row.name, {})
            peers = found.get("peers", {}).items()
            cells += [
                found.get("at", ""),
                f"{found['us']:.1f}" if "us" in found else "",
                ", ".join(f"{peer} {time_us:.1f}" for peer, time_us in peers),
            ]
        lines.append(cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def measurements() -> dict[str, Any]:
    """`{"rows": {name: {"at": extents, "us": time, "peers": {who: time}}}}`, as a benchmark leaves
    it, or nothing."""
    found: dict[str, Any] = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    return found


def within(readme: str, table: str) -> str:
    """The README with that table between its marks."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.split(END, 1)[1]}"


def main(*arguments: str) -> None:
    rows = list(derived())
    if "--readme" in arguments:
        README.write_text(within(README.read_text(), markdown(rows, measurements())))
        return
    table("derived for sm_120, simulated", COLUMNS, [row.cells() for row in rows], words=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
