"""How the loop over a fold is emitted: blocks in their order, between slots that fill and empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from .box_ring import BoxRing, wait_for
from .builder import Builder
from .context import Context
from .copies import Slot
from .copy_ring import CopyRing
from .frames import Frame
from .layout import Layout
from .ptx import Address, Label, Register
from .rebase import keep
from .residency import PRODUCER_REGISTERS, Residency
from .rings import Course, Extent, Ring, hold_once
from .staging import Moving, Position, Staging, bytes_of, only
from .tile import Acquire, Ahead, Block, Loop, Rebase, Release, Sweep, TileProgram
from .tiles import TILE_DONE
from .walking import walk


class Kernel(Protocol):
    """What the loop needs of the kernel that it stands in."""

    ctx: Context
    program: TileProgram
    layout: Layout
    outer: Frame
    inner: Frame
    residency: Residency
    let_go: Callable[[], None]
    at_end: Callable[[], None]

    @property
    def threads(self) -> int: ...

    def emit(self, op: Any) -> None: ...


class Stream:
    """One loop being emitted."""

    def __init__(
        self,
        kernel: Kernel,
        loop: Loop | Sweep,
        course: Course | None = None,
        given: Register | None = None,
    ) -> None:
        """`given` is where the elements end that count, where that is before the axis does."""
        self.kernel, self.loop = kernel, loop
        self.ctx, self.choices = kernel.ctx, kernel.program.choices
        self.b: Builder = self.ctx.builder
        self.given = given
        self.end = given if given is not None else self.ctx.length(loop.axis)
        arena = self.ctx.arena
        assert arena is not None
        self.arena = arena
        self.staging = Staging(
            ctx=self.ctx,
            arena=arena,
            roles=kernel.program.roles,
            frame=kernel.outer,
            warps=kernel.layout.warps,
            role=self.choices.roles,
            end=self.end if self.reaches_past_the_end() else None,
            end_of_memory=self.end_of_memory(),
            policy=self.policy(),
        )
        extent = Extent(loop.block, loop.block * loop.stride)
        self.rings: list[Ring] = []
        for pipe in loop.pipes:
            plan = arena.ring_of(pipe.slabs[0].load)
            assert plan is not None
            assert [p.load for p in plan.slabs] == [s.load for s in pipe.slabs], "one plan a pipe"
            make = BoxRing if pipe.staging.transport == "tma" else CopyRing
            self.rings.append(make(self.staging, plan, pipe, extent, course))
        self.of = dict(zip(loop.pipes, self.rings, strict=True))
        self.group: int | None = 0
        self.first: Moving = 0 if course is None else course.begin
        self.counter: Moving = self.first

    def policy(self) -> Register | None:
        if self.choices.cache == "none":
            return None
        row = f"createpolicy_evict_{self.choices.cache}"
        return self.ctx.once("policy", lambda: self.b.op(row))

    def end_of_memory(self) -> Register | int | None:
        """Where the fold's axis ends, if some block reaches past it."""
        length = self.ctx.length(self.loop.axis)
        stride = self.loop.block * self.loop.stride
        whole = isinstance(length, int) and length % stride == 0 and self.choices.skew == "off"
        return None if whole else length

    def reaches_past_the_end(self) -> bool:
        return not self.ends_whole or self.choices.skew != "off"

    # ---- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        assert isinstance(self.loop, Loop), "a sweep finds its blocks when it runs"
        self.keep_bases()
        self.make_barriers()
        if self.choices.roles == "producer":
            self.split_producer()
        self.fetch()
        self.counter = 0
        for op in self.loop.before:
            self.block(op)
        parts = (self.rounds, self.tail)
        for part in parts[::-1] if self.loop.backwards else parts:
            part(self.loop)
        self.kernel.let_go, self.kernel.at_end = self.let_go, self.unmake
        for op in walk((*self.loop.body, *self.loop.after)):
            if isinstance(op, Block):
                for old, new in op.carried:
                    self.ctx.absent[old] = self.ctx.absent.get(new, self.ctx.absent[old])

    def keep_bases(self) -> None:
        for op in walk((self.loop,)):
            if isinstance(op, Rebase):
                keep(self.ctx, op)

    def tail(self, loop: Loop) -> None:
        for op in loop.after:
            self.step(op)

    def rounds(self, loop: Loop) -> None:
        if not loop.rounds:
            return
        stride = loop.block * loop.stride
        counter = self.b.new("b32")
        self.ctx.moving[counter] = self.b.depth + 1
        for ring in self.rings:
            ring.enter(counter, loop.rounds)
        steps = range(0, loop.rounds * stride, stride)
        if loop.backwards:
            steps = steps[::-1]
        with self.b.loop(counter, steps.start, steps.stop, steps.step):
            self.deepen(self.b.depth)
            self.counter = counter
            self.ctx.met = self.ctx.warp_met = False  # as at the end of the round before
            for op in loop.body:
                self.step(op)
            for ring in self.rings:
                ring.advance()
        self.ctx.leave(self.b.depth)
        self.deepen(self.b.depth)
        for ring in self.rings:
            ring.leave()
        self.counter = 0

    def deepen(self, depth: int) -> None:
        """Inside a loop, what it changes are values of that depth."""
        changed = set(self.ctx.state)
        for op in walk((self.loop,)):
            if isinstance(op, Block):
                changed |= {old for old, _ in op.carried}
        for tile in changed:
            if tile in self.ctx.bound:
                self.ctx.bound[tile] = replace(self.ctx.bound[tile], depth=depth)
        self.ctx.forget(changed)

    def step(self, op: Any) -> None:
        if isinstance(op, Acquire):
            self.group = op.group
            with self.b.of(str(op)):
                self.of[op.pipe].acquire(op.group)
        elif isinstance(op, Release):
            with self.b.of(str(op)):
                self.of[op.pipe].release(op.group)
        else:
            self.block(op)

    def block(self, op: Block) -> None:
        """One block of the fold; the counter is a register inside the loop, 0 outside of it."""
        if op.step is not None:
            for ring in self.rings:
                ring.hold(self.group, op.step)
        at = op.at * self.loop.block
        with self.frame(at, op.masked):
            for each in op.ops:
                if not isinstance(each, Ahead):
                    self.kernel.emit(each)
                    continue
                with self.frame(at + self.loop.block, op.masked_ahead):
                    for early in each.ops:
                        self.kernel.emit(early)
        with self.b.of("the new state"):
            for old, new in op.carried:
                into, value = self.ctx.bound[old], self.ctx.bound[new]
                for register, word in zip(into.words, value.words, strict=True):
                    self.b.move(register, word)
                self.ctx.absent[old] = self.ctx.absent[new]
        self.ctx.forget({tile for pair in op.carried for tile in pair})

    @property
    def ends_whole(self) -> bool:
        """Whether the elements end where a group of blocks does."""
        stride = self.loop.block * self.loop.stride
        return isinstance(self.end, int) and self.end % stride == 0

    @contextmanager
    def frame(self, at: int, masked: bool) -> Iterator[None]:
        """The frame of the block that begins at an element after the counter."""
        held = self.kernel.inner
        bound = self.end if masked and not self.ends_whole else None
        if isinstance(self.counter, Register):
            side = self.kernel.layout.fold_side(self.counter, self.loop.block, bound, at)
        else:
            side = self.kernel.layout.fold_side(self.counter + at, self.loop.block, bound)
        if masked and self.given is not None:
            side = replace(side, strict=True)
        self.kernel.inner = Frame(self.kernel.outer.row, side)
        yield
        self.kernel.inner = held

    # ---- before the loop -------------------------------------------------------------------------

    @property
    def boxed(self) -> list[BoxRing]:
        return [ring for ring in self.rings if isinstance(ring, BoxRing)]

    def make_barriers(self) -> None:
        with self.b.of("barriers of the slots"):
            if self.boxed:
                self.initialise(self.boxed)

    def fetch(self) -> None:
        """What is needed once is fetched, and the first slots are filled."""
        once = self.once()
        by_box = bool(self.boxed) and bool(once)
        if self.choices.roles != "producer":
            self.fetch_once(once, by_box)
            self.prime(self.boxed)
        for ring in self.rings:
            if isinstance(ring, CopyRing):
                with self.b.of(f"first slots of {ring.pipe}"):
                    ring.prime()
        if once:
            self.await_once(by_box)
            for placed in once:
                hold_once(self.ctx, placed, Slot())

    def once(self) -> list[Any]:
        """What is fetched once: operands that stay, and the first block of those that run ahead."""
        lead = [placed for ring in self.rings for placed in ring.plan.lead]
        return [*self.arena.kept, *lead]

    def makers(
        self, boxed: list[BoxRing]
    ) -> Iterator[tuple[Register, list[Address], list[BoxRing]]]:
        """Which threads make and end barriers: that of what is fetched once, and of which rings."""
        once = [self.once_barrier()] if self.once() else []
        if self.choices.roles != "each":
            yield self.staging.elected(), once, boxed
            return
        yield boxed[0].first(), [], boxed
        if once:
            yield self.staging.elected(), once, []

    def initialise(self, boxed: list[BoxRing]) -> None:
        for thread, once, rings in self.makers(boxed):
            with only(self.ctx, thread):
                for ring in rings:
                    ring.initialise()
                for barrier in once:
                    self.b.put("mbarrier_init", a=barrier, n=1)
                self.b.put("fence_mbarrier_init")
        self.b.put("bar_sync", a=0)

    def let_go(self) -> None:
        """Loads of this tile come before the tensor copies of the next."""
        if self.boxed:
            self.b.put("fence_proxy_async")

    def unmake(self) -> None:
        """Barriers end with the tile, once all are done with them: the next one makes them anew."""
        if not self.boxed:
            return
        with self.b.of("the slots' barriers are no more"):
            for thread, once, rings in self.makers(self.boxed):
                with only(self.ctx, thread):
                    for barrier in [*(a for ring in rings for a in ring.addresses()), *once]:
                        self.b.put("mbarrier_inval", a=barrier)

    def once_barrier(self) -> Address:
        return Address(self.ctx.shared, self.arena.once)

    def fetch_once(self, once: list[Any], by_box: bool) -> None:
        """Start to fetch it: by one thread, or by all ahead of their first group of copies."""
        with self.b.of("what is fetched once"):
            if by_box:
                with only(self.ctx, self.staging.elected()):
                    self.send_once(once)
                return
            for placed in once:
                self.staging.copy(placed, Position(self.first), Slot(), self.once_transport())

    def once_transport(self) -> str:
        copying = [ring for ring in self.rings if isinstance(ring, CopyRing)]
        return copying[0].transport if copying else "cp"

    def send_once(self, once: list[Any]) -> None:
        barrier = self.once_barrier()
        self.b.put("mbarrier_arrive_expect_tx", a=barrier, n=bytes_of(once))
        for placed in once:
            self.staging.send(placed, Position(self.first), Slot(), barrier)

    def prime(self, boxed: list[BoxRing]) -> None:
        for ring in boxed:
            if ring.depth == 1:
                continue
            with self.b.of(f"first slots of {ring.pipe}"), only(self.ctx, ring.first()):
                ring.prime()

    def await_once(self, by_box: bool) -> None:
        """Wait for what is fetched once, where no slot's own wait will do."""
        with self.b.of("what is fetched once"):
            if by_box:
                wait_for(self.ctx, self.once_barrier(), 0)
                return
            copying = [ring for ring in self.rings if isinstance(ring, CopyRing)]
            if copying and not self.loop.before:
                return  # it belongs to the first group of copies, which is waited for first
            if self.once_transport() == "cp":
                commits = sum(ring.depth - 1 for ring in copying if ring.transport == "cp")
                if not commits:
                    self.b.put("cp_async_commit_group")
                self.b.put("cp_async_wait_group", n=max(commits - 1, 0))
            self.ctx.barrier()

    def split_producer(self, some: Register | None = None) -> None:
        """Threads past those that compute fill the slots, and do nothing else.

        `some` says whether there is anything to fill them with; None: there is.
        """
        b, consumers, once = self.b, self.staging.threads, self.once()
        mine = self.ctx.once("producer", lambda: b.op("setp_ge_s32", self.ctx.thread, consumers))
        first = self.ctx.once(
            "first producer", lambda: b.op("setp_eq_s32", self.ctx.thread, consumers)
        )
        counts = self.kernel.residency.reassigned(consumers)
        with only(self.ctx, mine):
            if counts is not None:
                b.put("setmaxnreg_dec", n=PRODUCER_REGISTERS)
            issues = first if some is None else b.op("and_pred", first, some)
            with only(self.ctx, issues):
                if once:
                    self.send_once(once)
                for ring in self.boxed:
                    ring.produce()
            if self.choices.grid == "persistent" or self.choices.order == "pair":
                b.put("bra", target=Label(TILE_DONE))
            else:
                b.put("ret")
        if counts is not None:
            b.put("setmaxnreg_inc", n=counts)
