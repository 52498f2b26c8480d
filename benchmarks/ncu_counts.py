"""The simulator's counts of every rung beside those that Nsight Compute reads for the same cubin.

    python benchmarks/ncu_counts.py --prepare build/ncu [--target sm_90] [--rungs NAME,NAME…]
    python benchmarks/ncu_counts.py --run build/ncu [--json]        # on the machine with the GPU

`--prepare` needs no GPU: it compiles, assembles and simulates the rungs at the listing shape and
leaves records, cubins, SASS and counts in a folder. `--run` needs a GPU of the target and `ncu`,
and neither the e-graph nor the simulator: it launches all cubins in one profiled process, and
compares counts and the hash of the outputs. Counts are sums over the launches of a rung.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # works uninstalled too

LISTING = "1,4,128,64"
SEED = 0


@dataclass(frozen=True)
class Quantity:
    """One line of the comparison; of `metrics`, the first that this ncu offers is read.

    `counts` are the mnemonics of PTX that make it up, or, where it is empty, `name` is computed
    from the simulator's shared traffic.
    """

    name: str
    metrics: tuple[str, ...]
    counts: tuple[str, ...] = ()


def _executed(*names: str) -> tuple[str, ...]:
    forms = ("smsp__inst_executed_op_{}.sum", "smsp__sass_inst_executed_op_{}.sum")
    return tuple(form.format(name) for name in names for form in forms)


def _shared(what: str) -> tuple[str, ...]:
    return (f"l1tex__data_{what}.sum",)


QUANTITIES = (
    Quantity(
        "mma",
        (
            "sm__inst_executed_pipe_tensor_op_hmma.sum",
            "sm__inst_executed_pipe_tensor_subpipe_hmma_op_hmma.sum",
            "sm__inst_executed_pipe_tensor.sum",
        ),
        ("mma.",),
    ),
    Quantity("ldmatrix", _executed("ldsm"), ("ldmatrix.",)),
    Quantity("shared loads", tuple(reversed(_executed("shared_ld"))), ("ld.shared.",)),
    Quantity("shared stores", tuple(reversed(_executed("shared_st"))), ("st.shared.",)),
    Quantity("global loads", _executed("global_ld"), ("ld.global.",)),
    Quantity("global stores", _executed("global_st"), ("st.global.",)),
    Quantity("cp.async", _executed("ldgsts"), ("cp.async.ca.", "cp.async.cg.")),
    Quantity("bulk tensor copies", _executed("utmaldg", "tma_ld"), ("cp.async.bulk.tensor.",)),
    Quantity("wavefronts, loads", _shared("pipe_lsu_wavefronts_mem_shared_op_ld")),
    Quantity("wavefronts, stores", _shared("pipe_lsu_wavefronts_mem_shared_op_st")),
    Quantity("conflicts, loads", _shared("bank_conflicts_pipe_lsu_mem_shared_op_ld")),
    Quantity("conflicts, stores", _shared("bank_conflicts_pipe_lsu_mem_shared_op_st")),
    Quantity("wavefronts", ("memory_l1_wavefronts_shared",)),
    Quantity("ideal wavefronts", ("memory_l1_wavefronts_shared_ideal",)),
)
# read from the SASS, and not among what `ncu --query-metrics` lists
OF_SOURCE = ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal")


# here: what the simulator says


def prepare(folder: Path, target: str, shape: str, names: str | None) -> None:
    """Write `rungs.json`, and for each rung its record, assembly, and SASS."""
    from egraph_flash import bench, checking, climbing, rungs
    from egraph_flash.errors import AssemblyError
    from egraph_flash.printing import progress
    from egraph_flash.problem import Problem, parse_shape
    from egraph_flash.runtime.sass import disassemble

    problem = Problem(parse_shape(shape))
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    pins = rungs.pins_by_rung(problem.shape[3], problem.dtype)
    with progress() as step:
        for rung in rungs.choose(names):
            step(f"simulating {rung.name}")
            order = climbing.Order(rung.name, problem, target, pins[rung.name])
            compiled = climbing.compile_one(order)
            if compiled.assembly is None:
                print(f"{rung.name}: refused: {compiled.refusal}", file=sys.stderr)
                continue
            kernel = compiled.kernel
            arrays = checking.random_inputs(kernel.inputs, generator())
            digest = bench.digest((kernel.run(backend="sim", **arrays),))
            (folder / f"{rung.name}.record").write_text(compiled.record)
            (folder / f"{rung.name}.assembly").write_bytes(compiled.assembly.to_bytes())
            try:
                (folder / f"{rung.name}.sass").write_text(disassemble(kernel.cubin))
            except AssemblyError as error:
                print(error, file=sys.stderr)
            counts = simulated(kernel.counters)
            listed.append({"rung": rung.name, "hash": digest, "counts": counts})
    content = {"target": target, "shape": shape, "seed": SEED, "rungs": listed}
    (folder / "rungs.json").write_text(json.dumps(content, indent=1))
    print(f"{len(listed)} rungs for {target} at [{shape}] in {folder}")


def generator() -> Any:
    import numpy as np

    return np.random.default_rng(SEED)


def simulated(counters: Any) -> dict[str, int]:
    """Every quantity by its name, from a simulation's counters."""
    from egraph_flash.codegen.isa import ROWS

    found = {
        quantity.name: sum(
            count
            for name, count in counters.total.rows.items()
            if ROWS[name].mnemonic.startswith(quantity.counts)
        )
        for quantity in QUANTITIES
        if quantity.counts
    }
    lines = [line for launch in counters.launches for line in launch.shared.values()]
    for kind, which in (("loads", True), ("stores", False)):
        own = [line for line in lines if "cp.async" not in line.text]
        mine = [line for line in own if is_load(line.text) is which]
        found[f"wavefronts, {kind}"] = sum(line.wavefronts for line in mine)
        found[f"conflicts, {kind}"] = sum(line.conflicts for line in mine)
    found["wavefronts"] = sum(line.wavefronts for line in lines)
    found["ideal wavefronts"] = sum(line.wavefronts - line.conflicts for line in lines)
    return found


