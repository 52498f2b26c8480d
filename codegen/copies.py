"""How a block's threads copy a tile into a slab: 16 bytes a thread, asynchronously or not.

Elements past a bound become zeros, and so does what rounds a row up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..dtypes import DTYPES
from ..errors import LoweringError
from .arena import Placed
from .context import Context
from .frames import Frame, Side
from .memory import Element, access, grouped, load_run
from .ptx import Address, Register
from .slabs import CHUNK_BYTES, SlabLayout


@dataclass(frozen=True)
class Slot:
    """Where a copy goes or a fragment comes from: bytes from the start of shared memory."""

    offset_bytes: int = 0
    register: Register | None = None


@dataclass(frozen=True)
class Copier:
    """Copies tiles with `threads` threads, of which this one is number `thread`."""

    ctx: Context
    threads: int
    thread: Register
    transport: str
    policy: Register | None = None

    def copy(self, placed: Placed, across: Side, along: Side, slot: Slot) -> None:
        """Copy the tile whose rows lie along `across` and whose chunks along `along`.

        The sides give origin, moving part and bound.
        """
        size = DTYPES[placed.load.args[0].args[1]].size_bytes
        for step in self.steps(placed.layout):
            frame = Frame(
                _by_thread(across, step.rows, step.row, 1),
                _by_thread(along, tuple(range(CHUNK_BYTES // size)), step.column(size), 8),
            )
            flipped = placed.across is not frame.row.axis
            assert not flipped, "a slab's rows lie along the frame's rows"
            found = access(self.ctx, placed.load, frame)
            for run in grouped(found, frame, size):
                row = step.rows[run[0].place[0]]
                base, fixed = step.target(row)
                fixed += run[0].place[1] * size + slot.offset_bytes + placed.offset_bytes
                self.move(run, base, fixed, slot, size, step.guard)

    def move(
        self,
        run: list[Element],
        base: Register,
        fixed: int,
        slot: Slot,
        size: int,
        guard: Register | None,
    ) -> None:
        b, inside = self.ctx.builder, run[0].inside
        width = len(run) * size
        if slot.register is not None:
            base = in_slot(self.ctx, base, slot.register)
        source, target = Address(run[0].base, run[0].offset_bytes), Address(base, fixed)
        if self.transport == "sync":
            if guard is not None:  # threads past the tile's chunks load nothing
                both = guard if inside is None else b.op("and_pred", inside, guard)
                run = [replace(each, inside=both) for each in run]
            words = load_run(self.ctx, run, DTYPES["f16"])
            vector = f"v{len(words)}_" if len(words) > 1 else ""
            kind = "b16" if width == 2 else "b32"
            registers = [word.register for word in words]
            given: Any = registers if len(registers) > 1 else registers[0]
            b.put(f"st_shared_{vector}{kind}", guard=guard, a=target, b=given)
            return
        if width < 4:
            raise LoweringError(
                f"STAGE: cp.async takes 4, 8 or 16 aligned bytes, got runs of {width}; "
                "the nearest legal transport is sync"
            )
        row = "cp_async_cg_16" if width == 16 else f"cp_async_ca_{width}"
        operands: dict[str, Any] = {"a": target, "b": source}
        if inside is not None:
            row += "_zfill"
            operands["size"] = b.op("selp_s32", width, 0, inside)
        if self.policy is not None and width == 16:
            row += "_hint"
            operands["policy"] = self.policy
        b.put(row, guard=guard, **operands)

    def steps(self, layout: SlabLayout) -> list[_Step]:
        """The chunks of a slab dealt out to the threads, turn after turn."""
        chunks = layout.row_bytes // CHUNK_BYTES
        total = layout.rows * chunks
        if self.threads % chunks == 0 and layout.rows % (self.threads // chunks) == 0:
            stride = self.threads // chunks
            return [_Step(self, layout, 0, tuple(range(0, layout.rows, stride)))]
        turns = -(-total // self.threads)
        return [_Step(self, layout, turn * self.threads, (0,)) for turn in range(turns)]


class _Step:
    """One chunk a thread for each of `rows`: the thread's number plus `first`, row by row."""

    def __init__(
        self, copier: Copier, layout: SlabLayout, first: int, rows: tuple[int, ...]
    ) -> None:
        ctx, thread = copier.ctx, copier.thread
        self.ctx, self.layout, self.rows = ctx, layout, rows
        self.chunks = layout.row_bytes // CHUNK_BYTES
        b, name = ctx.builder, ("chunk", thread, first, self.chunks)
        number = ctx.once(
            ("number", thread, first), lambda: b.op("add_s32", thread, first) if first else thread
        )
        self.row = ctx.once((*name, "row"), lambda: b.op("div_u32", number, self.chunks))
        self.chunk = ctx.once((*name, "chunk"), lambda: b.op("rem_u32", number, self.chunks))
        total = layout.rows * self.chunks
        self.guard: Register | None = None
        if len(rows) == 1 and first + copier.threads > total:
            self.guard = ctx.once(
                (*name, "guard", total), lambda: b.op("setp_lt_u32", number, total)
            )

    def column(self, size: int) -> Register:
        """The first element of the thread's chunk."""
        width = CHUNK_BYTES // size
        name = ("chunk column", self.chunk, width)
        return self.ctx.once(name, lambda: self.ctx.builder.op("mul_lo_s32", self.chunk, width))

    def target(self, row: int) -> tuple[Register, int]:
        """The address of the chunk in the slab, `row` rows below the thread's own."""
        if self.layout.chunk_bits == 0 or row % 8 == 0:
            base = slab_address(self.ctx, self.layout, self.row, self.chunk)
            return base, row * self.layout.pitch_bytes
        name = ("row below", self.row, row)
        below = self.ctx.once(name, lambda: self.ctx.builder.op("add_s32", self.row, row))
        return slab_address(self.ctx, self.layout, below, self.chunk), 0


def slab_address(ctx: Context, layout: SlabLayout, row: Register, chunk: Register) -> Register:
    """The shared address of (row, 16-byte chunk) of a slab at the start of shared memory."""

    def emit() -> Register:
        b = ctx.builder
        inside = chunk
        start = ctx.shared
        if layout.boxes > 1:
            across = layout.span_bytes // CHUNK_BYTES
            box = b.op("div_u32", chunk, across)
            inside = b.op("rem_u32", chunk, across)
            start = b.op("mad_lo_s32", box, layout.box_bytes, start)
        if layout.chunk_bits:
            bits = b.op("shr_u32", row, 3 - layout.chunk_bits)
            inside = b.op("xor_b32", inside, b.op("and_b32", bits, (1 << layout.chunk_bits) - 1))
        return b.op(
            "mad_lo_s32",
            inside,
            CHUNK_BYTES,
            b.op("mad_lo_s32", row, layout.pitch_bytes, start),
        )

    return ctx.once(("slab address", layout, row, chunk), emit)


def in_slot(ctx: Context, base: Register, slot: Register) -> Register:
    """An address moved to a slot, once for as long as the slot's register keeps its value."""
    name = ("in slot", base, slot)
    if name not in ctx.slots:
        ctx.slots[name] = ctx.builder.op("add_s32", base, slot)
    return ctx.slots[name]


def _by_thread(side: Side, offsets: tuple[int, ...], own: Register, step: int) -> Side:
    return replace(
        side,
        offsets=offsets,
        lane_steps=(),
        warps=1,
        own=own,
        own_step=step,
        block_extent=side.extent,
        interleave=1,
    )
