"""Small kernels written by hand whose data come asynchronously: rings of every kind."""

from __future__ import annotations

from dataclasses import replace

from egraph_flash.dtypes import DTYPES
from egraph_flash.tensor_map import Swizzle, TensorMap
from tests.support.async_kernel import (
    ADD,
    AGAIN,
    FINISH,
    GRID,
    SETUP,
    SLOT_BYTES,
    WORDS,
    AsyncKernel,
    body_of,
    kernel_of,
)


def copy_once(rounds: int = 5) -> AsyncKernel:
    """One slot: copy, wait, add, copy again."""
    loop = """
        loop:
        cp.async.ca.shared.global [%r12], [%rd10], 4;
        cp.async.commit_group;
        add.u64 %rd10, %rd10, 256;
        cp.async.wait_group 0;
        bar.sync 0;
        ld.shared.u32 %r21, [%r13];
        bar.sync 0;
    """
    return kernel_of("cp.async d1", body_of(SETUP, loop, ADD, AGAIN, FINISH, rounds=rounds), rounds)


def copy_ring(slots: int, rounds: int) -> AsyncKernel:
    """Slots − 1 tiles under way while one is added; one barrier a round."""
    ahead = """
        cp.async.ca.shared.global [%r12+OFFSET], [%rd10], 4;
        cp.async.commit_group;
        add.u64 %rd10, %rd10, 256;
    """
    loop = """
        loop:
        cp.async.wait_group OPEN;
        bar.sync 0;
        add.u32 %r16, %r10, AHEAD;
        setp.lt.u32 %p1, %r16, ROUNDS;
        rem.u32 %r17, %r16, SLOTS;
        mad.lo.u32 %r17, %r17, SLOT, %r12;
        @%p1 cp.async.ca.shared.global [%r17], [%rd10], 4;
        cp.async.commit_group;
        add.u64 %rd10, %rd10, 256;
        rem.u32 %r18, %r10, SLOTS;
        mad.lo.u32 %r18, %r18, SLOT, %r13;
        ld.shared.u32 %r21, [%r18];
    """
    values = {"slots": slots, "slot": SLOT_BYTES, "ahead": slots - 1, "open": slots - 2}
    first = [body_of(ahead, offset=place * SLOT_BYTES) for place in range(slots - 1)]
    body = body_of(SETUP, *first, loop, ADD, AGAIN, FINISH, rounds=rounds, **values)
    return kernel_of(f"cp.async ring of {slots}", body, rounds)


INIT = """
    add.u32 %r30, %r104, FULL;
    add.u32 %r31, %r104, EMPTY;
    setp.eq.u32 %p9, %r100, 0;
    @!%p9 bra made;
"""
MADE = """
    made:
    bar.sync 0;
"""


def copy_mbarrier(slots: int = 2, rounds: int = 7) -> AsyncKernel:
    """A ring whose cp.async arrive at mbarriers, released by a block barrier."""
    init = [f"mbarrier.init.shared::cta.b64 [%r30+{8 * s}], {WORDS};\n" for s in range(slots)]
    ahead = """
        cp.async.ca.shared.global [%r12+OFFSET], [%rd10], 4;
        cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r30+BAR];
        add.u64 %rd10, %rd10, 256;
    """
    first = [body_of(ahead, offset=s * SLOT_BYTES, bar=8 * s) for s in range(slots)]
    loop = """
        loop:
        rem.u32 %r17, %r10, SLOTS;
        div.u32 %r18, %r10, SLOTS;
        and.b32 %r18, %r18, 1;
        mad.lo.u32 %r19, %r17, 8, %r30;
        wait:
        mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r19], %r18;
        @!%p2 bra wait;
        mad.lo.u32 %r16, %r17, SLOT, %r13;
        ld.shared.u32 %r21, [%r16];
        bar.sync 0;
        add.u32 %r16, %r10, SLOTS;
        setp.ge.u32 %p1, %r16, ROUNDS;
        @%p1 bra on;
        mad.lo.u32 %r16, %r17, SLOT, %r12;
        cp.async.ca.shared.global [%r16], [%rd10], 4;
        cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r19];
        add.u64 %rd10, %rd10, 256;
        on:
    """
    body = body_of(
        SETUP, INIT, *init, MADE, *first, loop, ADD, AGAIN, FINISH,
        rounds=rounds, slots=slots, slot=SLOT_BYTES, full=slots * SLOT_BYTES, empty=4096,
    )  # fmt: skip
    return kernel_of(f"cp.async ring of {slots} with mbarriers", body, rounds)


def tile_map(rounds: int, swizzle: Swizzle) -> TensorMap:
    """x as boxes of one tile: 2 rows of 32 words; dimension 1 counts rows, 2 the blocks."""
    strides = (128, 128 * 2 * rounds)
    return TensorMap("x", DTYPES["f32"], (32, 2 * rounds, GRID), strides, (32, 2, 1), swizzle)


