"""How arrays of each kind are seen: address, strides, dtype, place."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from egraph_flash.errors import InputError
from egraph_flash.runtime import arrays
from egraph_flash.runtime.arrays import View, view
from tests.support.fake_cuda import CudaTensor, HostTensor


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float16", "f16"),
        ("float32", "f32"),
        ("uint16", "bf16"),
        ("int32", "i32"),
        ("int64", "i64"),
        ("float64", "float64"),
        ("bool", "bool"),
        (">f4", ">f4"),
    ],
)
def test_names_of_numpy_dtypes(dtype: str, name: str) -> None:
    """Ours where a kernel takes it, numpy's own where not."""
    assert view(np.zeros(3, dtype), "x").dtype == name


def test_numpy_is_seen_in_place() -> None:
    array = np.zeros((2, 3, 4), np.float32)
    seen = view(array, "x")
    assert seen.address == array.ctypes.data
    assert (seen.shape, seen.strides, seen.device) == ((2, 3, 4), (12, 4, 1), None)
    assert seen.host is array
    assert seen.library == "numpy"


def test_strides_within_an_element_are_refused() -> None:
    records = np.zeros(4, np.dtype([("a", np.float32), ("b", np.int8)]))
    with pytest.raises(InputError, match=r"x: got byte strides \(5,\) of 4-byte elements"):
        view(records["a"], "x")


def test_dlpack_on_the_host_is_seen_in_place() -> None:
    array = np.arange(12, dtype=np.float16).reshape(3, 4)
    seen = view(HostTensor(array[:, 1:]), "x")
    assert (seen.address, seen.shape, seen.strides) == (array.ctypes.data + 2, (3, 3), (4, 1))
    assert (seen.dtype, seen.device) == ("f16", None)
    assert seen.host is not None
    np.testing.assert_array_equal(seen.host, array[:, 1:])
    seen.host[0, 0] = 7.0
    assert array[0, 1] == 7.0


def test_dlpack_without_elements() -> None:
    seen = view(HostTensor(np.zeros((0, 4), np.float32)), "x")
    assert seen.host is not None
    assert seen.host.shape == (0, 4)


def test_dlpack_on_a_gpu() -> None:
    array = np.zeros((3, 4), np.int64)
    seen = view(CudaTensor(array, device=3), "x")
    assert (seen.dtype, seen.device, seen.place) == ("i64", 3, "CUDA device 3")
    assert seen.host is None


def test_dlpack_elsewhere_is_refused() -> None:
    class Metal(CudaTensor):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 8, 0

    with pytest.raises(InputError, match="x: got an array on DLPack device type 8"):
        view(Metal(np.zeros(3)), "x")


def test_an_export_that_fails_says_why() -> None:
    class NeedsGradient(CudaTensor):
        def __dlpack__(self, *, stream: int | None = None) -> Any:
            raise BufferError("use tensor.detach()")

    with pytest.raises(
        InputError, match=r"x: NeedsGradient gives no DLPack: use tensor.detach\(\)"
    ):
        view(NeedsGradient(np.zeros(3)), "x")


def test_cuda_array_interface(fake_gpu: Any) -> None:
    interface = {"shape": (3, 4), "typestr": "<f2", "data": (4096, True), "strides": (16, 2)}
    seen = view(SimpleNamespace(__cuda_array_interface__=interface), "x")
    assert (seen.address, seen.strides, seen.dtype, seen.device) == (4096, (8, 1), "f16", 0)
    assert not seen.writable


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(InputError, match="x: got list, wants an array: numpy, DLPack"):
        view([1.0, 2.0], "x")


def test_overlap() -> None:
    def at(address: int, count: int, device: int | None = 0) -> View:
        return View(address, (count,), (1,), "f32", device, True, None)

    assert at(64, 4).overlaps(at(76, 4))
    assert not at(64, 4).overlaps(at(80, 4))
    assert not at(64, 4).overlaps(at(76, 4, device=1))
    assert not at(64, 0).overlaps(at(64, 4))


def test_arrays_that_interleave_do_not_overlap() -> None:
    """Slices of one packed buffer: told exactly, by addresses, wherever the memory is."""
    first = View(1 << 45, (1 << 20, 4), (12, 1), "f16", 0, True, None)
    assert not first.overlaps(replace(first, address=first.address + 8))
    assert not first.overlaps(replace(first, address=first.address + 16))
    assert first.overlaps(replace(first, address=first.address + 6))
    assert first.overlaps(replace(first, address=first.address + 18))


def test_what_takes_too_long_to_tell_is_an_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (3486, 1799, 26102, 22851, 25298)
    first = View(1 << 45, (7,) * 5, steps, "f16", 0, True, None)
    second = replace(first, address=first.address + 53814)
    assert not first.overlaps(second)
    monkeypatch.setattr(arrays, "OVERLAP_WORK", 1)
    assert first.overlaps(second)


@pytest.mark.parametrize(
    ("array", "rows"),
    [
        (np.zeros((3, 4)), True),
        (np.zeros((3, 4)).T, False),
        (np.zeros((3, 8))[:, ::2], False),
        (np.zeros((3, 8))[:, ::8], True),  # one column: its stride is never taken
        (np.zeros((3, 4))[::-1], False),
        (np.zeros((1, 4))[::-1], True),
        (np.broadcast_to(np.zeros(4), (3, 4)), True),
        (np.zeros((2, 3, 4)).swapaxes(0, 1)[:, :, 1:], True),
        (np.zeros((0, 4))[:, ::-2], True),
        (np.zeros(()), True),
        (np.zeros(3)[::-1], False),
    ],
)
def test_rows(array: Any, rows: bool) -> None:
    assert view(array, "x").has_rows is rows
