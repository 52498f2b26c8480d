"""How a schedule is spelled: the knobs, the kind of each of their fields, and their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .choices import MOST_COLUMNS, Drain, Exponential, Reduce, Registers, Staging, bad
from .errors import ScheduleError
from .once import hashed_once

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
    precondition: str = "none"
    values: Mapping[str, str] | None = None  # each word with what it means, where they are words
    alike: tuple[str, ...] = ()  # words between which no bit moves, whatever the field's kind


def _words(
    name: str,
    kind: Kind,
    scope: str,
    precondition: str,
    source: str,
    alike: tuple[str, ...] = (),
    **values: str,
) -> Knob:
    """A knob whose values are single words, each with what it means."""
    grammar = " or ".join(f"{word.replace('_', '/')} ({what})" for word, what in values.items())
    words = [word.replace("_", "/") for word in values]

    def parse(text: str) -> str:
        if text not in words:
            raise bad(name, text, grammar)
        return text

    meanings = dict(zip(words, values.values(), strict=True))
    fields = {name.lower(): kind}
    return Knob(name, grammar, fields, parse, scope, source, precondition, meanings, alike)


@hashed_once
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
            raise bad("TILE", text, cls.grammar)
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
class Place:
    """Whether folds are fused into one pass or cut, their values going through memory."""

    fold: Literal["fuse", "cut"]

    grammar = "fold=fuse or fold=cut"

    def __str__(self) -> str:
        return f"fold={self.fold}"

    @classmethod
    def parse(cls, text: str) -> Place:
        if text not in ("fold=fuse", "fold=cut"):
            raise bad("PLACE", text, cls.grammar)
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
                "column_warps": "bracket",  # along a fold; else no bit depends on them
                "row_atoms": "movement",
                "column_atoms": "bracket",
                "depth_steps": "bracket",
            },
            parse=Tile.parse,
            scope="the contraction over an axis, or a fold that contracts nothing",
            source="bracketing laws: the tile is the innermost level of the tower",
        ),
        _words(
            "PACK",
            "movement",
            "the plan",
            "a fold whose operands see an axis of known length only in groups, or not at all, and "
            "no more than 64 rows",
            "an operand is read once for each tile of rows, whichever axes they are from",
            off="each axis of the grid by itself",
            on="the elements of a group are rows of one tile, with the rows that there are",
        ),
        _words(
            "EPILOGUE",
            "movement",
            "the plan",
            "values that vary along the axis of a fold of plain tiles, of known length; or a fold "
            f"of one product of rows and its own axis, of no more than {MOST_COLUMNS} elements or "
            "in such parts",
            "what a fold has read or made need not be read again where it is still at hand",
            apart="values that follow from a fold in a kernel of their own; products in the body",
            inside="in the kernel that folds, from registers where one block is all of the axis; "
            "the columns of accumulators folded where they are",
        ),
        _words(
            "OPERANDS",
            "movement",
            "the plan",
            "a contraction of an array of 16 bits with an operand that is computed of others",
            "what blocks of the grid compute again and again may be computed once",
            inside="operands that are computed are so where they are contracted",
            stored="by a kernel before it, that stores them rounded as the contraction does",
        ),
        Knob(
            name="REDUCE",
            grammar=Reduce.grammar,
            fields={"splits": "bracket", "size": "bracket", "last": "movement"},
            parse=Reduce.parse,
            scope="the axis of a fold",
            source="bracketing laws: the grid is the outermost level of the tower",
            precondition="a fold over an axis of known length, of no more splits than elements; "
            "last: the states of two or more parts, which one stage stores and the next one folds "
            "in blocks of as many warps",
        ),
        Knob(
            name="STAGE",
            grammar=Staging.grammar,
            fields=dict.fromkeys(("depth", "steps", "transport", "ring"), "movement"),
            parse=Staging.parse,
            scope="an operand that is streamed along the fold",
            source="PTX ISA, cp.async and cp.async.bulk.tensor",
            precondition="a plain load whose rows are contiguous; tma: an affine index, rows of a "
            "multiple of 16 bytes, at most 256 rows a box, arrays of at most 5 dimensions",
        ),
        _words(
            "SLAB",
            "movement",
            "a stage",
            "pad16: not with tma, whose boxes are dense",
            "16 bytes of padding or an XOR of row bits spread 8 rows over all 32 banks",
            raw="rows end to end",
            pad16="rows 16 bytes apart where that spreads them",
            xor="16-byte chunks permuted by the row number",
        ),
        _words(
            "HANDOFF",
            "movement",
            "a stage",
            "repack: the lane maps of accumulator and operand agree; shared/warp: no column warps",
            "an accumulator becomes the left operand of the next contraction",
            shared="through shared memory, between barriers of the block",
            shared_warp="the same between barriers of the warp",
            repack="in registers",
        ),
        _words(
            "HOIST",
            "movement",
            "a stage",
            "an operand that does not vary along the fold",
            "loop-invariant code motion: a fact about the axes of the term",
            none="loaded again for each block",
            shared="kept in shared memory",
            registers="kept in registers",
        ),
        Knob(
            name="DRAIN",
            grammar=Drain.grammar,
            fields=dict.fromkeys(("matrices", "ahead"), "movement"),
            parse=Drain.parse,
            scope="a stage",
            source="PTX ISA, ldmatrix; two of .x2 are one of .x4 with other addresses",
            precondition="some operand is staged; p2: a contraction of two or more depth steps",
        ),
        Knob(
            name="EXP",
            grammar=Exponential.grammar,
            fields=dict.fromkeys(("form", "share"), "bracket"),
            parse=Exponential.parse,
            scope="a stage",
            source="ex2.approx; Cody & Waite 1980 for the polynomial's range reduction",
            precondition="an exp with a value for each element of a tile; fold and poly: one that "
            "subtracts a base that no contraction starts at",
        ),
        _words(
            "TANH",
            "bracket",
            "a stage",
            "the stage computes a tanh",
            "tanh x = 1 - 2 / (exp 2x + 1); PTX ISA, tanh.approx.f32",
            exp="by ex2.approx and rcp.approx, to an absolute error of 2^-21",
            approx="one instruction, to a relative error of 2^-11, whose bits are not predicted",
        ),
        _words(
            "SUM",
            "bracket",
            "a stage",
            "a sum over the fold with one value a row; ones: beside a tensor-core "
            "contraction with the same weights, whose operand is rounded",
            "the fold of rows commutes with the action, which is linear",
            block="folded across lanes once a block",
            lane="each lane keeps its part until the end",
            ones="one more column of the contraction, of ones",
        ),
        _words(
            "BASE",
            "bracket",
            "a stage",
            "a base of a representation with slack, which outputs "
            "read only where any representative gives the same",
            "gauge laws: the base of a twisted carrier is a free representative",
            alike=("max", "vote"),
            max="the running maximum, moved every block",
            vote="the running maximum, moved only when some lane exceeds it (same bits as max)",
            lazy="a bound that is moved only when some lane exceeds it by the slack",
        ),
        _words(
            "START",
            "bracket",
            "a stage",
            "BASE is vote or lazy, and the element's parameter is a "
            "positive multiple of one contraction",
            "the accumulator of a contraction may start at what is subtracted from it later",
            zero="the first contraction starts at zero",
            base="it starts at minus the base",
        ),
        _words(
            "SKEW",
            "movement",
            "a stage",
            "part of the body does not depend on the carried state",
            "software pipelining over the fold's own dataflow",
            off="each block from beginning to end",
            on="what does not depend on the state, one block ahead of the rest and before it",
            last="one block ahead of the rest, and after it",
        ),
        _words(
            "SKIP",
            "movement",
            "a stage",
            "a mask of the fold that index arithmetic decides; data: one that compares data",
            "interval reasoning over index arithmetic; an absent element is the identity",
            none="every block of the fold, masks everywhere",
            index="blocks that a mask removes are left out, masks only where they may fail",
            data="the same, each tile finding out from data which elements it needs",
        ),
        _words(
            "ROLES",
            "movement",
            "a stage",
            "one, rotate, producer: staged by tma in a ring; each: "
            "warps that read the whole slab for themselves",
            "warp specialization: Shah et al. 2024, FlashAttention-3",
            all="every thread copies its share",
            one="one thread issues the copies",
            rotate="a thread of each warp in turn issues the copies",
            producer="a warp group that does nothing else issues the copies",
            each="every warp has a ring of its own and fills it",
        ),
        _words(
            "GRID",
            "movement",
            "a stage",
            "none",
            "persistent thread blocks: Gupta, Stuart & Owens 2012",
            tiles="a block for each tile",
            persistent="as many blocks as are resident, each taking tiles in turn",
        ),
        _words(
            "ORDER",
            "movement",
            "a stage",
            "SKIP leaves row tiles of different weight; pair: GRID is tiles",
            "longest processing time first: Graham 1969",
            rows="row tiles in their order, then columns and batch",
            heavy="the heaviest row tiles of all batches first",
            fold="the same, blocks after the first half from the lightest on",
            pair="a heavy and a light row tile in each block",
        ),
        _words(
            "CACHE",
            "movement",
            "a stage",
            "staged by cp (16-byte runs) or tma",
            "PTX ISA, createpolicy and .L2::cache_hint",
            none="no hint",
            last="streamed operands are evicted last",
            first="streamed operands are evicted first",
        ),
        _words(
            "TURNS",
            "movement",
            "a stage",
            "a contraction in the body of a fold; an even number of row warps and no column warps",
            "named-barrier ping-pong of FlashAttention-3, section 3.1",
            off="warps run freely",
            on="two halves of the warps take turns at the contractions",
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
