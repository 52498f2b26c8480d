"""How a base moves only where it must: a vote of the warp, and a path that is seldom taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..absence import absence_of
from ..carriers import plain
from .context import Context
from .exponential import negated
from .expression import compute, real
from .folds import FULL_WARP, combine_of, fold_across
from .frames import Frame
from .tile import Rebase
from .values import Value


def keep(ctx: Context, op: Rebase) -> None:
    """Registers for what follows from a base alone, since bases seldom move: the value past which
    a part moves it, and what exponentials subtract."""
    if op.base in ctx.kept:
        return
    base = ctx.bound[op.base]
    names = ["limit"] if op.slack else []
    names += ["negated"] if ctx.choices.exp.form in ("fold", "poly") else []
    ctx.kept[op.base] = {
        name: Value("rows", "f32", tuple(ctx.builder.many("f32", len(base.words))), 0)
        for name in names
    }
    _follow(ctx, op, base)


def _follow(ctx: Context, op: Rebase, base: Value) -> None:
    """What is kept follows the base."""
    b = ctx.builder
    for name, kept in ctx.kept[op.base].items():
        for word, at in zip(kept.words, base.words, strict=True):
            value = negated(b, at) if name == "negated" else b.op("add_rn_f32", at, op.slack)
            b.move(word, value)


def rebase(ctx: Context, op: Rebase, frame_of: Callable[[str], Frame]) -> None:
    """Move the base, and what is kept relative to it, where some part exceeds its limit."""
    b = ctx.builder
    base, part = ctx.bound[op.base], ctx.bound[op.part]
    limit = ctx.kept[op.base]["limit"] if op.slack else base
    exceeds: Any = None
    for row, word in enumerate(part.words):
        above = b.op("setp_gt_f32", word, limit.words[row])
        exceeds = above if exceeds is None else b.op("or_pred", exceeds, above)
    moves = b.op("vote_sync_any_pred", exceeds, FULL_WARP)
    ctx.absent[op.new] = absence_of(plain(op.monoid, op.base, op.part), ctx.absent)
    ctx.upper |= {op.base, op.new}
    depth, slots = b.depth, dict(ctx.slots)
    with b.when(moves, uniform=True):
        combine = combine_of(ctx, op.monoid, frame_of("inner"))
        whole = fold_across(ctx, combine, part, frame_of("inner"))
        words = tuple(map(combine, base.words, whole.words))
        new = Value("rows", "f32", words, b.depth)
        ctx.bind(op.new, new)
        for tile, shape, expr in op.moved:
            frame = frame_of(shape)
            held = ctx.bound[tile]
            value = real(ctx, compute(ctx, expr, frame), frame)
            columns = len(frame.column.offsets) if held.kind == "tile" else 1
            for place, word in enumerate(held.words):
                b.move(word, value.at(*divmod(place, columns), columns))
        for old, word in zip(base.words, new.words, strict=True):
            b.move(old, word)
        _follow(ctx, op, base)
    ctx.unbind(op.new)
    ctx.leave(depth)
    ctx.slots = slots
    ctx.forget({op.base, *(tile for tile, _, _ in op.moved)})
