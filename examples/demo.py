"""The main job on real input, from the naive expression to the number that comes out: `make demo`.

q, k, v are those of the fourth encoder layer of sentence-transformers/all-MiniLM-L6-v2
(Apache-2.0) over a paragraph of 128 tokens, 12 heads of 32.
"""

from __future__ import annotations

import time
from pathlib import Path

from egraph_flash import optimize
from egraph_flash.checking import compare
from egraph_flash.cli import reporting_errors
from egraph_flash.kernel import Kernel
from egraph_flash.loading import Loaded, load, read_arrays
from egraph_flash.printing import (
    plain_warnings,
    progress,
    section,
    show_assembly,
    show_errors,
    show_kernel,
)
from egraph_flash.runtime import present_target

HERE = Path(__file__).parent
EXPRESSION = f"{HERE / 'attention.py'}:minilm"
INPUTS = HERE / "data" / "minilm_layer3_qkv.npz"
PTX = HERE.parent / "build" / "minilm_sm_120.ptx"


def main() -> None:
    loaded = load(EXPRESSION)
    kernel = derive(loaded, "sm_120")
    show_kernel(kernel)
    PTX.parent.mkdir(exist_ok=True)
    PTX.write_text(kernel.ptx)
    section("PTX", f"{len(kernel.ptx.splitlines())} lines in {PTX.relative_to(HERE.parent)}")
    here = present_target()
    if here not in (None, kernel.target):
        kernel = derive(loaded, here)
        show_assembly(kernel)
    run(loaded, kernel)


def derive(loaded: Loaded, target: str) -> Kernel:
    with progress() as step:
        step(f"deriving {loaded.name} for {target}")
        started = time.perf_counter()
        kernel: Kernel = optimize(loaded.expression, target=target)
        section("derived", f"for {target} in {time.perf_counter() - started:.2f} s")
        return kernel


def run(loaded: Loaded, kernel: Kernel) -> None:
    """Run on the model's arrays; the error from float64, beside that of plain f16 arithmetic."""
    arrays = read_arrays(INPUTS)
    with plain_warnings(), progress() as step:
        step("running")
        result = kernel(**arrays)
        step("checking against float64")
        errors = compare(loaded, kernel, arrays, result)
    where = "a GPU" if present_target() else "the simulator"
    show_errors(f"{INPUTS.name} on {where}, against float64", errors)


if __name__ == "__main__":
    with reporting_errors():
        main()
