"""How a contraction becomes atoms: operands a few depth steps at a time, then every product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .atoms import Atom, atom
from .context import Context
from .frames import Frame, Side, column_offsets, fragment, lane_steps, repeat, row_offsets
from .operands import Fragments, handed_over, operand
from .tile import Contract
from .values import Value


def contract(ctx: Context, op: Contract, frame: Frame, depth: Side, inner: Frame) -> Value:
    """The accumulators of `start + left @ right` in `frame`.

    `depth` is the whole contracted range (its lane part aside); `inner` is the frame in which a
    handed-over left operand is held.
    """
    kind = atom(op.geometry.atom)
    words = _start(ctx, op, frame)
    rows = _free_side(kind, "a", frame.row, op.geometry.row_atoms)
    columns = _free_side(kind, "b", frame.column, op.geometry.column_atoms)
    steps = -(-(max(depth.offsets) + 1) // kind.depth)
    held = None
    if op.handoff is not None:
        wanted = Frame(rows, _slice(kind, "a", depth, 0, steps))
        held = handed_over(ctx, ctx.bound[op.handoff], inner, wanted, kind)
    for first in range(0, steps, op.geometry.depth_steps):
        count = min(op.geometry.depth_steps, steps - first)
        left = (
            {(i, k - first): regs for (i, k), regs in held.items() if first <= k < first + count}
            if held is not None
            else operand(
                ctx,
                op.contraction.left,
                Frame(rows, _slice(kind, "a", depth, first, count)),
                kind,
                "a",
            )
        )
        right = operand(
            ctx,
            op.contraction.right,
            Frame(_slice(kind, "b", depth, first, count), columns),
            kind,
            "b",
        )
        words = _multiply(ctx, kind, frame, words, left, right, count)
    shape = tuple(words[place] for place in sorted(words))
    return Value("tile", "f32", shape, ctx.builder.depth)


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


def _free_side(kind: Atom, which: str, side: Side, atoms: int) -> Side:
    """The accumulator's side as an operand lays it out: other lanes, the same block and warps."""
    lanes, dimension = (kind.a, 0) if which == "a" else (kind.b, 1)
    inner = row_offsets(lanes) if which == "a" else column_offsets(lanes)
    return replace(
        side,
        offsets=repeat(inner, atoms, lanes.shape[dimension]),
        lane_steps=lane_steps(lanes, dimension),
    )


def _slice(kind: Atom, which: str, depth: Side, first: int, count: int) -> Side:
    """The part of the depth that `count` steps from `first` on cover, as an operand's side."""
    lanes = kind.a if which == "a" else kind.b
    inner = column_offsets(lanes) if which == "a" else row_offsets(lanes)
    offsets = tuple(first * kind.depth + offset for offset in repeat(inner, count, kind.depth))
    return Side(
        axis=depth.axis,
        offsets=offsets,
        lane_steps=lane_steps(lanes, 1 if which == "a" else 0),
        moving=depth.moving,
        moving_step=depth.moving_step,
        bound=depth.bound,
    )


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
    row_index = {offset: i for i, offset in enumerate(frame.row.offsets)}
    column_index = {offset: i for i, offset in enumerate(frame.column.offsets)}
    places = sorted({i for i, _ in left}), sorted({j for _, j in right})
    out = dict(words)
    assert kind.instruction is not None, f"{kind.name} only lays out tiles"
    for step in range(count):
        for i in places[0]:
            for j in places[1]:
                elements = [(row_index[r], column_index[c]) for r, c in fragment(kind, "c", (i, j))]
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
