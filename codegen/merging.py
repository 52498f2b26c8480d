"""How warps that fold parts of the same rows see each other's states."""

from __future__ import annotations

from collections.abc import Sequence

from .arena import LANES_BYTES
from .context import Context
from .ptx import Address, Register
from .values import Value


def publish(ctx: Context, values: Sequence[Value]) -> None:
    """Every register of the values to shared memory, by warp, register and lane; then all meet.

    Warps of the same rows hold the same rows in the same registers and lanes, so that each finds
    the others' where its own are.
    """
    assert ctx.arena is not None
    words = [word for value in values for word in value.words]
    own = ctx.builder.op("mad_lo_s32", ctx.warp, len(words) * LANES_BYTES, _by_lane(ctx))
    for place, word in enumerate(words):
        at = Address(own, ctx.arena.exchange + place * LANES_BYTES)
        ctx.builder.put("st_shared_f32", a=at, b=word)
    ctx.barrier()


def receive(ctx: Context, registers: range, words: int, row_warps: int, place: int) -> Value:
    """A tile of rows as the warp at that place among those of the same rows has published it.

    `registers` are its own among the `words` that each warp has published.
    """
    assert ctx.arena is not None
    b, warp_bytes = ctx.builder, words * LANES_BYTES
    start = _by_lane(ctx)
    if row_warps > 1:
        start = b.op("mad_lo_s32", ctx.warp_place(row_warps, 1), warp_bytes, start)
    first = ctx.arena.exchange + place * row_warps * warp_bytes
    found = tuple(
        b.op("ld_shared_f32", Address(start, first + register * LANES_BYTES))
        for register in registers
    )
    return Value("rows", "f32", found, b.depth)


def _by_lane(ctx: Context) -> Register:
    return ctx.once(
        "word of the lane", lambda: ctx.builder.op("mad_lo_s32", ctx.lane, 4, ctx.shared)
    )
