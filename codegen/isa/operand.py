"""What an instruction's operand may be: read from a row's short spelling, checked when bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ..ptx import Address, Immediate, Label, Operand, Register, Special, Symbol
from ..ptx_types import REGISTER_CLASSES, VALUE_TYPES, PtxError, ValueType

Kind = Literal["value", "address", "label", "symbol", "special"]
Given = Operand | int | float | Sequence[Operand]

SPACES = {"global": "b64", "shared": "b32", "param": ""}  # the class of an address register


@dataclass(frozen=True)
class OperandSpec:
    """One operand of a row.

    Spellings: `f32`, `f16x2 x4` (a vector of registers), `u32 immediate`, `u32 register`,
    `address global|shared|param`, `label`, `symbol` (a shared array), `symbol param`,
    `special u32`.
    """

    kind: Kind
    type: ValueType | None = None
    count: int = 1
    space: str = ""
    only: str = ""

    def __str__(self) -> str:
        if self.kind == "address":
            return f"an address in {self.space} memory"
        if self.type is None:
            return f"a {self.kind}{' of a parameter' if self.space else ''}"
        if self.kind == "special":
            return f"a special register of type {self.type.name}"
        vector = f" x{self.count}" if self.count > 1 else ""
        return f"{self.type.name}{vector}{' ' + self.only if self.only else ''}"

    @property
    def value_type(self) -> ValueType:
        assert self.type is not None, "only values and special registers have a type"
        return self.type

    def check(self, given: Given) -> tuple[Operand, ...] | None:
        """The operand as a tuple, numbers made immediates; None where it does not fit."""
        if isinstance(given, Register):
            return (given,) if self.count == 1 and given.type in self.registers else None
        if self.count > 1:
            if not isinstance(given, Sequence) or len(given) != self.count:
                return None
            return tuple(given) if all(self._fits(each) for each in given) else None
        if isinstance(given, Sequence):
            if len(given) != 1:
                return None
            (given,) = given
        if isinstance(given, (int, float)) and self.kind == "value" and self.takes_immediates:
            given = Immediate(self.value_type.name, given)
        return (given,) if self._fits(given) else None  # type: ignore[return-value]

    @cached_property
    def takes_immediates(self) -> bool:
        return (
            self.kind == "value"
            and self.count == 1
            and self.only != "register"
            and self.value_type.takes_immediates
        )

    @cached_property
    def registers(self) -> frozenset[str]:
        """The classes of registers that it may be."""
        if self.kind != "value" or self.only == "immediate":
            return frozenset()
        return frozenset(filter(self.value_type.accepts, REGISTER_CLASSES))

    def _fits(self, operand: object) -> bool:
        if isinstance(operand, Register):
            return operand.type in self.registers
        if self.kind == "value":
            return (
                isinstance(operand, Immediate)
                and self.takes_immediates
                and operand.type == self.value_type.name
            )
        if self.kind == "address":
            return isinstance(operand, Address) and (
                isinstance(operand.base, Symbol)
                if not SPACES[self.space]
                else not isinstance(operand.base, Register)
                or operand.base.type == SPACES[self.space]
            )
        return isinstance(
            operand, {"label": Label, "symbol": Symbol, "special": Special}[self.kind]
        )


def operand_spec(spelling: str) -> OperandSpec:
    """Read a row's spelling of an operand.

    >>> print(operand_spec("f16x2 x4"))
    f16x2 x4
    """
    first, *rest = spelling.split()
    if first == "address" and len(rest) == 1 and rest[0] in SPACES:
        return OperandSpec("address", space=rest[0])
    if first in ("label", "symbol") and not rest:
        return OperandSpec("label" if first == "label" else "symbol")
    if first == "symbol" and rest == ["param"]:
        return OperandSpec("symbol", space="param")
    if first == "special" and len(rest) == 1 and rest[0] in VALUE_TYPES:
        return OperandSpec("special", VALUE_TYPES[rest[0]])
    if first in VALUE_TYPES:
        counts = [int(word[1:]) for word in rest if word[0] == "x" and word[1:].isdigit()]
        only = [word for word in rest if word in ("register", "immediate")]
        if len(counts) + len(only) == len(rest) and len(counts) <= 1 and len(only) <= 1:
            return OperandSpec(
                "value", VALUE_TYPES[first], (counts or [1])[0], only=(only or [""])[0]
            )
    raise PtxError(
        f"operand: got the spelling {spelling!r}, wants a type such as 'f32' or 'f16x2 x4', "
        "'address global', 'label', 'symbol', 'symbol param' or 'special u32' "
        "(codegen/isa/operand.py)"
    )
