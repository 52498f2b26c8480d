"""The command `ladder`: what it prints, and what it refuses before it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from egraph_flash import ladder_cli
from egraph_flash.rungs import RUNGS
from egraph_flash.runtime import device
from tests.support.fake_cuda import FakeDriver
from tests.support.ladders import SCALAR, descent, made
from tests.test_cli import command, refused
from tests.test_ladder import KEYS
from tests.test_ladder import SMALL as PROBLEM

SHAPE = ",".join(map(str, PROBLEM.shape))
SMALL = ("--shape", SHAPE, "--target", "sm_120", "--jobs", 1)


def test_it_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("ladder", *SMALL, "--backend", "sim", "--seed", 3, "--json") == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    assert [row["rung"] for row in rows] == [rung.name for rung in RUNGS]
    assert all(list(row) == KEYS for row in rows)
    assert printed.err == ""


def test_it_prints_a_table_of_chosen_rungs(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--backend", "model", "--rungs", "mma-global", "--causal", "--dtype", "bf16")
    assert command("ladder", *SMALL, *given) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        f"ladder at {list(PROBLEM.shape)} bf16, causal on RTX 5090: predicted for sm_120" in printed
    )
    assert "mma_m16n8k16_bf16" in printed
    assert "scalar" not in printed


def test_it_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "ladder.png"
    assert command("ladder", *SMALL, "--backend", "model", "--plot", path) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_bits_that_differ_end_it_after_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, *_ = descent().filled({"mma": {"digest": "other"}}).rows
    monkeypatch.setattr(ladder_cli, "climb", lambda *given, **options: made(one, two))
    assert command("ladder", *SMALL, "--backend", "sim", "--json") == 2
    printed = capsys.readouterr()
    assert [row["hash"] for row in json.loads(printed.out)] == ["70cf2285d0de", "other"]
    assert "rungs with the brackets 'mma' differ in movement alone" in printed.err


def test_refusals_come_before_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def climb(*given: Any, **options: Any) -> Any:
        raise AssertionError("it started")

    monkeypatch.setattr(ladder_cli, "climb", climb)
    monkeypatch.setattr(device, "devices", lambda: ())
    sim = ("--backend", "sim")
    assert "wants B,H,S,D, such as" in refused(capsys, "ladder", "--shape", "1,4,x,64", *sim)
    assert "rungs: got top, wants some of scalar" in refused(
        capsys, "ladder", *sim, "--rungs", "top"
    )
    assert "target: got 'sm_70'" in refused(capsys, "ladder", *sim, "--target", "sm_70")
    assert "ends in .png" in refused(capsys, "ladder", *sim, "--plot", tmp_path / "x.bmp")
    assert "no GPU fits target sm_120" in refused(capsys, "ladder")
    assert command("ladder", "--dtype", "f32") == 2
    assert command("ladder", "--backend", "cpu") == 2
    assert command("ladder", *sim, "--rounds", "0") == 2


def test_the_peer_needs_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fake_gpu: FakeDriver
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "fa2 need PyTorch" in refused(capsys, "ladder", "--backend", "gpu")


def test_seed_figures_are_those_of_the_article() -> None:
    assert SCALAR.seed_us == RUNGS[0].seed_us
