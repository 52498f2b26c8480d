"""The ladder: what each backend knows of its rungs, and that equal brackets have equal bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from egraph_flash import bench, climbing, rungs
from egraph_flash.bench import Table
from egraph_flash.climbing import Compiled, Counted, each
from egraph_flash.errors import DeviceError, ScheduleError, SimulationError
from egraph_flash.ladder import Ladder, LadderError, Row, climb
from egraph_flash.problem import Problem
from egraph_flash.rungs import RUNGS, Rung
from egraph_flash.runtime import device
from egraph_flash.simulator import Counters, LaunchCounts
from egraph_flash.simulator.counters import SharedTraffic
from tests.support.fake_cuda import FakeDriver
from tests.support.ladders import SCALAR, made

SMALL = Problem((1, 2, 40, 32))
KEYS = ["rung", "knobs", "us", "us_fa2", "registers", "spills", "shared_bytes", "lsu"]
KEYS += ["ld_conflicts", "mma", "hash", "max_err"]


def test_the_simulator_counts_every_rung() -> None:
    """All rungs, in the table's order: outputs right, counts known, no times but predicted ones."""
    found = climb(SMALL, "sim", target="sm_90", seed=7, jobs=1)
    assert [row.rung for row in found.rows] == list(RUNGS)
    assert (found.seed, found.checked, found.device) == (7, 2 * 40 * 32, "H200")
    for row in found.rows:
        if row.rung.name == "four-tiles":
            assert row.refusal is not None
            assert "registers a thread, more than the 255" in row.refusal
            continue
        assert row.refusal is None, row
        assert row.us is row.us_fa2 is None
        assert row.predicted_us
        assert row.predicted_us > 0
        assert row.max_err is not None
        assert row.max_err < 2e-3
        assert None not in (row.registers, row.ctas, row.spills, row.lsu, row.ld_conflicts)
    assert found.row("scalar").mma == 0
    assert found.row("mma-global").mma
    found.check_bits()


def test_processes_find_what_one_finds() -> None:
    alone = climb(SMALL, "sim", target="sm_90", seed=7, jobs=1)
    together = climb(SMALL, "sim", target="sm_90", seed=7, jobs=2)
    assert together == alone


def test_other_inputs_have_other_bits() -> None:
    one, other = (climb(SMALL, "sim", target="sm_90", seed=s, jobs=1) for s in (7, 8))
    digests = [{row.digest for row in found.rows if row.digest} for found in (one, other)]
    assert not digests[0] & digests[1]


def test_masks_and_bf16_are_climbed_too() -> None:
    problem = Problem((1, 1, 40, 32), "bf16", causal=True)
    found = climb(problem, "sim", target="sm_120", seed=0, jobs=1)
    for row in found.rows:
        if row.rung.name == "wide-start":  # a masked score is no multiple of one contraction
            assert row.refusal is not None
            assert "nearest legal value is zero" in row.refusal
        else:
            assert row.refusal is None or "more than the" in row.refusal, row
            assert row.refusal is not None or (row.max_err or 1) < 2e-2, row


