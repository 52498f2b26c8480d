"""The table of rungs: its rows compile, and pins add up from the bottom."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

from egraph_flash import optimize, rungs
from egraph_flash.errors import InputError, ScheduleError
from egraph_flash.notices import SpillWarning
from egraph_flash.problem import Problem, parse_shape
from egraph_flash.rungs import RUNGS, Rung, below, choose, pins_by_rung

ONE = Rung("one", "A=1;B={mma}", "first", "x", 100.0)
TWO = Rung("two", "B=2", "second", "x", 50.0)
SIDE = Rung("side", "C=3;B=4", "tried", "x", aside=True)
THREE = Rung("three", "C=5", "third", "x", 25.0)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> tuple[Rung, ...]:
    rows = (ONE, TWO, SIDE, THREE)
    monkeypatch.setattr(rungs, "RUNGS", rows)
    return rows


def test_pins_add_up_from_the_bottom(table: tuple[Rung, ...]) -> None:
    """A later pin replaces an earlier one, and nothing stands on an aside."""
    assert pins_by_rung(64, "bf16") == {
        "one": {"A": "1", "B": "mma_m16n8k16_bf16"},
        "two": {"A": "1", "B": "2"},
        "side": {"A": "1", "B": "4", "C": "3"},
        "three": {"A": "1", "B": "2", "C": "5"},
    }


def test_each_is_priced_against_the_last_that_is_no_aside(table: tuple[Rung, ...]) -> None:
    assert below(table) == {"one": None, "two": "one", "side": "two", "three": "two"}
    assert below(table[::2]) == {"one": None, "side": "one"}


def test_rungs_are_chosen_by_name(table: tuple[Rung, ...]) -> None:
    assert choose(None) == table
    assert choose("three, one") == (ONE, THREE)
    with pytest.raises(InputError, match="got four, wants some of one, two, side, three"):
        choose("one,four")
    with pytest.raises(InputError, match="got ',', wants some of"):
        choose(",")


def test_names_hold_no_commas() -> None:
    with pytest.raises(InputError, match="got the name 'mma, staged'"):
        replace(ONE, name="mma, staged")


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "1,2,3,x", "1,-2,3,4", "1,2,3,4.0"])
def test_shapes_are_four_numbers(text: str) -> None:
    with pytest.raises(InputError, match=r"shape: got .*wants B,H,S,D, such as 1,8,4096,64"):
        parse_shape(text)


def test_shapes_are_not_empty() -> None:
    with pytest.raises(InputError, match="got '1,0,3,4', wants four numbers above zero"):
        parse_shape("1,0,3,4")


def test_problems_say_what_they_are() -> None:
    problem = Problem((1, 2, 64, 32), "bf16", causal=True, output="f32")
    assert str(problem) == "[1, 2, 64, 32] bf16, causal, output f32"
    assert str(replace(problem, causal=False, output=None)) == "[1, 2, 64, 32] bf16"
    assert problem.flop == 2 * 2 * 64 * 64 * 32  # half of two products
    kernel = optimize(problem.expression, "sm_120")
    assert [spec.dtype.name for spec in (*kernel.inputs, *kernel.outputs)] == [*["bf16"] * 3, "f32"]


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_every_rung_compiles_as_pinned(rung: Rung, target: str) -> None:
    """At the seed's shape it assembles, and its schedule holds its pins; the rungs that others
    stand on do not spill. An aside may be too large for the shared memory of sm_120.

    A pin without a scope stands there under each scope that it applies to.
    """
    problem = Problem(rungs.SEED_SHAPE)
    pins = pins_by_rung(problem.shape[3], problem.dtype)[rung.name]
    try:
        kernel = optimize(problem.expression, target, pins)
    except ScheduleError as refusal:
        told = str(refusal)
    else:
        told = ""
    if told:
        assert rung.aside, told
        assert "more than the" in told
        assert rung.name == "four-tiles" or "101376 that a block of sm_120 may have" in told
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if rung.aside else "error", SpillWarning)
        assert all(entry.spill_bytes == 0 or rung.aside for entry in kernel.assembly.entries)
    emitted = {(name, value) for name, value in kernel.schedule.items()}
    emitted |= {(name.split("@")[0], value) for name, value in emitted}
    assert pins.items() <= emitted
