"""How a plan's launches run on a GPU: the same signature as the simulator's, the same PTX text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import DeviceError, InputError
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

    The buffers are dense arrays that all lie in host memory or all on one GPU. Host arrays are
    copied to the first GPU that fits `target` and back (only `outputs`, where given) before this
    returns; on a GPU the launches are put on `stream` and this returns at once. With `timed` it
    waits and returns the launches' µs, else None.

    Raises InputError for arrays that do not fit, DeviceError for what the driver reports.
    """
    views = {key: view(array, f"{name}: buffer {key!r}") for key, array in buffers.items()}
    for key, found in views.items():
        if not found.is_dense:
            raise InputError(f"{name}: buffer {key!r} has strides {found.strides}, wants it dense")
    wanted = [step for step in launches if 0 not in step.grid]
    ordinal = place(target, views, name)
    handle = streams.choose(stream, views.values())
    cubin = (assembly or assemble(ptx, target)).cubin
    on_host = all(found.device is None for found in views.values())
    with _named(name), driver.on(ordinal):
        if on_host:
            back = views if outputs is None else outputs
            return _run_host(cubin, wanted, views, back, ordinal, handle, timed)
        addresses = {key: found.address for key, found in views.items()}
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
    addresses: dict[str, int] = {}
    try:
        for key, found in views.items():
            addresses[key] = driver.allocate(found.size_bytes, stream)
            driver.upload(addresses[key], found.address, found.size_bytes, stream)
        elapsed_us = launch_all(cubin, launches, addresses, ordinal, stream, timed=timed)
        _wait(stream, launches)
        for key in back:
            if views[key].writable:
                size_bytes = views[key].size_bytes
                driver.download(views[key].address, addresses[key], size_bytes, stream)
        driver.synchronize(stream)
    finally:
        driver.release(list(addresses.values()), stream)
    return elapsed_us


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
