"""The coverage matrix: every row is right by the accuracy rule, or refused as it says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from egraph_flash.runtime import present_target
from tests.fuzz.trials import Trial, run
from tests.support.covering import cover, pairs_in
from tests.support.matrix import (
    FACTORS,
    SCHEDULES,
    Refused,
    exhaustive,
    fits,
    limit_of,
    name_of,
    refusals,
    rows,
    sweep,
    trial_of,
)

BACKENDS = ["sim", pytest.param("gpu", marks=pytest.mark.gpu)]
ROWS, SWEEP, REFUSALS = rows(), sweep(), refusals()


def check(row: Mapping[str, str], backend: str, seed: int) -> None:
    """Right, whatever the inputs."""
    outcome = run(at_home(trial_of(row, seed), backend), backend)
    assert outcome.kind == "right", f"{outcome.why}\n{trial_of(row, seed)}"


def at_home(trial: Trial, backend: str) -> Trial:
    """On a GPU, for what is there."""
    return trial.on(present_target() or "sm_90") if backend == "gpu" else trial


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_matrix(row: Mapping[str, str], backend: str, seed: int) -> None:
    check(row, backend, seed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", SWEEP, ids=name_of)
def test_the_articles_sweep(row: Mapping[str, str], backend: str, seed: int) -> None:
    check(row, backend, seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", exhaustive(), ids=name_of)
def test_matrix_everywhere(row: Mapping[str, str], backend: str, seed: int) -> None:
    check(row, backend, seed)


@pytest.mark.parametrize("refused", REFUSALS, ids=lambda each: each.name)
def test_what_does_not_go_together_is_refused(refused: Refused, seed: int) -> None:
    outcome = run(trial_of(refused.row, seed))
    assert outcome.kind == "refused", outcome
    assert refused.says in outcome.why


# ---- the design ----------------------------------------------------------------------------------


def test_every_pair_that_can_be_is_covered() -> None:
    """Each pair of values stands in a row, or is one that a limit rules out."""
    names = {name: list(values) for name, values in FACTORS.items()}
    covered = {pair for row in ROWS for pair in pairs_in(row, names)}
    for one, other in itertools.combinations(names, 2):
        for a, b in itertools.product(names[one], names[other]):
            pair = ((one, a), (other, b))
            assert pair in covered or not fits(dict(pair)), pair
    assert all(limit_of(row) is None for row in ROWS)


def test_the_sweep_has_several_schedules_of_each() -> None:
    """Lengths that are open apart: those have one text for all."""
    seen: dict[str, set[str]] = {}
    for row in SWEEP:
        rest = " ".join(value for name, value in row.items() if name != "schedule")
        seen.setdefault(rest, set()).add(row["schedule"])
    assert min(map(len, seen.values())) >= 2
    assert set(itertools.chain(*seen.values())) <= set(SCHEDULES)


def test_the_readme_says_how_many_rows_there_are() -> None:
    said = Path("README.md").read_text()
    assert f"{len(ROWS)} rows in which every pair of values" in said
    assert f"{len(SWEEP)} rows\nof the article's sweep" in said
    assert f"and {len(REFUSALS)} that are refused" in said


def test_cover_covers() -> None:
    factors = {"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["1", "2", "3"]}

    def apart(row: Mapping[str, str]) -> bool:
        return row.get("a") != row.get("b") or "a" not in row

    found = cover(factors, apart)
    assert found.impossible == [(("a", each), ("b", each)) for each in "xy"]
    covered = {pair for row in found.rows for pair in pairs_in(row, factors)}
    assert len(covered) == 3 * 2 + 3 * 3 + 2 * 3 - 2
    assert len(found.rows) <= 12
    assert cover(factors, apart) == found
