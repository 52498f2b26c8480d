"""How fast the README's workloads are beside PyTorch, and what shapes of their own aim at.

    python benchmarks/workloads.py [--rounds 9] [--only softmax,decode] [--peers] [--write]

Each row is one expression at one size. Its kernel, unpinned, and its peers are CUDA-graph replays
interleaved in one run over the same random data: PyTorch as it is written (`eager`), compiled by it
(`compile`), and the best library call there is. Outputs are checked against float64 at sampled
places in the same run. `rate` is what the row is judged by: GB/s of the bytes that have to move,
inputs and outputs once each, or TFLOP/s; `memory` what a call needs beside those. A copy stands in
rows that move bytes, our own plain product in those that multiply. `--write` leaves the rows that
the README lists in docs/workloads.json. Needs a GPU, and PyTorch for the peers.
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # works uninstalled too

from benchmarks import spelled
from benchmarks.spelled import Torch
from egraph_flash import Axis, Tensor, bf16, f16, optimize
from egraph_flash.dtypes import DTYPES, Array, Dtype
from egraph_flash.record import Spec
from egraph_flash.terms import make, rewrite, subterms
from examples.workloads import WORKLOADS

MEASURED = Path(__file__).resolve().parent.parent / "docs" / "workloads.json"


@dataclass(frozen=True)
class Case:
    """One row: a workload, or a plain product, at these extents; and who else computes it.

    `eager` is PyTorch's spelling, `library` a single call of it, `plain` our own product of the
    same inputs. `moved` says that bytes count, else there are so many `products` over all extents.
    """

    name: str
    extents: Mapping[str, int]
    eager: Torch | None = None
    library: tuple[str, Torch] | None = None
    moved: bool = False
    dtype: Dtype | None = None  # of all reals, where the workload's own are others
    products: int = 1
    plain: Callable[..., Any] | None = None

    @property
    def label(self) -> str:
        sizes = "x".join(map(str, self.extents.values()))
        return f"{self.name} {sizes}" + (f" {self.dtype.name}" if self.dtype else "")

    def expression(self) -> Any:
        if self.name == "product":
            m, n, k = Axis.many(**self.extents)
            return (Tensor("a", (m, k), f16) * Tensor("w", (k, n), f16)).sum(k)
        found = WORKLOADS[self.name].outputs(**self.extents)
        return found if self.dtype is None else tuple(stored(x, self.dtype) for x in found)

    def inputs(self, specs: Sequence[Spec], rng: np.random.Generator) -> dict[str, Array]:
        """Normals, labels that there are, pages in no order, caches that are full."""
        found: dict[str, Array] = {}
        for spec in specs:
            if spec.name == "page":
                pages = rng.permutation(math.prod(spec.shape)).reshape(spec.shape)
                found[spec.name] = pages.astype(np.int32)
            elif spec.name == "count":
                found[spec.name] = np.full(spec.shape, self.extents["n"], np.int32)
            elif spec.dtype.is_integer:
                found[spec.name] = rng.integers(0, self.extents["n"], spec.shape, np.int32)
            else:
                found[spec.name] = spec.dtype.encode(rng.standard_normal(spec.shape, np.float32))
        return found


def stored(expr: Any, dtype: Dtype) -> Any:
    """An expression whose real inputs, and whose result, have another dtype."""
    real = [n for n in subterms(expr) if n.head == "Array" and DTYPES[n.args[1]].is_real]
    change = {node: make("Array", node.args[0], dtype.name, *node.args[2:]) for node in real}
    return rewrite(expr, change).cast(dtype)


# ---- our own products ----------------------------------------------------------------------------


def _plain(m: int, n: int, e: int) -> Any:
    M, N, E = Axis.many(m=m, n=n, e=e)
    return (Tensor("x", (M, N), f16) * Tensor("w", (N, E), f16)).sum(N)


def _logits(m: int, n: int, d: int) -> Any:
    M, N, D = Axis.many(m=m, n=n, d=d)
    return (Tensor("hidden", (M, D), f16) * Tensor("w", (N, D), f16)).sum(D)


# ---- the rows ---------------------------------------------------------------------------------


def _rows(name: str, torch: Torch) -> Iterator[Case]:
    """In f32 and in bf16; rows that a block can hold, and longer ones."""
    for dtype in (None, bf16):
        for m, n in ((8192, 8192), (512, 131072)):
            yield Case(name, {"m": m, "n": n}, torch, moved=True, dtype=dtype)


def _row(name: str, torch: Torch) -> Case:
    return Case(name, {"m": 8192, "n": 8192}, torch, moved=True)


HEADS = {"h": 8, "m": 4096, "n": 4096, "d": 64}


def _product(m: int, n: int, k: int) -> Case:
    return Case(
        "product", {"m": m, "n": n, "k": k}, library=("cuBLAS", lambda t, x: x["a"] @ x["w"])
    )


CASES: tuple[Case, ...] = (
    _product(4096, 4096, 4096),
    Case("matmul", {"m": 4096, "n": 4096, "k": 4096}, spelled.gelu),
    Case(
        "batched_matmul",
        {"b": 16, "m": 2048, "n": 2048, "k": 1024},
        lambda t, x: x["a"].transpose(1, 2) @ x["w"].T,
    ),
    Case("long_matmul", {"m": 64, "n": 64, "k": 1 << 18}, lambda t, x: (x["a"] @ x["w"]).float()),
    *_rows("log_sum_exp", spelled.log_sum_exp),
    *_rows("row_softmax", lambda t, x: t.softmax(x["x"], -1)),
    *_rows("layer_norm", lambda t, x: spelled.norm(t, x["x"], x["gain"], x["bias"])),
    *_rows("rms_norm", lambda t, x: spelled.rms(t, x["x"], x["gain"])),
    *_rows("cross_entropy", lambda t, x: spelled.loss(t, x["x"], x["label"])),
    _row("log_sum_exp_plain", lambda t, x: x["x"].exp().sum(-1).log()),
    _row("entropy", spelled.entropy),
    _row("collision", lambda t, x: x["x"].softmax(-1).square().sum(-1)),
    _row("argmax_index", lambda t, x: x["x"].argmax(-1)),
    _row("mean_variance", lambda t, x: t.var_mean(x["x"], -1, correction=0)),
    _product(16, 4096, 4096),
    *(
        Case(
            "rms_norm_matmul",
            {"m": m, "n": 4096, "e": 4096},
            lambda t, x: spelled.rms(t, x["x"], x["gain"]) @ x["w"],
            plain=_plain,
        )
        for m in (16, 4096)
    ),
    Case(
        "layer_norm_matmul",
        {"m": 4096, "n": 4096, "e": 4096},
        lambda t, x: spelled.norm(t, x["x"], None) @ x["w"],
        plain=_plain,
    ),
    _product(8192, 131072, 512),
    Case(
        "linear_cross_entropy",
        {"m": 8192, "n": 131072, "d": 512},
        lambda t, x: spelled.loss(t, x["hidden"] @ x["w"].T, x["label"]),
        plain=_logits,
    ),
    Case("attention", HEADS, spelled.attention, ("FA-2", spelled.flash), products=2),
    Case("gated_attention", HEADS, spelled.gated, products=2),
    Case("linear_attention", HEADS, spelled.linear, products=2),
    *(
        Case(
            "decode_contiguous",
            {"b": b, "h": 32, "g": 8, "n": n, "d": 128},
            None,
            ("cuDNN", spelled.decode("CUDNN_ATTENTION")),
            moved=True,
            dtype=bf16,
        )
        for b, n in ((1, 1 << 15), (8, 1 << 15), (1, 1 << 17))
    ),
    *(
        Case("decode_paged", {"b": b, "h": 32, "g": 8, "n": n, "d": 128}, moved=True, dtype=bf16)
        for b, n in ((1, 1 << 15), (8, 1 << 15))
    ),
)


# ---- measuring -----------------------------------------------------------------------------------


@dataclass
class Line:
    """What one row came to: µs by who computes it, the largest error, and what a call needs."""

    case: Case
    us: dict[str, float]
    error: float
    tolerance: float
    bytes_moved: int
    flop: float
    ours_bytes: int
    peer_bytes: int
    launches: int


def build(label: str) -> str | None:
    """Compile one row, in a process of its own: why it cannot be, or None."""
    from egraph_flash import runtime

    case = next(case for case in CASES if case.label == label)
    target = runtime.device.devices()[0].target
    try:
        assert optimize(case.expression(), target).cubin
        if case.plain is not None:
            assert optimize(case.plain(**case.extents), target).cubin
    except Exception as error:  # one row's refusal is no reason to lose the others
        return f"{label}: {type(error).__name__}: {error}"
    return None


def measured(case: Case, gpu: Any, rounds: int, rng: np.random.Generator, peers: bool) -> Line:
    from egraph_flash import bench, checking, runtime
    from egraph_flash import peers as others
    from egraph_flash.runtime import timing

    expr = case.expression()
    kernel = optimize(expr, gpu.target)
    arrays = case.inputs(kernel.inputs, rng)
    held = {
        spec.name: runtime.DeviceArray.of(arrays[spec.name], spec.dtype, gpu.ordinal)
        for spec in kernel.inputs
    }
    ours = bench.OwnReplay(kernel, held, gpu.ordinal)
    replays: dict[str, Any] = {"ours": ours}
    if case.plain is not None:
        product = optimize(case.plain(**case.extents), gpu.target)
        factors = {spec.name: held[spec.name] for spec in product.inputs}
        replays["product"] = bench.OwnReplay(product, factors, gpu.ordinal)
    peer_bytes = 0
    if peers:
        import torch

        tensors = others.tensors(kernel.inputs, arrays, gpu.ordinal)
        spelled = {"eager": case.eager, "compile": case.eager}
        called = {case.library[0]: case.library[1]} if case.library is not None else {}
        for who, compute in {**spelled, **called}.items():
            if compute is None:
                continue
            plain = lambda x, compute=compute: compute(torch, x)  # noqa: E731
            torch.compiler.reset()  # each row's code is compiled anew, however many there were
            run = torch.compile(plain, dynamic=False) if who == "compile" else plain
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            replays[who] = others.TorchReplay(lambda run=run: run(tensors), 5)
            if who == "compile" or case.eager is None:
                peer_bytes = torch.cuda.max_memory_allocated() - before
        if case.moved:
            source = max(tensors.values(), key=lambda t: t.numel() * t.element_size())
            target = torch.empty_like(source)
            replays["copy"] = others.TorchReplay(lambda: target.copy_(source), 5)
    times = timing.interleave(replays, rounds)
    us = {who: statistics.median(times[who]) / replay.repeats for who, replay in replays.items()}
    ours(0)
    at = {
        axis: sorted(rng.choice(size, min(size, SAMPLED), replace=False).tolist())
        for spec in kernel.outputs
        for axis, size in zip(spec.axes, spec.shape, strict=True)
    }
    wanted = checking.oracle(expr, arrays, at)
    found = checking.errors(kernel.outputs, wanted, ours.output(), at)
    largest = max(float(np.abs(each).max()) for each in wanted)
    sizes = [math.prod(s.shape) * s.dtype.size_bytes for s in (*kernel.inputs, *kernel.outputs)]
    if "copy" in us:  # of as many bytes as the row moves
        source_bytes = source.numel() * source.element_size()
        us["copy"] *= sum(sizes) / (2 * source_bytes)
    return Line(
        case,
        us,
        max(each.max_abs for each in found) / largest,
        max(TOLERANCE[spec.dtype.size_bytes] for spec in kernel.inputs),
        sum(sizes),
        2.0 * case.products * math.prod(case.extents.values()),
        kernel.workspace_bytes,
        peer_bytes,
        len(kernel.plan.launches),
    )


TOLERANCE = {2: 2e-2, 4: 1e-3}  # of the largest magnitude, by the bytes of an element
SAMPLED = 3  # indices of each axis of an output that are checked
OWN = ("ours", "product", "copy")
COLUMNS = (
    "row",
    "µs",
    "rate",
    "of a copy",
    "of our product",
    "others, µs",
    "error",
    "kernels",
    "memory, theirs",
)


def shown(line: Line) -> tuple[str, ...]:
    us, case = line.us, line.case
    ours_us = us["ours"]
    gbps = line.bytes_moved / ours_us / 1e3
    rate = f"{gbps:.0f} GB/s" if case.moved else f"{line.flop / ours_us / 1e6:.0f} TFLOP/s"
    copy = f"{us['copy'] / ours_us:.3f}" if "copy" in us else ""
    product = f"{ours_us / us['product']:.3f}" if "product" in us else ""
    others = ", ".join(f"{who} {t:.1f}" for who, t in us.items() if who not in OWN)
    memory = f"{line.ours_bytes / 2**20:.1f}, {line.peer_bytes / 2**20:.1f} MiB"
    kernels = f"{line.launches}"
    us_and_rate = (f"{ours_us:.1f}", rate, copy, product)
    return case.label, *us_and_rate, others, f"{line.error:.0e}", kernels, memory


def write(lines: Sequence[Line]) -> None:
    """The rows that the README's table has: of each workload the first that was measured. Rows of
    other workloads stay as they are."""
    rows: dict[str, Any] = {}
    for line in lines:
        others = {who: round(us, 1) for who, us in line.us.items() if who not in OWN}
        found = {
            "at": line.case.label.partition(" ")[2],
            "us": round(line.us["ours"], 1),
            "peers": others,
        }
        rows.setdefault(line.case.name, found)
    kept = json.loads(MEASURED.read_text())["rows"] if MEASURED.exists() else {}
    measured_rows = {"rows": {**kept, **rows}}
    MEASURED.write_text(json.dumps(measured_rows, indent=2, ensure_ascii=False) + "\n")


def main() -> None:
    from egraph_flash import runtime
    from egraph_flash.printing import table
    from egraph_flash.runtime import driver

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="names of workloads, or product")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--write", action="store_true", help="leave docs/workloads.json")
    given = parser.parse_args()
    asked = set(given.only.split(",")) - {""}
    cases = [case for case in CASES if not asked or case.name in asked]
    gpu = runtime.device.devices()[0]
    with ProcessPoolExecutor() as pool:
        refused = [why for why in pool.map(build, [case.label for case in cases]) if why]
    seed = secrets.randbits(32)
    rng = np.random.default_rng(seed)
    lines = []
    with driver.on(gpu.ordinal):
        for case in cases:
            if not any(why.startswith(f"{case.label}:") for why in refused):
                lines.append(measured(case, gpu, given.rounds, rng, given.peers))
                print(" | ".join(shown(lines[-1])), flush=True)
    table(f"{gpu}, {given.rounds} rounds, seed {seed}", COLUMNS, map(shown, lines), words=1)
    print("\n".join(refused))
    wrong = [line.case.label for line in lines if not line.error <= line.tolerance]
    if wrong or refused:
        raise SystemExit(f"wrong: {', '.join(wrong) or 'none'}; not compiled: {len(refused)}")
    if given.write:
        write(lines)


if __name__ == "__main__":
    main()
