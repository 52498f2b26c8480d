"""A CUDA driver made of host memory, so that launching is tested where there is no GPU.

It keeps a log of calls, holds allocations as host bytes, and "runs" the entry `twice` in numpy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from egraph_flash.runtime import device, driver, parameters
from egraph_flash.runtime.device import Device

RTX_5090 = Device(0, "NVIDIA GeForce RTX 5090", (12, 0), 170)
H200 = Device(0, "NVIDIA H200", (9, 0), 132)

SUCCESS = SimpleNamespace(name="CUDA_SUCCESS")
FAILURES = {"CUDA_ERROR_ILLEGAL_ADDRESS": b"an illegal memory access was encountered"}
FAILED = SimpleNamespace(name=next(iter(FAILURES)))


class FakeResult:
    """Stands for `CUresult`, the enumeration."""

    CUDA_SUCCESS = SUCCESS

    def __new__(cls, status: int) -> Any:
        return FAILED if status else SUCCESS


class FakeDriver:
    """Stands for `cuda.bindings.driver`; `fail` names the function that reports an error."""

    CUresult = FakeResult
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)

    def __init__(self) -> None:
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self.held: dict[int, Any] = {}
        self.fail: str | None = None
        self._entry_points: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            self.log.append((name, arguments))
            if name == self.fail:
                return (FAILED, None)
            work = getattr(self, f"_{name}", lambda *_: 0)
            return (SUCCESS, work(*arguments))

        return function

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.log if called == name]

    def cuGetErrorString(self, status: Any) -> tuple[Any, bytes]:
        return SUCCESS, FAILURES[status.name]

    def _cuMemAllocAsync(self, size_bytes: int, stream: int) -> int:
        memory = (ctypes.c_char * (size_bytes + 16))()
        address = -(-ctypes.addressof(memory) // 16) * 16
        self.held[address] = memory
        return address

    def _cuMemFreeAsync(self, address: int, stream: int) -> None:
        del self.held[address]

    def _cuMemcpyHtoDAsync(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        ctypes.memmove(to, source, size_bytes)

    _cuMemcpyDtoHAsync = _cuMemcpyHtoDAsync

    def _cuEventElapsedTime(self, start: Any, end: Any) -> float:
        return 0.5  # ms

    def _cuModuleGetFunction(self, module: Any, entry: bytes) -> bytes:
        return entry

    def _cuGetProcAddress(self, symbol: bytes, version: int, flags: int) -> int:
        """The address of a C function that logs what a tensor map is encoded from.

        Its result repeats the tensor's address.
        """
        assert symbol == b"cuTensorMapEncodeTiled"

        def encode(
            result: int, dtype: int, rank: int, tensor: int, sizes: Any, strides: Any, box: Any,
            steps: Any, *choices: int,
        ) -> int:  # fmt: skip
            assert result % 64 == 0, "CUDA_ERROR_INVALID_VALUE"
            given = (sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank], choices)
            self.log.append((symbol.decode(), (dtype, tensor, *given)))
            (ctypes.c_uint64 * 16).from_address(result)[:] = [tensor] * 16
            return 1 if self.fail == symbol.decode() else 0

        self._entry_points.append(parameters.PROTOTYPE(encode))
        return ctypes.cast(self._entry_points[-1], ctypes.c_void_p).value or 0

    def _cuLaunchKernel(self, entry: bytes, *rest: Any) -> None:
        assert entry == b"twice"
        (source, result, count), _ = rest[8]
        floats = (ctypes.c_float * count).from_address
        np.frombuffer(floats(result), np.float32)[:] = 2 * np.frombuffer(floats(source), np.float32)


def install(patch: pytest.MonkeyPatch, gpu: Device) -> FakeDriver:
    """Put a fake driver with one GPU in the place of the real one."""
    fake = FakeDriver()
    patch.setattr(driver, "api", lambda: fake)
    patch.setattr(driver, "_FUNCTIONS", {})
    patch.setattr(device, "devices", lambda: (gpu,))
    _forget()
    return fake


def _forget() -> None:
    driver._context.cache_clear()
    driver._module.cache_clear()
    parameters.encode.cache_clear()


@contextmanager
def installed(gpu: Device) -> Iterator[FakeDriver]:
    """A fake driver that is gone afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        yield install(patch, gpu)
    _forget()


class CudaTensor:
    """A numpy array that says through DLPack that it lies on CUDA device 0."""

    def __init__(self, array: Any, device: int = 0) -> None:
        self.array, self.ordinal = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        assert stream == -1
        return self.array.__dlpack__()


class HostTensor(CudaTensor):
    """A numpy array that is seen through DLPack only."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        return self.array.__dlpack__()
