"""Do lanes, warps and blocks go where the PTX sends them, and meet again?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash.errors import SimulationError
from egraph_flash.simulator import launch as simulator_launch
from tests.support.fresh import fresh_rng
from tests.support.small_kernels import run_body, run_body_on_gpu

COLLATZ = """
    ld.global.u32 %r0, [%rd50];
    mov.u32 %r1, 0;
loop:
    setp.eq.u32 %p0, %r0, 1;
    @%p0 bra done;
    and.b32 %r2, %r0, 1;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra even;
    mad.lo.u32 %r0, %r0, 3, 1;
    bra next;
even:
    shr.u32 %r0, %r0, 1;
next:
    add.u32 %r1, %r1, 1;
    bra loop;
done:
    st.global.u32 [%rd51], %r1;
    ret;
"""


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


@pytest.mark.parametrize(("block", "grid"), [(32, 1), (96, 3), (40, 2), (7, 1)])
def test_lanes_loop_as_often_as_each_needs(block: int, grid: int) -> None:
    n = block * grid
    x = fresh_rng().integers(1, 200, n).astype(np.uint32)
    y = np.zeros(n, np.uint32)
    run_body(COLLATZ, {"x": x, "y": y}, block=block, grid=grid)
    assert y.tolist() == [collatz(int(each)) for each in x]


def test_a_loop_is_left_lane_by_lane_at_its_end() -> None:
    """All lanes come; who goes round again is told by a predicate that the next round writes."""
    body = """
        ld.global.u32 %r0, [%rd50];
        mov.u32 %r1, 0;
    loop:
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p0, %r1, %r0;
        @%p0 bra loop;
        st.global.u32 [%rd51], %r1;
        ret;
    """
    x = fresh_rng().integers(1, 20, 96).astype(np.uint32)
    y = np.zeros(96, np.uint32)
    run_body(body, {"x": x, "y": y}, block=96, grid=1, instruction_limit=10_000)
    assert y.tolist() == x.tolist()


@pytest.mark.gpu
def test_lanes_loop_as_often_on_the_gpu() -> None:
    x = fresh_rng().integers(1, 200, 288).astype(np.uint32)
    y = np.zeros(288, np.uint32)
    run_body_on_gpu(COLLATZ, {"x": x, "y": y}, block=96, grid=3)
    assert y.tolist() == [collatz(int(each)) for each in x]


def test_lanes_meet_again_after_a_branch() -> None:
    """A shuffle after an if-else sees all lanes: they have reconverged."""
    body = """
        and.b32 %r0, %r100, 1;
        setp.eq.u32 %p0, %r0, 0;
        @%p0 bra even;
        mov.u32 %r1, 10;
        bra join;
    even:
        mov.u32 %r1, 20;
    join:
        shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffffffff;
        st.global.u32 [%rd50], %r2;
        ret;
    """
    x = np.zeros(64, np.uint32)
    run_body(body, {"x": x}, block=64)
    assert x.tolist() == [10, 20] * 32


def test_guards_leave_the_other_lanes_alone() -> None:
    body = """
        mov.u32 %r1, 5;
        setp.lt.u32 %p0, %r100, 3;
        @%p0 mov.u32 %r1, 6;
        @!%p0 add.u32 %r1, %r1, %r100;
        setp.eq.u32 %p1, %r100, 40;
        @!%p1 st.global.u32 [%rd50], %r1;
        ret;
    """
    x = np.full(50, 99, np.uint32)
    run_body(body, {"x": x}, block=50)
    assert x.tolist() == [6] * 3 + [5 + i if i != 40 else 99 for i in range(3, 50)]


def test_lanes_that_left_do_nothing_more() -> None:
    body = """
        setp.ge.u32 %p0, %r103, 70;
        @%p0 ret;
        st.global.u32 [%rd50], %r103;
        ret;
    """
    x = np.full(128, 7, np.uint32)
    run_body(body, {"x": x}, block=64, grid=2)
    assert x.tolist() == [*range(70), *[7] * 58]


def test_warps_that_disagree_still_meet_at_a_barrier() -> None:
    """Warp w loops w times more, then all exchange through shared memory."""
    body = """
        shr.u32 %r0, %r100, 5;
        mov.u32 %r1, 0;
    loop:
        setp.ge.u32 %p0, %r1, %r0;
        @%p0 bra out;
        add.u32 %r1, %r1, 1;
        bra loop;
    out:
        mad.lo.u32 %r2, %r100, 4, %r104;
        st.shared.u32 [%r2], %r1;
        bar.sync 0;
        xor.b32 %r3, %r100, 96;
        mad.lo.u32 %r4, %r3, 4, %r104;
        ld.shared.u32 %r5, [%r4];
        st.global.u32 [%rd50], %r5;
        ret;
    """
    x = np.zeros(256, np.uint32)
    run_body(body, {"x": x}, block=128, grid=2)
    assert x.tolist() == [3 - thread // 32 for thread in range(128)] * 2


def test_blocks_and_threads_have_three_dimensions() -> None:
    body = """
        mov.u32 %r0, %tid.y;
        mov.u32 %r1, %tid.z;
        mov.u32 %r2, %ctaid.y;
        mov.u32 %r3, %ctaid.z;
        mov.u32 %r4, %ntid.y;
        mov.u32 %r5, %nctaid.x;
        mov.u32 %r6, %nctaid.y;
        mad.lo.u32 %r7, %r3, %r6, %r2;
        mad.lo.u32 %r7, %r7, %r5, %r101;
        mad.lo.u32 %r8, %r1, %r4, %r0;
        mad.lo.u32 %r8, %r8, %r102, %r100;
        mad.lo.u32 %r9, %r7, 48, %r8;
        mul.wide.u32 %rd1, %r9, 4;
        add.u64 %rd2, %rd0, %rd1;
        mad.lo.u32 %r10, %r3, 10, %r1;
        st.global.u32 [%rd2], %r10;
        ret;
    """
    x = np.zeros((2, 3, 2, 3, 4, 4), np.uint32)  # grid z, y, x; block z, y, x
    run_body(body, {"x": x}, block=(4, 4, 3), grid=(2, 3, 2))
    z = np.arange(2).reshape(2, 1, 1, 1, 1, 1) * 10 + np.arange(3).reshape(1, 1, 1, 3, 1, 1)
    assert (x == z).all()


def test_a_grid_runs_in_batches_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_launch, "WARPS_AT_ONCE", 4)
    body = """
        mad.lo.u32 %r0, %r103, 3, 1;
        mad.lo.u32 %r2, %r100, 4, %r104;
        st.shared.u32 [%r2], %r0;
        bar.sync 0;
        ld.shared.u32 %r3, [%r2];
        st.global.u32 [%rd50], %r3;
        ret;
    """
    for seed in range(3):
        x = np.zeros(17 * 64, np.uint32)
        counters = run_body(body, {"x": x}, block=64, grid=17, seed=seed)
        assert x.tolist() == [3 * i + 1 for i in range(17 * 64)]
        assert counters.total.warps == 34


def test_a_branch_to_the_end_and_falling_off_it_are_exits() -> None:
    body = """
        setp.lt.u32 %p0, %r100, 5;
        @%p0 bra end;
        st.global.u32 [%rd50], %r100;
    end:
    """
    x = np.zeros(8, np.uint32)
    run_body(body, {"x": x}, block=8)
    assert x.tolist() == [0] * 5 + [5, 6, 7]


def test_an_endless_loop_is_named() -> None:
    with pytest.raises(SimulationError, match=r"instruction limit passed.*line \d+: add.u32"):
        run_body(
            "mov.u32 %r0, 0;\nloop:\nadd.u32 %r0, %r0, 1;\nbra loop;",
            {"x": np.zeros(1)}, instruction_limit=1000,
        )  # fmt: skip


def test_a_branch_that_says_uniform_must_be() -> None:
    body = """
        setp.lt.u32 %p0, %r100, 5;
        @%p0 bra.uni end;
        mov.u32 %r0, 1;
    end:
        ret;
    """
    with pytest.raises(SimulationError, match=r"divergent collective.*bra\.uni end"):
        run_body(body, {"x": np.zeros(32)})
    run_body(body.replace("%r100, 5", "%r101, 5"), {"x": np.zeros(32)})
