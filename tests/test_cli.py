"""The command line: what each verb prints and writes, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egraph_flash import pipeline
from egraph_flash.cli import main
from egraph_flash.errors import EgraphFlashError, ScheduleError
from egraph_flash.kernel import Kernel
from egraph_flash.printing import table
from egraph_flash.runtime import device
from tests.support import doubling, fake_simulator
from tests.support.fake_cuda import FakeDriver

SOURCE = """
from egraph_flash import Axis, Tensor, f32
from egraph_flash.peers import Peer

m, n = Axis.many(m=3, n=40)
x = Tensor("x", (m, n), f32)
doubled = x + x
other = x + x
PLAIN = {"doubled": lambda x: x + x}
PEERS = {"doubled": Peer("x", "x", "x", 1.0)}
"""
X = np.arange(120, dtype=np.float32).reshape(3, 40)
ASKED: list[tuple[str | None, dict[str, str] | None]] = []


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file whose expression compiles to the kernel written by hand."""

    def optimize(expr: Any, target: str | None = None, pins: Any = None) -> Kernel:
        ASKED.append((target, pins))
        if pins and "TILE" in pins:
            raise ScheduleError("TILE: got 'x', nearest is 'a:fma_f32'")
        return Kernel(doubling.record(target=target or "sm_120"))

    ASKED.clear()
    monkeypatch.setattr(pipeline, "optimize", optimize)
    path = tmp_path / "terms.py"
    path.write_text(SOURCE)
    np.savez(tmp_path / "x.npz", x=X)
    return f"{path}:doubled"


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "devices", lambda: ())
    fake_simulator.install(monkeypatch)


def command(*arguments: object) -> int:
    """The exit code of one command."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one message of a command that must end with exit code 2."""
    assert command(*arguments) == 2
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert printed.out == ""
    return printed.err


# compile


