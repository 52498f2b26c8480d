"""What an instruction is: one row with its text, operands, meaning, targets and source."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ..ptx import Guard, Instruction, Operand, Register
from ..ptx_types import PtxError
from .machine import CONTEXT
from .operand import Given, OperandSpec, operand_spec

Meaning = Callable[..., Any]
Function = TypeVar("Function", bound=Meaning)

COUNTERS = (
    "move",
    "alu",
    "fma",
    "mufu",
    "convert",
    "mma",
    "lsu_global",
    "lsu_shared",
    "constant",
    "warp",
    "control",
    "barrier",
    "copy",  # cp.async: load and store instructions too
    "group",  # its commits and waits
    "tma",
    "mbarrier",
    "fence",
    "atomic",
)
FLOWS = ("", "branch", "exit", "barrier", "arrive", "warp_barrier", "wait")


@dataclass(frozen=True, eq=False)
class Instr:
    """An instruction row; `ROWS[name]` is the only one of its name, so rows compare by identity.

    `meaning` is a numpy function: its parameters are the row's sources by name, or what it asks
    of the machine (`CONTEXT`, codegen/isa/machine.py); it returns the outputs in order. Scalars
    arrive as `[warps, 32]`, vectors and packed registers as `[warps, 32, elements]`.
    `exact` is whether the meaning gives the hardware's bits; `collective` whether all lanes of
    the warp take part; `flow` how control goes on after it.
    """

    name: str
    text: str
    operands: Mapping[str, OperandSpec]
    outputs: tuple[str, ...]
    sources: tuple[str, ...]
    context: tuple[str, ...]
    meaning: Meaning = field(repr=False)
    counter: str
    source: str
    sm: int = 80
    targets: frozenset[str] = frozenset()
    exact: bool = True
    collective: bool = False
    flow: str = ""
    access_bytes: int = 0

    def __post_init__(self) -> None:
        if self.counter not in COUNTERS or self.flow not in FLOWS:
            raise PtxError(
                f"{self.name}: got counter {self.counter!r} and flow {self.flow!r}; "
                f"wants one of {COUNTERS} and one of {FLOWS}"
            )
        named = set(re.findall(r"\$(\w+)", self.text))
        if named != set(self.operands) or not self.text.endswith(";") or not self.source:
            raise PtxError(
                f"{self.name}: its text names {sorted(named)}, its operands are "
                f"{sorted(self.operands)}; they must agree, end in ';' and name a source"
            )

    @cached_property
    def mnemonic(self) -> str:
        """`mma.sync.aligned…`: the text up to its operands."""
        return self.text.rstrip(";").split()[0]

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The text cut at its operands: literal, operand name, literal, …"""
        return tuple(re.split(r"\$(\w+)", self.text))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the operands' text (after the mnemonic, without `;`); one group an operand."""
        parts = []
        for place, segment in enumerate(self.segments):
            if place % 2:
                vector = self.operands[segment].count > 1
                parts.append(f"(?P<{segment}>{'[^{}|;]+?' if vector else '[^,{}|;]+?'})")
                continue
            literal = segment.removeprefix(self.mnemonic).rstrip(";").strip()
            parts.append(r"\s*".join(map(re.escape, literal.replace(" ", ""))))
        return re.compile(r"\s*" + r"\s*".join(parts) + r"\s*")

    def print(self, operands: Mapping[str, tuple[Operand, ...]]) -> str:
        parts = list(self.segments)
        for place in range(1, len(parts), 2):
            given = operands[parts[place]]
            parts[place] = str(given[0]) if len(given) == 1 else ", ".join(map(str, given))
        return "".join(parts)

    def bind(self, *, guard: Register | Guard | None = None, **operands: Given) -> Instruction:
        """The instruction with these operands; numbers become immediates of the wanted type."""
        return self.of(operands, guard)

    def of(
        self, operands: Mapping[str, Given], guard: Register | Guard | None = None
    ) -> Instruction:
        """`bind` for operands in a mapping."""
        if operands.keys() != self.operands.keys():
            raise PtxError(
                f"{self.name}: got operands {list(operands)}, "
                f"wants {list(self.operands)} ({self.source})"
            )
        bound: dict[str, tuple[Operand, ...]] = {}
        for name, spec in self.operands.items():
            checked = spec.check(operands[name])
            if checked is None or (name in self.outputs and not _writable(checked)):
                where = " register" if name in self.outputs else ""
                raise PtxError(
                    f"{self.name}: operand {name} got {_shown(operands[name])}, "
                    f"wants {spec}{where} ({self.source})"
                )
            bound[name] = checked
        if isinstance(guard, Register):
            guard = Guard(guard)
        if guard is not None and guard.register.type != "pred":
            raise PtxError(f"{self.name}: guard got {guard}, wants a pred register")
        return Instruction(self, bound, guard)


def _writable(operands: tuple[Operand, ...]) -> bool:
    return all(isinstance(operand, Register) for operand in operands)


def _shown(given: Given) -> str:
    if isinstance(given, (tuple, list)):
        if len(given) == 1:
            return _shown(given[0])
        return "(" + ", ".join(map(_shown, given)) + ")"
    return f"{type(given).__name__} {given}"


ROWS: dict[str, Instr] = {}
_BY_MNEMONIC: dict[str, list[Instr]] = {}


def instr(
    text: str,
    *,
    source: str,
    counter: str,
    name: str = "",
    inout: tuple[str, ...] = (),
    sm: int = 80,
    targets: frozenset[str] = frozenset(),
    exact: bool = True,
    collective: bool = False,
    flow: str = "",
    access_bytes: int = 0,
    **operands: str,
) -> Callable[[Function], Function]:
    """Register a row whose meaning is the decorated function.

    Its name is `name`, else the mnemonic with underscores. Operands that the function does not
    take are the outputs; `inout` names those that are read and written.
    """

    def register(meaning: Function) -> Function:
        row_name = name or text.rstrip(";").split()[0].replace(".", "_").replace("::", "_")
        parameters = inspect.signature(meaning).parameters.values()
        takes = tuple(each.name for each in parameters if each.default is each.empty)
        if unknown := [each for each in takes if each not in operands and each not in CONTEXT]:
            raise PtxError(
                f"{row_name}: its meaning takes {unknown}, which are neither operands "
                f"({list(operands)}) nor what a machine offers ({list(CONTEXT)})"
            )
        if row_name in ROWS:
            raise PtxError(f"{row_name}: the instruction table already has a row of this name")
        row = Instr(
            name=row_name,
            text=text,
            operands={each: operand_spec(spelling) for each, spelling in operands.items()},
            outputs=tuple(each for each in operands if each not in takes or each in inout),
            sources=tuple(each for each in takes if each in operands),
            context=tuple(each for each in takes if each in CONTEXT),
            meaning=meaning,
            counter=counter,
            source=source,
            sm=sm,
            targets=targets,
            exact=exact,
            collective=collective,
            flow=flow,
            access_bytes=access_bytes,
        )
        ROWS[row_name] = row
        _BY_MNEMONIC.setdefault(row.mnemonic, []).append(row)
        return meaning

    return register


def rows_of(mnemonic: str) -> tuple[Instr, ...]:
    """The rows that share a mnemonic: `mov.b32` moves, packs and unpacks."""
    return tuple(_BY_MNEMONIC.get(mnemonic, ()))
