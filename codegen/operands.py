"""How an atom gets its operands: loaded, computed, or handed over from an accumulator."""

from __future__ import annotations

from typing import Any

from ..dtypes import DTYPES
from ..errors import LoweringError
from .atoms import Atom
from .context import Context
from .expression import compute, real
from .frames import Frame, atoms_along, fragment
from .lanes import LaneMap
from .memory import Place, load_values, load_words, pack, unpacked
from .ptx import Address, Register, Symbol
from .values import Value, constant, each

Fragments = dict[tuple[int, int], list[Register]]  # by the atom's place: (row, column) of atoms


def operand(ctx: Context, term: Any, frame: Frame, atom: Atom, lanes: LaneMap) -> Fragments:
    """The fragments of an operand that covers the frame, laid out by `lanes`, rounded on entry.

    A plain load goes from memory to the registers that the atom reads, in this loop's body.
    """
    if term.head == "Load":
        return _loaded(ctx, term, frame, atom, lanes)
    value = real(ctx, compute(ctx, term, frame), frame)
    return from_value(ctx, _zero_outside(ctx, value, frame), frame, atom, lanes)


def from_value(ctx: Context, value: Value, frame: Frame, atom: Atom, lanes: LaneMap) -> Fragments:
    """Fragments whose elements each lane already holds as reals, in the operand's own frame."""
    columns = len(frame.column.offsets)
    found: Fragments = {}
    for place, elements in _places(frame, lanes):
        words = [value.at(*element, columns) for element in elements]
        if not atom.on_tensor_cores:
            found[place] = words
            continue
        pairs = zip(words[::2], words[1::2], strict=True)
        found[place] = [pack(ctx, atom.operand, low, high) for low, high in pairs]
    return found


def _zero_outside(ctx: Context, value: Value, frame: Frame) -> Value:
    """A computed operand is zero past the end, whatever its expression makes of absent inputs."""
    for kind, side in (("rows", frame.row), ("columns", frame.column)):
        inside = ctx.inside(side)
        if inside is None:
            continue
        test = Value(kind, "pred", inside.words, inside.depth)  # type: ignore[arg-type]
        value = select(ctx, test, value, 0.0, frame)
    return value


def select(ctx: Context, test: Value, value: Value, otherwise: float, frame: Frame) -> Value:
    """The value where the test holds, else a number."""
    depth = max(test.depth, value.depth)
    with ctx.builder.at(depth):
        return each(
            (test, value, constant(otherwise)),
            frame,
            lambda p, x, y: ctx.builder.op("selp_f32", x, y, p),
            "f32",
            depth,
        )


def _places(frame: Frame, lanes: LaneMap) -> list[tuple[Place, list[Place]]]:
    """Each atom's place, counted from the frame's first, and its elements' register indices."""
    rows, columns = atoms_along(lanes, frame)
    return [((i, j), fragment(lanes, frame, (i, j))) for i in range(rows) for j in range(columns)]


def _loaded(ctx: Context, load: Any, frame: Frame, atom: Atom, lanes: LaneMap) -> Fragments:
    dtype = DTYPES[load.args[0].args[1]]
    if not all(ctx.uses(load, frame)):
        raise LoweringError(f"lowering: the operand {load} lacks an axis of the contraction")
    if not atom.on_tensor_cores or dtype.name != atom.operand:
        return from_value(ctx, load_values(ctx, load, frame, here=True), frame, atom, lanes)
    words, _ = load_words(ctx, load, frame, here=True)
    whole = {word.places: word.register for word in words if len(word.places) == 2}
    halves = _LazyHalves(ctx, words)
    found: Fragments = {}
    for place, elements in _places(frame, lanes):
        registers = []
        for low, high in zip(elements[::2], elements[1::2], strict=True):
            if (low, high) in whole:
                registers.append(whole[low, high])
                continue
            registers.append(ctx.builder.op("mov_pack_b32", [halves[low], halves[high]]))
        found[place] = registers
    return found


class _LazyHalves:
    """The 16-bit registers of elements, taken out of wider words when first asked for."""

    def __init__(self, ctx: Context, words: list[Any]) -> None:
        self.ctx = ctx
        self.word = {place: word for word in words for place in word.places}
        self.done: dict[Place, Register] = {}

    def __getitem__(self, place: Place) -> Register:
        if place not in self.done:
            self.done.update(unpacked(self.ctx, [self.word[place]]))
        return self.done[place]


