"""Which stream a kernel runs on."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from egraph_flash.errors import InputError
from egraph_flash.runtime import streams
from egraph_flash.runtime.arrays import view
from tests.support.fake_cuda import CudaTensor


@pytest.mark.parametrize(
    "stream",
    [
        5,
        SimpleNamespace(cuda_stream=5),
        SimpleNamespace(ptr=5),
        SimpleNamespace(__cuda_stream__=lambda: (0, 5)),
    ],
    ids=["int", "PyTorch", "CuPy", "cuda.core"],
)
def test_handles(stream: object) -> None:
    assert streams.handle(stream) == 5


def test_what_is_no_stream_is_an_error() -> None:
    with pytest.raises(InputError, match="stream: got str, wants an int handle, or a stream of"):
        streams.handle("default")


def test_the_current_stream_of_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's where the first array on a GPU is its own, else the default stream."""
    current = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=40 + device)
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=current))
    tensor = CudaTensor(np.zeros(3, np.float32), device=2)
    assert streams.choose(None, [view(tensor, "x")]) == 0
    monkeypatch.setattr(CudaTensor, "__module__", "torch._tensor")
    assert streams.choose(None, [view(np.zeros(3), "y"), view(tensor, "x")]) == 42
    assert streams.choose(7, [view(tensor, "x")]) == 7
