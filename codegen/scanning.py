"""How a block finds out from data which elements of a fold its rows need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..axes import Axis
from ..intervals import Truth, greatest, least
from ..terms import make
from .context import Context
from .expression import compute, truth, whole
from .folds import FULL_WARP
from .frames import ALONE, Side
from .ptx import Address, Register
from .values import Value

FAR = 2**30  # past the end of every axis
WORDS = 4  # that a warp hands to the others at a time


@dataclass(frozen=True)
class Block:
    """All threads of a block: how many, and where they leave words for each other."""

    ctx: Context
    threads: int
    scratch_bytes: int  # where in shared memory

    def combined(self, words: Sequence[Register], rows: Sequence[str]) -> list[Register]:
        """Each word combined over all threads by its instruction, known to all of them."""
        assert len(words) <= WORDS, f"{len(words)} words, room for {WORDS}"
        b, ctx = self.ctx.builder, self.ctx
        for bit in range(5):
            words = [
                b.op(row, word, self._other(word, bit))
                for word, row in zip(words, rows, strict=True)
            ]
        warps = self.threads // 32
        first = ctx.once("lane zero", lambda: b.op("setp_eq_s32", ctx.lane, 0))
        mine = ctx.once("scan words", lambda: b.op("mad_lo_s32", ctx.warp, WORDS * 4, ctx.shared))
        b.put("bar_sync", a=0)
        for place, word in enumerate(words):
            b.put(
                "st_shared_b32",
                guard=first,
                a=Address(mine, self.scratch_bytes + 4 * place),
                b=word,
            )
        b.put("bar_sync", a=0)
        found = []
        for place, row in enumerate(rows):
            total: Any = None
            for warp in range(warps):
                word = b.new("b32")
                offset = self.scratch_bytes + 4 * (warp * WORDS + place)
                b.put("ld_shared_b32", d=word, a=Address(ctx.shared, offset))
                total = word if total is None else b.op(row, total, word)
            found.append(total)
        return found

    def _other(self, word: Register, bit: int) -> Register:
        other = self.ctx.builder.new("b32")
        self.ctx.builder.put(
            "shfl_sync_bfly_b32", d=other, a=word, b=1 << bit, c=31, mask=FULL_WARP
        )
        return other


def bind_ends(block: Block, scan: Truth, row: Side) -> None:
    """Bind the least and the greatest value of each load over the tile's rows."""
    ctx, b = block.ctx, block.ctx.builder
    assert row.axis is not None, "only rows have loads of their own"
    index = make("Idx", row.axis)
    first = row.origin
    for load in scan.loads:
        low, high = b.many("b32", 2)
        b.put("mov_s32", d=low, a=2**31 - 1)
        b.put("mov_s32", d=high, a=-(2**31))
        for start in range(0, row.extent, block.threads):
            place = b.op("add_s32", ctx.thread, start) if start else ctx.thread
            place = b.op("min_s32", place, row.extent - 1)
            place = b.op("add_s32", place, first) if first is not None else place
            last = ctx.length(row.axis)
            last = last - 1 if isinstance(last, int) else b.op("add_s32", last, -1)
            ctx.bind(index, Value("scalar", "s32", (b.op("min_s32", place, last),), 0))
            (word,) = whole(compute(ctx, load, ALONE)).words
            b.put("min_s32", d=low, a=low, b=word)
            b.put("max_s32", d=high, a=high, b=word)
            ctx.unbind(index)
        ends = block.combined([low, high], ["min_s32", "max_s32"])
        for name, word in zip((least(load), greatest(load)), ends, strict=True):
            ctx.bind(name, Value("scalar", "s32", (word,), 0))


@dataclass(frozen=True)
class Found:
    """Registers: the first element that some row needs, the end of the last one, and how many
    elements all rows need."""

    first: Register
    end: Register
    full: Register


def scan_fold(block: Block, scan: Truth, axis: Axis, begin: Register, end: Register) -> Found:
    """Which elements from `begin` to `end` the rows need."""
    ctx, b = block.ctx, block.ctx.builder
    index = make("Idx", axis)
    first, last, full, counter = b.many("b32", 4)
    b.move(first, FAR)
    b.move(last, 0)
    b.move(full, 0)
    start = b.op("add_s32", begin, ctx.thread)
    ctx.moving[counter] = b.depth + 1
    rounds = max(axis.size // block.threads, 1)
    with b.sweep(counter, start, end, block.threads, rounds, uniform=False):
        ctx.bind(index, Value("scalar", "s32", (counter,), b.depth))
        may, must = (truth(ctx, compute(ctx, term, ALONE), ALONE) for term in (scan.may, scan.must))
        after = b.op("add_s32", counter, 1)
        b.put("min_s32", d=first, a=first, b=b.op("selp_s32", counter, FAR, _test(b, may)))
        b.put("max_s32", d=last, a=last, b=b.op("selp_s32", after, 0, _test(b, may)))
        b.put("add_s32", d=full, a=full, b=b.op("selp_s32", 1, 0, _test(b, must)))
        ctx.unbind(index)
    ctx.leave(b.depth)
    words = block.combined([first, last, full], ["min_s32", "max_s32", "add_s32"])
    return Found(*words)


def _test(b: Any, value: Value) -> Register:
    word = value.words[0]
    if isinstance(word, Register):
        return word
    test: Register = b.op("setp_eq_s32", _zero(b), 0 if word else 1)
    return test


def _zero(b: Any) -> Register:
    register: Register = b.new("b32")
    b.move(register, 0)
    return register