# one thread copies tile %r41 to slot %r42, whose full barrier is %r43
ISSUE = """
    mad.lo.u32 %r44, %r42, SLOT, %r104;
    shl.b32 %r45, %r41, 1;
    mov.u32 %r46, 0;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r43], 256;
    cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r44], \
[%rd60, {%r46, %r45, %r101}], [%r43];
"""
# waits for the full barrier of round %r10: slot %r17, barrier %r19; then reads its word
CONSUME = """
    rem.u32 %r17, %r10, SLOTS;
    div.u32 %r18, %r10, SLOTS;
    and.b32 %r18, %r18, 1;
    mad.lo.u32 %r19, %r17, 8, %r30;
    wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r19], %r18;
    @!%p2 bra wait;
    mad.lo.u32 %r16, %r17, SLOT, %r13;
    ld.shared.u32 %r21, [%r16];
"""
# the row's number, from address bit 7, swaps 16-byte pieces: one bit of it in a tile of two rows
UNSWIZZLE = """
    shr.u32 %r50, %r13, 7;
    and.b32 %r50, %r50, 1;
    shl.b32 %r50, %r50, 4;
    xor.b32 %r13, %r13, %r50;
"""
FENCE = "fence.mbarrier_init.release.cluster;\n"


def _inits(slots: int, full: int, empty: int) -> list[str]:
    made = [f"mbarrier.init.shared::cta.b64 [%r30+{8 * s}], {full};\n" for s in range(slots)]
    if empty:
        made += [f"mbarrier.init.shared::cta.b64 [%r31+{8 * s}], {empty};\n" for s in range(slots)]
    return made


def _values(slots: int, rounds: int) -> dict[str, int]:
    full = slots * SLOT_BYTES
    values = {"rounds": rounds, "slots": slots, "slot": SLOT_BYTES}
    return values | {"full": full, "empty": full + 8 * slots}


def _ahead(slots: int) -> list[str]:
    """One thread fills all slots."""
    first = "mov.u32 %r41, S;\nmov.u32 %r42, S;\nadd.u32 %r43, %r30, BAR;\n"
    return [body_of(first, ISSUE, s=s, bar=8 * s) for s in range(slots)]


def tma_ring(slots: int = 2, rounds: int = 7, swizzle: Swizzle = "none") -> AsyncKernel:
    """Full barriers; a block barrier releases a slot, and thread 0 fills it again."""
    release = """
        fence.proxy.async.shared::cta;
        bar.sync 0;
        add.u32 %r41, %r10, SLOTS;
        setp.ge.u32 %p1, %r41, ROUNDS;
        @%p1 bra on;
        @!%p9 bra on;
        mov.u32 %r42, %r17;
        mov.u32 %r43, %r19;
    """
    body = body_of(
        SETUP, INIT, *_inits(slots, 1, 0), FENCE, MADE,
        "@!%p9 bra filled;\n", *_ahead(slots), "filled:\n", UNSWIZZLE if swizzle != "none" else "",
        "loop:\n", CONSUME, release, ISSUE, "on:\n", ADD, AGAIN, FINISH, **_values(slots, rounds),
    )  # fmt: skip
    maps = (tile_map(rounds, swizzle),)
    return kernel_of(f"tma ring of {slots}, swizzle {swizzle}", body, rounds, maps=maps)


def tma_producer(slots: int = 2, rounds: int = 7, everyone: bool = False) -> AsyncKernel:
    """Full and empty barriers, and a warp of its own that fills the slots.

    A slot is released by one elected lane of each warp after a warp barrier, or by `everyone`.
    """
    produce = """
        setp.lt.u32 %p3, %r100, 64;
        @%p3 bra loop;
        setp.ne.u32 %p4, %r100, 64;
        @%p4 bra done;
        produce:
        rem.u32 %r42, %r10, SLOTS;
        div.u32 %r18, %r10, SLOTS;
        and.b32 %r18, %r18, 1;
        xor.b32 %r18, %r18, 1;
        mad.lo.u32 %r43, %r42, 8, %r30;
        mad.lo.u32 %r47, %r42, 8, %r31;
        emptied:
        mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r47], %r18;
        @!%p2 bra emptied;
        mov.u32 %r41, %r10;
    """
    more = """
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p0, %r10, ROUNDS;
        @%p0 bra produce;
        bra done;
    """
    elected = """
        mad.lo.u32 %r47, %r17, 8, %r31;
        fence.proxy.async.shared::cta;
        bar.warp.sync 4294967295;
        elect.sync _|%p5, 4294967295;
        @%p5 mbarrier.arrive.shared::cta.b64 _, [%r47];
    """
    all_lanes = """
        mad.lo.u32 %r47, %r17, 8, %r31;
        fence.proxy.async.shared::cta;
        mbarrier.arrive.shared::cta.b64 _, [%r47];
    """
    body = body_of(
        SETUP, INIT, *_inits(slots, 1, WORDS if everyone else 2), FENCE, MADE,
        produce, ISSUE, more, "loop:\n", CONSUME, all_lanes if everyone else elected, ADD, AGAIN,
        FINISH.replace("    ret;", "done:\n    ret;"), **_values(slots, rounds),
    )  # fmt: skip
    maps = (tile_map(rounds, "none"),)
    who = "all lanes release" if everyone else "elected lanes release"
    return kernel_of(f"tma producer warp, {slots} slots, {who}", body, rounds, maps=maps, block=96)


