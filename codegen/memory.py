"""How elements travel between global memory and registers, in words as wide as alignment proves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..dtypes import DTYPES, Dtype
from ..errors import LoweringError
from ..layouts import alignment_of
from ..terms import make
from .affine import Affine, linear
from .builder import Builder
from .context import Context
from .frames import Frame, Side
from .ptx import Address, Register
from .values import Type, Value, each, kind_of, places

Place = tuple[int, int]  # register indices on the row and on the column side


@dataclass(frozen=True)
class Element:
    """One element of a transfer: where it stands in the tile, its address, its predicate."""

    place: Place
    base: Register
    offset_bytes: int
    inside: Any


@dataclass(frozen=True)
class Word:
    """A register of 16 or 32 bits and the places of the elements in it, lowest first."""

    register: Register
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Access:
    """Where a tile's elements lie, and at which loop depth that is known.

    `align_bytes` divides every base address.
    """

    elements: tuple[Element, ...]
    align_bytes: int
    depth: int


# ---- addresses -----------------------------------------------------------------------------------


def granularity(side: Side) -> int:
    """A power of two or more that divides the coordinate of the side's offset 0."""
    if side.own is not None:
        parts = [side.own_step]
    else:
        parts = [step for step in side.lane_steps if step]
        parts += [side.warp_step] if side.warps > 1 else []
    parts += [side.extent] if side.origin is not None else []
    parts += [side.ahead] if side.ahead else []
    if isinstance(side.moving, Register):
        parts.append(side.moving_step)
    elif side.moving:
        parts.append(side.moving)
    return math.gcd(*parts) if parts else 0