def test_compile_shows_what_was_found(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("compile", spec, "--target", "sm_90", "--pin", "PLACE=fold=cut") == 0
    printed = capsys.readouterr().out
    for part in ("derivation", "sum/twice 2", "TILE=a:fma_f32", "predicted on RTX 5090", "spilled"):
        assert part in printed
    assert ASKED == [("sm_90", {"PLACE": "fold=cut"})]


@pytest.mark.parametrize(
    ("emit", "wanted"),
    [
        ("derivation", "0. naive"),
        ("term", "1 + 2"),
        ("schedule", "TILE=a:fma_f32\nPLACE=fold=fuse\n"),
        ("cost", "predicted on RTX 5090"),
        ("tile", "map y = x + x"),
        ("ptx", ".version 8.7\n.target sm_120"),
        ("sass", "FADD"),
    ],
)
def test_compile_emits_one_part(
    spec: str, capsys: pytest.CaptureFixture[str], emit: str, wanted: str
) -> None:
    assert command("compile", spec, "--emit", emit) == 0
    assert wanted in capsys.readouterr().out


def test_compile_writes_files(spec: str, tmp_path: Path) -> None:
    assert command("compile", spec, "--emit", "cubin", "-o", tmp_path / "k.cubin") == 0
    assert (tmp_path / "k.cubin").read_bytes().startswith(b"\x7fELF")
    assert command("compile", spec, "--emit", "ptx", "-o", tmp_path / "k.ptx") == 0
    assert (tmp_path / "k.ptx").read_text() == doubling.ptx()


def test_compile_prints_json(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("compile", spec, "--json") == 0
    read = json.loads(capsys.readouterr().out)
    assert read["schedule"] == {"TILE": "a:fma_f32", "PLACE": "fold=fuse"}
    assert read["assembly"]["entries"][0]["name"] == "twice"


# run


@pytest.mark.usefixtures("simulated")
def test_run_compares_with_float64(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "out.npz"
    given = ("--inputs", tmp_path / "x.npz", "--counters", "-o", saved)
    assert command("run", spec, *given) == 0
    printed = capsys.readouterr()
    for part in ("doubling: y", "plain f32: y", "0.000e+00", "classes.add", "120"):
        assert part in printed.out
    assert printed.err.startswith("warning: doubling: no GPU fits target sm_120 (present: none)")
    np.testing.assert_array_equal(np.load(saved)["y"], 2 * X)


@pytest.mark.usefixtures("simulated")
def test_run_prints_json(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--inputs", tmp_path / "x.npz", "--backend", "sim", "--counters", "--json")
    assert command("run", spec, *given) == 0
    printed = capsys.readouterr()
    read = json.loads(printed.out)
    assert [row["computed_by"] for row in read["errors"]] == ["doubling", "plain f32"]
    assert read["errors"][0]["max_abs"] == 0.0
    assert read["counters"]["total"]["classes"]["add"] == 120
    assert printed.err == ""


def test_run_on_a_gpu(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_gpu: FakeDriver
) -> None:
    given = ("--inputs", tmp_path / "x.npz", "--backend", "gpu", "--counters")
    assert command("run", spec, *given) == 0
    assert "it ran on a GPU; --backend sim counts" in capsys.readouterr().out


# bench


def test_bench_times_rows(
    spec: str, capsys: pytest.CaptureFixture[str], fake_gpu: FakeDriver
) -> None:
    given = ("--row", "fused:PLACE=fold=fuse", "--row", "cut:PLACE=fold=cut;REGS=r128/b2")
    assert command("bench", spec, *given, "--pin", "BASE=max", "--rounds", 3, "--json") == 0
    read = json.loads(capsys.readouterr().out)
    fused, cut = read["rows"]
    assert (fused["label"], cut["label"]) == ("fused", "cut")
    assert fused["time_us"] == pytest.approx(500 / 4)  # 500 µs a call, so four calls a graph
    assert fused["max_error"] == 0.0
    assert (read["rounds"], read["checked"]) == (3, 120)
    assert [pins for _, pins in ASKED] == [
        {"BASE": "max", "PLACE": "fold=fuse"},
        {"BASE": "max", "PLACE": "fold=cut", "REGS": "r128/b2"},
    ]


def test_bench_prints_a_table(
    spec: str, capsys: pytest.CaptureFixture[str], fake_gpu: FakeDriver
) -> None:
    assert command("bench", spec, "--rounds", 2, "--seed", 5) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for part in ("NVIDIA GeForce RTX 5090", "seed 5", "ours", "1.00", "0.000e+00"):
        assert part in printed


# lengths

OPEN = """
from egraph_flash import Axis, Tensor, f32

m, n = Axis("m", "rows", hint=3), Axis("n", "seq", hint=40)
x = Tensor("x", (n,), f32)
shifted = x * 2 + m.index
"""


@pytest.fixture
def open_spec(tmp_path: Path) -> str:
    """A file whose expression leaves two lengths open, of which `x` tells one."""
    path = tmp_path / "open.py"
    path.write_text(OPEN)
    np.savez(tmp_path / "x.npz", x=np.arange(50, dtype=np.float32))
    return f"{path}:shifted"


def test_run_takes_lengths(open_spec: str, tmp_path: Path) -> None:
    saved = tmp_path / "out.npz"
    given = ("run", open_spec, "--inputs", tmp_path / "x.npz", "--backend", "sim", "-o", saved)
    assert command(*given, "--length", "rows=7", "--length", "seq=50") == 0
    wanted = 2.0 * np.arange(50)[:, None] + np.arange(7)
    np.testing.assert_array_equal(np.load(saved)["out"], wanted)


def test_bad_lengths_are_one_message(
    open_spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ("run", open_spec, "--inputs", tmp_path / "x.npz", "--backend", "sim", "--length")
    for given, message in (
        (["rows"], "length: got 'rows', wants NAME=number, such as seq=100"),
        (["rows=-3"], "length: got 'rows=-3', wants NAME=number"),
        (["rows=3", "--length", "rows=4"], "length: got rows twice, as 3 and 4"),
        (["x=3"], "length: x is an array in"),
        (["rows=3", "--length", "cols=4"], "got no use for input cols; wants x, and seq, rows as"),
        (["rows=3", "--length", "seq=4"], "length 'seq' is 4 as given and 50 by axis 'n' of input"),
        (["seq=50"], "missing length rows, which no shape tells; pass rows=<number>"),
    ):
        assert message in refused(capsys, *run, *given)


def test_bench_takes_lengths(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fake_gpu: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inputs, launches and outputs have them; those not given are the hints."""
    monkeypatch.setattr(pipeline, "optimize", lambda *_, **__: Kernel(doubling.open_record()))
    path = tmp_path / "terms.py"
    path.write_text(SOURCE.replace("m, n = Axis.many(m=3, n=40)", "m = Axis('m', 'rows', hint=3)"))
    path.write_text(path.read_text().replace("(m, n)", "(m,)"))
    spec = f"{path}:doubled"
    for given, rows in ((("--length", "rows=50"), 50), ((), 3)):
        fake_gpu.log.clear()
        assert command("bench", spec, "--rounds", 2, "--json", *given) == 0
        read = json.loads(capsys.readouterr().out)
        assert (read["checked"], read["rows"][0]["max_error"]) == (rows, 0.0)
        launches = fake_gpu.called("cuLaunchKernel")
        assert {(arguments[1], arguments[9][0][2]) for arguments in launches} == {
            (-(-rows // 32), rows)
        }
    said = refused(capsys, "bench", spec, "--length", "cols=5")
    assert "doubling: got no use for length 'cols'; has rows" in said


# refusals


@pytest.mark.usefixtures("simulated")
def test_refusals_are_one_message(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = spec.rpartition(":")[0]
    assert "no such file" in refused(capsys, "compile", "none.py:x")
    assert "it has doubled, other" in refused(capsys, "compile", f"{file}:missing")
    assert "wants KNOB=value" in refused(capsys, "compile", spec, "--pin", "TILE")
    assert "nearest is 'a:fma_f32'" in refused(capsys, "compile", spec, "--pin", "TILE=x")
    assert "-o without --emit" in refused(capsys, "compile", spec, "-o", "x")
    assert "wants the arrays, by --inputs FILE.npz or by --seed" in refused(capsys, "run", spec)
    missing = refused(capsys, "run", spec, "--inputs", tmp_path / "none.npz")
    assert "none.npz does not read as .npz" in missing
    (tmp_path / "bad.npz").write_text("no arrays")
    assert "does not read as .npz" in refused(capsys, "run", spec, "--inputs", tmp_path / "bad.npz")
    np.savez(tmp_path / "other.npz", y=X)
    assert "missing input x" in refused(capsys, "run", spec, "--inputs", tmp_path / "other.npz")
    assert "no GPU fits" in refused(capsys, "bench", spec)
    assert "got fa3, wants some of fa2, cudnn" in refused(capsys, "bench", spec, "--peer", "fa3")
    assert "got a twice" in refused(capsys, "bench", spec, "--row", "a:", "--row", "a:")


def test_peers_must_be_stated(
    spec: str,
    capsys: pytest.CaptureFixture[str],
    fake_gpu: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("egraph_flash.cli.parse_peers", lambda text: text.split(","))
    other = spec.replace(":doubled", ":other")
    assert "PEERS in the file says nothing of 'other'" in refused(
        capsys, "bench", other, "--peer", "fa2"
    )


def test_peers_need_torch(
    monkeypatch: pytest.MonkeyPatch, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = refused(capsys, "bench", spec, "--peer", "fa2,flex")
    assert said == "error: peer: fa2, flex need PyTorch, which is not installed\n"


def test_debugging_keeps_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGRAPH_FLASH_DEBUG", "1")
    with pytest.raises(EgraphFlashError, match="no such file"):
        main(["compile", "none.py:x"])


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "egraph_flash.cli", "compile", "none.py:x"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: expression: no such file 'none.py'; wants FILE.py:NAME\n"


def test_importing_the_package_stays_light() -> None:
    """No engine, driver, terminal or tensor library comes with `import egraph_flash`."""
    heavy = ("egglog", "cuda", "rich", "typer", "torch", "matplotlib", "platformdirs")
    code = (
        "import sys, egraph_flash, egraph_flash.kernel, egraph_flash.runtime;"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_tables_show_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """An index is no markup."""
    table("all of x[m]", ["E[x]", "count"], [("max x[m, n]", 3), ("Scale[bold] 1", 4)])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("all of x[m]", "E[x]", "max x[m, n]"))
    assert "Scale[bold] 1" in shown
