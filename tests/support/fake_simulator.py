"""A simulator that "runs" the kernel written by hand in numpy, and counts its launches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from egraph_flash.dtypes import Array
from egraph_flash.plan import Launch, Pointer


@dataclass
class Counters:
    launches: list[dict[str, int]]

    def as_dict(self) -> dict[str, Any]:
        total = {"classes": {"add": sum(launch["add"] for launch in self.launches), "mma": 0}}
        return {"total": total, "launches": self.launches}


class FakeSimulator(ModuleType):
    """Stands for `egraph_flash.simulator`; `fail` makes every run raise it, half-way."""

    def __init__(self) -> None:
        super().__init__("egraph_flash.simulator")
        self.Counters = Counters
        self.fail: Exception | None = None
        self.targets: list[str] = []

    def predicted_seconds(self, instructions: Mapping[str, float], warps: int) -> float:
        return 1e-3 * warps * sum(instructions.values())

    def run(
        self,
        ptx: str,
        launches: Sequence[Launch],
        buffers: Mapping[str, Array],
        *,
        target: str,
        uninitialised: Sequence[str],
        complete: Sequence[str],
        trace: Callable[[str], None] | None = None,
    ) -> Counters:
        """The same call as the simulator's, with the options that kernels use."""
        assert set(complete) <= set(uninitialised) <= set(buffers)
        self.targets.append(target)
        for launch in launches:
            source, result = (a.buffer for a in launch.arguments if isinstance(a, Pointer))
            assert np.isnan(buffers[result].astype(np.float32)).all(), "written before"
            if self.fail:
                buffers[result][0] = 1
                raise self.fail
            buffers[result][...] = 2 * buffers[source]
        return Counters([{"add": 120} for _ in launches])


def install(patch: pytest.MonkeyPatch) -> FakeSimulator:
    fake = FakeSimulator()
    patch.setitem(sys.modules, fake.__name__, fake)
    return fake
