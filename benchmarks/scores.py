"""How fast score arithmetic is: masks, biases, caps and grouped heads beside plain attention.

    python benchmarks/scores.py [--shape 1,8,4096,64] [--rounds 15] [--only causal,alibi] [--peers]

All rows are CUDA-graph replays interleaved in one run, on random data, each output checked against
float64 at sampled places. `of plain` is a row's time over our plain one's; `a score` the same for
each score that a mask leaves. A window computes whole tiles, so plain attention over as many keys
as those have stands beside it. Needs a GPU, and PyTorch for the peers.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # works uninstalled too

from egraph_flash import Axis, Tensor, f16, f32, inf, optimize, softmax, where
from egraph_flash.masks import alibi, causal, softcap, window

SHOWN = ("TILE@d", "STAGE@k", "SKEW", "SKIP", "ORDER", "TANH")
Shape = tuple[int, int, int, int]
LEFT = 1023  # keys before its own that a query sees in a window of 1,024
TILE = 64  # rows of a tile, and keys that it takes at a time, in the window's schedule


@dataclass(frozen=True)
class Case:
    """One row: what it adds to the scores, what part of all tiles it computes, its peers."""

    scores: Callable[[Any, dict[str, Axis]], Any]
    peers: tuple[str, ...] = ("flex",)
    pins: Mapping[str, str] = field(default_factory=dict)
    score: Any = None  # FlexAttention's score_mod, made of the inputs
    mask: Any = None
    groups: int = 1  # query heads for each head of keys
    lengths: bool = False  # whether the lengths are a call's
    keys: Callable[[int], int] = lambda rows: rows


def _bias(axes: dict[str, Axis], *names: str) -> Any:
    return Tensor("bias", tuple(axes[name] for name in names), f16)


CASES: dict[str, Case] = {
    "plain": Case(lambda s, x: s, ("fa2", "cudnn", "flex")),
    "lengths of a call": Case(lambda s, x: s, (), lengths=True),
    "causal": Case(
        lambda s, x: where(causal(x["m"], x["n"]), s, -inf),
        ("fa2", "cudnn", "flex"),
        mask=lambda b, h, row, column: row >= column,
    ),
    "window 1024": Case(
        lambda s, x: where(window(x["m"], x["n"], left=LEFT, right=0), s, -inf),
        mask=lambda b, h, row, column: (row >= column) & (row - column <= LEFT),
    ),
    "as many keys": Case(lambda s, x: s, ("flex",), keys=lambda rows: keys_of_window(rows)),
    "alibi": Case(
        lambda s, x: s + alibi(Tensor("slopes", (x["h"],), f32), x["m"], x["n"]),
        score=lambda given: lambda s, b, h, m, n: s + given["slopes"][h] * (n - m),
    ),
    "bias over heads": Case(
        lambda s, x: s + _bias(x, "m", "n"),
        score=lambda given: lambda s, b, h, m, n: s + given["bias"][m, n],
    ),
    "full bias": Case(
        lambda s, x: s + _bias(x, "b", "h", "m", "n"),
        score=lambda given: lambda s, b, h, m, n: s + given["bias"][b, h, m, n],
    ),
    "softcap": Case(
        lambda s, x: softcap(s, 30.0),
        score=lambda given: lambda s, b, h, m, n: 30.0 * (s / 30.0).tanh(),
    ),
    "softcap, tanh.approx": Case(lambda s, x: softcap(s, 30.0), (), {"TANH": "approx"}),
    "32 heads": Case(lambda s, x: s, ("fa2",)),
    "32 heads on 8": Case(lambda s, x: s, ("fa2",), groups=4),
}


def keys_of_window(rows: int) -> int:
    """The keys of the tiles that a window computes, on average over the tiles of rows.

    >>> keys_of_window(4096)
    952
    """
    firsts = range(0, rows, TILE)
    keys = [first + TILE - max(first - LEFT, 0) // TILE * TILE for first in firsts]
    return sum(keys) // len(keys)


def axes_of(case: str, shape: Shape) -> dict[str, Axis]:
    batch, heads, rows, depth = shape
    heads = 32 if case.startswith("32 heads") else heads
    keys = CASES[case].keys(rows)
    sizes = {"b": batch, "h": heads, "m": rows, "n": keys, "d": depth, "e": depth}
    made = {name: Axis(name, size) for name, size in sizes.items()}
    if CASES[case].lengths:
        made |= {"m": Axis("m", "rows", hint=rows), "n": Axis("n", "keys", hint=rows)}
    return made


def expression(case: str, shape: Shape) -> Any:
    x = axes_of(case, shape)
    groups = CASES[case].groups
    kv = Axis("g", x["h"].size // groups)
    q = Tensor("q", (x["b"], x["h"], x["m"], x["d"]), f16)
    k = Tensor("k", (x["b"], kv, x["n"], x["d"]), f16)
    v = Tensor("v", (x["b"], kv, x["n"], x["e"]), f16)
    head = x["h"] // groups if groups > 1 else x["h"].index
    s = (q * k[x["b"], head, x["n"], x["d"]]).sum(x["d"]) * shape[3] ** -0.5
    s = CASES[case].scores(s, x)
    return (softmax(s, x["n"]) * v[x["b"], head, x["n"], x["e"]]).sum(x["n"])


def computed(case: str, shape: Shape) -> float:
    """The part of all scores that a mask leaves."""
    rows = shape[2]
    at = np.arange(rows)
    if case == "causal":
        return float((at + 1).sum() / rows**2)
    if case == "as many keys":
        return keys_of_window(rows) / rows
    if case.startswith("window"):
        return float(np.minimum(at + 1, LEFT + 1).sum() / rows**2)
    return 1.0


def build(job: tuple[str, Shape, str]) -> None:
    case, shape, target = job
    assert optimize(expression(case, shape), target, CASES[case].pins).cubin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="1,8,4096,64")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    batch, heads, rows, depth = map(int, given.shape.split(","))
    run((batch, heads, rows, depth), given.rounds, given.only, given.peers)


def run(shape: Shape, rounds: int, only: str, with_peers: bool) -> None:
    from egraph_flash import runtime
    from egraph_flash.runtime import driver, timing

    names = [name for name in CASES if not only or name in ("plain", *only.split(","))]
    gpu = runtime.device.devices()[0]
    with ProcessPoolExecutor() as pool:
        list(pool.map(build, [(name, shape, gpu.target) for name in names]))
    seed = secrets.randbits(32)
    rng = np.random.default_rng(seed)
    rows: dict[str, Row] = {}
    with driver.on(gpu.ordinal):
        for name in names:
            rows |= prepared(name, shape, gpu, rng, with_peers)
        times = timing.interleave({label: row.replay for label, row in rows.items()}, rounds)
        for row in rows.values():
            row.output = row.replay.output()
    print(f"{gpu}, {list(shape)} f16, {rounds} rounds, seed {seed}")
    print(f"{'row':<28}{'us':>9}{'of plain':>10}{'a score':>8}{'max error':>11}  schedule")
    plain_us = statistics.median(times["plain"]) / rows["plain"].replay.repeats
    for label, row in rows.items():
        time_us = statistics.median(times[label]) / row.replay.repeats
        ratio = time_us / plain_us
        part = computed(label.partition(":")[0], shape)
        print(
            f"{label:<28}{time_us:>9.1f}{ratio:>10.3f}{ratio / part:>8.3f}"
            f"{row.error(rng):>11.1e}  {row.shown}"
        )


@dataclass
class Row:
    """One line of the table, with what its output is checked against."""

    replay: Any
    kernel: Any
    expr: Any
    arrays: Mapping[str, Any]
    shown: str = ""
    output: Any = None

    def error(self, rng: np.random.Generator) -> float:
        """The largest difference from float64, at sampled places."""
        from egraph_flash import checking

        kernel = self.kernel
        at = checking.sample(kernel.inputs, kernel.outputs, rng)
        wanted = checking.oracle(self.expr, self.arrays, at, kernel.record.lengths)
        return max(e.max_abs for e in checking.errors(kernel.outputs, wanted, self.output, at))


def prepared(
    name: str, shape: Shape, gpu: Any, rng: np.random.Generator, with_peers: bool
) -> dict[str, Row]:
    """The rows of a case: ours, and its peers' over the same arrays."""
    from egraph_flash import bench, peers, runtime

    expr, case = expression(name, shape), CASES[name]
    kernel = optimize(expr, gpu.target, case.pins)
    specs = kernel.inputs
    arrays = {s.name: s.dtype.encode(rng.standard_normal(s.shape)) for s in specs}
    if "slopes" in arrays:
        steps = 1 + np.arange(len(arrays["slopes"]))
        arrays["slopes"] = (2.0**-steps).astype(np.float32)
    held = {s.name: runtime.DeviceArray.of(arrays[s.name], s.dtype, gpu.ordinal) for s in specs}
    ours = bench.OwnReplay(kernel, held, gpu.ordinal, kernel.record.lengths)
    shown = " ".join(f"{k}={v}" for k, v in kernel.schedule.items() if k in SHOWN)
    found = {name: Row(ours, kernel, expr, arrays, shown)}
    tensors = peers.tensors(specs, arrays, gpu.ordinal) if with_peers else {}
    for kind in case.peers if with_peers else ():
        plain = peers.Peer("q", "k", "v", shape[3] ** -0.5, name == "causal")
        peer = replace(plain, score=case.score, mask=case.mask) if kind == "flex" else plain
        theirs = peers.TorchReplay(peers.computation(kind, peer, tensors), 10)
        found[f"{name}: {kind}"] = Row(theirs, kernel, expr, arrays)
    return found


if __name__ == "__main__":
    main()
