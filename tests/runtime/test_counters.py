"""Are counters zeroed once for each stream, and shared by what runs on it?"""

from __future__ import annotations

import pytest

from egraph_flash.dtypes import i32
from egraph_flash.runtime import counter, counters
from tests.support.fake_cuda import FakeDriver


def test_counters_are_made_once_for_a_stream(
    fake_gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_HELD", {})
    first = counter((2, 3), i32, 0, 7)
    assert counter((2, 3), i32, 0, 7) is first
    assert fake_gpu.called("cuMemsetD8Async") == [(first.address, 0, 24, 7)]
    assert counter((2, 3), i32, 0, 8) is not first
    assert counter((3, 2), i32, 0, 7) is not first
