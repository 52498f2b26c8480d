"""What a PTX module is as data: operands, instructions, entries; no text and no meaning."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from .ptx_types import REGISTER_CLASSES, VALUE_TYPES, PtxError

if TYPE_CHECKING:
    from .isa.row import Instr


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register: `Register("b32", 3)` prints as `%r3`."""

    type: str
    index: int

    def __post_init__(self) -> None:
        if self.type not in REGISTER_CLASSES or self.index < 0:
            wanted = ", ".join(REGISTER_CLASSES)
            raise PtxError(
                f"register: got type {self.type!r}, index {self.index}; wants one of {wanted} "
                "and an index of at least 0 (codegen/ptx_types.py)"
            )

    def __str__(self) -> str:
        return f"{REGISTER_CLASSES[self.type].prefix}{self.index}"


@dataclass(frozen=True, eq=False)
class Immediate:
    """A constant operand of a value type; an `f32` is rounded to nearest when it is built.

    Two are equal when their bits are: −0.0 differs from 0.0, a NaN equals itself.
    """

    type: str
    value: int | float

    def __post_init__(self) -> None:
        row = VALUE_TYPES.get(self.type)
        if row is None or not row.takes_immediates:
            raise PtxError(f"immediate: got type {self.type!r}, which takes no constants")
        if row.is_float:
            if self.type == "f32":
                object.__setattr__(self, "value", _nearest_f32(float(self.value)))
            return
        signed = self.type[0] == "s"
        low, high = (-(1 << row.bits - 1), 1 << row.bits - 1) if signed else (0, 1 << row.bits)
        if not isinstance(self.value, int) or not low <= self.value < high:
            raise PtxError(f"immediate: got {self.value!r}, wants an integer of type {self.type}")

    @property
    def bits(self) -> int:
        """The bit pattern that a register would hold."""
        row = VALUE_TYPES[self.type]
        if row.is_float:
            spelling = "<f" if self.type == "f32" else "<d"
            return int.from_bytes(struct.pack(spelling, self.value), "little")
        return int(self.value) & ((1 << row.bits) - 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Immediate) and self.type == other.type and self.bits == other.bits

    def __hash__(self) -> int:
        return hash((self.type, self.bits))

    def __str__(self) -> str:
        if self.type == "f32":
            return f"0f{self.bits:08X}"
        if self.type == "f64":
            return f"0d{self.bits:016X}"
        return f"0x{self.bits:x}" if self.type[0] == "b" else str(self.value)


def _nearest_f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:  # finite, but rounds beyond the largest f32
        return float("inf") if value > 0 else float("-inf")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that the module declares: a parameter or a shared array."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Special:
    """A special register: `Special("tid.x")` prints as `%tid.x`."""

    name: str

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True, slots=True)
class Label:
    """The target of a branch."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Address:
    """A memory operand: a register or a declared name, plus a constant number of bytes."""

    base: Register | Symbol
    offset_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.base}+{self.offset_bytes}" if self.offset_bytes else str(self.base)


Operand = Register | Immediate | Symbol | Special | Label | Address


class Guard(NamedTuple):
    """`@%p` or, negated, `@!%p`: the lanes that execute an instruction."""

    register: Register
    negated: bool = False

    def __str__(self) -> str:
        return f"@{'!' if self.negated else ''}{self.register}"


@dataclass(frozen=True)
class Instruction:
    """One instruction: its row in the instruction table, and its operands by name.

    Built by `row.bind(...)`, which checks them. `line` is where a parsed one stood (from 1).
    """

    row: Instr
    operands: Mapping[str, tuple[Operand, ...]]
    guard: Guard | None = None
    line: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.guard} {self.text}" if self.guard else self.text

    def guarded(self, predicate: Register, negated: bool = False) -> Instruction:
        """The same instruction, executed only by lanes whose predicate holds."""
        return replace(self, guard=Guard(predicate, negated))

    def at(self, line: int) -> Instruction:
        """The same instruction in a line of a text; what it does is found once for all lines."""
        _ = self.text, self.reads, self.writes
        placed = object.__new__(Instruction)
        placed.__dict__.update(self.__dict__, line=line)
        return placed

    @cached_property
    def text(self) -> str:
        """As PTX spells it, without its guard."""
        return self.row.print(self.operands)

    @cached_property
    def reads(self) -> tuple[Register, ...]:
        """The registers it reads, the guard's and addresses' included."""
        found = [self.guard.register] if self.guard else []
        for name, operands in self.operands.items():
            if name in self.row.sources:
                bases = (each.base if isinstance(each, Address) else each for each in operands)
                found += [each for each in bases if isinstance(each, Register)]
        return tuple(found)

    @cached_property
    def writes(self) -> tuple[Register, ...]:
        """The registers it writes (under a guard: may write)."""
        written = (operand for name in self.row.outputs for operand in self.operands[name])
        return tuple(each for each in written if isinstance(each, Register))


@dataclass(frozen=True)
class LabelMark:
    """The place in a body that a label names."""

    name: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Comment:
    """A `// text` line: the instructions up to the next one belong to that term."""

    text: str
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if self.text != self.text.strip() or "\n" in self.text:
            raise PtxError(f"comment: got {self.text!r}, wants one line without outer blanks")


Statement = Instruction | LabelMark | Comment


@dataclass(frozen=True)
class Param:
    """An entry's parameter: a scalar `type`, or `count` bytes of `b8` aligned to `align_bytes`."""

    type: str
    name: str
    count: int | None = None
    align_bytes: int | None = None


