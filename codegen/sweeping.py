"""How a fold is emitted whose tiles find, when they run, which blocks of it they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..expressions import maximum, minimum, where
from ..intervals import FIRST_ROW, LAST_ROW, Interval
from ..terms import make, variable
from .expression import compute, whole
from .ptx import Register
from .rings import Course
from .scanning import Block as Threads
from .scanning import bind_ends, scan_fold
from .staging import Moving
from .streaming import Kernel, Stream
from .tile import Block, Sweep
from .values import Value
from .walking import walk


@dataclass(frozen=True)
class Limits:
    """Elements of the fold, in registers, all between whole groups: where a tile's groups begin
    and end, and where those begin and end that need no mask."""

    begin: Register
    plain: Register
    masked: Register
    end: Register
    given: Register | None  # where the elements end that count, if that is before the axis does


def sweep(kernel: Kernel, op: Sweep) -> None:
    with kernel.ctx.builder.of("the part of the fold that this tile needs"):
        limits = _Finder(kernel, op, kernel.threads).limits()
    Sweeping(kernel, op, limits).run()


class _Finder:
    """Finds a tile's limits: the ends of its intervals at the tile's own rows."""

    def __init__(self, kernel: Kernel, op: Sweep, threads: int) -> None:
        self.ctx, self.op, self.frame = kernel.ctx, op, kernel.outer
        self.group = op.block * op.stride
        self.length = op.axis.length
        self.threads = threads
        self.end_of_rows = kernel.program.end_of_rows
        row = self.frame.row
        first = row.origin if row.origin is not None else 0
        self.bind(FIRST_ROW, first)
        if row.axis is not None:
            last = make("Add", FIRST_ROW, make("Num", row.extent - 1.0))
            self.define(LAST_ROW, minimum(last, row.axis.length - 1))

    def bind(self, name: Any, word: Moving) -> None:
        self.ctx.bind(name, Value("scalar", "s32", (word,), 0))

    def define(self, name: Any, term: Any) -> None:
        self.ctx.bind(name, whole(compute(self.ctx, term, self.frame)))

    def narrowed(self) -> Sweep:
        """The sweep within what data tells."""
        op, ctx = self.op, self.ctx
        if op.scan is None:
            return op
        assert ctx.arena is not None, "the kernel has shared memory"
        block = Threads(ctx, self.threads, ctx.arena.scan)
        if op.scan.loads:
            bind_ends(block, op.scan, self.frame.row)
        begin, end = (
            self.register(self.named(term)) for term in (self.low(op.live), self.high(op.live))
        )
        found = scan_fold(block, op.scan, op.axis, begin, end)
        names = [variable("Expr", f"scanned {place}") for place in ("first", "end", "full")]
        for name, word in zip(names, (found.first, found.end, found.full), strict=True):
            self.bind(name, word)
        first, after, full = names
        # all of it is full, or none
        all_full = where(after - first <= full, after, 0)
        live = op.live & Interval(first, after)
        return replace(op, live=live, full=op.full & Interval(first, all_full))

    def limits(self) -> Limits:
        op, skewed = self.narrowed(), bool(self.op.last)
        live = op.live
        if self.end_of_rows is not None:  # a tile past it has nothing to do
            live = live & Interval(None, where(self.end_of_rows > FIRST_ROW, self.length, 0))
        end = self.named(self.up(self.high(live)))
        begin = self.named(minimum(self.down(self.low(live)), end))
        last, stop = self.down(self.high(op.full)), end
        if skewed:  # a group works on the first block of the one after it; the last is apart
            last, stop = last - self.group, end - self.group
        # before the first plain group everything holds that holds before the last
        plain = self.named(self.within(minimum(self.up(self.low(op.full)), last), begin, stop))
        masked = self.named(self.within(last, plain, stop))
        given = None
        if op.bound is not None:
            given = self.register(self.named(self.clipped(op.bound)))
        ends = [self.register(each) for each in (begin, plain, masked, end)]
        return Limits(ends[0], ends[1], ends[2], ends[3], given)

    def low(self, found: Interval) -> Any:
        return make("Num", 0.0) if found.low is None else self.clipped(found.low)

    def high(self, found: Interval) -> Any:
        return self.length if found.high is None else self.clipped(found.high)

    def clipped(self, end: Any) -> Any:
        return minimum(maximum(end, 0), self.length)

    def within(self, term: Any, low: Any, high: Any) -> Any:
        return minimum(maximum(term, low), high)

    def down(self, term: Any) -> Any:
        return term // self.group * self.group

    def up(self, term: Any) -> Any:
        return self.down(term + (self.group - 1))

    def named(self, term: Any) -> Any:
        """The term, computed now."""
        self.define(term, term)
        return term

    def register(self, term: Any) -> Register:
        word = self.ctx.bound[term].words[0]
        if isinstance(word, Register):
            return word
        register = self.ctx.builder.new("b32")
        self.ctx.builder.move(register, int(word) % 2**32)
        return register


class Sweeping(Stream):
    """One sweep being emitted."""

    loop: Sweep

    def __init__(self, kernel: Kernel, op: Sweep, limits: Limits) -> None:
        super().__init__(kernel, op, Course(limits.begin, limits.end), limits.given)
        self.limits = limits
        self.ctx.moving[limits.begin] = self.b.depth + 1  # it is an element only if there are some
        self.stride = op.block * op.stride

    def run(self) -> None:
        self.keep_bases()
        some = self.b.op("setp_lt_s32", self.limits.begin, self.limits.end)
        self.make_barriers()
        if self.choices.roles == "producer":
            self.split_producer(some)
        depth = self.b.depth
        with self.maybe(), self.b.when(some, uniform=True):
            self.fetch()
            self.blocks()
        self.ctx.leave(depth)
        self.deepen(depth)
        self.ctx.slots.clear()
        self.ctx.met = self.ctx.warp_met = False
        self.kernel.let_go, self.kernel.at_end = self.let_go, self.unmake

    def blocks(self) -> None:
        """Everything between the first slot and the last."""
        limits, loop = self.limits, self.loop
        counter = self.b.new("b32")
        self.ctx.moving[counter] = self.b.depth + 1
        self.deepen(self.b.depth)
        for ring in self.rings:
            ring.enter(counter)
        self.counter = limits.begin
        for op in loop.before:
            self.block(op)
        if any(end is not None for end in (loop.full.low, loop.live.low, loop.scan)):
            self.groups(counter, limits.begin, limits.plain, loop.early, 1)
        typical = max(loop.axis.size // self.stride, 1)
        self.groups(counter, limits.plain, limits.masked, loop.plain, typical)
        if not loop.last:
            self.groups(counter, limits.masked, limits.end, loop.masked, 1)
            self.leave()
            return
        end = self.b.op("add_s32", limits.end, -self.stride)
        self.groups(counter, limits.masked, end, loop.masked, 1)
        self.ctx.moving[end] = self.b.depth
        self.counter = end
        for ring in self.rings:
            ring.counter = end
        self.ctx.met = self.ctx.warp_met = False
        for op in loop.last:
            self.step(op)
        self.leave()

    def groups(
        self, counter: Register, begin: Register, end: Register, ops: Sequence[Any], typical: int
    ) -> None:
        """Groups alike, from one element of the fold to another."""
        self.ctx.slots.clear()
        with self.maybe(), self.b.sweep(counter, begin, end, self.stride, typical):
            self.deepen(self.b.depth)
            self.counter = counter
            self.ctx.met = self.ctx.warp_met = False
            for op in ops:
                self.step(op)
            for ring in self.rings:
                ring.advance()
        self.ctx.leave(self.b.depth)
        self.deepen(self.b.depth)
        self.ctx.slots.clear()

    @contextmanager
    def maybe(self) -> Iterator[None]:
        """Code that may not run: what may be absent before it may be so after it."""
        carried = {
            old for op in walk((self.loop,)) if isinstance(op, Block) for old, _ in op.carried
        }
        before = {old: self.ctx.absent[old] for old in carried if old in self.ctx.absent}
        yield
        for old, kinds in before.items():
            self.ctx.absent[old] = self.ctx.absent[old] | kinds

    def leave(self) -> None:
        for ring in self.rings:
            ring.leave()
