"""Which GPUs are here, and which of them runs a kernel's target; cheap, and safe without driver."""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from dataclasses import dataclass

from ..errors import ScheduleError

Capability = tuple[int, int]

_ATTRIBUTES = {"multiprocessors": 16, "major": 75, "minor": 76}  # cuda.h, CUdevice_attribute


@dataclass(frozen=True)
class Device:
    """One GPU: its CUDA ordinal, name, compute capability and number of multiprocessors."""

    ordinal: int
    name: str
    capability: Capability
    multiprocessors: int

    @property
    def target(self) -> str | None:
        """The target whose kernels this package emits for it: "sm_90", "sm_120" or None."""
        return next((t for t in ("sm_120", "sm_90") if fits(t, self.capability)), None)

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name} (device {self.ordinal}, compute capability {major}.{minor})"


@functools.cache
def devices() -> tuple[Device, ...]:
    """The GPUs that the CUDA driver shows; none where there is no driver or it does not start."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(_device(driver, ordinal) for ordinal in range(count.value))


def _device(driver: ctypes.CDLL, ordinal: int) -> Device:
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    driver.cuDeviceGet(ctypes.byref(handle), ordinal)
    driver.cuDeviceGetName(name, len(name), handle)
    read = {}
    for attribute, number in _ATTRIBUTES.items():
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        read[attribute] = value.value
    capability = (read["major"], read["minor"])
    return Device(ordinal, name.value.decode(), capability, read["multiprocessors"])


def fits(target: str, capability: Capability) -> bool:
    """Whether a cubin for `target` runs at a compute capability.

    >>> fits("sm_120", (12, 1)), fits("sm_120a", (12, 1)), fits("sm_90a", (9, 0))
    (True, False, True)
    """
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if match is None:
        raise ScheduleError(f"target: got {target!r}, wants sm_90, sm_90a, sm_120 or sm_120a")
    wanted = divmod(int(match.group(1)), 10)
    if match.group(2) == "a":
        return capability == wanted
    return capability[0] == wanted[0] and capability[1] >= wanted[1]


def fitting(target: str) -> Device | None:
    """The first GPU that runs kernels for `target`."""
    return next((device for device in devices() if fits(target, device.capability)), None)


def listed() -> str:
    """The GPUs that are here, for a message."""
    return ", ".join(map(str, devices())) or "none"


def present_target() -> str | None:
    """The target of the first GPU that this package emits for: "sm_90", "sm_120", or None."""
    return next((device.target for device in devices() if device.target), None)