@dataclass(frozen=True)
class Shared:
    """A shared array of bytes; `size_bytes=None` is the launch's dynamic shared memory."""

    name: str
    align_bytes: int = 16
    size_bytes: int | None = None


DYNAMIC_SHARED = Shared("smem", align_bytes=1024)


@dataclass(frozen=True)
class Entry:
    """One kernel. `reqntid` is the exact block shape, `max_threads` a bound on its size."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Statement, ...]
    reqntid: tuple[int, int, int] | None = None
    max_threads: int | None = None
    maxnreg: int | None = None
    minnctapersm: int | None = None

    def __post_init__(self) -> None:
        if self.reqntid and self.max_threads:
            raise PtxError(
                f"{self.name}: got both .reqntid and .maxntid; wants at most one of them "
                "(PTX ISA, Performance-Tuning Directives)"
            )
        marks = [mark.name for mark in self.body if isinstance(mark, LabelMark)]
        if twice := sorted({name for name in marks if marks.count(name) > 1}):
            raise PtxError(f"{self.name}: label {twice[0]} is placed more than once")
        for instruction in self.instructions():
            for operand in instruction.operands.get("target", ()):
                if isinstance(operand, Label) and operand.name not in marks:
                    raise PtxError(f"{self.name}: label {operand} of {instruction} is not placed")

    def instructions(self) -> Iterator[Instruction]:
        return (each for each in self.body if isinstance(each, Instruction))

    def registers(self) -> dict[str, int]:
        """How many registers of each class the body names (one past the highest index)."""
        named: set[Register] = set()
        for instruction in self.instructions():
            named.update(instruction.reads, instruction.writes)
        counts: dict[str, int] = {}
        for register in named:
            counts[register.type] = max(counts.get(register.type, 0), register.index + 1)
        return {name: counts[name] for name in REGISTER_CLASSES if name in counts}


@dataclass(frozen=True)
class Module:
    """A translation unit: PTX version `(8, 7)`, target `sm_90`, entries, shared arrays."""

    version: tuple[int, int]
    target: str
    entries: tuple[Entry, ...]
    shared: tuple[Shared, ...] = (DYNAMIC_SHARED,)

    def __post_init__(self) -> None:
        number = sm_number(self.target)
        names = [entry.name for entry in self.entries] + [array.name for array in self.shared]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PtxError(f"module: the name {twice[0]} is declared more than once")
        for entry in self.entries:
            for instruction in entry.instructions():
                row = instruction.row
                if row.sm > number or (row.targets and self.target not in row.targets):
                    wanted = " or ".join(sorted(row.targets)) or f"sm_{row.sm} or later"
                    raise PtxError(
                        f"{row.name}: got target {self.target}, wants {wanted} ({row.source})"
                    )

    def entry(self, name: str) -> Entry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        have = ", ".join(entry.name for entry in self.entries)
        raise PtxError(f"module: got entry {name!r}, has {have or 'none'}")


PTX_VERSION = (8, 7)  # the first that knows sm_120; sm_90 takes it too (PTX ISA, Release Notes)


def sm_number(target: str) -> int:
    """`sm_90`, `sm_90a` → 90; an unknown spelling raises."""
    digits = target.removeprefix("sm_").rstrip("af")
    if not target.startswith("sm_") or not digits.isdigit():
        raise PtxError(f"target: got {target!r}, wants sm_ and a number, such as sm_120")
    return int(digits)
