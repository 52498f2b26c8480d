"""What the CUDA driver does for us: contexts, modules kept per context, launches, memory."""

from __future__ import annotations

import functools
import hashlib
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import DeviceError
from ..plan import Launch

STATIC_SHARED_BYTES = 48 * 1024  # above it a kernel must ask (CUDA programming guide, 16.8.3)


@functools.cache
def api() -> Any:
    """`cuda.bindings.driver`, initialised; DeviceError where there is no driver or no GPU."""
    driver: Any = importlib.import_module("cuda.bindings.driver")
    try:
        (status,) = driver.cuInit(0)
    except Exception as error:
        raise DeviceError(f"CUDA: no driver is here ({error})") from error
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"CUDA: the driver does not start: {status.name}")
    return driver


def call(function: str, *arguments: Any) -> Any:
    """Call a driver function; its result, or DeviceError with CUDA's own name and text."""
    status, *results = getattr(api(), function)(*arguments)
    check(status, function)
    return results[0] if results else None


def check(status: Any, what: str) -> None:
    """DeviceError, with CUDA's own name and text, unless a status is success."""
    if status != api().CUresult.CUDA_SUCCESS:
        _, text = api().cuGetErrorString(status)
        raise DeviceError(f"{status.name} ({(text or b'?').decode()}) in {what}")


@functools.cache
def _context(ordinal: int) -> Any:
    """The primary context, which PyTorch and CuPy use too."""
    return call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal))


@contextmanager
def on(ordinal: int) -> Iterator[None]:
    """Make the device's primary context the current one, and the former current again after."""
    call("cuCtxPushCurrent", _context(ordinal))
    try:
        yield
    finally:
        call("cuCtxPopCurrent")


_FUNCTIONS: dict[tuple[int, bytes, str], Any] = {}


def function(cubin: bytes, entry: str, shared_bytes: int, ordinal: int) -> Any:
    """An entry of a cubin, loaded once in each device's context and kept."""
    digest = hashlib.sha256(cubin).digest()
    found = _FUNCTIONS.get((ordinal, digest, entry))
    if found is None:
        found = call("cuModuleGetFunction", _module(cubin, ordinal), entry.encode())
        _FUNCTIONS[ordinal, digest, entry] = found
    if shared_bytes > STATIC_SHARED_BYTES:
        attribute = api().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", found, attribute, shared_bytes)
    return found


@functools.lru_cache(maxsize=256)
def _module(cubin: bytes, ordinal: int) -> Any:
    return call("cuModuleLoadData", cubin)


def launch(
    cubin: bytes,
    step: Launch,
    given: tuple[tuple[Any, ...], tuple[Any, ...]],
    ordinal: int,
    stream: int,
) -> None:
    """Put one launch on a stream; `given` are its arguments' values and their C types."""
    entry = function(cubin, step.entry, step.shared_bytes, ordinal)
    call(
        "cuLaunchKernel", entry, *step.grid, *step.block, step.shared_bytes, stream,
        given if given[0] else 0, 0,
    )  # fmt: skip


def allocate(size_bytes: int, stream: int) -> int:
    """Device memory in stream order; 0 for no bytes."""
    return int(call("cuMemAllocAsync", size_bytes, stream)) if size_bytes else 0


def release(addresses: Sequence[int], stream: int) -> None:
    for address in addresses:
        if address:
            call("cuMemFreeAsync", address, stream)


def upload(address: int, host: int, size_bytes: int, stream: int) -> None:
    if size_bytes:
        call("cuMemcpyHtoDAsync", address, host, size_bytes, stream)


def download(host: int, address: int, size_bytes: int, stream: int) -> None:
    if size_bytes:
        call("cuMemcpyDtoHAsync", host, address, size_bytes, stream)


def clear(address: int, size_bytes: int, stream: int) -> None:
    """Zeros in device memory, in stream order."""
    if size_bytes:
        call("cuMemsetD8Async", address, 0, size_bytes, stream)


def synchronize(stream: int) -> None:
    call("cuStreamSynchronize", stream)


def owner(address: int) -> int:
    """The ordinal of the device that an address belongs to."""
    attribute = api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(call("cuPointerGetAttribute", attribute, address))
