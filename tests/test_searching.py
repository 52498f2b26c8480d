"""What a search leaves out: geometries that cannot be among the cheapest, stages that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from egraph_flash import debug
from egraph_flash.choices import ALGEBRA
from egraph_flash.extraction import extract
from egraph_flash.knobs import KNOBS, Place
from egraph_flash.likeness import Likeness
from egraph_flash.machines import machine
from egraph_flash.pinning import options, scopes
from egraph_flash.realizations import STAGE_KNOBS
from egraph_flash.request import request_for
from egraph_flash.scheduling import Scheduler, least_us
from egraph_flash.searching import Search
from egraph_flash.stages import Stage, split
from examples.workloads import WORKLOADS
from tests.support.forms import MASKS, attention
from tests.support.fresh import fresh_rng
from tests.support.renaming import random_names, renamed
from tests.support.workloads import block

CHIP = machine("sm_120")
BLOCK = {"h": 2, "q": 64, "c": 48, "d": 16}
CASES: dict[str, Any] = {
    "a block": lambda: (block(**BLOCK),),
    "causal": lambda: (attention(1, 2, 512, 512, 64, causal=True),),
    "a window": lambda: (attention(1, 1, 256, 256, 32, mask=MASKS["window"]),),
    **{
        name: WORKLOADS[name].outputs
        for name in ("rms_norm_matmul", "row_softmax", "decode_paged", "linear_cross_entropy")
    },
}


def stages_of(outputs: Sequence[Any], place: str = "fuse") -> tuple[Stage, ...]:
    """The stages of the terms that are extracted of some outputs."""
    request = request_for(outputs if len(outputs) > 1 else outputs[0], CHIP.target, {}, "test")
    found = extract(tuple(root.expr for root in request.outputs), CHIP, {"PLACE": f"fold={place}"})
    pairs = zip(request.outputs, found.roots, strict=True)
    roots = [replace(root, expr=term) for root, term in pairs]
    return split(roots, [array.args[0] for array in request.inputs])


def search(stage: Stage) -> Search:
    (names,) = scopes([stage])
    return Search(stage, 0, names, {}, CHIP, None)


@pytest.mark.parametrize("name", CASES)
def test_no_option_takes_less_than_its_geometry_must(name: str) -> None:
    for stage in dict.fromkeys(
        s for place in ("fuse", "cut") for s in stages_of(CASES[name](), place)
    ):
        mine, least = search(stage), least_us(stage, CHIP)
        for candidate in mine.laid_out:
            floor_us = mine.least_us(candidate)
            for option in options(stage, [candidate], {}, CHIP):
                assert max(floor_us, least) <= mine.cost(option).total_us, option


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_out_is_not_the_cheapest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every candidate is shown, every one is priced."""
    stages = stages_of(CASES[name]())
    few = [search(stage).best() for stage in stages]
    monkeypatch.setenv(debug.VARIABLE, str(debug.CANDIDATES))
    assert [search(stage).best() for stage in stages] == few


def test_most_geometries_are_left_out() -> None:
    (stage,) = stages_of((attention(1, 8, 4096, 4096, 64),))
    mine = search(stage)
    priced = {each.option[0] for each in mine.priced()}
    assert 0 < len(priced) < len(mine.laid_out) / 2


def test_stages_that_differ_in_names_are_alike() -> None:
    stages = stages_of(CASES["a block"](), "cut")
    others = stages_of(renamed(CASES["a block"](), random_names(fresh_rng()))[0], "cut")
    mine, theirs = ([Likeness.of(each).stage for each in made] for made in (stages, others))
    assert stages != others
    assert mine == theirs
    assert len(set(mine)) < len(stages)  # what queries have, keys have too


@pytest.mark.parametrize("change", [{"q": 65}, {"c": 56}, {"d": 24}, {"h": 3}])
def test_stages_of_other_extents_are_not_alike(change: dict[str, int]) -> None:
    mine, theirs = (
        {Likeness.of(each).stage for each in stages_of((block(**extents),), "cut")}
        for extents in (BLOCK, {**BLOCK, **change})
    )
    assert mine != theirs


def test_what_is_remembered_is_what_a_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its own names; and each kind of stage is searched once."""
    stages = stages_of(CASES["a block"](), "cut")
    searched: list[Stage] = []
    best = Search.best

    def counted(self: Search) -> Any:
        searched.append(self.stage)
        return best(self)

    monkeypatch.setattr(Search, "best", counted)
    scheduler = Scheduler(CHIP, {})
    planned = scheduler.schedule(stages, Place("cut"))
    assert planned is not None
    assert len(searched) == len({Likeness.of(stage).stage for stage in stages})
    again = scheduler.schedule(stages, Place("cut"))
    assert again == planned
    assert len(searched) < len(stages)
    assert [search(stage).best() for stage in stages] == list(planned.stages)


def test_a_plan_that_takes_too_long_is_given_up() -> None:
    stages = stages_of(CASES["a block"](), "cut")
    planned = Scheduler(CHIP, {}).schedule(stages, Place("cut"))
    assert planned is not None
    total_us = sum(each.cost.total_us for each in planned.stages)
    assert Scheduler(CHIP, {}).schedule(stages, Place("cut"), total_us) is None
    assert Scheduler(CHIP, {}).schedule(stages, Place("cut"), total_us * 1.0001) == planned


def test_the_algebra_is_what_may_change_bits() -> None:
    moving = [name for name in STAGE_KNOBS if set(KNOBS[name].fields.values()) == {"movement"}]
    assert {name.lower() for name in STAGE_KNOBS if name not in moving} == set(ALGEBRA)
