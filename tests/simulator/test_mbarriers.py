"""Do mbarriers order what they should, and is each misuse of them named?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash.errors import SimulationError
from tests.support.small_kernels import run_body, run_body_on_gpu

MAKE = """
    setp.ne.u32 %p9, %r100, 0;
    @%p9 bra made;
    mbarrier.init.shared::cta.b64 [%r104], {count};
made:
    bar.sync 0;
"""
WAIT = """
{label}:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r104], {parity};
    @!%p1 bra {label};
"""
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r104];\n"
PLACE = "mad.lo.u32 %r1, %r100, 4, %r104;\nst.shared.u32 [%r1+64], %r100;\n"
SWAP = """
    xor.b32 %r2, %r100, {other};
    mad.lo.u32 %r2, %r2, 4, %r104;
    ld.shared.u32 %r3, [%r2+64];
    st.global.u32 [%rd50], %r3;
    ret;
"""
LEADERS = "and.b32 %r5, %r100, 31;\nsetp.eq.u32 %p5, %r5, {lane};\n@%p5 " + ARRIVE


def wait(parity: int | str, label: str = "wait") -> str:
    return WAIT.format(parity=parity, label=label)


def swap(count: int, arrive: str, other: int = 33) -> str:
    """Each thread stores its number, arrives, waits, and reads that of another thread."""
    return MAKE.format(count=count) + PLACE + arrive + wait(0) + SWAP.format(other=other)


SYNC = "bar.warp.sync 4294967295;\n"
GOOD = [
    pytest.param(swap(64, ARRIVE), id="every lane arrives"),
    pytest.param(swap(2, SYNC + LEADERS.format(lane=0)), id="a lane arrives for its warp"),
    pytest.param(
        swap(128, "mbarrier.arrive.shared::cta.b64 _, [%r104], 2;\n"), id="each counts twice"
    ),
    pytest.param(
        swap(64, ARRIVE).replace("try_wait", "test_wait"), id="test_wait, asked until it is true"
    ),
]


@pytest.mark.parametrize("body", GOOD)
def test_what_was_done_before_an_arrival_is_seen_after_the_wait(body: str) -> None:
    for seed in range(8):
        x = np.zeros(128, np.uint32)
        run_body(body, {"x": x}, block=64, grid=2, seed=seed)
        assert x.tolist() == [t ^ 33 for t in range(64)] * 2


@pytest.mark.gpu
@pytest.mark.parametrize("body", GOOD)
def test_what_was_done_before_an_arrival_is_seen_on_the_gpu(body: str) -> None:
    x = np.zeros(128, np.uint32)
    run_body_on_gpu(body, {"x": x}, block=64, grid=2)
    assert x.tolist() == [t ^ 33 for t in range(64)] * 2


def objects(body: str, message: str, block: int = 64) -> None:
    with pytest.raises(SimulationError, match=message):
        run_body(body + "\nret;", {"x": np.zeros(64, np.uint32)}, block=block)


def test_a_lane_does_not_speak_for_its_warp_without_a_warp_barrier() -> None:
    objects(swap(2, LEADERS.format(lane=0)), "read without a barrier after the write by warp 1")


def test_a_lane_speaks_for_itself() -> None:
    """What lane 5 of each warp stored is seen by lane 5 of the other."""
    body = swap(2, LEADERS.format(lane=5), other=32)
    body = body.replace("st.global", "@%p5 st.global").replace("ld.shared", "@%p5 ld.shared")
    x = np.zeros(64, np.uint32)
    run_body(body, {"x": x}, block=64)
    assert x[[5, 37]].tolist() == [37, 5]


def test_a_wait_without_a_loop_may_be_told_not_yet() -> None:
    """The hardware's try_wait gives up after a while: a program must ask again."""
    once = wait(0).replace("@!%p1 bra wait;", "mov.u32 %r9, 0;")
    body = MAKE.format(count=32) + PLACE + "setp.lt.u32 %p6, %r100, 32;\n@%p6 bra wait;\n"
    objects(body + ARRIVE + once + SWAP.format(other=33), "read without a barrier after the write")