def test_the_model_predicts_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counts of instructions are the plan's, and equal to the simulator's."""
    simulated = climb(SMALL, "sim", target="sm_120", seed=0, jobs=1)
    monkeypatch.setattr(climbing, "simulate_one", None)
    found = climb(SMALL, "model", target="sm_120", jobs=1)
    for row, other in zip(found.rows, simulated.rows, strict=True):
        assert row.us == row.predicted_us == other.predicted_us
        assert (row.lsu, row.mma) == (other.lsu, other.mma)
        assert (row.digest, row.max_err, row.ld_conflicts) == (None, None, None)


def test_rows_as_json_have_these_keys() -> None:
    (row,) = climb(SMALL, "model", target="sm_120", rungs=RUNGS[:1], jobs=1).rows
    assert list(row.to_dict()) == KEYS
    assert row.to_dict()["hash"] is None
    assert row.to_dict()["knobs"].startswith("PLACE=fold=fuse;REDUCE@n=g1;TILE@d=a:fma_f32/")


def test_a_refused_rung_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Rung("bad", "TILE@d=a:fma_f32/w4x1/f1x8/k999", "too much", "scalar")
    monkeypatch.setattr(rungs, "RUNGS", (RUNGS[0], bad))
    found = climb(SMALL, "model", target="sm_120", rungs=(RUNGS[0], bad), jobs=1)
    good, refused = found.rows
    assert good.refusal is None
    assert refused.refusal is not None
    assert "nearest legal value" in refused.refusal
    pinned = "PLACE=fold=fuse;REDUCE=g1;TILE@d=a:fma_f32/w4x1/f1x8/k999;"
    pinned += (
        "TILE@n=a:fma_f32/w4x1/f1x32/k8;EXP=ex2;SUM=block;BASE=max;SKEW=off;GRID=tiles;REGS=r255/b1"
    )
    assert set(refused.to_dict().values()) == {"bad", pinned, None}
    with pytest.raises(ScheduleError, match=r"no rung compiles at \[1, 2, 40, 32\] f16 for sm_120"):
        climb(SMALL, "model", target="sm_120", rungs=(bad,), jobs=1)


def test_an_objection_names_the_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*given: Any, **options: Any) -> Any:
        raise SimulationError("line 7: race")

    monkeypatch.setattr("egraph_flash.execution.simulate", run)
    with pytest.raises(SimulationError, match="rung scalar: line 7: race"):
        climb(SMALL, "sim", target="sm_120", rungs=RUNGS[:1], jobs=1)


def test_movement_that_changes_bits_is_an_error() -> None:
    first = Row(SCALAR, "A=1", digest="aa")
    other = Row(replace(SCALAR, name="moved"), "A=2", digest="bb")
    with pytest.raises(LadderError, match=r"'scalar' .*got the hashes aa of scalar; bb of moved"):
        made(first, other).check_bits()
    made(first, replace(other, digest="aa")).check_bits()
    elsewhere = replace(other, rung=replace(other.rung, brackets="mma"))
    made(first, elsewhere).check_bits()


def test_conflicts_are_those_of_loads() -> None:
    """Of ld.shared and ldmatrix, predicated or not; stores have a count of their own."""
    texts = ["ld.shared.b32 %r0, [%r1];", "@%p0 ldmatrix.sync", "st.shared.b32 [%r1], %r0;"]
    lines = {at: SharedTraffic(at, text, 1, 9, 8) for at, text in enumerate(texts)}
    counters = Counters([LaunchCounts(shared=lines, barrier_waits=3)])
    assert climbing.counted(counters) == Counted(0, 0, 16, 3)


def test_results_come_in_order_with_progress() -> None:
    for jobs in (1, 2):
        done: list[int] = []
        assert each(abs, [-3, 2, -1], jobs, done.append) == [3, 2, 1]
        assert done == [1, 2, 3]


def test_no_gpu_is_said_before_anything_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "devices", lambda: ())
    monkeypatch.setattr(climbing, "compile_one", None)
    with pytest.raises(DeviceError, match="no GPU fits target sm_90; present: none"):
        climb(SMALL, "gpu", target="sm_90")


def test_a_gpu_times_rungs_beside_the_peer(
    monkeypatch: pytest.MonkeyPatch, fake_gpu: FakeDriver
) -> None:
    """Times, errors and bits come from one run of the benchmark, in which the peer is a row."""

    def measure(loaded: Any, kernels: Any, peers: Any, **options: Any) -> Table:
        assert loaded.beside("PEERS").scale == 32**-0.5
        assert (peers, options["rounds"], options["seed"]) == (["fa2"], 5, 9)
        rows = tuple(
            bench.Row(label, 10.0 + at, (1.0, 2.0), 1.0, None, 1e-3 * at, 0.0, f"bits{at}")
            for at, label in enumerate([*kernels, "fa2"])
        )
        return Table("attention", "a GPU", 9, 5, 64, rows)

    monkeypatch.setattr(bench, "bench", measure)
    found = climb(SMALL, "gpu", rungs=RUNGS[:1], rounds=5, seed=9, jobs=1)
    (row,) = found.rows
    assert (row.us, row.us_fa2, row.digest, row.max_err) == (10.0, 11.0, "bits0", 0.0)
    assert (row.lsu, row.ld_conflicts, row.mma) == (None, None, None)
    assert (found.us_fa2, found.max_err_fa2, found.device) == (11.0, 1e-3, "a GPU")


def test_a_compiled_rung_keeps_its_assembly() -> None:
    order = climbing.Order("scalar", SMALL, "sm_120", rungs.pins_by_rung(32, "f16")["scalar"])
    compiled = climbing.compile_one(order)
    assert isinstance(compiled, Compiled)
    assert compiled.kernel.assembly is compiled.assembly


@pytest.mark.gpu
def test_the_gpu_has_the_simulators_bits() -> None:
    pytest.importorskip("torch")
    target = device.present_target()
    problem = Problem((1, 4, 128, 64))
    measured = climb(problem, "gpu", target=target, rounds=3, seed=5)
    simulated = climb(problem, "sim", target=target, seed=5)
    assert [r.digest for r in measured.rows] == [r.digest for r in simulated.rows]
    assert [r.max_err for r in measured.rows] == [r.max_err for r in simulated.rows]
    assert all(row.us and row.us_fa2 for row in measured.rows if row.refusal is None)
    measured.check_bits()


def test_the_roofline_is_that_of_the_target() -> None:
    full = Ladder(Problem((1, 8, 4096, 64)), "sm_90", "model", "", None, None, None, ())
    assert full.roofline_us == pytest.approx(53.5, abs=0.1)
    causal = replace(full, problem=replace(full.problem, causal=True), target="sm_120")
    assert causal.roofline_us == pytest.approx(82.0, abs=0.1)
