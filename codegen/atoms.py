"""Which contraction instructions a tile may be built of, and where their operands lie."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ScheduleError
from .lanes import A_M16K16, B_K16N8, C_M16N8, LaneMap


@dataclass(frozen=True)
class Atom:
    """D[rows, columns] = A[rows, depth] B[depth, columns] + C, by one warp.

    `operand` is the dtype to which A and B are rounded on entry; the accumulator is f32.
    `instruction` names the row that computes it; an atom without one only lays tiles out, for
    folds that contract nothing. `threads` is the scope that executes it together.
    """

    name: str
    operand: str
    a: LaneMap
    b: LaneMap
    c: LaneMap
    instruction: str | None
    source: str
    threads: int = 32
    sm: int = 80

    @property
    def rows(self) -> int:
        return self.c.shape[0]

    @property
    def columns(self) -> int:
        return self.c.shape[1]

    @property
    def depth(self) -> int:
        return self.a.shape[1]

    @property
    def on_tensor_cores(self) -> bool:
        return self.operand in ("f16", "bf16")


_BY_LANE = ((1, 0), (2, 0), (4, 0), (8, 0), (16, 0))  # lane l holds row l
_SAME = ((0, 0),) * 5  # every lane holds the same element


def _along(elements: int) -> Atom:
    """A warp along one row, each lane with so many neighbours: what one load can move."""
    bits = elements.bit_length() - 1
    columns = LaneMap(
        (1, 32 * elements),
        lane=tuple((0, elements << bit) for bit in range(5)),
        element=tuple((0, 1 << bit) for bit in range(bits)),
    )
    return Atom(
        name=f"map_m1n{32 * elements}",
        operand="f32",
        a=LaneMap((1, 1), lane=_SAME, element=()),
        b=columns,
        c=columns,
        instruction=None,
        source="a warp along the columns of one row, so that its loads are contiguous",
    )


ATOMS: dict[str, Atom] = {
    row.name: row
    for row in (
        Atom(
            name="fma_f32",
            operand="f32",
            a=LaneMap((32, 1), lane=_BY_LANE, element=()),
            b=LaneMap((1, 1), lane=_SAME, element=()),
            c=LaneMap((32, 1), lane=_BY_LANE, element=()),
            instruction="fma_rn_f32",
            source="PTX ISA, fma: one row a lane, the right operand shared by the warp",
        ),
        Atom(
            name="mma_m16n8k16_f16",
            operand="f16",
            a=A_M16K16,
            b=B_K16N8,
            c=C_M16N8,
            instruction="mma_m16n8k16_f16",
            source="PTX ISA, mma.m16n8k16 with .f16",
        ),
        Atom(
            name="mma_m16n8k16_bf16",
            operand="bf16",
            a=A_M16K16,
            b=B_K16N8,
            c=C_M16N8,
            instruction="mma_m16n8k16_bf16",
            source="PTX ISA, mma.m16n8k16 with .bf16",
        ),
        *map(_along, (1, 2, 4, 8)),
        Atom(
            name="map_m32n1",
            operand="f32",
            a=LaneMap((32, 1), lane=_BY_LANE, element=()),
            b=LaneMap((1, 1), lane=_SAME, element=()),
            c=LaneMap((32, 1), lane=_BY_LANE, element=()),
            instruction=None,
            source="a warp along rows, each of which its own lane folds",
        ),
    )
}


def atom(name: str) -> Atom:
    if name not in ATOMS:
        raise ScheduleError(f"TILE: got the atom {name!r}, wants one of {', '.join(ATOMS)}")
    return ATOMS[name]
