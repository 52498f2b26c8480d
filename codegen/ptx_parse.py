"""What module a PTX text is: the lines are read by the same instruction rows that print them."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache

from .isa import rows_of
from .isa.operand import Given, OperandSpec
from .ptx import (
    Address,
    Comment,
    Entry,
    Guard,
    Immediate,
    Instruction,
    Label,
    LabelMark,
    Module,
    Operand,
    Param,
    Register,
    Shared,
    Special,
    Statement,
    Symbol,
)
from .ptx_types import REGISTER_CLASSES, PtxError

NAME = r"[A-Za-z_$%][\w$]*"
_LABEL = re.compile(rf"{NAME}:")
_REGISTER = re.compile(r"(%[a-z]+)(\d+)")
_CLASS_OF_PREFIX = {row.prefix: row.name for row in REGISTER_CLASSES.values()}


def parse(text: str) -> Module:
    """Read a module in the form that `emit` writes; blanks and blank lines are free.

    Raises PtxError with the line number for anything else: an unknown instruction, an operand
    that its row does not take, several statements on one line.
    """
    return _Reader(text).module()


@cache
def read_register(text: str) -> Register | None:
    """`%r3` → Register("b32", 3); None for anything else."""
    found = _REGISTER.fullmatch(text)
    if found is None or found[1] not in _CLASS_OF_PREFIX:
        return None
    return Register(_CLASS_OF_PREFIX[found[1]], int(found[2]))


def read_operand(text: str, spec: OperandSpec) -> Operand:
    """One operand of the kind that a row wants; ValueError where the text is of another kind."""
    text = text.strip()
    if spec.kind == "label":
        return Label(_name(text))
    if spec.kind == "symbol":
        return Symbol(_name(text))
    if spec.kind == "special":
        if not text.startswith("%") or read_register(text):
            raise ValueError(f"{text} is no special register")
        return Special(text[1:])
    if spec.kind == "address":
        base, _, offset = text.partition("+")
        register = read_register(base.strip())
        return Address(register or Symbol(_name(base.strip())), int(offset or "0", 0))
    return read_register(text) or _immediate(text, spec.value_type.name)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_$][\w$]*", text):
        raise ValueError(f"{text!r} is no name")
    return text


def _immediate(text: str, type: str) -> Immediate:
    if text[:2] in ("0f", "0F") and len(text) == 10:
        return Immediate(type, struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    if text[:2] in ("0d", "0D") and len(text) == 18:
        return Immediate(type, struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    if type[0] == "f":
        raise ValueError(f"{text!r} is no {type} constant; wants 0f or 0d and hex digits")
    value = int(text.removesuffix("U"), 0)
    if type[0] in "bu" and value < 0:
        value &= (1 << int(type[1:])) - 1
    return Immediate(type, value)


LINES_KEPT = 1 << 14  # that were read last: texts that differ in a few lines share the others


def read_instruction(text: str, line: int = 0) -> Instruction:
    """One instruction with its guard, without the final `;`."""
    try:
        return _instruction(text).at(line)
    except PtxError as error:
        raise PtxError(f"line {line}: {error}") from None


@lru_cache(LINES_KEPT)
def _instruction(text: str) -> Instruction:
    found = re.fullmatch(r"(?:@(!?)(%p\d+)\s+)?([\w.:]+)(.*)", text, re.DOTALL)
    if found is None:
        raise PtxError(f"got {text!r}, wants an instruction")
    negated, predicate, mnemonic, rest = found.groups()
    guard = None
    if predicate:
        register = read_register(predicate)
        assert register is not None
        guard = Guard(register, bool(negated))
    rows = rows_of(mnemonic)
    if not rows:
        raise PtxError(
            f"unsupported instruction {mnemonic!r} in {text!r}; "
            "the instruction table has no such row (codegen/isa)"
        )
    reasons = []
    for row in rows:
        operands = row.pattern.fullmatch(rest)
        if operands is None:
            reasons.append(f"{row.name} is written {row.text!r}")
            continue
        try:
            given: dict[str, Given] = {
                name: _operands(operands[name], spec) for name, spec in row.operands.items()
            }
            return row.of(given, guard)
        except (PtxError, ValueError) as error:
            reasons.append(str(error))
    raise PtxError(f"got {text!r}: " + "; ".join(reasons))


def _operands(text: str, spec: OperandSpec) -> tuple[Operand, ...]:
    texts = text.split(",") if spec.count > 1 else [text]
    return tuple(read_operand(each, spec) for each in texts)


@dataclass
class _Open:
    """The entry that is being read."""

    name: str
    params: list[Param] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)
    reqntid: tuple[int, int, int] | None = None
    max_threads: int | None = None
    maxnreg: int | None = None
    minnctapersm: int | None = None
    inside: str = "params"
    declared: dict[str, int] = field(default_factory=dict)

    def close(self, line: int) -> Entry:
        entry = Entry(
            self.name,
            tuple(self.params),
            tuple(self.body),
            self.reqntid,
            self.max_threads,
            self.maxnreg,
            self.minnctapersm,
        )
        for name, count in entry.registers().items():
            if count > self.declared.get(name, 0):
                raise PtxError(
                    f"line {line}: entry {self.name} uses {Register(name, count - 1)}, "
                    f"declares {self.declared.get(name, 0)} registers of .{name}"
                )
        return entry


class _Reader:
    """Reads line by line: the header, then entries; each kind of line has one method."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.version: tuple[int, int] | None = None
        self.target = ""
        self.shared: list[Shared] = []
        self.entries: list[Entry] = []
        self.open: _Open | None = None

    def module(self) -> Module:
        for number, raw in enumerate(self.lines, 1):
            stripped = raw.strip()
            if self.open and self.open.inside == "body" and stripped.startswith("//"):
                self.open.body.append(Comment(stripped[2:].strip(), number))
                continue
            code = stripped.partition("//")[0].strip()
            if code:
                self._line(code, number)
        if self.open or self.version is None or not self.target:
            missing = "a closing }" if self.open else ".version and .target"
            raise PtxError(f"line {len(self.lines)}: got the end of the text, wants {missing}")
        return Module(self.version, self.target, tuple(self.entries), tuple(self.shared))

    def _line(self, code: str, line: int) -> None:
        if self.open is None:
            self._header(code, line)
        elif self.open.inside == "params":
            self._param(code, line)
        elif self.open.inside == "directives":
            self._directive(code, line)
        else:
            self._statement(code, line)

    def _header(self, code: str, line: int) -> None:
        if found := re.fullmatch(r"\.version\s+(\d+)\.(\d+)", code):
            self.version = (int(found[1]), int(found[2]))
        elif found := re.fullmatch(r"\.target\s+(\w+)", code):
            self.target = found[1]
        elif found := re.fullmatch(
            rf"(?:\.extern\s+)?\.shared\s+\.align\s+(\d+)\s+\.b8\s+({NAME})\[(\d*)\];", code
        ):
            size = int(found[3]) if found[3] else None
            self.shared.append(Shared(found[2], int(found[1]), size))
        elif found := re.fullmatch(rf"(?:\.visible\s+)?\.entry\s+({NAME})\s*\((\s*\))?", code):
            self.open = _Open(found[1], inside="directives" if found[2] else "params")
        elif code != ".address_size 64":
            raise PtxError(f"line {line}: got {code!r}, wants a module directive or an entry")

    def _param(self, code: str, line: int) -> None:
        assert self.open is not None
        if code == ")":
            self.open.inside = "directives"
            return
        found = re.fullmatch(
            rf"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+({NAME})(?:\[(\d+)\])?,?", code
        )
        if found is None:
            raise PtxError(f"line {line}: got {code!r}, wants a .param or a closing )")
        align, count = (int(each) if each else None for each in (found[1], found[4]))
        self.open.params.append(Param(found[2], found[3], count, align))

    def _directive(self, code: str, line: int) -> None:
        assert self.open is not None
        name, _, rest = code.partition(" ")
        if code == "{":
            self.open.inside = "body"
            return
        setters: dict[str, Callable[[list[int]], None]] = {
            ".reqntid": self._set_reqntid,
            ".maxntid": lambda given: setattr(self.open, "max_threads", given[0]),
            ".maxnreg": lambda given: setattr(self.open, "maxnreg", given[0]),
            ".minnctapersm": lambda given: setattr(self.open, "minnctapersm", given[0]),
        }
        if name not in setters or not re.fullmatch(r"[\d,\s]+", rest):
            raise PtxError(f"line {line}: got {code!r}, wants one of {', '.join(setters)} or {{")
        setters[name]([int(each) for each in rest.split(",")])

    def _set_reqntid(self, given: list[int]) -> None:
        assert self.open is not None
        x, y, z = (*given, 1, 1)[:3]
        self.open.reqntid = (x, y, z)

    def _statement(self, code: str, line: int) -> None:
        assert self.open is not None
        if code == "}":
            self.entries.append(self.open.close(line))
            self.open = None
        elif _LABEL.fullmatch(code):
            self.open.body.append(LabelMark(code[:-1], line))
        elif code.startswith(".reg"):
            self._registers(code, line)
        elif not code.endswith(";") or ";" in code[:-1]:
            raise PtxError(f"line {line}: got {code!r}, wants one instruction, ended by ';'")
        else:
            self.open.body.append(read_instruction(code[:-1], line))

    def _registers(self, code: str, line: int) -> None:
        assert self.open is not None
        found = re.fullmatch(r"\.reg\s+\.(\w+)\s+(%[a-z]+)<(\d+)>;", code)
        if found is None or _CLASS_OF_PREFIX.get(found[2]) != found[1]:
            wanted = ", ".join(f".{name} {prefix}" for prefix, name in _CLASS_OF_PREFIX.items())
            raise PtxError(
                f"line {line}: got {code!r}, wants .reg .type %prefix<count>; with one of {wanted}"
            )
        self.open.declared[found[1]] = int(found[3])
