"""How two halves of a block's warps take turns at contractions: a named barrier for each half."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .context import Context
from .ptx import Register
from .staging import only
from .tile import Contract

FIRST_BARRIER = 2  # that of the lower half; the upper half's is the next one


def _half(ctx: Context, warps: int) -> Register:
    """0 in the lower half of the warps, 1 in the upper."""
    return ctx.once(
        ("half of the warps", warps), lambda: ctx.builder.op("div_u32", ctx.warp, warps // 2)
    )


def begin_turns(ctx: Context, warps: int) -> None:
    """The upper half lets the lower half begin, before all tiles; the last turn is left over."""
    if ctx.choices.turns == "off":
        return
    b = ctx.builder
    half = _half(ctx, warps)
    upper = ctx.once("upper half", lambda: b.op("setp_eq_s32", half, 1))
    with b.of("the lower half of the warps begins"), only(ctx, upper):
        b.put("bar_arrive", a=FIRST_BARRIER, b=32 * warps)


@contextmanager
def own_turn(ctx: Context, op: Contract, warps: int) -> Iterator[None]:
    """A contraction of the body, between waiting for this half's turn and giving it away."""
    if ctx.choices.turns == "off" or op.shape != "inner":
        yield
        return
    b, half = ctx.builder, _half(ctx, warps)
    mine = ctx.once("own turn", lambda: b.op("add_s32", half, FIRST_BARRIER))
    theirs = ctx.once("their turn", lambda: b.op("sub_s32", FIRST_BARRIER + 1, half))
    b.put("bar_sync_count", a=mine, b=32 * warps)
    yield
    b.put("bar_arrive", a=theirs, b=32 * warps)