# ---- from an accumulator to a left operand -------------------------------------------------------


def same_lanes(atom: Atom, held: Frame, wanted: Frame) -> bool:
    """Whether each lane already holds, as an accumulator, what it needs as a left operand."""
    return (
        atom.a.lane == atom.c.lane
        and held.row.offsets == wanted.row.offsets
        and set(held.column.offsets) == set(wanted.column.offsets)
    )


def handed_over(ctx: Context, value: Value, held: Frame, wanted: Frame, atom: Atom) -> Fragments:
    """A tile held as an accumulator, as fragments of the left operand.

    Atoms on f32 take the registers as they are; others go through a shared slab and `ldmatrix`,
    between two barriers: one so that all have read the slab before, one so that all have written.
    """
    if not atom.on_tensor_cores and same_lanes(atom, held, wanted):
        return from_value(ctx, value, wanted, atom, atom.a)
    stride_bytes = 2 * wanted.column.extent
    ctx.builder.put("bar_sync", a=0)
    _to_slab(ctx, value, held, atom, stride_bytes)
    ctx.builder.put("bar_sync", a=0)
    return _from_slab(ctx, wanted, atom, stride_bytes)


def _slab_address(ctx: Context, name: Any, row: Any, column: Any, stride_bytes: int) -> Register:
    """The shared address of (row, column) of the slab, 2 bytes an element."""

    def emit() -> Register:
        b = ctx.builder
        start = b.op("mov_symbol", Symbol("smem"))
        return b.op("mad_lo_s32", column, 2, b.op("mad_lo_s32", row, stride_bytes, start))

    return ctx.once(("slab", name, stride_bytes), emit)


def _to_slab(ctx: Context, value: Value, held: Frame, atom: Atom, stride_bytes: int) -> None:
    row, column = ctx.local_base(held.row), ctx.local_base(held.column)
    base = _slab_address(ctx, ("write", row, column), row, column, stride_bytes)
    columns = held.column.offsets
    for i, row_offset in enumerate(held.row.offsets):
        for j in range(0, len(columns), 2):
            pair = pack(
                ctx,
                atom.operand,
                value.at(i, j, len(columns)),
                value.at(i, j + 1, len(columns)),
            )
            at = row_offset * stride_bytes + 2 * columns[j]
            ctx.builder.put("st_shared_b32", a=Address(base, at), b=pair)


def _from_slab(ctx: Context, wanted: Frame, atom: Atom, stride_bytes: int) -> Fragments:
    row, column = _matrix_row(ctx, wanted, atom)
    base = _slab_address(ctx, ("read", row, column), row, column, stride_bytes)
    rows, columns = atom.a.shape
    found: Fragments = {}
    for place, _ in _places(wanted, atom.a):
        registers = ctx.builder.many("b32", 4)
        at = place[0] * rows * stride_bytes + 2 * place[1] * columns
        ctx.builder.put("ldmatrix_x4", d=registers, a=Address(base, at))
        found[place] = registers
    return found


def _matrix_row(ctx: Context, wanted: Frame, atom: Atom) -> tuple[Register, Register]:
    """The (row, column) in the slab of the 8-element row that this lane gives `ldmatrix`.

    Lane l gives row l % 8 of matrix l // 8; the matrices stand where the element bits above the
    lowest put them in the operand's lane map.
    """
    b, side = ctx.builder, wanted.row

    def along(which: int) -> Any:
        steps = [step[which] for step in atom.a.element[1:]]
        total = b.op("and_b32", ctx.lane, 7) if which == 0 else _zero(ctx)
        for bit, step in enumerate(steps):
            if step:
                part = b.op("and_b32", b.op("shr_u32", ctx.lane, 3 + bit), 1)
                total = b.op("mad_lo_s32", part, step, total)
        if which == 0 and side.warps > 1:
            place = ctx.warp_place(side.warps, side.warp_stride)
            total = b.op("mad_lo_s32", place, side.warp_step, total)
        return total

    name = (atom.a, side.warps, side.warp_stride, side.warp_step)
    row = ctx.once(("matrix row", *name), lambda: along(0))
    return row, ctx.once(("matrix column", *name), lambda: along(1))


def _zero(ctx: Context) -> Register:
    register = ctx.builder.new("b32")
    ctx.builder.move(register, 0)
    return register
