"""How fragments leave shared memory: which rows of which matrices each lane names to `ldmatrix`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..axes import Axis
from .context import Context
from .copies import Slot, in_slot, slab_address
from .frames import Frame, Side, atoms_along, fragment, offset
from .lanes import M8N8_B16, LaneMap
from .ptx import Address, Register
from .slabs import CHUNK_BYTES, SlabLayout
from .values import Value

ELEMENTS = CHUNK_BYTES // 2  # of 16 bits, in a row of a matrix


@dataclass(frozen=True)
class Held:
    """A tile that lies in shared memory: its layout, its axes, where its slot is.

    `shift` is how far into the slot's tile the block in hand begins, along `shifted`. `goes_on`:
    past a bound it has what memory holds there, as tensor copies and copies along the fold take
    it. `lanes` say how a tile of the body is held, which is no operand.
    """

    layout: SlabLayout
    across: Axis | None
    along: Axis | None
    slot: Slot
    shifted: Axis | None = None
    shift: int = 0
    goes_on: bool = False
    lanes: LaneMap | None = None  # of a tile of the body


def drained(
    ctx: Context, held: Held, frame: Frame, lanes: LaneMap
) -> dict[tuple[int, int], list[Register]]:
    """The fragments of an operand that covers the frame, by the atom's place in it."""
    matrices = Matrices(lanes, transposed=_side(frame, held.along) == 0)
    rows, columns = atoms_along(lanes, frame)
    others: dict[tuple[Register, int], Register] = {}  # bases in other chunks of their span
    found = {
        (i, j): _fragment(ctx, held, frame, matrices, (i, j), others)
        for i in range(rows)
        for j in range(columns)
    }
    if held.goes_on and (frame.row.strict or frame.column.strict):
        return {place: _cut(ctx, words, frame, lanes, place) for place, words in found.items()}
    return found


def held_tile(ctx: Context, load: Any, frame: Frame) -> Value:
    """A tile of the body that lies in shared memory, as reals."""
    held, dtype = ctx.held[load], load.args[0].args[1]
    assert held.lanes is not None, "an operand is no tile"
    b, columns = ctx.builder, len(frame.column.offsets)
    words: dict[int, Register] = {}
    for place, registers in drained(ctx, held, frame, held.lanes).items():
        elements = fragment(held.lanes, frame, place)
        for register, *pair in zip(registers, elements[::2], elements[1::2], strict=True):
            halves = b.many("b16", 2)
            b.put("mov_unpack_b32", d=halves, a=register)
            for half, (row, column) in zip(halves, pair, strict=True):
                words[row * columns + column] = b.op(f"cvt_f32_{dtype}", half)
    return Value("tile", "f32", tuple(words[at] for at in sorted(words)), b.depth)


def _cut(
    ctx: Context, words: list[Register], frame: Frame, lanes: LaneMap, place: tuple[int, int]
) -> list[Register]:
    """The fragment with zeros for what lies past a bound that memory goes on after."""
    which = 0 if frame.row.strict else 1
    inside = ctx.inside((frame.row, frame.column)[which])
    assert inside is not None, "a strict side has a bound"
    b = ctx.builder
    elements = fragment(lanes, frame, place)
    cut = []
    for word, low, high in zip(words, elements[::2], elements[1::2], strict=True):
        name = ("halves inside", inside.words[low[which]], inside.words[high[which]])
        if name not in ctx.memo:
            with b.at(inside.depth):
                halves = (
                    b.op("selp_b32", bits, 0, test)
                    for bits, test in ((0xFFFF, name[1]), (0xFFFF0000, name[2]))
                )
                ctx.memo[name] = Value("scalar", "s32", (b.op("or_b32", *halves),), inside.depth)
        cut.append(b.op("and_b32", word, ctx.memo[name].words[0]))
    return cut


def _side(frame: Frame, axis: Axis | None) -> int:
    return 0 if axis is frame.row.axis else 1


