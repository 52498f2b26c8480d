"""How an instruction's operands become arrays: views into the register files, and writers.

A source is anything with `source[rows]`: `[rows, 32]`, or `[rows, 32, elements]` for vectors and
packed registers, or a numpy scalar for a constant. A writer takes rows, the active lanes (None:
all of them) and the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..codegen.ptx import Immediate, Operand, Register
from ..codegen.ptx_types import REGISTER_CLASSES, VALUE_TYPES, ValueType
from .batch import Array, Rows

Files = dict[str, Array]
Writer = Callable[[Rows, Array | None, Any], None]


class Source(Protocol):
    def __getitem__(self, rows: Rows, /) -> Any: ...


class Constant:
    """The same value for every thread."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, rows: Rows) -> Any:
        return self.value


class Vector:
    """Several registers of one class as `[rows, 32, registers · packed]`."""

    __slots__ = ("element", "file", "indices", "packed")

    def __init__(self, file: Array, indices: Sequence[int], value: ValueType) -> None:
        first = indices[0]
        consecutive = list(indices) == list(range(first, first + len(indices)))
        self.indices = slice(first, first + len(indices)) if consecutive else list(indices)
        self.file = file
        self.element = value.element
        self.packed = value.packed

    def __getitem__(self, rows: Rows) -> Array:
        words = np.ascontiguousarray(self.file[self.indices][:, rows]).view(self.element)
        count, warps, _ = words.shape
        lanes = words.reshape(count, warps, 32, self.packed).transpose(1, 2, 0, 3)
        return lanes.reshape(warps, 32, count * self.packed)


class Mixed:
    """A vector whose registers are of several classes (a `.bN` vector may be)."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Array]) -> None:
        self.parts = parts

    def __getitem__(self, rows: Rows) -> Array:
        return np.stack([part[rows] for part in self.parts], axis=-1)


def constant(immediate: Immediate, value: ValueType) -> Any:
    """An immediate as a numpy scalar of the operand's element type."""
    storage = REGISTER_CLASSES[value.register_class].storage
    unsigned = np.dtype(f"u{storage.itemsize}")
    return np.array(immediate.bits, unsigned).view(value.element)[()]


def view(files: Files, register: Register, value: ValueType) -> Array:
    """One register's lanes `[warps, 32]` as the operand's type, or `[warps, 32, packed]`."""
    lanes: Array = files[register.type][register.index].view(value.element)
    return lanes if value.packed == 1 else lanes.reshape(len(lanes), -1, value.packed)


def source(files: Files, operands: tuple[Operand, ...], value: ValueType) -> Source:
    """What a value operand reads."""
    if len(operands) == 1:
        (operand,) = operands
        if isinstance(operand, Immediate):
            return Constant(constant(operand, value))
        assert isinstance(operand, Register)
        return view(files, operand, value)
    registers = [each for each in operands if isinstance(each, Register)]
    if len({register.type for register in registers}) > 1:
        return Mixed([view(files, register, value) for register in registers])
    return Vector(files[registers[0].type], [each.index for each in registers], value)


def writer(files: Files, operands: tuple[Operand, ...], value: ValueType) -> Writer:
    """What writes a row's output; lanes that are not active keep what they hold."""
    registers = [operand for operand in operands if isinstance(operand, Register)]
    targets = [view(files, register, value) for register in registers]
    if len(targets) == 1:
        return _scalar_writer(targets[0])
    writers = [_scalar_writer(target) for target in targets]
    packed = value.packed

    def write(rows: Rows, active: Array | None, values: Array) -> None:
        for place, each in enumerate(writers):
            part = values[..., place * packed : (place + 1) * packed]
            each(rows, active, part if packed > 1 else part[..., 0])

    return write


def _scalar_writer(target: Array) -> Writer:
    vector = target.ndim == 3

    def write(rows: Rows, active: Array | None, values: Any) -> None:
        if active is None:
            target[rows] = values
            return
        lanes = active[..., None] if vector else active
        if isinstance(rows, slice):
            np.copyto(target[rows], values, where=lanes, casting="unsafe")
        else:
            held = target[rows]
            np.copyto(held, values, where=lanes, casting="unsafe")
            target[rows] = held

    return write


def pointer_type(space: str) -> ValueType:
    """The type of an address register of a state space."""
    return VALUE_TYPES["u64" if space == "global" else "u32"]
