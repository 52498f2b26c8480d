"""How a contraction becomes atoms: operands a few depth steps at a time, then every product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .atoms import Atom, atom
from .context import Context
from .frames import (
    Frame,
    Side,
    atoms_along,
    column_offsets,
    consecutive,
    fragment,
    lane_steps,
    repeat,
    row_offsets,
)
from .lanes import LaneMap
from .operands import Fragments, handed_over, operand
from .tile import Contract
from .values import Value


def contract(ctx: Context, op: Contract, frame: Frame, depth: Side, inner: Frame) -> Value:
    """The accumulators of `start + left @ right` in `frame`.

    `depth` is the whole contracted range (its lane part aside); `inner` is the frame in which a
    handed-over left operand is held.
    """
    kind = atom(op.geometry.atom)
    lanes = _lanes(kind, op)
    words = _start(ctx, op, frame)
    rows = _free_side(lanes["a"], 0, frame.row, op.geometry.row_atoms)
    columns = _free_side(lanes["b"], 1, frame.column, op.geometry.column_atoms)
    steps = -(-(max(depth.offsets) + 1) // kind.depth)
    held = None
    if op.handoff is not None:
        wanted = Frame(rows, _slice(lanes["a"], 1, depth, 0, steps))
        held = handed_over(ctx, ctx.bound[op.handoff], inner, wanted, kind)
    for first in range(0, steps, op.geometry.depth_steps):
        count = min(op.geometry.depth_steps, steps - first)
        if held is not None:
            left = {(i, k - first): held[i, k] for i, k in held if first <= k < first + count}
        else:
            wanted = Frame(rows, _slice(lanes["a"], 1, depth, first, count))
            left = operand(ctx, op.contraction.left, wanted, kind, lanes["a"])
        wanted = Frame(_slice(lanes["b"], 0, depth, first, count), columns)
        right = operand(ctx, op.contraction.right, wanted, kind, lanes["b"])
        words = _multiply(ctx, kind, frame, words, left, right, count)
    shape = tuple(words[place] for place in sorted(words))
    return Value("tile", "f32", shape, ctx.builder.depth)


def _lanes(kind: Atom, op: Contract) -> dict[str, LaneMap]:
    """The operands' lane maps: with the depth permuted where both come straight from memory."""
    loaded = op.contraction.left.head == op.contraction.right.head == "Load"
    if kind.on_tensor_cores and loaded:
        return {"a": consecutive(kind.a, 1), "b": consecutive(kind.b, 0)}
    return {"a": kind.a, "b": kind.b}


def _start(ctx: Context, op: Contract, frame: Frame) -> dict[tuple[int, int], Any]:
    rows, columns = len(frame.row.offsets), len(frame.column.offsets)
    every = [(row, column) for row in range(rows) for column in range(columns)]
    if op.start is None:
        zero = ctx.once("zero", lambda: _zero(ctx))
        return dict.fromkeys(every, zero)
    value = ctx.bound[op.start]
    return {place: value.at(*place, columns) for place in every}


def _zero(ctx: Context) -> Any:
    register = ctx.builder.new("f32")
    ctx.builder.move(register, 0.0)
    return register


def _free_side(lanes: LaneMap, which: int, side: Side, atoms: int) -> Side:
    """The accumulator's side as an operand lays it out: other lanes, the same block and warps."""
    inner = row_offsets(lanes) if which == 0 else column_offsets(lanes)
    return replace(
        side,
        offsets=repeat(inner, atoms, lanes.shape[which], side.interleave),
        lane_steps=lane_steps(lanes, which, side.interleave),
    )


def _slice(lanes: LaneMap, which: int, depth: Side, first: int, count: int) -> Side:
    """The part of the depth that `count` steps from `first` on cover, as an operand's side."""
    inner = row_offsets(lanes) if which == 0 else column_offsets(lanes)
    width = lanes.shape[which]
    offsets = tuple(first * width + at for at in repeat(inner, count, width))
    return replace(depth, offsets=offsets, lane_steps=lane_steps(lanes, which))


def _multiply(
    ctx: Context,
    kind: Atom,
    frame: Frame,
    words: dict[tuple[int, int], Any],
    left: Fragments,
    right: Fragments,
    count: int,
) -> dict[tuple[int, int], Any]:
    """One atom for each depth step and place; the accumulators of an atom stay in its registers."""
    out = dict(words)
    assert kind.instruction is not None, f"{kind.name} only lays out tiles"
    rows, columns = atoms_along(kind.c, frame)
    for step in range(count):
        for i in range(rows):
            for j in range(columns):
                elements = fragment(kind.c, frame, (i, j))
                fresh = ctx.builder.many("f32", len(elements))
                ctx.builder.put(
                    kind.instruction,
                    d=fresh,
                    a=left[i, step],
                    b=right[step, j],
                    c=[out[element] for element in elements],
                )
                out.update(zip(elements, fresh, strict=True))
    return out
