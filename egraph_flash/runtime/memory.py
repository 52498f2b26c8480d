"""What a kernel's output on a GPU is where no other library's array is asked for."""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any

import numpy as np

from ..dtypes import Array, Dtype
from ..errors import DeviceError
from ..plan import dense_strides
from . import driver


class DeviceArray:
    """An array without gaps in the memory of one GPU, freed when it is dropped.

    `strides` are in elements, by default row-major. Libraries read it through
    `__cuda_array_interface__`; bf16 shows there as uint16 bit patterns.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Dtype,
        device: int,
        stream: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.shape, self.dtype, self.device, self.stream = tuple(shape), dtype, device, stream
        self.strides = dense_strides(self.shape) if strides is None else strides
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
        held = np.empty(self.size_bytes, np.uint8)
        with driver.on(self.device):
            driver.download(held.ctypes.data, self.address, self.size_bytes, self.stream)
            driver.synchronize(self.stream)
        return np.ndarray(self.shape, self.dtype.storage, held, strides=self._strides_bytes)

    @property
    def _strides_bytes(self) -> tuple[int, ...]:
        return tuple(stride * self.dtype.size_bytes for stride in self.strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.storage.str,
            "data": (self.address, False),
            "strides": self._strides_bytes,
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