def is_load(text: str) -> bool:
    from egraph_flash.climbing import LOAD

    return LOAD.match(text) is not None


# there: what Nsight Compute says


def launch(folder: Path) -> None:
    """Run every rung once, in order, and print the hash of its outputs: what ncu profiles."""
    from egraph_flash import bench, checking, runtime
    from egraph_flash.record import from_json
    from egraph_flash.runtime import Assembly

    for rung in json.loads((folder / "rungs.json").read_text())["rungs"]:
        record = from_json((folder / f"{rung['rung']}.record").read_text())
        assembly = Assembly.from_bytes((folder / f"{rung['rung']}.assembly").read_bytes())
        held = checking.random_inputs(record.inputs, generator())
        for buffer in record.plan.buffers:
            if buffer.role != "input":
                import numpy as np

                held[buffer.name] = np.zeros(buffer.shape, buffer.dtype.storage)
        runtime.run(
            record.plan.ptx, record.plan.launches, held, target=record.target, assembly=assembly
        )
        digest = bench.digest([held[spec.name] for spec in record.outputs])
        print(f"{rung['rung']} {digest} {len(record.plan.launches)}")


def run(folder: Path, as_json: bool) -> None:
    """Profile all rungs, and print each beside the simulator's counts."""
    listed = json.loads((folder / "rungs.json").read_text())["rungs"]
    offered = available()
    chosen = {
        metric
        for quantity in QUANTITIES
        for metric in [choose(quantity, offered)]
        if metric is not None
    }
    ours, done = profile(folder, sorted(chosen - set(OF_SOURCE)))
    theirs, _ = profile(folder, OF_SOURCE, needed=False)
    read = [{**one, **other} for one, other in zip(ours, theirs or [{}] * len(ours), strict=True)]
    rungs = []
    for rung in listed:
        digest, launches = done[rung["rung"]]
        mine, read = read[:launches], read[launches:]
        rungs.append({**rung, "gpu_hash": digest, "rows": compared(rung["counts"], mine, offered)})
    if as_json:
        print(json.dumps(rungs))
        return
    for rung in rungs:
        same = "equal" if rung["hash"] == rung["gpu_hash"] else "DIFFERENT"
        show(f"{rung['rung']}: bits {same} ({rung['gpu_hash']})", rung["rows"])


