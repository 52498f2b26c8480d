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


def contract(
    ctx: Context, op: Contract, frame: Frame, depth: Side, inner: Frame, ones: Frame
) -> tuple[Value, Value | None]:
    """The accumulators of `start + left @ right` in `frame`, and of columns of ones in `ones`.

    `depth` is the whole contracted range (its lane part aside); `inner` is the frame in which a
    handed-over left operand is held.
    """
    return _Contraction(ctx, op, frame, depth, ones).run(inner)


class _Contraction:
    def __init__(self, ctx: Context, op: Contract, frame: Frame, depth: Side, ones: Frame) -> None:
        self.ctx, self.op, self.frame, self.depth = ctx, op, frame, depth
        self.ones_frame = ones
        self.ones: Words = {}
        if op.ones is not None:
            columns = len(ones.column.offsets)
            held = ctx.bound[op.ones[1]]
            self.ones = {
                (row, column): held.at(row, column, columns)
                for row in range(len(ones.row.offsets))
                for column in range(columns)
            }
        self.atom = atom(op.geometry.atom)
        self.left, self.right = _operand_lanes(ctx, self.atom, op)
        self.rows = _free_side(self.left, 0, frame.row, op.geometry.row_atoms)
        self.columns = _free_side(self.right, 1, frame.column, op.geometry.column_atoms)
        self.steps = -(-(max(depth.offsets) + 1) // self.atom.depth)
        self.slab = op.geometry.depth_steps

    def run(self, inner: Frame) -> tuple[Value, Value | None]:
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
        return self.tile(words), self.tile(self.ones) if self.ones else None

    def tile(self, words: Words) -> Value:
        ordered = tuple(words[place] for place in sorted(words))
        return Value("tile", "f32", ordered, self.ctx.builder.depth)

    def unrolled(self, held: Fragments | None) -> Words:
        """Slab after slab; a left operand that is `held` already is not loaded.

        Operands are loaded as many slabs ahead of their use as the drain says.
        """
        words = self.start()
        length = 1 if self.ctx.choices.drain.ahead else self.slab
        slabs = [(first, min(length, self.steps - first)) for first in range(0, self.steps, length)]
        waiting: list[tuple[int, Fragments, Fragments]] = []
        for first, count in slabs:
            left = None
            if held is not None:
                left = {(i, k - first): held[i, k] for i, k in held if first <= k < first + count}
            waiting.append((count, *self.operands(self.depth, first, count, left)))
            if len(waiting) > self.ctx.choices.drain.ahead:
                words = self.multiply(words, *waiting.pop(0))
        for each in waiting:
            words = self.multiply(words, *each)
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
        return self.multiply(words, count, *self.operands(depth, first, count, left))

    def operands(
        self, depth: Side, first: int, count: int, left: Fragments | None
    ) -> tuple[Fragments, Fragments]:
        """The fragments of both operands for `count` depth steps from `first` on."""
        if left is None:
            wanted = Frame(self.rows, _slice(self.left, 1, depth, first, count))
            left = operand(self.ctx, self.op.contraction.left, wanted, self.atom, self.left)
        wanted = Frame(_slice(self.right, 0, depth, first, count), self.columns)
        right = operand(self.ctx, self.op.contraction.right, wanted, self.atom, self.right)
        return left, right

    def multiply(self, words: Words, count: int, left: Fragments, right: Fragments) -> Words:
        if self.ones:
            one = self.ctx.once(("one", self.atom.operand), self._one)
            alike = {(step, 0): [one] * (self.atom.b.elements // 2) for step in range(count)}
            frame = self.ones_frame
            self.ones = _multiply(self.ctx, self.atom, frame, self.ones, left, alike, count)
        return _multiply(self.ctx, self.atom, self.frame, words, left, right, count)

    def _one(self) -> Register:
        """Two ones in the operand's dtype."""
        register = self.ctx.builder.new("b32")
        half = 0x3C00 if self.atom.operand == "f16" else 0x3F80
        self.ctx.builder.move(register, half << 16 | half)
        return register

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


def _operand_lanes(ctx: Context, kind: Atom, op: Contract) -> tuple[LaneMap, LaneMap]:
    """The operands' lane maps: with the depth permuted where both come straight from memory."""
    sides = (op.contraction.left, op.contraction.right)
    loaded = all(side.head == "Load" and side not in ctx.held for side in sides)
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
