"""How PTX text runs on a GPU: assembled in process, loaded, launched on the caller's stream."""

from __future__ import annotations

from .assembler import Assembly, Entry, assemble, assembler_version
from .counters import counter
from .device import Device, devices, fits, present_target
from .launch import run
from .memory import DeviceArray

__all__ = [
    "Assembly",
    "Device",
    "DeviceArray",
    "Entry",
    "assemble",
    "assembler_version",
    "counter",
    "devices",
    "fits",
    "present_target",
    "run",
]