class Matrices:
    """An operand's lane map as 8 × 8 matrices, each transposed or not."""

    def __init__(self, lanes: LaneMap, *, transposed: bool) -> None:
        def turn(step: tuple[int, int]) -> tuple[int, int]:
            return (step[1], step[0])

        plain = (M8N8_B16.lane, M8N8_B16.element)
        turned = (tuple(map(turn, M8N8_B16.lane)), tuple(map(turn, M8N8_B16.element)))
        own = (lanes.lane, lanes.element[:1])
        assert own in (plain, turned), f"ldmatrix gives no such fragment: {lanes}"
        self.rows_side = 0 if own == plain else 1  # on which side a matrix's rows are
        along = 0 if transposed else 1
        self.trans = along == self.rows_side
        self.along, self.across = along, 1 - along
        self.steps = lanes.element[1:]
        self.shape = lanes.shape

    @property
    def count(self) -> int:
        return 1 << len(self.steps)


def _fragment(
    ctx: Context,
    held: Held,
    frame: Frame,
    matrices: Matrices,
    place: tuple[int, int],
    others: dict[tuple[Register, int], Register],
) -> list[Register]:
    sides = (frame.row, frame.column)
    at = [
        offset(0, place[which], matrices.shape[which], 1) + min(sides[which].offsets)
        for which in (0, 1)
    ]
    for which in (0, 1):
        if sides[which].axis is held.shifted:
            at[which] += held.shift
    base, fixed = _address(ctx, held, sides, matrices, at, others)
    registers = ctx.builder.many("b32", matrices.count)
    name = f"ldmatrix_x{matrices.count}{'_trans' if matrices.trans else ''}"
    ctx.builder.put(name, d=registers, a=Address(base, fixed))
    return registers


def _address(
    ctx: Context,
    held: Held,
    sides: tuple[Side, Side],
    matrices: Matrices,
    at: list[int],
    others: dict[tuple[Register, int], Register],
) -> tuple[Register, int]:
    """The address that this lane names, for the atom whose first element stands at `at`."""
    layout = held.layout
    box, byte = divmod(at[matrices.along] * 2, layout.span_bytes)
    row = _lane_row(ctx, matrices, sides[matrices.across], matrices.across, 1)
    chunk = _lane_row(ctx, matrices, sides[matrices.along], matrices.along, ELEMENTS)
    base = slab_address(ctx, layout, row, chunk)
    fixed = held.slot.offset_bytes + box * layout.box_bytes
    fixed += at[matrices.across] * layout.pitch_bytes
    if held.slot.register is not None:
        base = in_slot(ctx, base, held.slot.register)
    if layout.chunk_bits and byte:  # slots are aligned to the period of the swizzle
        if (base, byte) not in others:
            others[base, byte] = ctx.builder.op("xor_b32", base, byte)
        return others[base, byte], fixed
    return base, fixed + byte


def _lane_row(ctx: Context, matrices: Matrices, side: Side, which: int, unit: int) -> Register:
    """This lane's place along one side, in units: the row that it names, or its chunk.

    Lane l names row l % 8 of matrix l // 8; the matrices stand where the element bits above the
    lowest put them.
    """
    b = ctx.builder

    def emit() -> Register:
        total: Any = None
        if which == matrices.across:
            total = b.op("and_b32", ctx.lane, 7)
        for bit, step in enumerate(matrices.steps):
            if step[which]:
                part = b.op("and_b32", b.op("shr_u32", ctx.lane, 3 + bit), 1)
                part = b.op("mul_lo_s32", part, step[which] // unit)
                total = part if total is None else b.op("add_s32", total, part)
        if side.warps > 1:
            warp = ctx.warp_place(side.warps, side.warp_stride)
            part = b.op("mul_lo_s32", warp, side.warp_step // unit)
            total = part if total is None else b.op("add_s32", total, part)
        if total is None:
            total = b.new("b32")
            b.move(total, 0)
        found: Register = total
        return found

    warps = (side.warps, side.warp_stride, side.warp_step) if side.warps > 1 else ()
    return ctx.once(("matrix", which == matrices.across, matrices.steps, which, unit, warps), emit)
