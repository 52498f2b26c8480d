"""What is kept of a kernel reads back as it was."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from egraph_flash.dtypes import f32
from egraph_flash.plan import Scalar
from egraph_flash.record import Cost, Schedule, from_json, to_json
from egraph_flash.tensor_map import TensorMap
from tests.support import doubling


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("dtype", doubling.DTYPES, ids=repr)
def test_reads_back(stages: int, dtype: object) -> None:
    record = doubling.record(stages=stages, dtype=dtype)  # type: ignore[arg-type]
    assert from_json(to_json(record)) == record


def test_every_argument_reads_back() -> None:
    record = doubling.record()
    view = TensorMap("x", f32, (40, 3), (160,), (8, 3), "32B")
    launch = record.plan.launches[0]
    arguments = (*launch.arguments, view, Scalar("f32", 0.5))
    plan = replace(record.plan, launches=(replace(launch, arguments=arguments),))
    assert from_json(to_json(replace(record, plan=plan))).plan == plan


def test_unbounded_numbers_read_back() -> None:
    record = replace(doubling.record(), cost=Cost("none", float("inf")))
    assert from_json(to_json(record)) == record


def test_another_text_is_refused() -> None:
    read = json.loads(to_json(doubling.record()))
    del read["launches"]
    with pytest.raises(KeyError, match="launches"):
        from_json(json.dumps(read))


def test_schedules_are_mappings() -> None:
    schedule = Schedule({"TILE": "a:fma_f32", "PLACE": "fold=cut"})
    assert schedule == {"TILE": "a:fma_f32", "PLACE": "fold=cut"}
    assert schedule["PLACE"] == "fold=cut"
    assert list(schedule) == ["TILE", "PLACE"]
    assert repr(schedule) == "TILE=a:fma_f32\nPLACE=fold=cut"
