"""How an atom gets its operands: loaded, computed, or handed over from an accumulator."""

from __future__ import annotations

from typing import Any

from ..dtypes import DTYPES
from ..errors import LoweringError
from .atoms import Atom
from .context import Context
from .copies import Slot, slab_address
from .drains import Held, drained
from .expression import compute, real
from .frames import Frame, atoms_along, fragment
from .lanes import LaneMap
from .memory import Place, access, depth_of, load_values, load_words, unpacked
from .packed import packed_product
from .ptx import Address, Register
from .slabs import CHUNK_BYTES, SlabLayout
from .stores import pack
from .values import Value, constant, each

Fragments = dict[tuple[int, int], list[Register]]  # by the atom's place: (row, column) of atoms


def operand(ctx: Context, term: Any, frame: Frame, atom: Atom, lanes: LaneMap) -> Fragments:
    """The fragments of an operand that covers the frame, laid out by `lanes`, rounded on entry.

    A plain load goes from memory to the registers that the atom reads, in this loop's body.
    """
    if term in ctx.held:
        return drained(ctx, ctx.held[term], frame, lanes)
    if term.head == "Load":
        return _loaded(ctx, term, frame, atom, lanes)
    product = packed_product(ctx, term, frame, atom, lanes)
    if product is not None:
        return product
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
    """A plain load: again in each round of the loop, or once where it is hoisted."""
    known = depth_of(ctx, access(ctx, load, frame), frame) == 0
    if ctx.choices.hoist != "registers" or not known:
        return _fragments(ctx, load, frame, atom, lanes, here=True)
    name = ("fragments", lanes, *ctx.name_of(load, frame))
    if name not in ctx.fragments:
        ctx.fragments[name] = _fragments(ctx, load, frame, atom, lanes, here=False)
    return ctx.fragments[name]


def _fragments(
    ctx: Context, load: Any, frame: Frame, atom: Atom, lanes: LaneMap, *, here: bool
) -> Fragments:
    dtype = DTYPES[load.args[0].args[1]]
    if not all(ctx.uses(load, frame)):
        raise LoweringError(f"lowering: the operand {load} lacks an axis of the contraction")
    if not atom.on_tensor_cores or dtype.name != atom.operand:
        return from_value(ctx, load_values(ctx, load, frame, here=here), frame, atom, lanes)
    words, depth = load_words(ctx, load, frame, here=here)
    whole = {word.places: word.register for word in words if len(word.places) == 2}
    halves = _LazyHalves(ctx, words)
    found: Fragments = {}
    with ctx.builder.at(depth):
        found = {
            place: _pairs(ctx, elements, whole, halves) for place, elements in _places(frame, lanes)
        }
    return found


def _pairs(ctx: Context, elements: list[Place], whole: Any, halves: Any) -> list[Register]:
    registers = []
    for low, high in zip(elements[::2], elements[1::2], strict=True):
        if (low, high) in whole:
            registers.append(whole[low, high])
            continue
        registers.append(ctx.builder.op("mov_pack_b32", [halves[low], halves[high]]))
    return registers


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

    In registers where the lanes agree and that is chosen; else through a shared slab and
    `ldmatrix`, between two barriers: one so that all have read the slab before (where they have
    not met since), one so that all have written.
    """
    in_registers = ctx.choices.handoff == "repack" or not atom.on_tensor_cores
    if in_registers and same_lanes(atom, held, wanted):
        return from_value(ctx, value, wanted, atom, atom.a)
    arena = ctx.arena
    assert arena is not None, "the kernel has shared memory"
    assert arena.handoff is not None, "shared memory has a place for it"
    slot = Slot(arena.handoff_offset)
    in_warp = ctx.choices.handoff == "shared/warp"  # else rows may belong to several warps
    meet = ctx.warp_barrier if in_warp else ctx.barrier
    if not (ctx.warp_met if in_warp else ctx.met):
        meet()
    _to_slab(ctx, value, held, atom, arena.handoff, slot)
    meet()
    slab = Held(arena.handoff, wanted.row.axis, wanted.column.axis, slot)
    fragments = drained(ctx, slab, wanted, atom.a)
    ctx.met = ctx.warp_met = False
    return fragments


def _to_slab(
    ctx: Context, value: Value, held: Frame, atom: Atom, layout: SlabLayout, slot: Slot
) -> None:
    b = ctx.builder
    row, column = ctx.local_base(held.row), ctx.local_base(held.column)
    columns = held.column.offsets
    pairs_a_chunk = CHUNK_BYTES // 4
    pair = ctx.once(("pair", column), lambda: b.op("shr_u32", column, 1))
    chunk = ctx.once(("chunk of", column), lambda: b.op("div_u32", pair, pairs_a_chunk))
    inside = ctx.once(
        ("inside chunk", column),
        lambda: b.op("mul_lo_s32", b.op("rem_u32", pair, pairs_a_chunk), 4),
    )
    start = slab_address(ctx, layout, row, chunk)
    for i, row_offset in enumerate(held.row.offsets):
        for j in range(0, len(columns), 2):
            low, high = (value.at(i, j + k, len(columns)) for k in (0, 1))
            word = pack(ctx, atom.operand, low, high)
            box, byte = divmod(2 * columns[j], layout.span_bytes)
            fixed = slot.offset_bytes + box * layout.box_bytes + row_offset * layout.pitch_bytes
            name: Any = ("write", start, inside, byte if layout.chunk_bits else 0)
            if not layout.chunk_bits:
                fixed += byte
            flip = byte if layout.chunk_bits else 0
            base = ctx.once(name, lambda: _moved(ctx, start, flip, inside))  # noqa: B023
            b.put("st_shared_b32", a=Address(base, fixed), b=word)


def _moved(ctx: Context, start: Register, flip: int, inside: Register) -> Register:
    """An address in another chunk, `inside` bytes into it."""
    other = ctx.builder.op("xor_b32", start, flip) if flip else start
    return ctx.builder.op("add_s32", other, inside)