def tma_rotating(slots: int = 2, rounds: int = 7) -> AsyncKernel:
    """Full and empty barriers; the warps take turns to fill the slot that was just released.

    All lanes of a warp vote each round, after one of them may have waited: they meet there.
    """
    refill = """
        mad.lo.u32 %r47, %r17, 8, %r31;
        fence.proxy.async.shared::cta;
        mbarrier.arrive.shared::cta.b64 _, [%r47];
        add.u32 %r41, %r10, SLOTS;
        setp.ge.u32 %p1, %r41, ROUNDS;
        @%p1 bra on;
        shr.u32 %r48, %r100, 5;
        and.b32 %r49, %r10, 1;
        setp.ne.u32 %p3, %r48, %r49;
        @%p3 bra on;
        elect.sync _|%p4, 4294967295;
        @!%p4 bra on;
        emptied:
        mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r47], %r18;
        @!%p2 bra emptied;
        mov.u32 %r42, %r17;
        mov.u32 %r43, %r19;
    """
    body = body_of(
        SETUP, INIT, *_inits(slots, 1, WORDS), FENCE, MADE, "@!%p9 bra filled;\n", *_ahead(slots),
        "filled:\n", "loop:\n", CONSUME, refill, ISSUE,
        "on:\nvote.sync.any.pred %p6, %p9, 4294967295;\n", ADD, AGAIN, FINISH,
        **_values(slots, rounds),
    )  # fmt: skip
    maps = (tile_map(rounds, "none"),)
    return kernel_of(f"tma with rotating producers, {slots} slots", body, rounds, maps=maps)


def tma_after_stores(rounds: int = 5) -> AsyncKernel:
    """Slots that plain stores clear before bulk copies fill them: the proxies need a fence.

    It orders the barriers' init too.
    """
    clear = (
        f"made:\nst.shared.u32 [%r12], %r100;\nst.shared.u32 [%r12+{SLOT_BYTES}], %r100;\n"
        "fence.proxy.async.shared::cta;\n"
    )
    kernel = tma_ring(2, rounds).changed(FENCE, "").changed("made:\n", clear)
    return replace(kernel, name="tma after stores")


def named_barriers(rounds: int = 7) -> AsyncKernel:
    """Two warps copy by loads and stores, two add; two slots, by bar.arrive and bar.sync."""
    roles = """
        setp.ge.u32 %p3, %r100, 64;
        @%p3 bra produce;
        bar.arrive 3, 128;
        bar.arrive 4, 128;
        bra loop;
        produce:
        sub.u32 %r12, %r12, 256;
        fill:
        and.b32 %r17, %r10, 1;
        add.u32 %r18, %r17, 3;
        ld.global.u32 %r23, [%rd10];
        bar.sync %r18, 128;
        mad.lo.u32 %r16, %r17, SLOT, %r12;
        st.shared.u32 [%r16], %r23;
        add.u32 %r19, %r17, 1;
        bar.arrive %r19, 128;
        add.u64 %rd10, %rd10, 256;
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p0, %r10, ROUNDS;
        @%p0 bra fill;
        bra done;
    """
    loop = """
        loop:
        and.b32 %r17, %r10, 1;
        add.u32 %r19, %r17, 1;
        bar.sync %r19, 128;
        mad.lo.u32 %r16, %r17, SLOT, %r13;
        ld.shared.u32 %r21, [%r16];
        add.u32 %r18, %r17, 3;
        bar.arrive %r18, 128;
    """
    body = body_of(
        SETUP, roles, loop, ADD, AGAIN, FINISH.replace("    ret;", "done:\n    ret;"),
        rounds=rounds, slot=SLOT_BYTES,
    )  # fmt: skip
    return kernel_of("named barriers", body, rounds, block=128)


KERNELS: tuple[AsyncKernel, ...] = (
    copy_once(),
    copy_ring(2, 5),
    copy_ring(3, 8),
    copy_mbarrier(),
    tma_ring(),
    tma_ring(3, 10, "128B"),
    tma_producer(),
    tma_producer(3, 8, everyone=True),
    tma_rotating(),
    tma_rotating(3, 8),
    tma_after_stores(),
    named_barriers(),
)
