"""How a plan is launched, on a driver made of host memory."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

from egraph_flash import runtime
from egraph_flash.dtypes import f32
from egraph_flash.errors import DeviceError, InputError
from egraph_flash.plan import Pointer, Scalar
from egraph_flash.runtime import driver
from egraph_flash.runtime.memory import DeviceArray
from tests.support import doubling
from tests.support.fake_cuda import H200, CudaTensor, FakeDriver

RECORD = doubling.record(stages=2)
PLAN = RECORD.plan.typical


def arrays() -> dict[str, np.ndarray]:
    return {buffer.name: np.ones(buffer.shape, np.float32) for buffer in PLAN.buffers}


def run(buffers: dict[str, object], **options: object) -> None:
    runtime.run(PLAN.ptx, PLAN.launches, buffers, target="sm_120", name="doubling", **options)  # type: ignore[arg-type]


def test_host_arrays_go_there_and_back(fake_gpu: FakeDriver) -> None:
    """All launches in order, results in place, and all device memory given back."""
    held = arrays()
    run(held)  # type: ignore[arg-type]
    assert (held["w1"] == 2).all()
    assert (held["y"] == 4).all()
    assert not fake_gpu.held
    assert fake_gpu.called("cuCtxPushCurrent")
    assert len(fake_gpu.called("cuCtxPushCurrent")) == len(fake_gpu.called("cuCtxPopCurrent"))


def test_only_outputs_come_back(fake_gpu: FakeDriver) -> None:
    held = arrays()
    run(held, outputs=("y",))  # type: ignore[arg-type]
    assert (held["w1"] == 1).all()
    assert len(fake_gpu.called("cuMemcpyDtoHAsync")) == 1


def test_launches_carry_grid_arguments_and_stream(fake_gpu: FakeDriver) -> None:
    held = {name: CudaTensor(array) for name, array in arrays().items()}
    run(held, stream=77)  # type: ignore[arg-type]
    first, second = fake_gpu.called("cuLaunchKernel")
    entry, *shape = first[:9]
    assert entry == b"twice"
    assert shape == [4, 1, 1, 32, 1, 1, 0, 77]
    addresses = [held[name].array.ctypes.data for name in ("x", "w1", "y")]
    assert first[9][0] == (addresses[0], addresses[1], 120)
    assert second[9][0] == (addresses[1], addresses[2], 120)
    assert not fake_gpu.called("cuStreamSynchronize")


def test_modules_load_once(fake_gpu: FakeDriver) -> None:
    run(arrays())  # type: ignore[arg-type]
    run(arrays())  # type: ignore[arg-type]
    assert len(fake_gpu.called("cuModuleLoadData")) == 1
    assert len(fake_gpu.called("cuModuleGetFunction")) == 1


def test_large_shared_memory_is_asked_for(fake_gpu: FakeDriver) -> None:
    launches = [replace(PLAN.launches[0], shared_bytes=64 * 1024)]
    runtime.run(PLAN.ptx, launches, arrays(), target="sm_120")
    assert fake_gpu.called("cuFuncSetAttribute") == [(b"twice", 8, 64 * 1024)]


def test_an_empty_grid_is_not_launched(fake_gpu: FakeDriver) -> None:
    launches = [replace(PLAN.launches[0], grid=(0, 1, 1))]
    runtime.run(PLAN.ptx, launches, arrays(), target="sm_120")
    assert not fake_gpu.called("cuLaunchKernel")


def test_a_failed_launch_names_kernel_grid_and_arguments(fake_gpu: FakeDriver) -> None:
    fake_gpu.fail = "cuLaunchKernel"
    with pytest.raises(DeviceError) as caught:
        run(arrays())  # type: ignore[arg-type]
    assert str(caught.value) == (
        "doubling: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered) in "
        "cuLaunchKernel, launching twice: grid (4, 1, 1), block (32, 1, 1), 0 shared bytes, "
        "arguments (x, w1, u32 120)"
    )
    assert not fake_gpu.held


def test_a_failure_seen_later_names_all_launches(fake_gpu: FakeDriver) -> None:
    fake_gpu.fail = "cuStreamSynchronize"
    held = arrays()
    with pytest.raises(DeviceError, match=r"(?s)doubling: CUDA_.*after launching\n.*x, w1.*w1, y"):
        run(held)  # type: ignore[arg-type]
    assert (held["y"] == 1).all()


def test_arrays_in_two_places_are_refused(fake_gpu: FakeDriver) -> None:
    held: dict[str, object] = dict(arrays())
    held["x"] = CudaTensor(held["x"])
    with pytest.raises(InputError, match=r"got 'x' in CUDA device 0, 'w1' in host memory"):
        run(held)


def test_strided_host_arrays_go_with_the_bytes_between(fake_gpu: FakeDriver) -> None:
    """The kernel reads its own 120 floats of a view of 240; only elements come back."""
    whole_x, whole_y = np.arange(240, dtype=np.float32).reshape(3, 80), np.full((3, 80), np.nan)
    whole_y = whole_y.astype(np.float32)
    held = arrays() | {"x": whole_x[:, 1:41], "y": whole_y[:, 2:42]}
    run(held, outputs=("y",))  # type: ignore[arg-type]
    written = 4 * whole_x.reshape(-1)[1:121]
    np.testing.assert_array_equal(whole_y[0, 2:42], written[:40])
    np.testing.assert_array_equal(whole_y[1, 2:42], written[80:])
    assert np.count_nonzero(~np.isnan(whole_y)) < 120
    sizes = [size for _, _, size, _ in fake_gpu.called("cuMemcpyHtoDAsync")]
    assert sizes == [800, 480, 800]
    to = [address for address, *_ in fake_gpu.called("cuMemcpyHtoDAsync")]
    assert [each % 16 for each in to] == [4, 0, 8]
    assert not fake_gpu.held


def test_interleaved_outputs_do_not_undo_each_other(fake_gpu: FakeDriver) -> None:
    """Each comes back by its elements, although their bytes lie among each other."""
    packed = np.zeros((3, 2, 40), np.float32)
    held = {"x": np.ones((3, 40), np.float32), "w1": packed[:, 0], "y": packed[:, 1]}
    run(held)  # type: ignore[arg-type]
    assert (packed[0, 0] == 2).all()
    assert (packed[0, 1] == 4).all()


def test_arrays_without_elements_have_some_address(fake_gpu: FakeDriver) -> None:
    launch = replace(PLAN.launches[0], arguments=(Pointer("x"), Pointer("y"), Scalar("u32", 0)))
    empty = np.zeros((0, 40), np.float32)
    runtime.run(PLAN.ptx, [launch], {"x": empty, "y": np.ones(3, np.float32)}, target="sm_120")
    (source, result, _), _ = fake_gpu.called("cuLaunchKernel")[0][9]
    assert source % 16 == 0
    assert abs(result - source) < 16


def test_buffers_that_run_backwards_are_refused(fake_gpu: FakeDriver) -> None:
    held = arrays()
    held["x"] = np.ones((3, 40), np.float32)[::-1]
    with pytest.raises(InputError, match=r"buffer 'x' has strides \(-40, 1\), wants each 0 or m"):
        run(held)  # type: ignore[arg-type]


def test_no_gpu_that_fits_is_an_error() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime.device, "devices", lambda: (H200,))
        with pytest.raises(DeviceError, match=r"no GPU fits target sm_120; present: NVIDIA H200"):
            run(arrays())  # type: ignore[arg-type]


def test_no_driver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(FakeDriver):
        def cuInit(self, flags: int) -> None:
            raise RuntimeError("libcuda.so.1 not found")

    monkeypatch.setattr(importlib, "import_module", lambda name: Missing())
    with pytest.raises(DeviceError, match=r"CUDA: no driver is here \(libcuda.so.1 not found\)"):
        driver.api.__wrapped__()


def test_device_arrays_hold_their_memory(fake_gpu: FakeDriver) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = DeviceArray.of(host, f32, 0)
    np.testing.assert_array_equal(made.numpy(), host)
    interface = made.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["stream"]) == ((2, 3), "<f4", 1)
    assert repr(made) == "DeviceArray(f32 [2, 3] on device 0)"
    assert len(fake_gpu.held) == 1
    del made
    assert not fake_gpu.held
