"""Bad arrays: each kind is refused before anything runs, by a message that says what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from egraph_flash.binding import bind
from egraph_flash.dtypes import Dtype, f16, f32
from egraph_flash.errors import InputError
from egraph_flash.notices import CopyWarning
from egraph_flash.plan import dense_strides
from egraph_flash.record import Record
from egraph_flash.runtime.arrays import view
from tests.support import doubling
from tests.support.fake_cuda import CudaTensor, HostTensor

RECORD = doubling.record()
X = np.ones((3, 40), np.float32)


def doubled(record: Record, dtype: Dtype) -> Record:
    """The record with a second output `z` beside `y`."""
    buffer = replace(record.plan.buffers[-1], name="z", dtype=dtype)
    plan = replace(record.plan, buffers=(*record.plan.buffers, buffer))
    outputs = (*record.outputs, replace(record.outputs[0], name="z", dtype=dtype))
    return replace(record, outputs=outputs, plan=plan)


TWO = doubled(RECORD, f16)


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
        r"input 'x' on CUDA device 0 has strides \(1, 3\), wants the last one 1 and none negative; "
        "pass a contiguous copy of it",
    ),
    (
        "negative strides on a GPU",
        {"x": CudaTensor(aligned((3, 40))[::-1])},
        None,
        r"input 'x' on CUDA device 0 has strides \(-40, 1\), wants the last one 1 and none neg",
    ),
    (
        "address within an element on a GPU",
        {"x": CudaTensor(aligned((3, 40), 2))},
        None,
        r"input 'x' on CUDA device 0 starts at address 0x[0-9a-f]+2, wants a multiple of 4 bytes",
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
        r"output 'y' on CUDA device 0 has strides \(1, 3\), wants the last one 1 .*; pass another",
    ),
    (
        "out of elements that share memory",
        {"x": X},
        as_strided(X.copy(), (3, 40), (0, 4)),
        r"output 'y' has strides \(0, 1\), so that elements share memory; pass an array whose",
    ),
    (
        "out of windows that share memory",
        {"x": X},
        as_strided(X.copy(), (3, 40), (4, 4)),
        r"output 'y' has strides \(1, 1\), so that elements share memory",
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


def test_an_output_between_its_inputs_elements_is_taken() -> None:
    """Slices of one packed buffer share no byte, which is told exactly; one float less, they do."""
    held = aligned((3, 100))
    bound = bind(RECORD, {"x": CudaTensor(held[:, :40])}, CudaTensor(held[:, 40:80]))
    assert bound.alignments == {"x": 16, "y": 16}
    with pytest.raises(InputError, match="output 'y' shares memory with input 'x'"):
        bind(RECORD, {"x": CudaTensor(held[:, :40])}, CudaTensor(held[:, 39:79]))


def test_two_outputs_that_share_memory_are_refused_on_the_host() -> None:
    held = aligned((3, 40))
    with pytest.raises(InputError, match="output 'z' shares memory with output 'y'"):
        bind(doubled(RECORD, f32), {"x": X}, (held, held))


def test_two_outputs_that_share_memory_are_refused_on_a_gpu() -> None:
    two = doubled(RECORD, f32)
    held = CudaTensor(aligned((3, 40)))
    with pytest.raises(InputError, match="output 'z' shares memory with output 'y'"):
        bind(two, {"x": CudaTensor(aligned((3, 40)))}, (held, held))


def test_outputs_are_counted_by_name() -> None:
    with pytest.raises(InputError, match=r"out= has 1 arrays, wants 2: y, z"):
        bind(TWO, {"x": X}, X)


def test_strided_host_arrays_are_copied_with_a_warning() -> None:
    strided = np.ones((40, 3), np.float32).T
    with pytest.warns(
        CopyWarning, match=r"input 'x' has strides \(1, 3\), wants the last.*; copied"
    ):
        bound = bind(RECORD, {"x": strided}, None)
    assert (bound.strides["x"], bound.alignments) == ((40, 1), {})
    with pytest.warns(CopyWarning):
        bind(RECORD, {"x": HostTensor(strided)}, None)


def test_good_arrays_are_seen_in_place() -> None:
    bound = bind(RECORD, {"x": X}, None)
    assert bound.device is None
    assert bound.first is bound.inputs["x"]
    assert bound.first.address == X.ctypes.data
    assert bound.outputs == (None,)


# ---- how arrays lie ------------------------------------------------------------------------------

BUFFER = aligned((64, 64))
LAYOUTS: list[tuple[str, Any, dict[str, int]]] = [
    ("dense", aligned((3, 40)), {}),
    ("rows apart by 16 bytes", BUFFER[:3, :40], {"x": 16}),
    ("rows apart by 8 bytes", aligned((3, 42))[:, :40], {"x": 8}),
    ("rows apart by 4 bytes", aligned((3, 43))[:, :40], {"x": 4}),
    ("dense at 8 bytes", aligned((3, 40), 8), {"x": 8}),
    ("dense at 4 bytes", aligned((3, 40), 4), {"x": 4}),
    ("rows apart, at 4 bytes", BUFFER[:3, 1:41], {"x": 4}),
    ("every row the same", as_strided(aligned((40,)), (3, 40), (0, 4)), {"x": 16}),
    ("every row the same, at 8 bytes", as_strided(aligned((40,), 8), (3, 40), (0, 4)), {"x": 8}),
    ("windows", as_strided(aligned((64,)), (3, 40), (8, 4)), {"x": 8}),
]


@pytest.mark.parametrize(
    ("array", "alignments"), [row[1:] for row in LAYOUTS], ids=[row[0] for row in LAYOUTS]
)
@pytest.mark.parametrize("seen", [np.asarray, HostTensor, CudaTensor], ids=lambda s: s.__name__)
def test_layouts_are_told_by_their_alignment(
    array: np.ndarray, alignments: dict[str, int], seen: Any
) -> None:
    """In place, with the strides that they have, wherever they are."""
    bound = bind(RECORD, {"x": seen(array)}, None)
    assert bound.alignments == alignments
    assert bound.inputs["x"].address == array.ctypes.data
    assert bound.strides["x"] == tuple(step // 4 for step in array.strides)
    assert bound.shifts == {"x": array.ctypes.data % 16, "y": 0}


def test_strides_that_no_index_takes_do_not_count() -> None:
    record = doubling.record(1, 40)
    bound = bind(record, {"x": aligned((8, 40))[::8]}, None)
    assert bound.alignments == {}
    assert bound.strides["x"] == (40, 1)
    backwards = view(aligned((1, 40))[::-1], "x")
    assert bind(record, {"x": backwards}, None).alignments == {}


def test_outputs_lie_as_the_caller_says() -> None:
    out = BUFFER[10:13, 2:42]
    bound = bind(RECORD, {"x": aligned((3, 40))}, out)
    assert bound.alignments == {"y": 8}
    assert (bound.strides["y"], bound.shifts["y"]) == ((64, 1), 8)
    columns = bind(RECORD, {"x": aligned((3, 40))}, np.zeros((40, 3), np.float32).T)
    assert (columns.alignments, columns.strides["y"]) == (
        {},
        (40, 1),
    )  # computed dense, on the host


def test_new_outputs_follow_the_first_input() -> None:
    """As PyTorch's preserve_format does: the same order in memory, without its gaps."""
    shape = (2, 3, 5, 8)
    spec = replace(RECORD.inputs[0], shape=shape, axes=tuple("bhmd"))
    record = replace(
        RECORD,
        inputs=(spec,),
        outputs=(replace(spec, name="y"),),
        plan=replace(
            RECORD.plan,
            buffers=tuple(
                replace(each, shape=shape, strides=dense_strides(shape))
                for each in RECORD.plan.buffers
            ),
        ),
    )
    packed = aligned((2, 5, 3, 3, 8))
    for x, strides in (
        (aligned(shape), (120, 40, 8, 1)),
        (aligned((2, 5, 3, 8)).swapaxes(1, 2), (120, 8, 24, 1)),
        (packed[:, :, 1].swapaxes(1, 2), (120, 8, 24, 1)),
        (aligned((2, 3, 9, 8))[:, :, 2:7], (120, 40, 8, 1)),
        (np.broadcast_to(aligned((2, 1, 5, 8)), shape), (120, 40, 8, 1)),
    ):
        bound = bind(record, {"x": x}, None)
        assert bound.strides["y"] == strides
        assert ("y" in bound.alignments) == (strides[1] == 8)
