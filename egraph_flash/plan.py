"""What a compiled kernel is to those who run it: PTX, its launches in order, and their buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .dtypes import Dtype
from .tensor_map import TensorMap

Role = Literal["input", "output", "workspace", "counter"]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Buffer:
    """An array in global memory: `shape` and `strides` in elements of `dtype`, outermost first.

    Memory that a kernel's caller does not give is made without gaps. A counter is zero before each
    launch, and zero again after it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    role: Role
    strides: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Of the elements; gaps that strides leave are not counted."""
        return math.prod(self.shape) * self.dtype.size_bytes


@dataclass(frozen=True)
class Pointer:
    """A kernel argument: the address of a buffer's first element (PTX `.u64`)."""

    buffer: str


@dataclass(frozen=True)
class Scalar:
    """A kernel argument by value; `type` is PTX's spelling: `u32`, `s32`, `u64`, `f32`."""

    type: str
    value: int | float


Argument = Pointer | Scalar | TensorMap


def describe(argument: Argument) -> str:
    """An argument as messages show it."""
    match argument:
        case Pointer(buffer):
            return buffer
        case Scalar(type_, value):
            return f"{type_} {value}"
        case TensorMap():
            return f"map of {argument}"


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `grid` in blocks, `block` in threads, dynamic shared memory in bytes.

    `instructions` are those that a warp executes on average, by class; empty where that is not
    known.
    """

    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    arguments: tuple[Argument, ...]
    instructions: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    def __str__(self) -> str:
        shape = f"grid {self.grid}, block {self.block}, {self.shared_bytes} shared bytes"
        given = ", ".join(map(describe, self.arguments))
        return f"{self.entry}: {shape}, arguments ({given})"


@dataclass(frozen=True)
class Plan:
    """One PTX module and the launches that compute the outputs from the inputs, in order."""

    ptx: str
    target: str
    launches: tuple[Launch, ...]
    buffers: tuple[Buffer, ...]

    def having(self, role: Role) -> tuple[Buffer, ...]:
        return tuple(buffer for buffer in self.buffers if buffer.role == role)

    @property
    def workspace_bytes(self) -> int:
        return sum(buffer.size_bytes for buffer in self.having("workspace"))


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements.

    >>> dense_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
