"""The script that compares with Nsight Compute, on a profiler made of what it is to find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "ncu_counts.py"

# says of every metric what rungs.json holds, and of mma one more than that
FAKE = """#!{python}
import json, sys
from pathlib import Path
if "--query-metrics" in sys.argv:
    print("Device fake", "-" * 20, "sm__inst_executed_pipe_tensor_op_hmma Counter inst", sep="\\n")
    print("smsp__inst_executed_op_ldsm Counter inst # LDSM")
    print("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld Counter")
    raise SystemExit
after = lambda option: sys.argv[sys.argv.index(option) + 1]
metrics = after("--metrics").split(",")
if {refuses!r} in metrics:
    Path(after("--log-file")).write_text("==ERROR== Failed to find metric {refuses}")
    raise SystemExit(1)
names = dict([
    ("sm__inst_executed_pipe_tensor_op_hmma.sum", "mma"),
    ("smsp__inst_executed_op_ldsm.sum", "ldmatrix"),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "conflicts, loads"),
    ("memory_l1_wavefronts_shared", "wavefronts"),
    ("memory_l1_wavefronts_shared_ideal", "ideal wavefronts"),
])
lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
listed = json.loads(Path(after("--launch"), "rungs.json").read_text())["rungs"]
for number, rung in enumerate(listed):
    print(rung["rung"], rung["hash"], 1)
    for metric in metrics:
        value = rung["counts"][names[metric]] + (names[metric] == "mma")
        lines.append(f'"{{number}}","stage0","{{metric}}","inst","{{value:,}}"')
Path(after("--log-file")).write_text("\\n".join(lines))
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ncu")
    given = ["--prepare", str(folder), "--shape", "1,1,64,32", "--rungs", "scalar,mma-global"]
    subprocess.run([sys.executable, SCRIPT, *given], check=True, capture_output=True)
    return folder


def compare(folder: Path, tools: Path, refuses: str = "") -> list[dict[str, Any]]:
    """What the script finds with the fake profiler first on the path."""
    fake = tools / "ncu"
    fake.write_text(FAKE.format(python=sys.executable, refuses=refuses))
    fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, SCRIPT, "--run", folder, "--json"],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_folders_hold_what_the_gpu_needs(prepared: Path) -> None:
    for rung in ("scalar", "mma-global"):
        assert (prepared / f"{rung}.record").stat().st_size > 1000
        assert b"\x7fELF" in (prepared / f"{rung}.assembly").read_bytes()
        assert "FFMA" in (prepared / f"{rung}.sass").read_text()
    read = json.loads((prepared / "rungs.json").read_text())
    scalar, mma = (rung["counts"] for rung in read["rungs"])
    assert (scalar["mma"], mma["mma"]) == (0, 4 * 8 * 2 * 2)  # warps, columns, depths, products
    assert mma["wavefronts"] == mma["wavefronts, loads"] + mma["wavefronts, stores"] > 0
    assert mma["ideal wavefronts"] < mma["wavefronts"]


def test_counts_stand_side_by_side(prepared: Path, tmp_path: Path) -> None:
    for rung in compare(prepared, tmp_path):
        assert rung["hash"] == rung["gpu_hash"]
        rows = {row["quantity"]: row for row in rung["rows"]}
        mma = rows["mma"]
        assert mma["ncu"] == mma["simulator"] + 1
        assert mma["difference"] == -1 / mma["ncu"]
        assert rows["ldmatrix"]["difference"] == 0
        assert rows["ideal wavefronts"]["ncu"] == rows["ideal wavefronts"]["simulator"]
        assert rows["global loads"]["ncu"] is None  # this ncu does not offer it
        assert rows["global loads"]["metric"] is None


def test_counts_of_source_may_be_missing(prepared: Path, tmp_path: Path) -> None:
    for rung in compare(prepared, tmp_path, "memory_l1_wavefronts_shared"):
        rows = {row["quantity"]: row for row in rung["rows"]}
        assert rows["wavefronts"]["ncu"] is None
        assert rows["mma"]["ncu"] is not None
