"""How a tile is reduced: in each thread's registers first, then across the lanes that share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..absence import NOWHERE, Kinds, absence_of, identity_kinds
from ..axes import Axis
from ..carriers import plain
from ..monoids import MONOIDS
from ..terms import make, variable
from .context import Context
from .expression import compute, real, register_of
from .frames import Frame
from .pointwise import REAL
from .values import Value, kind_of, places

FULL_WARP = 0xFFFFFFFF


_LEFT, _RIGHT = variable("Expr", "left word"), variable("Expr", "right word")

Combine = Callable[[Any, Any], Any]


def combine_of(ctx: Context, monoid: str, frame: Frame, kinds: Kinds = NOWHERE) -> Combine:
    """What combines two words of a fold: one instruction where the monoid's expression is one
    operator, else what the expression says. `kinds` says how elements may be absent.
    """
    term: Any = plain(monoid, _LEFT, _RIGHT)
    if term.head in REAL and term.args[0] is _LEFT and term.args[-1] is _RIGHT:
        return lambda x, y: REAL[term.head](ctx.builder, x, y)
    held = kinds | identity_kinds(MONOIDS[monoid].identity)

    def combine(x: Any, y: Any) -> Any:
        depth = ctx.builder.depth
        for name, word in ((_LEFT, x), (_RIGHT, y)):
            ctx.bind(name, Value("scalar", "f32", (word,), depth))
            ctx.absent[name] = held
        value = real(ctx, compute(ctx, term, frame), frame)
        ctx.unbind(_LEFT)
        ctx.unbind(_RIGHT)
        return value.words[0]

    return combine


def fold_words(combine: Combine, words: list[Any]) -> Any:
    """The words combined pairwise, in a balanced tree."""
    while len(words) > 1:
        pairs = [words[i : i + 2] for i in range(0, len(words), 2)]
        words = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return words[0]


def across_lanes(ctx: Context, combine: Combine, word: Any, bits: tuple[int, ...]) -> Any:
    """The word combined over the lanes that differ in these bits; all of them get the result."""
    b = ctx.builder
    for bit in bits:
        other = b.new("f32")
        b.put("shfl_sync_bfly_b32", d=other, a=word, b=1 << bit, c=31, mask=FULL_WARP)
        word = combine(word, other)
    return word


def fold_rows(ctx: Context, combine: Combine, tile: Value, frame: Frame) -> Value:
    """Each row of a tile folded over its columns."""
    return fold_across(ctx, combine, fold_lanes(ctx, combine, tile, frame), frame)


def fold_lanes(ctx: Context, combine: Combine, tile: Value, frame: Frame) -> Value:
    """Each row of a tile folded over the columns that this thread holds."""
    columns = len(frame.column.offsets)
    words = [
        fold_words(combine, [register_of(ctx, tile.at(row, at, columns)) for at in range(columns)])
        for row in range(len(frame.row.offsets))
    ]
    return Value("rows", "f32", tuple(words), ctx.builder.depth)


def fold_across(ctx: Context, combine: Combine, parts: Value, frame: Frame) -> Value:
    """Each row's parts folded over the lanes that share the row."""
    bits = frame.row.sharing_bits
    words = tuple(across_lanes(ctx, combine, word, bits) for word in parts.words)
    return Value("rows", "f32", words, ctx.builder.depth)


def inner_fold(ctx: Context, red: Any, frame: Frame) -> Value:
    """A reduction inside the body: the lanes that hold the same element take turns along it."""
    monoid, axis, body = red.args
    uses = ctx.uses(red, frame)
    bits = _sharing(frame, uses, axis)
    kind = kind_of(*uses)
    b = ctx.builder
    combine = combine_of(ctx, monoid.head, frame, absence_of(body, ctx.absent))
    count = len(places(kind, frame))
    totals = b.many("f32", count)
    for total in totals:
        b.move(total, MONOIDS[monoid.head].identity)
    index_of = make("Idx", axis)
    turn = ctx.once(("turn", bits), lambda: _turn(ctx, bits)) if bits else None
    if axis.size:
        counter = b.new("b32")
        with b.loop(counter, 0, axis.size, 1 << len(bits)):
            index = b.op("add_s32", counter, turn) if turn is not None else counter
            ctx.bind(index_of, Value("scalar", "s32", (index,), b.depth))
            value = real(ctx, compute(ctx, body, frame), frame)
            for total, place in zip(totals, places(kind, frame), strict=True):
                word = value.at(*place, len(frame.column.offsets))
                b.move(total, combine(total, word))
        ctx.unbind(index_of)
        ctx.leave(b.depth)
    words = [across_lanes(ctx, combine, total, bits) for total in totals]
    return Value(kind, "f32", tuple(words), b.depth)


def _sharing(frame: Frame, uses: tuple[bool, bool], axis: Axis) -> tuple[int, ...]:
    """The lane bits over which the values do not differ, as many as divide the axis evenly."""
    used = [side for side, used in zip((frame.row, frame.column), uses, strict=True) if used]
    bits = [bit for bit in range(5) if all(bit in side.sharing_bits for side in used)]
    while bits and axis.size % (1 << len(bits)):
        bits.pop()
    return tuple(bits)


def _turn(ctx: Context, bits: tuple[int, ...]) -> Any:
    """This lane's number among the lanes that share: its bits, put together."""
    b = ctx.builder
    turn: Any = None
    for place, bit in enumerate(bits):
        part = b.op("and_b32", b.op("shr_u32", ctx.lane, bit), 1)
        part = b.op("shl_b32", part, place) if place else part
        turn = part if turn is None else b.op("or_b32", turn, part)
    return turn
