"""The kernel object: what it shows, where it runs, and what comes back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from egraph_flash.dtypes import DTYPES
from egraph_flash.errors import DeviceError, ExpressionError, InputError, SimulationError
from egraph_flash.kernel import Kernel
from egraph_flash.notices import CopyWarning, SimulationWarning
from egraph_flash.record import Spec
from egraph_flash.runtime import DeviceArray, device, present_target
from tests.support import doubling, fake_simulator
from tests.support.fake_cuda import H200, CudaTensor, FakeDriver, HostTensor, installed
from tests.support.fake_simulator import FakeSimulator

X = np.arange(120, dtype=np.float32).reshape(3, 40)


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> FakeSimulator:
    monkeypatch.setattr(device, "devices", lambda: ())
    return fake_simulator.install(monkeypatch)


@pytest.fixture
def h200() -> Iterator[FakeDriver]:
    with installed(H200) as fake:
        yield fake


def kernel(**options: Any) -> Kernel:
    return Kernel(doubling.record(**options))


# what it shows


def test_shows_what_was_found() -> None:
    made = kernel()
    assert repr(made) == "Kernel(doubling for sm_120: x: f32 [m=3, n=40] -> y: f32 [m=3, n=40])"
    assert str(made.schedule) == "TILE=a:fma_f32\nPLACE=fold=fuse"
    assert str(made.derivation) == (
        "0. naive: passes 0, unsafe 0, 1.5 µs\n"
        "    (Add x x)\n"
        "1. homomorphism (sum/twice): passes 0, unsafe 0, 1.5 µs, differs by 0.0e+00 at most\n"
        "    (Add x x)\n"
        "hits: sum/twice 2"
    )
    assert str(made.cost).splitlines()[0] == "predicted on RTX 5090"
    assert str(made.cost).splitlines()[-1].split() == ["total", "1.5", "µs"]
    assert (made.passes, made.workspace_bytes) == (0, 0)
    assert kernel(stages=2).workspace_bytes == 480


def test_assembles_when_asked() -> None:
    made = kernel()
    assert made.cubin.startswith(b"\x7fELF")
    assert made.assembly.entries[0].name == "twice"
    assert "FADD" in made.sass


def test_terms_are_parsed_when_asked() -> None:
    assert repr(kernel().term) == "1 + 2"
    assert kernel().terms == (kernel().term,)


def test_inputs_named_like_an_option_are_refused() -> None:
    record = replace(doubling.record(), inputs=(Spec("out", (3,), DTYPES["f32"], ("m",)),))
    with pytest.raises(ExpressionError, match="an input is called 'out', which is an option"):
        Kernel(record)


# the simulator


def test_without_a_gpu_it_simulates_with_one_warning(simulator: FakeSimulator) -> None:
    made = kernel()
    with pytest.warns(SimulationWarning) as caught:
        results = [made(x=X), made(x=X)]
    np.testing.assert_array_equal(results, [2 * X, 2 * X])
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        "doubling: no GPU fits target sm_120 (present: none); the simulator runs it, for about "
        "1 s; ex2 and rcp use tables of an sm_90"
    )
    assert made.counters is not None
    assert len(made.counters.launches) == 1
    assert simulator.targets == ["sm_120", "sm_120"]


def test_a_gpu_of_another_target_does_not_fit(
    simulator: FakeSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "devices", lambda: (H200,))
    with pytest.warns(
        SimulationWarning, match=r"present: NVIDIA H200 \(device 0, compute cap.* 9.0"
    ):
        kernel()(x=X)


def test_a_long_simulation_is_refused_unless_forced(simulator: FakeSimulator) -> None:
    slow = kernel(instructions={"mma": 10**9})
    with pytest.raises(DeviceError, match=r"no GPU fits.*backend='sim'\) does it anyway"):
        slow(x=X)
    np.testing.assert_array_equal(slow.run(x=X, backend="sim"), 2 * X)


def test_unknown_work_is_simulated_and_said(simulator: FakeSimulator) -> None:
    with pytest.warns(SimulationWarning, match="for an unknown time"):
        kernel(instructions={})(x=X)


def test_forcing_the_simulator_warns_of_nothing(simulator: FakeSimulator) -> None:
    made = kernel(stages=3)
    np.testing.assert_array_equal(made.run(x=X, backend="sim"), 8 * X)


def test_failed_simulations_leave_outputs_alone(simulator: FakeSimulator) -> None:
    simulator.fail = SimulationError("a race")
    out = np.zeros_like(X)
    with pytest.raises(SimulationError, match="a race"):
        kernel().run(x=X, out=out, backend="sim")
    assert not out.any()


def test_out_is_written_and_returned(simulator: FakeSimulator) -> None:
    out = np.zeros((40, 3), np.float32).T  # any strides will do on the host
    assert kernel().run(x=X, out=out, backend="sim") is out
    np.testing.assert_array_equal(out, 2 * X)


def test_out_may_be_the_input(simulator: FakeSimulator) -> None:
    held = X.copy()
    kernel().run(x=held, out=held, backend="sim")
    np.testing.assert_array_equal(held, 2 * X)


def test_copies_warn_at_the_caller(simulator: FakeSimulator) -> None:
    with pytest.warns(CopyWarning) as caught:
        kernel().run(x=np.asfortranarray(X), backend="sim")
    assert caught[0].filename == __file__
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        kernel()(x=np.asfortranarray(X))
    assert [warning.filename for warning in seen] == [__file__, __file__]


def test_without_elements_nothing_is_launched(simulator: FakeSimulator) -> None:
    result = kernel(rows=0).run(x=np.zeros((0, 40), np.float32), backend="sim")
    assert result.shape == (0, 40)


def test_host_arrays_of_other_libraries(simulator: FakeSimulator) -> None:
    """Seen through DLPack; the output is made by the library's own namespace."""

    class Other(HostTensor):
        def __array_namespace__(self) -> Any:
            return SimpleNamespace(asarray=HostTensor)

    result = kernel().run(x=Other(X), backend="sim")
    assert isinstance(result, HostTensor)
    np.testing.assert_array_equal(result.array, 2 * X)


