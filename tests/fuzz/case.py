"""For the command line: `egraph-flash run 'tests/fuzz/case.py:case("m=5")' --seed 7`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)

from tests.fuzz.cases import build, read_case  # noqa: E402
from tests.fuzz.inputs import arrays  # noqa: E402
from tests.fuzz.judging import judge  # noqa: E402
from tests.fuzz.trials import moved_bits  # noqa: E402


def case(text: str) -> Any:
    return build(read_case(text)).expression


def _inputs(rng: Any, text: str) -> Any:
    return arrays(build(read_case(text)), rng)


def _check(kernel: Any, given: Any, result: Any, text: str) -> str | None:
    built = build(read_case(text))
    found = judge(built, kernel.schedule, kernel.outputs, given, result)
    found = found or moved_bits(built, kernel, given, result, "sim")
    return None if found is None else str(found)


INPUTS = {"case": _inputs}
CHECKS = {"case": _check}
