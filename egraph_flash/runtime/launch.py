"""How a plan's launches run on a GPU: the same signature as the simulator's, the same PTX text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import DeviceError, InputError
from ..layouts import ALIGNMENT_BYTES
from ..plan import Launch
from . import device, driver, streams
from .arrays import View, view
from .assembler import Assembly, assemble
from .parameters import parameters


def run(
    ptx: str,
    launches: Sequence[Launch],
    buffers: Mapping[str, Any],
    *,
    target: str,
    stream: Any = None,
    name: str = "kernel",
    assembly: Assembly | None = None,
    outputs: Collection[str] | None = None,
    timed: bool = False,
) -> float | None:
    """Run `launches` in order over `buffers`, which are changed in place.

    The buffers are arrays that all lie in host memory or all on one GPU, with the strides that
    the launches' arguments say, none of them negative. Host arrays are copied to the first GPU
    that fits `target`, with the bytes between their elements, and back (only `outputs`, where
    given, and only elements) before this returns; on a GPU the launches are put on `stream` and
    this returns at once. With `timed` it waits and returns the launches' µs, else None.

    Raises InputError for arrays that do not fit, DeviceError for what the driver reports.
    """
    views = {key: view(array, f"{name}: buffer {key!r}") for key, array in buffers.items()}
    for key, found in views.items():
        if 0 not in found.shape and min(found.strides, default=0) < 0:
            raise InputError(
                f"{name}: buffer {key!r} has strides {found.strides}, wants each 0 or more"
            )
    wanted = [step for step in launches if 0 not in step.grid]
    ordinal = place(target, views, name)
    handle = streams.choose(stream, views.values())
    cubin = (assembly or assemble(ptx, target)).cubin
    on_host = all(found.device is None for found in views.values())
    with _named(name), driver.on(ordinal):
        if on_host:
            back = views if outputs is None else outputs
            return _run_host(cubin, wanted, views, back, ordinal, handle, timed)
        addresses = {key: found.address for key, found in views.items() if 0 not in found.shape}
        _stand_in(addresses, views)
        return launch_all(cubin, wanted, addresses, ordinal, handle, timed=timed)


def place(target: str, views: Mapping[str, View], name: str) -> int:
    """The ordinal of the GPU to run on: the one that holds the arrays, else the first that fits.

    Raises InputError for arrays in several places or on a GPU of another target, DeviceError where
    no GPU fits.
    """
    held = {found.device for found in views.values()}
    if len(held) > 1:
        where = ", ".join(f"{key!r} in {found.place}" for key, found in views.items())
        raise InputError(f"{name}: got {where}; wants all of them in one place")
    ordinal = held.pop() if held else None
    if ordinal is None:
        first = device.fitting(target)
        if first is None:
            raise DeviceError(f"{name}: no GPU fits target {target}; present: {device.listed()}")
        return first.ordinal
    gpu = next((gpu for gpu in device.devices() if gpu.ordinal == ordinal), None)
    if gpu is None or not device.fits(target, gpu.capability):
        raise InputError(
            f"{name}: the arrays are on {gpu or f'CUDA device {ordinal}'}, the kernel is for "
            f"{target}; optimize it with target={gpu.target if gpu else None!r}"
        )
    return ordinal


def launch_all(
    cubin: bytes,
    launches: Sequence[Launch],
    addresses: Mapping[str, int],
    ordinal: int,
    stream: int,
    *,
    timed: bool = False,
) -> float | None:
    """Put the launches on a stream, in order, in the current context; µs where `timed`."""
    from .timing import Stopwatch

    watch = Stopwatch(stream) if timed else None
    for step in launches:
        try:
            driver.launch(cubin, step, parameters(step, addresses), ordinal, stream)
        except DeviceError as error:
            raise DeviceError(f"{error}, launching {step}") from error
    return watch.stop_us() if watch else None


def _run_host(
    cubin: bytes,
    launches: Sequence[Launch],
    views: Mapping[str, View],
    back: Collection[str],
    ordinal: int,
    stream: int,
    timed: bool,
) -> float | None:
    """Copies lie as far from multiples of 16 as the arrays do, with the same strides."""
    held: list[int] = []
    addresses: dict[str, int] = {}
    try:
        for key, found in views.items():
            size_bytes = found.footprint.size_bytes
            if not size_bytes:
                continue
            shift_bytes = found.address % ALIGNMENT_BYTES
            held.append(driver.allocate(size_bytes + shift_bytes, stream))
            addresses[key] = held[-1] + shift_bytes
            driver.upload(addresses[key], found.address, size_bytes, stream)
        _stand_in(addresses, views)
        elapsed_us = launch_all(cubin, launches, addresses, ordinal, stream, timed=timed)
        _wait(stream, launches)
        for key in back:
            if views[key].writable and 0 not in views[key].shape:
                _download(views[key], addresses[key], stream)
    finally:
        driver.release(held, stream)
    return elapsed_us


def _download(found: View, address: int, stream: int) -> None:
    """Bring the elements back; bytes between them keep what they hold on the host."""
    assert found.host is not None
    covering = np.empty(found.footprint.size_bytes, np.uint8)
    driver.download(covering.ctypes.data, address, covering.size, stream)
    driver.synchronize(stream)
    found.host[...] = np.ndarray(
        found.shape, found.host.dtype, covering, strides=found.strides_bytes
    )


def _stand_in(addresses: dict[str, int], views: Mapping[str, View]) -> None:
    """Arrays without elements get the address of some other one, for their tensor maps' sake."""
    some = next(iter(addresses.values()), 0) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
    for key in views:
        addresses.setdefault(key, some)


def _wait(stream: int, launches: Sequence[Launch]) -> None:
    """Wait for the stream; what went wrong on it since, any of the launches may have done."""
    try:
        driver.synchronize(stream)
    except DeviceError as error:
        steps = "\n".join(f"  {step}" for step in launches)
        raise DeviceError(f"{error}, after launching\n{steps}") from error


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Put the kernel's name before what the driver, or a tensor map, refuses."""
    try:
        yield
    except (DeviceError, InputError) as error:
        raise type(error)(f"{name}: {error}") from error