def test_the_simulator_itself_runs_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every dtype, through a workspace, with no more output than there is to be written."""
    monkeypatch.setattr(device, "devices", lambda: ())
    for dtype in doubling.DTYPES:
        made = kernel(dtype=dtype, stages=3)
        result = made.run(x=dtype.encode(X), backend="sim")
        np.testing.assert_array_equal(result, dtype.encode(8 * X))
        assert made.counters is not None
        assert len(made.counters.launches) == 3
    empty = kernel(rows=0).run(x=np.zeros((0, 40), np.float32), backend="sim")
    assert empty.shape == (0, 40)
    with pytest.warns(SimulationWarning, match="for about 1 s"):
        kernel()(x=X)


# the GPU


def test_host_arrays_run_on_a_gpu_that_fits(fake_gpu: FakeDriver) -> None:
    result = kernel(stages=2)(x=X)
    np.testing.assert_array_equal(result, 4 * X)
    assert not fake_gpu.held


def test_arrays_on_a_gpu_stay_there(fake_gpu: FakeDriver) -> None:
    """The output is made on the device; the workspace is given back when the call returns."""
    result = kernel(stages=2)(x=CudaTensor(_aligned()), stream=9)
    assert isinstance(result, DeviceArray)
    np.testing.assert_array_equal(result.numpy(), 4 * X)
    assert list(fake_gpu.held) == [result.address]
    assert {arguments[8] for arguments in fake_gpu.called("cuLaunchKernel")} == {9}


def test_out_on_a_gpu_is_written_in_place(fake_gpu: FakeDriver) -> None:
    out = CudaTensor(_aligned())
    assert kernel()(x=CudaTensor(_aligned()), out=out) is out
    np.testing.assert_array_equal(out.array, 2 * X)
    assert not fake_gpu.called("cuMemAllocAsync")


def test_arrays_on_a_gpu_of_another_target_are_refused(h200: FakeDriver) -> None:
    tensor = CudaTensor(_aligned())
    with pytest.raises(InputError, match=r"arrays are on NVIDIA H200.*target='sm_90'"):
        kernel()(x=tensor)
    kernel(target="sm_90")(x=tensor)


def test_the_simulator_takes_no_arrays_on_a_gpu(fake_gpu: FakeDriver) -> None:
    with pytest.raises(InputError, match="backend='sim' takes arrays in host memory, got CUDA dev"):
        kernel().run(x=CudaTensor(_aligned()), backend="sim")


def test_forcing_a_gpu_that_is_not_there_is_an_error(simulator: FakeSimulator) -> None:
    with pytest.raises(DeviceError, match="no GPU fits target sm_120; present: none"):
        kernel().run(x=X, backend="gpu")


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(InputError, match="got backend='cpu', wants 'gpu' or 'sim'"):
        kernel().run(x=X, backend="cpu")


def test_debugging_prints_a_line_for_each_run(
    simulator: FakeSimulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGRAPH_FLASH_DEBUG", "1")
    kernel().run(x=X, backend="sim")
    line = capsys.readouterr().err
    assert line.startswith("doubling: predicted 1.5 µs, simulated in ")
    assert "twice: grid (4, 1, 1), block (32, 1, 1)" in line


def _aligned() -> np.ndarray:
    memory = np.empty(X.nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16
    made = memory[start : start + X.nbytes].view(np.float32).reshape(X.shape)
    made[...] = X
    return made


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", doubling.DTYPES, ids=repr)
@pytest.mark.parametrize("stages", [1, 3])
def test_runs_on_a_real_gpu(dtype: Any, stages: int) -> None:
    """Host arrays, and arrays that stay on the GPU, in every dtype, through a workspace."""
    record = doubling.record(dtype=dtype, stages=stages, target=present_target() or "sm_90")
    x = dtype.encode(X)
    wanted = dtype.encode(2.0**stages * X)
    np.testing.assert_array_equal(Kernel(record)(x=x), wanted)
    held = DeviceArray.of(x, dtype, 0)
    out = DeviceArray(X.shape, dtype, 0)
    assert Kernel(record)(x=held, out=out) is out
    np.testing.assert_array_equal(out.numpy(), wanted)
    np.testing.assert_array_equal(Kernel(record)(x=held).numpy(), wanted)
