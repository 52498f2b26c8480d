"""What a kernel's output on a GPU is where no other library's array is asked for."""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any

import numpy as np

from ..dtypes import Array, Dtype
from ..errors import DeviceError
from . import driver


class DeviceArray:
    """A dense row-major array in the memory of one GPU, freed when it is dropped.

    Libraries read it through `__cuda_array_interface__`; bf16 shows there as uint16 bit patterns.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Dtype, device: int, stream: int = 0) -> None:
        self.shape, self.dtype, self.device, self.stream = tuple(shape), dtype, device, stream
        self.size_bytes = math.prod(shape) * dtype.size_bytes
        self.address = 0
        with driver.on(device):
            self.address = driver.allocate(self.size_bytes, stream)

    @classmethod
    def of(cls, host: Array, dtype: Dtype, device: int, stream: int = 0) -> DeviceArray:
        """A copy of a numpy array of `dtype.storage`."""
        dense = np.ascontiguousarray(host)
        made = cls(host.shape, dtype, device, stream)
        with driver.on(device):
            driver.upload(made.address, dense.ctypes.data, made.size_bytes, stream)
            driver.synchronize(stream)
        return made

    def numpy(self) -> Array:
        """A copy in host memory, after all work on this array's stream is done."""
        host: Array = np.empty(self.shape, self.dtype.storage)
        with driver.on(self.device):
            driver.download(host.ctypes.data, self.address, self.size_bytes, self.stream)
            driver.synchronize(self.stream)
        return host

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.storage.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self.stream or 1,  # the interface spells the legacy default stream as 1
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype} {list(self.shape)} on device {self.device})"

    def __del__(self) -> None:
        if getattr(self, "address", 0) and not sys.is_finalizing():
            address, self.address = self.address, 0
            with contextlib.suppress(DeviceError), driver.on(self.device):
                driver.release([address], self.stream)