def available() -> set[str] | None:
    """The base names of metrics that ncu offers for this GPU; None where it does not say."""
    done = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True)
    names = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    return {name for name in names if "__" in name} or None


def choose(quantity: Quantity, offered: set[str] | None) -> str | None:
    """The first of a quantity's metrics that is offered."""
    for metric in quantity.metrics:
        if offered is None or metric in OF_SOURCE or metric.removesuffix(".sum") in offered:
            return metric
    return None


def profile(
    folder: Path, metrics: Sequence[str], *, needed: bool = True
) -> tuple[list[dict[str, float]], dict[str, tuple[str, int]]]:
    """Metrics of each launch in order, and of each rung the hash and number of launches."""
    handle, log = tempfile.mkstemp(suffix=".csv")
    os.close(handle)
    command = ["ncu", "--csv", "--log-file", log, "--print-units", "base"]
    command += ["--clock-control", "none", "--metrics", ",".join(metrics), sys.executable]
    try:
        done = subprocess.run(
            [*command, __file__, "--launch", str(folder)], stdout=subprocess.PIPE, text=True
        )
        text = Path(log).read_text()
    finally:
        os.unlink(log)
    if done.returncode or '"ID"' not in text:
        if needed:
            sys.exit(f"ncu failed with exit code {done.returncode}:\n{text}\n{done.stdout}")
        print(f"ncu does not give {', '.join(metrics)}:\n{text}", file=sys.stderr)
        return [], {}
    said = [line.split() for line in done.stdout.splitlines() if len(line.split()) == 3]
    return parse(text), {name: (digest, int(launches)) for name, digest, launches in said}


def parse(text: str) -> list[dict[str, float]]:
    """The metrics of each launch, by name, in the order of the launches, from ncu's CSV.

    >>> parse('==PROF== x\\n"ID","Metric Name","Metric Value"\\n"0","a.sum","1,024"\\n')
    [{'a.sum': 1024.0}]
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(lines):
        try:
            value = float(row["Metric Value"].replace(",", ""))
        except ValueError:
            continue  # n/a
        found.setdefault(int(row["ID"]), {})[row["Metric Name"]] = value
    return [found[launch] for launch in sorted(found)]


def compared(
    counts: Mapping[str, int], launches: Sequence[Mapping[str, float]], offered: set[str] | None
) -> list[dict[str, Any]]:
    """A row for each quantity: what the simulator and what ncu says, and their difference."""
    rows = []
    for quantity in QUANTITIES:
        metric = choose(quantity, offered)
        read = [launch[metric] for launch in launches if metric is not None and metric in launch]
        rows.append(
            {
                "quantity": quantity.name,
                "metric": metric if read else None,
                "simulator": counts[quantity.name],
                "ncu": sum(read) if read else None,
                "difference": difference(counts[quantity.name], sum(read)) if read else None,
            }
        )
    return rows


def difference(ours: float, theirs: float) -> float:
    """Relative to what ncu read; to 1, where that is nothing.

    >>> difference(90, 100), difference(0, 0), difference(3, 0)
    (-0.1, 0.0, 3.0)
    """
    return (ours - theirs) / (theirs or 1.0)


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    from egraph_flash.printing import table

    cells: list[list[str | int | float]] = [
        [
            row["quantity"],
            row["simulator"],
            "–" if row["ncu"] is None else f"{row['ncu']:,.0f}",
            "–" if row["difference"] is None else f"{100 * row['difference']:+.2f} %",
            row["metric"] or "–",
        ]
        for row in rows
        if row["simulator"] or row["ncu"]
    ]
    table(title, ["quantity", "simulator", "ncu", "difference", "metric"], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    doing = parser.add_mutually_exclusive_group(required=True)
    doing.add_argument("--prepare", type=Path, metavar="DIR")
    doing.add_argument("--run", type=Path, metavar="DIR")
    doing.add_argument("--launch", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--shape", default=LISTING, metavar="B,H,S,D")
    parser.add_argument("--rungs", metavar="NAME,NAME…")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.prepare:
        prepare(given.prepare, given.target, given.shape, given.rungs)
    elif given.launch:
        launch(given.launch)
    else:
        run(given.run, given.json)


if __name__ == "__main__":
    main()
