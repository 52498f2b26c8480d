"""What the scoreboard says: factors, totals, ranks, what changed, and which bits agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egraph_flash import scoreboard
from egraph_flash.ladder import Row
from tests.support.ladders import descent, made


def time_of(row: Row) -> float | None:
    return row.time_us


def seed_of(row: Row) -> float | None:
    return row.rung.seed_us


def test_steps_are_against_the_rung_below() -> None:
    ladder = descent()
    assert scoreboard.step_factors(ladder, time_of) == {"mma": 5.0, "tried": 0.8, "ring": 5.0}
    seed = scoreboard.step_factors(ladder, seed_of)
    assert seed == {"mma": pytest.approx(40.76, abs=0.01), "ring": pytest.approx(2.97, abs=0.01)}


def test_totals_leave_asides_out() -> None:
    ladder = descent()
    assert scoreboard.total_factor(ladder, time_of) == 25.0
    assert scoreboard.total_factor(ladder, seed_of) == pytest.approx(121, abs=0.1)
    assert scoreboard.total_factor(made(), time_of) is None


def test_ranks_correlate() -> None:
    """1 for the same order, -1 for the opposite one, nothing for two rungs; ties share a rank."""
    ladder = descent()
    assert scoreboard.rank_correlation(ladder) == pytest.approx(1.0)
    times = {"scalar": 1.0, "mma": 2.0, "ring": 3.0}
    upside = ladder.filled({name: {"us": us} for name, us in times.items()})
    assert scoreboard.rank_correlation(upside) == pytest.approx(-1.0)
    tied = ladder.filled({name: {"us": us} for name, us in (times | {"mma": 1.0}).items()})
    assert scoreboard.rank_correlation(tied) == pytest.approx(-(0.75**0.5))
    flat = ladder.filled({name: {"us": 1.0} for name in times})
    assert scoreboard.rank_correlation(flat) is None
    assert scoreboard.rank_correlation(replace(ladder, rows=ladder.rows[:2])) is None


def test_what_changed_is_found_in_the_emitted_schedules() -> None:
    ladder = descent()
    changed = [scoreboard.difference(ladder, row) for row in ladder.rows]
    assert changed == [["A=1", "B=1"], ["A=2"], ["B=9"], ["B=2"], ["refused"]]


def test_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    scoreboard.show(descent())
    printed = " ".join(capsys.readouterr().out.split()).replace("│ │", "│")
    for part in (
        "ladder at [1, 8, 4096, 64] f16 on H200: medians of 30 interleaved rounds; 4,096 elements",
        "seed 1",
        "│ mma │ A=2 │ 480.0 │ 5.00 │ 612 │ 40.76 │ 0.25 │ 7.000e-04 │ 70cf2285d0de │",
        "(tried) │ B=9 │ 600.0 │ 0.80 │ – │ – │",
        "FlashAttention-2 120.0 µs, max |error| 7.000e-04; mma.sync roofline 53.5 µs; "
        "the best rung takes 0.80 of FlashAttention-2's time",
        "bottom over top: 25.0×; the seed's 121×",
        "rank correlation with the seed's µs on its RTX 5090 at [1, 8, 4096, 64]: 1.000",
        "bits of the brackets 'mma': 70cf2285d0de of 4 rungs",
        "ring │ 200 │ 2 │ 0 │ 49,152 │ greedy │ – │",
        "refused: greedy (C=1): C: too much",
    ):
        assert part in printed, printed


def test_other_backends_say_what_their_times_are(capsys: pytest.CaptureFixture[str]) -> None:
    unmeasured = [replace(row, us=None, us_fa2=None) for row in descent().rows]
    for backend, said in (("sim", "simulated for sm_90; µs predicted"), ("model", "predicted for")):
        ladder = replace(descent(), backend=backend, rows=tuple(unmeasured))  # type: ignore[arg-type]
        scoreboard.show(ladder)
        printed = " ".join(capsys.readouterr().out.split())
        assert said in printed
        assert "│ predicted µs │" in printed.replace("┃", "│")
        assert "FlashAttention-2" not in printed
        assert "FA-2 ratio" not in printed  # nor any column that nothing is known of
        assert "LSU" not in printed
