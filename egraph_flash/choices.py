"""Which realization of a stage is meant: how operands move, where they live, which form is used.

None of these fields relocates a bracket of the fold, except where its knob's row says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from .errors import ScheduleError
from .once import hashed_once

Transport = Literal["none", "sync", "cp", "tma"]
Form = Literal["ex2", "fold", "accurate", "poly"]


REGISTERS_OF_SM = 65_536  # of every target
MOST_COLUMNS = 512  # of the accumulators of one block that a fold goes over
LEAST_REGISTERS = 32  # of a thread; the assembler finds some kernels impossible with fewer


def bad(knob: str, text: str, grammar: str) -> ScheduleError:
    return ScheduleError(f"{knob}: got {text!r}, wants {grammar}")


@dataclass(frozen=True)
class Staging:
    """How a streamed operand comes to shared memory: `depth` slots of `steps` fold blocks each.

    `d0` leaves it in global memory. A ring's copies run ahead of the blocks that use them.
    """

    depth: int = 0
    steps: int = 1
    transport: Transport = "none"
    ring: bool = False

    grammar = (
        "d0 (from global memory), d1[x<blocks>]/sync|cp|tma, or "
        "d<slots>[x<blocks a slot>]/sync|cp|tma/ring with 2 to 8 slots of 1 to 8 blocks"
    )

    def __str__(self) -> str:
        if not self.depth:
            return "d0"
        steps = f"x{self.steps}" if self.steps > 1 else ""
        return f"d{self.depth}{steps}/{self.transport}{'/ring' if self.ring else ''}"

    @classmethod
    def parse(cls, text: str) -> Staging:
        if text == "d0":
            return cls()
        found = re.fullmatch(r"d([1-8])(?:x([2-8]))?/(sync|cp|tma)(/ring)?", text)
        if not found or (int(found[1]) > 1) != bool(found[4]):
            raise bad("STAGE", text, cls.grammar)
        transport: Any = found[3]
        return cls(int(found[1]), int(found[2] or 1), transport, bool(found[4]))


@dataclass(frozen=True)
class Exponential:
    """How exp is computed: `poly<n>` takes a polynomial for n of every 8 words of a tile."""

    form: Form = "ex2"
    share: int = 0

    grammar = "ex2, fold, accurate, or poly<n> with 1 <= n <= 8"

    def __str__(self) -> str:
        return f"poly{self.share}" if self.form == "poly" else self.form

    @classmethod
    def parse(cls, text: str) -> Exponential:
        found = re.fullmatch(r"ex2|fold|accurate|poly([1-8])", text)
        if not found:
            raise bad("EXP", text, cls.grammar)
        if found[1]:
            return cls("poly", int(found[1]))
        form: Any = text
        return cls(form)


@dataclass(frozen=True)
class Reduce:
    """How many blocks of the grid share a fold, or how many elements each of them folds.

    Their states are taken up by a launch of its own, or (`last`) by the last of them to come.
    """

    splits: int = 1
    size: int = 0
    last: bool = False

    grammar = "g<splits> or s<elements of a split>, numbers from 1 on, with /last or without"

    def __str__(self) -> str:
        shared = f"s{self.size}" if self.size else f"g{self.splits}"
        return f"{shared}{'/last' if self.last else ''}"

    @classmethod
    def parse(cls, text: str) -> Reduce:
        found = re.fullmatch(r"([gs])([1-9]\d*)(/last)?", text)
        if not found:
            raise bad("REDUCE", text, cls.grammar)
        splits, size = (int(found[2]), 0) if found[1] == "g" else (1, int(found[2]))
        return cls(splits, size, bool(found[3]))


@dataclass(frozen=True)
class Drain:
    """How fragments leave a slab: `ldmatrix` of 2 or 4 matrices, and how many steps ahead."""

    matrices: int = 4
    ahead: int = 0

    grammar = "x2, x4, x2/p2 or x4/p2 (p2 loads the fragments of the next depth step early)"

    def __str__(self) -> str:
        return f"x{self.matrices}{'/p2' if self.ahead else ''}"

    @classmethod
    def parse(cls, text: str) -> Drain:
        found = re.fullmatch(r"x([24])(/p2)?", text)
        if not found:
            raise bad("DRAIN", text, cls.grammar)
        return cls(int(found[1]), 1 if found[2] else 0)


@dataclass(frozen=True)
class Registers:
    """Limits that the assembler is given: `r<max registers a thread>/b<min blocks an SM>`."""

    most: int = 255
    min_blocks: int = 1

    grammar = "r<max>/b<min blocks an SM>, with 32 <= max <= 255 and 1 <= min <= 32"

    def __str__(self) -> str:
        return f"r{self.most}/b{self.min_blocks}"

    def limit(self, warps: int) -> int:
        """The most registers of a thread, in blocks of so many warps.

        >>> Registers(255, 2).limit(8)
        128
        """
        if self.min_blocks == 1:
            return self.most
        return min(self.most, REGISTERS_OF_SM // (self.min_blocks * warps * 32) // 8 * 8)

    @classmethod
    def parse(cls, text: str) -> Registers:
        found = re.fullmatch(r"r(\d+)/b(\d+)", text)
        if not found or not LEAST_REGISTERS <= int(found[1]) <= 255 or not 1 <= int(found[2]) <= 32:
            raise bad("REGS", text, cls.grammar)
        return cls(int(found[1]), int(found[2]))


@hashed_once
@dataclass(frozen=True)
class Choices:
    """The realization of one stage. Each field is the value of the knob of that name.

    `stage` names the operand that each staging belongs to; operands of equal staging share a ring.
    """

    stage: tuple[tuple[str, Staging], ...] = ()
    slab: str = "raw"
    handoff: str = "shared"
    hoist: str = "none"
    drain: Drain = field(default_factory=lambda: Drain(2))
    exp: Exponential = field(default_factory=Exponential)
    tanh: str = "exp"
    sum: str = "block"
    base: str = "max"
    start: str = "zero"
    skew: str = "off"
    skip: str = "none"
    roles: str = "all"
    grid: str = "tiles"
    order: str = "rows"
    cache: str = "none"
    turns: str = "off"
    regs: Registers = field(default_factory=Registers)

    def staging(self, operand: str) -> Staging:
        return dict(self.stage).get(operand, Staging())

    @cached_property
    def movement(self) -> Choices:
        """The same with the plain algebra: how operands move and where they lie, and no more."""
        return replace(self, **{name: getattr(PLAIN, name) for name in ALGEBRA})


ALGEBRA = ("exp", "tanh", "sum", "base", "start")  # the fields that may change bits
PLAIN = Choices()
