"""Where blocks of a launch count themselves: words that are zero before each launch and after it.

Launches on one stream follow each other, so that all kernels share what a stream has; they leave
it as they found it, and it is never freed, since a captured graph may hold its address. So a first
call stands before a capture, as it does to load the module, and a graph may not be replayed while
other work is under way on the stream that it was captured on.
"""

from __future__ import annotations

from ..dtypes import Dtype
from . import driver
from .memory import DeviceArray

_HELD: dict[tuple[int, int, tuple[int, ...], str], DeviceArray] = {}


def counter(shape: tuple[int, ...], dtype: Dtype, device: int, stream: int) -> DeviceArray:
    """The counters of a stream of a GPU, made at the first call and zeroed then, in its order."""
    key = (device, stream, shape, dtype.name)
    if key not in _HELD:
        made = DeviceArray(shape, dtype, device, stream)
        with driver.on(device):
            driver.clear(made.address, made.size_bytes, stream)
        _HELD[key] = made
    return _HELD[key]
