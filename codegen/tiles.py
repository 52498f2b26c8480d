"""How one block works on several tiles of the grid in turn, where blocks are as many as fit."""

from __future__ import annotations

from collections.abc import Callable

from .context import Context
from .ptx import Label, Register, Special

TILE_DONE = "tile_done"  # where threads go that have no further part in a tile


class TilesInTurn:
    """A loop around the whole kernel; all that stands in it is computed anew for each tile.

    It is no loop of the builder's: nothing in it is known before it, so nothing leaves it.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        b = ctx.builder
        with b.of("the first of this block's tiles"):
            self.number = ctx.tile_number = b.new("b32")
            b.put("mov_special", d=self.number, a=Special("ctaid.x"))
        b.mark("next_tile")

    def next(self, tiles: Register | int, at_end: Callable[[], None]) -> None:
        """Shared memory is free once all warps are here; then the tile a grid further on."""
        b = self.ctx.builder
        b.mark(TILE_DONE)
        with b.of("the next of this block's tiles"):
            b.put("bar_sync", a=0)
        at_end()
        with b.of("the next of this block's tiles"):
            stride = b.op("mov_special", Special("nctaid.x"))
            b.put("add_s32", d=self.number, a=self.number, b=stride)
            again = b.op("setp_lt_s32", self.number, tiles)
            b.put("bra_uni", guard=again, target=Label("next_tile"))
