"""How the last of some blocks takes up what all of them stored: the next stage, in one launch.

A block stores its states and counts itself, with a release, at the counter of those that belong
together; the one that comes last has acquired what the others released, leaves the counter at zero
for the next launch, and works on all tiles of the next stage that read those states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..axes import Axis
from ..dtypes import i32
from ..layouts import array_term
from .arena import Arena
from .context import Context
from .layout import Layout
from .ptx import Address, Label, Register
from .tile import TileProgram
from .tiles import TilesInTurn
from .values import Value

FLAG_BYTES = 16  # of shared memory, for how many blocks have come
SLAB_BYTES = 1024  # to which slabs are aligned


@dataclass(frozen=True)
class Following:
    """The stage that a last block works on; `common` axes tell which blocks belong together."""

    program: TileProgram
    arena: Arena
    common: tuple[Axis, ...]
    counter: Any  # an array of one word for each element of the common axes

    @property
    def counter_name(self) -> str:
        return str(self.counter.args[0])


def counter_of(name: str, common: Sequence[Axis]) -> Any:
    """The array of the counters: one for all where no axis is common."""
    return array_term(name, i32.name, [axis.extent for axis in common])


def flag_offset(arena: Arena) -> int:
    """Where in shared memory the block leaves what its counter said."""
    return -(-arena.size_bytes // FLAG_BYTES) * FLAG_BYTES


def following_offset(arena: Arena, after: Arena) -> int:
    """Where the shared memory of the stage that follows begins, past that of the first."""
    end = flag_offset(arena) + FLAG_BYTES
    return -(-end // SLAB_BYTES) * SLAB_BYTES if after.size_bytes else end


class Remaining(TilesInTurn):
    """The tiles of the stage that follows whose states the block's mates stored, one by one."""

    def begin(self) -> None:
        b = self.ctx.builder
        with b.of("the first tile that the last block works on"):
            self.number = self.ctx.tile_number = b.new("b32")
            b.move(self.number, 0)

    def next(self, layout: Layout, let_go: Callable[[], None], at_end: Callable[[], None]) -> None:
        if any(count != 1 for count in layout.counts):
            super().next(layout, let_go, at_end)

    def advance(self, layout: Layout) -> Register:
        b = self.ctx.builder
        b.put("add_s32", d=self.number, a=self.number, b=1)
        return b.op("setp_lt_s32", self.number, layout.blocks())


def only_the_last(
    ctx: Context, layout: Layout, after: Following, done: str
) -> Mapping[Axis, Value]:
    """All blocks but the last of those that belong together go to `done`.

    Returns this one's index of each common axis.
    """
    b, arena = ctx.builder, ctx.arena
    assert arena is not None, "a kernel that others follow has its arena"
    with b.of(f"the last block that comes to {after.counter_name} goes on"):
        known = {axis: ctx.grid[axis] for axis in after.common}
        counter, others = _counter(ctx, after), _others(ctx, layout, after)
        flag = Address(ctx.shared, flag_offset(arena))
        first = b.op("setp_eq_s32", ctx.thread, 0)
        b.put("bar_sync", a=0)
        with b.when(first):
            b.put("st_shared_u32", a=flag, b=b.op("atom_inc_acq_rel", Address(counter), others))
        b.put("bar_sync", a=0)
        early = b.op("setp_ne_u32", b.op("ld_shared_u32", flag), others)
        b.put("bra_uni", guard=early, target=Label(done))
    return known


def _counter(ctx: Context, after: Following) -> Register:
    """The address of the counter of this block and its mates."""
    b = ctx.builder
    number: Register | None = None
    for axis in after.common:
        (index,) = ctx.grid[axis].words
        length = ctx.length(axis)
        scaled = b.op("mul_lo_s32", number, length) if number is not None else None
        if isinstance(index, Register):
            number = index if scaled is None else b.op("add_s32", scaled, index)
        else:
            number = scaled
    base = ctx.pointer(after.counter_name)
    if number is None:
        return base
    return b.op("add_u64", base, b.op("mul_wide_u32", number, i32.size_bytes))


def _others(ctx: Context, layout: Layout, after: Following) -> Register | int:
    """How many blocks come to a counter, less one."""
    b = ctx.builder
    counts = [count for axis, count in layout.counted if axis not in after.common]
    total: Register | int = 1
    for count in counts:
        if isinstance(count, int) and isinstance(total, int):
            total *= count
        elif isinstance(count, Register):
            total = count if total == 1 else b.op("mul_lo_s32", count, total)
        else:
            total = b.op("mul_lo_s32", total, count)
    return total - 1 if isinstance(total, int) else b.op("add_s32", total, -1)