LATER = ARRIVE + wait(0, "first") + ARRIVE + wait(1, "second")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (ARRIVE, "mbarrier at offset 0: nothing has initialised it"),
        (wait(0), "mbarrier at offset 0: nothing has initialised it"),
        (
            MAKE.format(count=64).replace("bar.sync 0;", "") + ARRIVE,
            "used without a barrier after its init by warp 0, lane 0",
        ),
        (MAKE.format(count=0), "its count is 0, wants 1 to 1048575"),
        (
            "mbarrier.init.shared::cta.b64 [%r104], 1;",
            "mbarrier at offset 0: several threads initialise it",
        ),
        (
            MAKE.format(count=1) + "@!%p9 mbarrier.init.shared::cta.b64 [%r104], 1;",
            "mbarrier at offset 0: it is initialised again",
        ),
        (MAKE.format(count=1).replace("[%r104]", "[%r104+4]"), "misaligned, wants a multiple of 8"),
        (MAKE.format(count=1).replace("[%r104]", "[%r104+4096]"), "out of bounds of the block's"),
        (MAKE.format(count=63) + ARRIVE, "64 arrivals in a phase that counts 63"),
        (MAKE.format(count=65) + ARRIVE + wait(0), "deadlock: warps 0, 1 wait for phase 0; 0 phas"),
        (MAKE.format(count=64) + ARRIVE + wait(2), "parity 2, wants 0 or 1"),
        (MAKE.format(count=64) + ARRIVE + wait(0) + wait(0, "b"), "a wait passes again on phase 0"),
        (MAKE.format(count=64) + ARRIVE + wait(0) + wait(1, "b"), "deadlock: warps 0, 1 wait for"),
        (
            MAKE.format(count=64) + LATER + "mbarrier.arrive.shared::cta.b64 _, [%r104], 2;",
            "128 arrivals in a phase that counts 64",
        ),
        (MAKE.format(count=64) + "ld.shared.u32 %r1, [%r104+4];", "it touches the mbarrier at off"),
        (MAKE.format(count=64) + "st.shared.b64 [%r104], %rd0;", "it touches the mbarrier at off"),
        (
            MAKE.format(count=64) + "@!%p9 mbarrier.inval.shared::cta.b64 [%r104];\nbar.sync 0;\n"
            + ARRIVE,
            "mbarrier at offset 0: nothing has initialised it",
        ),
        (
            MAKE.format(count=64)
            + "@!%p9 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r104], 16;",
            "the kernel ends with 16 bytes expected still to come",
        ),
        (
            MAKE.format(count=64) + wait(0).replace("mbarrier.try", "@%p9 mbarrier.try"),
            "a wait under a guard",
        ),
    ],
)  # fmt: skip
def test_a_misuse_is_named(body: str, message: str) -> None:
    objects(body, message)


def test_phases_go_on_and_a_fresh_barrier_passes_the_phase_before_its_first() -> None:
    body = MAKE.format(count=64) + wait(1, "fresh") + LATER + "st.global.u32 [%rd50], %r100;\nret;"
    x = np.zeros(64, np.uint32)
    counters = run_body(body, {"x": x}, block=64)
    assert x.tolist() == list(range(64))
    assert counters.total.mbarrier_waits == 2 * 3


# warp 1 arrives in phase after phase without waiting for warp 0, which waits in each
RUNS_AHEAD = MAKE.format(count=32) + (
    "setp.lt.u32 %p6, %r100, 32;\n@%p6 bra first;\n" + ARRIVE + "{between}" + ARRIVE + "ret;\n"
    + wait(0, "first") + wait(1, "second") + "ret;"
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_phase_that_a_waiter_may_miss_is_objected_to(seed: int) -> None:
    """Whatever the order in which the warps happen to run."""
    with pytest.raises(SimulationError, match="missed phase"):
        run_body(RUNS_AHEAD.format(between=""), {"x": np.zeros(64)}, block=64, seed=seed)


def test_lanes_hold_for_those_of_their_warp_that_wait() -> None:
    """Lane 0 of warp 0 waits for warp 1 alone; all lanes of warp 0 then vote."""
    body = MAKE.format(count=32) + (
        "setp.ge.u32 %p6, %r100, 32;\n@%p6 bra other;\n@%p9 bra on;\n" + wait(0)
        + "on:\nvote.sync.ballot.b32 %r6, %p9, 4294967295;\nst.global.u32 [%rd50], %r6;\nret;\n"
        "other:\n" + ARRIVE + "ret;"
    )  # fmt: skip
    x = np.zeros(64, np.uint32)
    run_body(body, {"x": x}, block=64)
    assert set(x[:32].tolist()) == {0xFFFFFFFE}


def test_lanes_go_on_without_those_that_they_hold_for_if_nothing_else_can() -> None:
    """Lane 0 waits for what the other lanes of its warp do."""
    body = MAKE.format(count=31) + "@%p9 bra on;\n" + wait(0) + "ret;\non:\n" + ARRIVE + "ret;"
    run_body(body, {"x": np.zeros(32)}, block=32)
    objects(body.replace("], 31", "], 32"), "deadlock: warps 0 wait for phase 0", block=32)