def alignment(array: Any, form: Affine, frame: Frame, dtype: Dtype) -> int:
    """Bytes that divide the address of the element at offset 0, for every thread; 16 at most."""
    rows, columns = frame.row, frame.column
    terms = [alignment_of(array) // dtype.size_bytes, form.constant]
    for axis, scale in form.axes:
        side = rows if axis is rows.axis else columns if axis is columns.axis else None
        terms.append(scale * (granularity(side) if side is not None else 1))
    terms += [scale for _, scale in form.terms]
    return math.gcd(*terms) * dtype.size_bytes


def access(ctx: Context, load: Any, frame: Frame) -> Access:
    """Where the elements of a load lie. Emits the address arithmetic, as early as it can."""
    dtype = DTYPES[load.args[0].args[1]]
    form = linear(load)
    uses_rows, uses_columns = ctx.uses(load, frame)
    kind = kind_of(uses_rows, uses_columns)
    bases, depth = _bases(ctx, load, form, frame, dtype)
    steps = (form.coefficient(frame.row.axis), form.coefficient(frame.column.axis))
    elements = tuple(
        Element(
            (row, column),
            bases.at(row, column, len(frame.column.offsets)),
            dtype.size_bytes
            * (
                steps[0] * (frame.row.offsets[row] if uses_rows else 0)
                + steps[1] * (frame.column.offsets[column] if uses_columns else 0)
            ),
            inside(ctx, frame, kind, (row, column)),
        )
        for row, column in places(kind, frame)
    )
    return Access(elements, alignment(load.args[0], form, frame, dtype), depth)


def inside(ctx: Context, frame: Frame, kind: str, place: Place) -> Any:
    """The predicate that the place lies before both bounds, or None where it always does."""
    rows = ctx.inside(frame.row) if kind in ("rows", "tile") else None
    columns = ctx.inside(frame.column) if kind in ("columns", "tile") else None
    if rows is None or columns is None:
        if rows is not None:
            return rows.words[place[0]]
        return columns.words[place[1]] if columns is not None else None
    name = ("both", rows.words[place[0]], columns.words[place[1]])
    if name not in ctx.memo:
        depth = max(rows.depth, columns.depth)
        with ctx.builder.at(depth):
            both = ctx.builder.op("and_pred", *name[1:])
        ctx.memo[name] = Value("scalar", "pred", (both,), depth)
    return ctx.memo[name].words[0]


def _bases(ctx: Context, load: Any, form: Affine, frame: Frame, dtype: Dtype) -> tuple[Value, int]:
    """The addresses of the elements at offset 0, and the loop depth at which they are known.

    There is one, or one for each row or column on which a part of the index depends that is not
    affine. Parts known before every loop are summed there; the others where they are known.
    """
    from .expression import compute, whole

    rows, columns = frame.row, frame.column
    fixed: list[tuple[Any, int]] = []
    moving: list[tuple[Value, Register | int]] = []
    constant = form.constant
    for axis, scale in form.axes:
        side = rows if axis is rows.axis else columns if axis is columns.axis else None
        if side is None:
            value = compute(ctx, make("Idx", axis), frame)
            if value.depth:
                moving.append((value, scale))
            else:
                fixed.append((value.words[0], scale))
            continue
        fixed.append((ctx.base(side), scale))
        if isinstance(side.moving, Register):
            depth = ctx.moving[side.moving]
            moving.append((Value("scalar", "s32", (side.moving,), depth), scale))
            constant += scale * side.ahead
        else:
            constant += scale * (side.moving + side.ahead)
    moving += [(compute(ctx, term, frame), scale) for term, scale in form.terms]
    for index, dim in form.strided:
        stride = ctx.stride_bytes(load.args[0], dim)
        moving.append((whole(compute(ctx, index, frame)), stride))
    array = load.args[0].args[0]
    name = ("base", array, constant, tuple(fixed))
    start = ctx.once(name, lambda: _sum(ctx, ctx.pointer(array), constant, fixed, dtype))
    address = Value("scalar", "s32", (start,), 0)
    for value, step in sorted(moving, key=lambda part: (len(part[0].words), part[0].depth)):
        address = _moved(ctx, address, value, step, frame, dtype)
    return address, address.depth


def _moved(
    ctx: Context, address: Value, value: Value, scale: Register | int, frame: Frame, dtype: Dtype
) -> Value:
    """Addresses `scale * value` elements further on; a scale in a register is in bytes."""
    name = ("moved", address.words, value.words, scale)
    if name not in ctx.memo:
        depth = max(address.depth, value.depth)
        with ctx.builder.at(depth):
            ctx.memo[name] = each(
                (address, value),
                frame,
                lambda at, word: _sum(ctx, at, 0, [(word, scale)], dtype),
                "s32",
                depth,
            )
    return ctx.memo[name]


def _sum(
    ctx: Context,
    start: Register,
    constant: int,
    parts: Sequence[tuple[Any, Register | int]],
    dtype: Dtype,
) -> Register:
    """start + size * (constant + Σ scale * word), in 64 bits; scales in registers are in bytes."""
    b = ctx.builder
    address = start
    for word, scale in parts:
        if isinstance(scale, Register):
            wide = b.op("cvt_s64_s32", word) if isinstance(word, Register) else word
            address = address if wide == 0 else b.op("mad_lo_s64", scale, wide, address)
            continue
        step_bytes = scale * dtype.size_bytes
        if isinstance(word, int):
            constant += scale * word
        elif -(2**31) <= step_bytes < 2**31:
            address = b.op("mad_wide_s32", word, step_bytes, address)
        else:
            address = b.op("mad_lo_s64", b.op("cvt_s64_s32", word), step_bytes, address)
    offset_bytes = constant * dtype.size_bytes
    return b.op("add_s64", address, offset_bytes) if offset_bytes else address


# ---- words ---------------------------------------------------------------------------------------


def spans(
    offsets_bytes: list[int], size_bytes: int, align_bytes: int, most_bytes: int
) -> list[list[int]]:
    """Indices grouped into runs of consecutive elements, each run aligned to its own length.

    >>> spans([0, 2, 4, 6, 10], 2, 16, 16)
    [[0, 1, 2, 3], [4]]
    """
    order = sorted(range(len(offsets_bytes)), key=lambda index: offsets_bytes[index])
    groups: list[list[int]] = []
    start = 0
    while start < len(order):
        first = offsets_bytes[order[start]]
        width = min(most_bytes, align_bytes)
        while width > size_bytes:
            count = width // size_bytes
            run = [offsets_bytes[i] - first for i in order[start : start + count]]
            if first % width == 0 and run == [size_bytes * i for i in range(count)]:
                break
            width //= 2
        count = max(width // size_bytes, 1)
        groups.append(order[start : start + count])
        start += count
    return groups


def grouped(found: Access, frame: Frame, size_bytes: int) -> list[list[Element]]:
    """The elements in runs that one instruction can move; all of a run are inside, or none."""
    by_base: dict[Register, list[Element]] = {}
    for element in found.elements:
        by_base.setdefault(element.base, []).append(element)
    return [
        run
        for elements in by_base.values()
        for some in _apart(elements)
        for run in _runs(some, found.align_bytes, frame, size_bytes)
    ]


def _apart(elements: list[Element]) -> list[list[Element]]:
    """All elements, or row by row where rows lie at one place, as along an axis of length 1."""
    if len({element.offset_bytes for element in elements}) == len(elements):
        return [elements]
    rows: dict[int, list[Element]] = {}
    for element in elements:
        rows.setdefault(element.place[0], []).append(element)
    return list(rows.values())


def _runs(
    elements: list[Element], align_bytes: int, frame: Frame, size_bytes: int
) -> list[list[Element]]:
    offsets = [element.offset_bytes for element in elements]
    row, column = _uniform(frame.row), _uniform(frame.column)
    chosen: list[list[Element]] = []
    for most in (column, min(row, column)):
        runs = spans(offsets, size_bytes, align_bytes, min(16, size_bytes * most))
        chosen = [[elements[index] for index in run] for run in runs]
        if all(len({element.place[0] for element in run}) == 1 for run in chosen):
            break  # runs along rows: only the columns' bound can cut them
    return chosen


def _uniform(side: Side) -> int:
    """How many neighbours, from a multiple of that many on, lie inside or outside together."""
    if side.bound is None:
        return 16
    return 1 if isinstance(side.bound, Register) else math.gcd(16, side.bound, granularity(side))


def load_words(
    ctx: Context, load: Any, frame: Frame, *, here: bool = False
) -> tuple[list[Word], int]:
    """The elements of a load, zero where they lie outside, and the loop depth of its registers.

    `here` keeps them in this loop.
    """
    dtype = DTYPES[load.args[0].args[1]]
    found = access(ctx, load, frame)
    depth = max(ctx.builder.depth if here else 0, depth_of(ctx, found, frame))
    words: list[Word] = []
    with ctx.builder.at(depth):
        for run in grouped(found, frame, dtype.size_bytes):
            words += load_run(ctx, run, dtype)
    return words, depth


def depth_of(ctx: Context, found: Access, frame: Frame) -> int:
    """The loop depth at which it is known where elements lie, and which of them are inside."""
    predicates = [ctx.inside(side) for side in (frame.row, frame.column)]
    return max([found.depth, *(p.depth for p in predicates if p is not None)])


def load_run(ctx: Context, run: list[Element], dtype: Dtype) -> list[Word]:
    b = ctx.builder
    width_bytes = len(run) * dtype.size_bytes
    kind = "f32" if dtype.name == "f32" else "b16" if width_bytes == 2 else "b32"
    count = max(width_bytes // 4, 1)
    registers = b.many("b32" if dtype.is_boolean else kind, count)
    if dtype.is_boolean and width_bytes < 4:
        kind = f"u{8 * width_bytes}"
    predicate = run[0].inside
    if predicate is not None:
        for register in registers:
            b.move(register, 0.0 if kind == "f32" else 0)
    vector = f"v{count}_" if count > 1 else ""
    narrow = kind in ("u8", "u16")  # of booleans, which no kernel stores
    cached = "" if ctx.stored_now and not narrow else "nc_"
    b.put(
        f"ld_global_{cached}{vector}{kind}",
        guard=predicate,
        d=registers if count > 1 else registers[0],
        a=Address(run[0].base, run[0].offset_bytes),
    )
    length = len(run) // count
    return [
        Word(register, tuple(e.place for e in run[i * length : (i + 1) * length]))
        for i, register in enumerate(registers)
    ]


def unpacked(ctx: Context, words: list[Word]) -> dict[Place, Register]:
    """One register for each element: words of two halves taken apart."""
    found: dict[Place, Register] = {}
    for word in words:
        if len(word.places) == 1:
            found[word.places[0]] = word.register
            continue
        halves = ctx.builder.many("b16", 2)
        ctx.builder.put("mov_unpack_b32", d=halves, a=word.register)
        found.update(zip(word.places, halves, strict=True))
    return found


def load_values(ctx: Context, load: Any, frame: Frame, *, here: bool = False) -> Value:
    """The elements of a load as a value: f32 for reals, s32 for integers, pred for truths."""
    dtype = DTYPES[load.args[0].args[1]]
    if dtype.name == "i64":
        raise LoweringError(f"lowering: {load.args[0]} is i64, which is not lowered yet; wants i32")
    words, depth = load_words(ctx, load, frame, here=here)
    with ctx.builder.at(depth):
        raw = truths(ctx.builder, words) if dtype.is_boolean else unpacked(ctx, words)
        kind = kind_of(*ctx.uses(load, frame))
        order = [raw[place] for place in places(kind, frame)]
        if dtype.name in ("f16", "bf16"):
            order = [ctx.builder.op(f"cvt_f32_{dtype.name}", word) for word in order]
    type_: Type = "pred" if dtype.is_boolean else "s32" if dtype.is_integer else "f32"
    return Value(kind, type_, tuple(order), depth)


def truths(b: Builder, words: list[Word]) -> dict[Place, Register]:
    """A predicate for each element, of words of one, two or four bytes: whether it is not 0."""
    found: dict[Place, Register] = {}
    for word in words:
        for index, place in enumerate(word.places):
            alone = len(word.places) == 1
            byte = word.register if alone else b.op("and_b32", word.register, 255 << 8 * index)
            found[place] = b.op("setp_ne_s32", byte, 0)
    return found
