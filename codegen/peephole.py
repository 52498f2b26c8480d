"""Two loads of two matrices are one of four: a pass over instructions, blind to what they are for.

    ldmatrix.x2 {d0, d1}, [r + i]                add  q, r, half * (j - i)
    ldmatrix.x2 {d2, d3}, [r + j]     becomes    ldmatrix.x4 {d0, d1, d2, d3}, [q + i]

An `.x2` takes addresses from lanes 0 to 15; lanes 16 to 31 hold the same ones again, so that the
upper half of the warp may name the rows of the second load. `half` is 1 there, else 0.
"""

from __future__ import annotations

from typing import Any

from .builder import Block, Builder
from .ptx import Address, Comment, Instruction, Register

PAIRED = {"ldmatrix_x2": "ldmatrix_x4", "ldmatrix_x2_trans": "ldmatrix_x4_trans"}


def paired(builder: Builder, half: Register) -> None:
    """Pair loads everywhere in the program."""
    _in_block(builder, builder.root, half)


def _in_block(builder: Builder, block: Block, half: Register) -> None:
    waiting: int | None = None  # where in `done` the first load of a pair stands
    made: dict[Any, Register] = {}
    done: list[Any] = []
    for each in block.statements:
        if isinstance(each, Block):
            _in_block(builder, each, half)
        first: Any = done[waiting] if waiting is not None else None
        if isinstance(each, Comment):
            pass
        elif not isinstance(each, Instruction) or each.row.flow:
            waiting, made = None, {}
        elif each.row.name in PAIRED and each.guard is None:
            if waiting is not None and first.row is each.row:
                done[waiting] = None
                done += _merged(builder, first, each, half, made)
                waiting = None
                continue
            waiting = len(done)
        elif first is not None and _conflicts(first, each):
            waiting = None
        done.append(each)
    block.statements = [each for each in done if each is not None]


def _conflicts(first: Instruction, other: Instruction) -> bool:
    """Whether the first load may not move past another instruction."""
    loaded = set(first.writes)
    if loaded & {*other.reads, *other.writes} or set(first.reads) & set(other.writes):
        return True
    return other.row.counter in ("lsu_shared", "copy", "group", "tma", "mbarrier", "barrier") and (
        not other.row.name.startswith("ldmatrix")
    )


def _merged(
    builder: Builder,
    first: Instruction,
    second: Instruction,
    half: Register,
    made: dict[Any, Register],
) -> list[Instruction]:
    (a,), (b,) = first.operands["a"], second.operands["a"]
    assert isinstance(a, Address), first
    assert isinstance(b, Address), second
    distance = b.offset_bytes - a.offset_bytes
    found: list[Instruction] = []
    name = (a.base, b.base, distance)
    if name not in made:
        made[name] = builder.new("b32")
        found += _address(builder, made[name], a.base, b.base, distance, half)
    row = PAIRED[first.row.name]
    registers = [*first.operands["d"], *second.operands["d"]]
    return [*found, builder.made(row, d=registers, a=Address(made[name], a.offset_bytes))]


def _address(
    builder: Builder, into: Register, low: Any, high: Any, distance: int, half: Register
) -> list[Instruction]:
    """`into` is the lower load's base in the lower half of the warp, the other's in the upper."""
    if low == high:
        return [builder.made("mad_lo_s32", d=into, a=half, b=distance, c=low)]
    other, upper = builder.new("b32"), builder.new("pred")
    return [
        builder.made("add_s32", d=other, a=high, b=distance),
        builder.made("setp_ne_s32", d=upper, a=half, b=0),
        builder.made("selp_s32", d=into, a=other, b=low, c=upper),
    ]
