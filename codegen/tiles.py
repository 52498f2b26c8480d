"""How one block works on several tiles of the grid in turn, where blocks are as many as fit."""

from __future__ import annotations

from collections.abc import Callable

from .context import Context
from .layout import Layout
from .ptx import Label, Register, Special

TILE_DONE = "tile_done"  # where threads go that have no further part in a tile


class TilesInTurn:
    """A loop around the whole kernel; all that stands in it is computed anew for each tile.

    It is no loop of the builder's: nothing in it is known before it, so nothing leaves it.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.begin()
        ctx.builder.mark("next_tile")

    def begin(self) -> None:
        """The first tile."""
        raise NotImplementedError

    def advance(self, layout: Layout) -> Register:
        """The next tile, and whether there is one."""
        raise NotImplementedError

    def next(self, layout: Layout, let_go: Callable[[], None], at_end: Callable[[], None]) -> None:
        """Once all warps have let go of shared memory and are here, it is free; the next tile."""
        b = self.ctx.builder
        b.mark(TILE_DONE)
        with b.of("the next of this block's tiles"):
            let_go()
            b.put("bar_sync", a=0)
        at_end()
        with b.of("the next of this block's tiles"):
            again = self.advance(layout)
            b.put("bra_uni", guard=again, target=Label("next_tile"))


class Persistent(TilesInTurn):
    """As many blocks as are resident: the next tile is a grid further on."""

    def begin(self) -> None:
        b = self.ctx.builder
        with b.of("the first of this block's tiles"):
            self.number = self.ctx.tile_number = b.new("b32")
            b.put("mov_special", d=self.number, a=Special("ctaid.x"))

    def advance(self, layout: Layout) -> Register:
        b = self.ctx.builder
        stride = b.op("mov_special", Special("nctaid.x"))
        b.put("add_s32", d=self.number, a=self.number, b=stride)
        return b.op("setp_lt_s32", self.number, layout.blocks())


class Pair(TilesInTurn):
    """Two row tiles as far from the middle: a heavy one, then a light one. A tile in the middle
    stands alone."""

    def begin(self) -> None:
        b = self.ctx.builder
        with b.of("the first of this block's tiles"):
            self.turn = self.ctx.second_of_pair = b.new("b32")
            b.move(self.turn, 0)

    def advance(self, layout: Layout) -> Register:
        b = self.ctx.builder
        first = b.op("setp_eq_s32", self.turn, 0)
        b.put("add_s32", d=self.turn, a=self.turn, b=1)
        other = b.op("setp_ne_s32", layout.row_tile, layout.opposite)
        return b.op("and_pred", first, other)
