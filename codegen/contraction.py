"""How a contraction becomes atoms: operands a few depth steps at a time, then every product."""

from __future__ import annotations

import math
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
from .memory import granularity
from .operands import Fragments, handed_over, operand
from .ptx import Register
from .tile import Contract
from .values import Value

Words = dict[tuple[int, int], Any]  # accumulators by register indices on the frame's sides


def contract(ctx: Context, op: Contract, frame: Frame, depth: Side, inner: Frame) -> Value:
    """The accumulators of `start + left @ right` in `frame`.

    `depth` is the whole contracted range (its lane part aside); `inner` is the frame in which a
    handed-over left operand is held.
    """
    return _Contraction(ctx, op, frame, depth).run(inner)


class _Contraction:
    def __init__(self, ctx: Context, op: Contract, frame: Frame, depth: Side) -> None:
        self.ctx, self.op, self.frame, self.depth = ctx, op, frame, depth
        self.atom = atom(op.geometry.atom)
        self.left, self.right = _operand_lanes(self.atom, op)
        self.rows = _free_side(self.left, 0, frame.row, op.geometry.row_atoms)
        self.columns = _free_side(self.right, 1, frame.column, op.geometry.column_atoms)
        self.steps = -(-(max(depth.offsets) + 1) // self.atom.depth)
        self.slab = op.geometry.depth_steps

    def run(self, inner: Frame) -> Value:
        if self.op.handoff is not None:
            whole = Frame(self.rows, _slice(self.left, 1, self.depth, 0, self.steps))
            tile = self.ctx.bound[self.op.handoff]
            words = self.unrolled(handed_over(self.ctx, tile, inner, whole, self.atom))
        elif not self.atom.on_tensor_cores and self.steps > self.slab == math.gcd(
            self.steps, self.slab
        ):
            words = self.rolled()
        else:
            words = self.unrolled(None)
        ordered = tuple(words[place] for place in sorted(words))
        return Value("tile", "f32", ordered, self.ctx.builder.depth)

    def unrolled(self, held: Fragments | None) -> Words:
        """Slab after slab; a left operand that is `held` already is not loaded."""
        words = self.start()
        for first in range(0, self.steps, self.slab):
            count = min(self.slab, self.steps - first)
            left = None
            if held is not None:
                left = {(i, k - first): held[i, k] for i, k in held if first <= k < first + count}
            words = self.step(words, self.depth, first, count, left)
        return words

    def rolled(self) -> Words:
        """A loop over slabs: the CUDA cores need so many instructions for one that unrolling
        them all would leave the assembler to keep the operands of several in registers."""
        b = self.ctx.builder
        words = {place: b.new("f32") for place in self.start()}
        for place, start in self.start().items():
            b.move(words[place], start)
        counter = b.new("b32")
        self.ctx.moving[counter] = b.depth + 1
        length = self.slab * self.atom.depth
        with b.loop(counter, 0, self.steps * self.atom.depth, length):
            at: Any = counter
            if isinstance(self.depth.moving, Register) or self.depth.moving:
                at = b.op("add_s32", counter, self.depth.moving)
                self.ctx.moving[at] = b.depth
            moved = replace(
                self.depth,
                moving=at,
                moving_step=math.gcd(length, granularity(self.depth)),
                bound=self.depth.bound,
            )
            for place, word in self.step(words, moved, 0, self.slab, None).items():
                b.move(words[place], word)
        self.ctx.leave(b.depth)
        return words

    def step(
        self, words: Words, depth: Side, first: int, count: int, left: Fragments | None
    ) -> Words:
        """The accumulators after `count` depth steps from `first` on."""
        if left is None:
            wanted = Frame(self.rows, _slice(self.left, 1, depth, first, count))
            left = operand(self.ctx, self.op.contraction.left, wanted, self.atom, self.left)
        wanted = Frame(_slice(self.right, 0, depth, first, count), self.columns)
        right = operand(self.ctx, self.op.contraction.right, wanted, self.atom, self.right)
        return _multiply(self.ctx, self.atom, self.frame, words, left, right, count)

    def start(self) -> Words:
        rows, columns = len(self.frame.row.offsets), len(self.frame.column.offsets)
        every = [(row, column) for row in range(rows) for column in range(columns)]
        if self.op.start is None:
            return dict.fromkeys(every, self.ctx.once("zero", self._zero))
        value = self.ctx.bound[self.op.start]
        return {place: value.at(*place, columns) for place in every}

    def _zero(self) -> Register:
        register = self.ctx.builder.new("f32")
        self.ctx.builder.move(register, 0.0)
        return register


def _operand_lanes(kind: Atom, op: Contract) -> tuple[LaneMap, LaneMap]:
    """The operands' lane maps: with the depth permuted where both come straight from memory."""
    loaded = op.contraction.left.head == op.contraction.right.head == "Load"
    if kind.on_tensor_cores and loaded:
        return consecutive(kind.a, 1), consecutive(kind.b, 0)
    return kind.a, kind.b


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
    words: Words,
    left: Fragments,
    right: Fragments,
    count: int,
) -> Words:
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
