"""Bad arrays: each kind is refused before anything runs, by a message that says what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from egraph_flash.binding import bind
from egraph_flash.dtypes import f16
from egraph_flash.errors import InputError
from egraph_flash.notices import CopyWarning
from tests.support import doubling
from tests.support.fake_cuda import CudaTensor, HostTensor

RECORD = doubling.record()
TWO = replace(RECORD, outputs=(*RECORD.outputs, replace(RECORD.outputs[0], name="z", dtype=f16)))
X = np.ones((3, 40), np.float32)


def aligned(shape: tuple[int, ...], offset_bytes: int = 0) -> np.ndarray:
    """Ones at an address that is `offset_bytes` past a multiple of 16."""
    memory = np.ones(4 * int(np.prod(shape)) + 32, np.uint8)
    start = -memory.ctypes.data % 16 + offset_bytes
    made = memory[start : start + 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
    made[...] = 1.0
    return made


BAD: list[tuple[str, dict[str, Any], Any, str]] = [
    ("missing", {}, None, r"doubling: missing input x; wants x"),
    ("extra", {"x": X, "mask": X}, None, r"doubling: got no use for input mask; wants x"),
    ("list", {"x": [1.0]}, None, r"doubling: input 'x': got list, wants an array"),
    (
        "dtype",
        {"x": X.astype(np.float64)},
        None,
        r"doubling: input 'x' is float64 \[3, 40\], wants f32 \[m=3, n=40\]",
    ),
    (
        "rank",
        {"x": X[0]},
        None,
        r"doubling: input 'x' has 1 dimensions, \[40\], wants f32 \[m=3, n=40\]",
    ),
    (
        "shape",
        {"x": np.ones((3, 64), np.float32)},
        None,
        r"doubling: input 'x': axis 'n' is 64, wants 40; got \[3, 64\], wants f32 \[m=3, n=40\]",
    ),
    (
        "strides on a GPU",
        {"x": CudaTensor(np.ones((40, 3), np.float32).T)},
        None,
        r"input 'x' on CUDA device 0 has strides \(1, 3\), wants dense row-major \(40, 1\); pass a",
    ),
    (
        "address on a GPU",
        {"x": CudaTensor(aligned((3, 40), 4))},
        None,
        r"input 'x' starts at address 0x[0-9a-f]+4, wants a multiple of 16 bytes; pass a copy",
    ),
    (
        "out dtype",
        {"x": X},
        X.astype(np.float16),
        r"doubling: output 'y' is f16 \[3, 40\], wants f32",
    ),
    ("out shape", {"x": X}, X[:2], r"doubling: output 'y': axis 'm' is 2, wants 3"),
    ("out count", {"x": X}, (X, X), r"doubling: out= has 2 arrays, wants 1: y"),
    (
        "out place",
        {"x": X},
        CudaTensor(X),
        r"output 'y' is in CUDA device 0, input 'x' in host mem",
    ),
    (
        "out strides on a GPU",
        {"x": CudaTensor(aligned((3, 40)))},
        CudaTensor(np.ones((40, 3), np.float32).T),
        r"output 'y' on CUDA device 0 has strides \(1, 3\), wants dense row-major \(40, 1\)",
    ),
]


@pytest.mark.parametrize(
    ("arrays", "out", "message"), [row[1:] for row in BAD], ids=[r[0] for r in BAD]
)
def test_bad_arrays_are_refused(arrays: dict[str, Any], out: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bind(RECORD, arrays, out)


def test_a_read_only_output_is_refused() -> None:
    out = X.copy()
    out.flags.writeable = False
    with pytest.raises(InputError, match="output 'y' is read-only"):
        bind(RECORD, {"x": X}, out)


def test_an_output_on_its_input_is_refused_on_a_gpu() -> None:
    """On the host it is fine: outputs are written only when all is done."""
    held = aligned((3, 40))
    with pytest.raises(InputError, match="output 'y' shares memory with input 'x'"):
        bind(RECORD, {"x": CudaTensor(held)}, CudaTensor(held))
    bind(RECORD, {"x": held}, held)


def test_two_outputs_that_share_memory_are_refused_on_a_gpu() -> None:
    two = replace(TWO, outputs=(TWO.outputs[0], replace(TWO.outputs[0], name="z")))
    held = CudaTensor(aligned((3, 40)))
    with pytest.raises(InputError, match="output 'z' shares memory with output 'y'"):
        bind(two, {"x": CudaTensor(aligned((3, 40)))}, (held, held))


def test_outputs_are_counted_by_name() -> None:
    with pytest.raises(InputError, match=r"out= has 1 arrays, wants 2: y, z"):
        bind(TWO, {"x": X}, X)


def test_strided_host_arrays_are_copied_with_a_warning() -> None:
    strided = np.ones((40, 3), np.float32).T
    with pytest.warns(CopyWarning, match=r"input 'x' has strides \(1, 3\), wants dense.*; copied"):
        bound = bind(RECORD, {"x": strided}, None)
    assert bound.inputs["x"].is_dense
    with pytest.warns(CopyWarning):
        bind(RECORD, {"x": HostTensor(strided)}, None)


def test_good_arrays_are_seen_in_place() -> None:
    bound = bind(RECORD, {"x": X}, None)
    assert bound.device is None
    assert bound.first is bound.inputs["x"]
    assert bound.first.address == X.ctypes.data
    assert bound.outputs == (None,)
