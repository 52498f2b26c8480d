"""How a schedule is spelled: the knobs, the kind of each of their fields, and their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .errors import ScheduleError

Kind = Literal["movement", "bracket"]


@dataclass(frozen=True)
class Knob:
    """One knob. `fields` says of each field whether it only moves data (bits are equal) or
    moves brackets or algebra (bits may change, the error is bounded)."""

    name: str
    grammar: str
    fields: dict[str, Kind]
    parse: Callable[[str], Any]
    scope: str
    source: str


def _bad(knob: str, text: str, grammar: str) -> ScheduleError:
    return ScheduleError(f"{knob}: got {text!r}, wants {grammar}")


@dataclass(frozen=True)
class Tile:
    """The geometry of one contraction: `a:<atom>/w<rows>x<cols>/f<rows>x<cols>/k<steps>`.

    A block has `row_warps * column_warps` warps; each holds `row_atoms * column_atoms` atoms,
    and loads the operands of `depth_steps` atoms along the depth at a time. A fold that contracts
    nothing has one too: its atom then only lays the tile out.
    """

    atom: str
    row_warps: int
    column_warps: int
    row_atoms: int
    column_atoms: int
    depth_steps: int

    grammar = "a:<atom>/w<row warps>x<column warps>/f<row atoms>x<column atoms>/k<depth steps>"

    def __str__(self) -> str:
        return (
            f"a:{self.atom}/w{self.row_warps}x{self.column_warps}"
            f"/f{self.row_atoms}x{self.column_atoms}/k{self.depth_steps}"
        )

    @classmethod
    def parse(cls, text: str) -> Tile:
        found = re.fullmatch(r"a:(\w+)/w(\d+)x(\d+)/f(\d+)x(\d+)/k(\d+)", text)
        if not found or "0" in found.groups():
            raise _bad("TILE", text, cls.grammar)
        return cls(found[1], *map(int, found.groups()[1:]))

    @property
    def warps(self) -> int:
        return self.row_warps * self.column_warps

    def distance(self, other: Tile) -> float:
        """How far two values are apart: fields that differ, then by their ratios."""
        ratios = (
            max(a, b) / min(a, b) - 1
            for a, b in (
                (self.row_warps, other.row_warps),
                (self.column_warps, other.column_warps),
                (self.row_atoms, other.row_atoms),
                (self.column_atoms, other.column_atoms),
                (self.depth_steps, other.depth_steps),
            )
        )
        return (100.0 if self.atom != other.atom else 0.0) + sum(1 + r for r in ratios if r)

    def with_columns(self, column_atoms: int, depth_steps: int) -> Tile:
        return replace(self, column_atoms=column_atoms, depth_steps=depth_steps)


@dataclass(frozen=True)
class Registers:
    """Limits that the assembler is given: `r<max registers a thread>/b<min blocks an SM>`."""

    most: int
    min_blocks: int

    grammar = "r<max>/b<min blocks an SM>, with 16 <= max <= 255 and 1 <= min <= 32"

    def __str__(self) -> str:
        return f"r{self.most}/b{self.min_blocks}"

    @classmethod
    def parse(cls, text: str) -> Registers:
        found = re.fullmatch(r"r(\d+)/b(\d+)", text)
        if not found or not 16 <= int(found[1]) <= 255 or not 1 <= int(found[2]) <= 32:
            raise _bad("REGS", text, cls.grammar)
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class Place:
    """Whether folds are fused into one pass or cut, their values going through memory."""

    fold: Literal["fuse", "cut"]

    grammar = "fold=fuse or fold=cut"

    def __str__(self) -> str:
        return f"fold={self.fold}"

    @classmethod
    def parse(cls, text: str) -> Place:
        if text not in ("fold=fuse", "fold=cut"):
            raise _bad("PLACE", text, cls.grammar)
        return cls("cut" if text == "fold=cut" else "fuse")


KNOBS: dict[str, Knob] = {
    row.name: row
    for row in (
        Knob(
            name="PLACE",
            grammar=Place.grammar,
            fields={"fold": "bracket"},
            parse=Place.parse,
            scope="the plan",
            source="placement laws: a cut value is stored and read back",
        ),
        Knob(
            name="TILE",
            grammar=Tile.grammar,
            fields={
                "atom": "bracket",
                "row_warps": "movement",
                "column_warps": "movement",
                "row_atoms": "movement",
                "column_atoms": "bracket",
                "depth_steps": "bracket",
            },
            parse=Tile.parse,
            scope="the contraction over an axis, or a fold that contracts nothing",
            source="bracketing laws: the tile is the innermost level of the tower",
        ),
        Knob(
            name="REGS",
            grammar=Registers.grammar,
            fields={"most": "movement", "min_blocks": "movement"},
            parse=Registers.parse,
            scope="a stage",
            source="PTX ISA, .maxnreg and .minnctapersm",
        ),
    )
}


def knob_of(name: str) -> Knob:
    """The row of `NAME` or `NAME@scope`; raises ScheduleError for a name that is none."""
    base = name.split("@", 1)[0]
    if base not in KNOBS:
        raise ScheduleError(f"pin {name}: no such knob; wants one of {', '.join(KNOBS)}")
    return KNOBS[base]


def spell(values: Mapping[str, Any]) -> dict[str, str]:
    """Each knob's value as a pin spells it."""
    return {name: str(value) for name, value in values.items()}


def read_schedule(text: str) -> dict[str, Any]:
    """The values in a printed schedule, one `NAME[@scope]=value` a line.

    Raises ScheduleError for a line that is no knob.

    >>> print(read_schedule("PLACE=fold=cut\\nREGS=r255/b1"))
    {'PLACE': Place(fold='cut'), 'REGS': Registers(most=255, min_blocks=1)}
    """
    values = {}
    for line in text.splitlines():
        name, given, value = line.partition("=")
        if not given:
            raise ScheduleError(f"schedule: got the line {line!r}, wants NAME=value")
        values[name] = knob_of(name).parse(value)
    return values
