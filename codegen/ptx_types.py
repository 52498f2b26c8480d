"""Which register classes and operand types PTX has, and how numpy holds a value of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import EgraphFlashError


class PtxError(EgraphFlashError, ValueError):
    """PTX that is not well formed: an operand, an instruction row, a line of text."""


@dataclass(frozen=True)
class RegisterClass:
    """A `.reg` type: its name in declarations, its prefix in operands, its numpy storage."""

    name: str
    prefix: str
    bits: int
    storage: np.dtype[Any]
    source: str = "PTX ISA, State Spaces: .reg, and Fundamental Types"


REGISTER_CLASSES: dict[str, RegisterClass] = {
    row.name: row
    for row in (
        RegisterClass("pred", "%p", 1, np.dtype(np.bool_)),
        RegisterClass("b16", "%h", 16, np.dtype(np.uint16)),
        RegisterClass("b32", "%r", 32, np.dtype(np.uint32)),
        RegisterClass("b64", "%rd", 64, np.dtype(np.uint64)),
        RegisterClass("f32", "%f", 32, np.dtype(np.float32)),
        RegisterClass("f64", "%fd", 64, np.dtype(np.float64)),
    )
}


@dataclass(frozen=True)
class ValueType:
    """An operand type: which register class holds it and what an instruction sees in it.

    `element` is the numpy type that a row's meaning receives, `packed` how many of them one
    register holds (f16x2: two). An untyped `bN` operand takes a register of any class of N bits.
    """

    name: str
    register_class: str
    element: np.dtype[Any]
    packed: int = 1
    source: str = "PTX ISA, Fundamental Types and Operand Type Checking"

    @property
    def bits(self) -> int:
        return REGISTER_CLASSES[self.register_class].bits

    @property
    def is_float(self) -> bool:
        return self.name in ("f32", "f64")

    @property
    def takes_immediates(self) -> bool:
        return self.packed == 1 and self.name not in ("pred", "f16", "bf16")

    def accepts(self, register_class: str) -> bool:
        """Whether an operand of this type may be a register of that class."""
        if register_class == self.register_class:
            return True
        untyped = self.name == f"b{self.bits}"
        return untyped and REGISTER_CLASSES[register_class].bits == self.bits


def _value(name: str, register_class: str, element: type[np.generic], packed: int = 1) -> ValueType:
    return ValueType(name, register_class, np.dtype(element), packed)


VALUE_TYPES: dict[str, ValueType] = {
    row.name: row
    for row in (
        _value("pred", "pred", np.bool_),
        _value("b16", "b16", np.uint16),
        _value("u16", "b16", np.uint16),
        _value("s16", "b16", np.int16),
        _value("f16", "b16", np.float16),
        _value("bf16", "b16", np.uint16),  # numpy has no bfloat16: its bit pattern
        _value("b32", "b32", np.uint32),
        _value("u32", "b32", np.uint32),
        _value("s32", "b32", np.int32),
        _value("f16x2", "b32", np.float16, packed=2),
        _value("bf16x2", "b32", np.uint16, packed=2),
        _value("f32", "f32", np.float32),
        _value("b64", "b64", np.uint64),
        _value("u64", "b64", np.uint64),
        _value("s64", "b64", np.int64),
        _value("f64", "f64", np.float64),
    )
}
