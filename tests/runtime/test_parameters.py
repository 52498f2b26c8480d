"""What a launch passes for each argument, and how a tensor map is encoded for the hardware."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from egraph_flash import runtime
from egraph_flash.dtypes import f16, f32
from egraph_flash.errors import DeviceError, InputError
from egraph_flash.plan import Launch, Pointer, Scalar
from egraph_flash.runtime import assemble, present_target
from egraph_flash.runtime.launch import launch_all
from egraph_flash.runtime.parameters import EncodedMap, encode, parameters
from egraph_flash.tensor_map import TensorMap
from tests.support.box_copy import box_copy
from tests.support.fake_cuda import FakeDriver

MAP = TensorMap("k", f16, (64, 100), (128,), (64, 32), "128B")
STEP = Launch("f", (1, 1, 1), (32, 1, 1), 0, (Pointer("y"), MAP, Scalar("u32", 7)))


def test_maps_pass_by_value(fake_gpu: FakeDriver) -> None:
    values, types = parameters(STEP, {"y": 0x1008, "k": 0x2000})
    assert (values[0], values[2]) == (0x1008, 7)
    assert types == (ctypes.c_void_p, None, ctypes.c_uint32)
    assert isinstance(values[1], EncodedMap)
    assert ctypes.sizeof(EncodedMap) == 128
    assert list(values[1].opaque) == [0x2000] * 16


def test_maps_are_encoded_as_they_say(fake_gpu: FakeDriver) -> None:
    """Type, address, sizes, strides, box, steps of 1; then the four choices that are named."""
    encode(MAP, 0x2000)
    encode(TensorMap("x", f32, (4,), (), (4,), "none"), 0x10)
    assert fake_gpu.called("cuGetProcAddress")[0] == (b"cuTensorMapEncodeTiled", 12000, 0)
    two, one = fake_gpu.called("cuTensorMapEncodeTiled")
    assert two == (6, 0x2000, [64, 100], [128], [64, 32], [1, 1], (0, 3, 3, 0))
    assert one == (7, 0x10, [4], [], [4], [1], (0, 0, 3, 0))


def test_maps_are_encoded_once_for_each_address(fake_gpu: FakeDriver) -> None:
    for address in (0x2000, 0x3000, 0x2000):
        assert encode(MAP, address).opaque[0] == address
    encode(replace(MAP, box=(64, 16)), 0x2000)
    assert len(fake_gpu.called("cuTensorMapEncodeTiled")) == 3


def test_unaligned_tensors_are_refused(fake_gpu: FakeDriver) -> None:
    with pytest.raises(InputError, match=r"buffer 'k': got the address 0x2008, wants a multiple"):
        parameters(STEP, {"y": 0x1008, "k": 0x2008})
    assert not fake_gpu.called("cuTensorMapEncodeTiled")


def test_a_refused_map_names_the_launch(fake_gpu: FakeDriver) -> None:
    fake_gpu.fail = "cuTensorMapEncodeTiled"
    with pytest.raises(DeviceError, match=r"cuTensorMapEncodeTiled of k as boxes.*launching f:"):
        launch_all(b"", [STEP], {"y": 0x1000, "k": 0x2000}, 0, 0)


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
def test_map_parameters_assemble(target: str) -> None:
    ptx, _ = box_copy(MAP, target)
    assert assemble(ptx, target).entries[0].spill_bytes == 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("columns", "box_rows", "swizzle"),
    [(64, 32, "128B"), (32, 8, "64B"), (16, 8, "32B"), (64, 32, "none")],
)
def test_boxes_land_where_the_map_says(columns: int, box_rows: int, swizzle: str) -> None:
    """A box at (8, 70) of 100 rows: what lies past the edge is zero, and the swizzle is undone."""
    width, rows, x, y = columns + 16, 100, 8, 100 - box_rows // 2
    held = np.arange(rows * width, dtype=np.float16).reshape(rows, width)
    map_ = TensorMap("k", f16, (width, rows), (2 * width,), (columns, box_rows), swizzle)  # type: ignore[arg-type]
    target = present_target() or "sm_90"
    ptx, launch = box_copy(map_, target, x, y)
    landed = np.full(box_rows * columns, np.nan, np.float16)
    runtime.run(ptx, [launch], {"k": held, "y": landed}, target=target)
    wanted = np.zeros((box_rows, columns), np.float16)
    wanted[: rows - y] = held[y:, x : x + columns]
    offsets = np.arange(box_rows * columns) * 2
    bits = {"128B": 7, "64B": 3, "32B": 1, "none": 0}[swizzle]
    at = offsets ^ ((offsets >> 7 & bits) << 4)
    np.testing.assert_array_equal(landed[at // 2].reshape(box_rows, columns), wanted)
