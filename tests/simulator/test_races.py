"""Does the simulator see every missing barrier, and no race where there is none?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash import runtime
from egraph_flash.errors import SimulationError
from egraph_flash.plan import Launch, Pointer
from egraph_flash.simulator import run
from tests.support.fresh import fresh_rng
from tests.support.small_kernels import kernel_text, run_body, run_body_on_gpu

FULL = "4294967295"

# Each step, every thread writes one word of a buffer and reads another warp's; two buffers take
# turns, so that one barrier a step would do for the words themselves, but the running total in
# the third buffer is read and written in place and needs both.
PING_PONG = """
    mov.u32 %r0, 0;
    mov.u32 %r1, 0;
    mad.lo.u32 %r2, %r100, 4, %r104;
    xor.b32 %r3, %r100, 32;
    mad.lo.u32 %r4, %r3, 4, %r104;
    st.shared.u32 [%r2+512], %r1;
    bar.sync 0;
loop:
    and.b32 %r5, %r0, 1;
    mul.lo.u32 %r5, %r5, 256;
    add.u32 %r6, %r2, %r5;
    add.u32 %r7, %r4, %r5;
    add.u32 %r8, %r100, %r0;
    st.shared.u32 [%r6], %r8;
    ld.shared.u32 %r9, [%r4+512];
    bar.sync 0;
    ld.shared.u32 %r10, [%r7];
    add.u32 %r9, %r9, %r10;
    st.shared.u32 [%r2+512], %r9;
    bar.sync 0;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p0, %r0, 4;
    @%p0 bra loop;
    ld.shared.u32 %r11, [%r4+512];
    st.global.u32 [%rd50], %r11;
    ret;
"""


def ping_pong() -> list[int]:
    totals = [0] * 64
    for step in range(4):
        totals = [totals[t ^ 32] + ((t ^ 32) + step) for t in range(64)]
    return [totals[t ^ 32] for t in range(64)]


def test_a_ping_pong_through_shared_memory_is_no_race() -> None:
    x = np.zeros(128, np.uint32)
    run_body(PING_PONG, {"x": x}, block=64, grid=2, shared_bytes=768)
    assert x.tolist() == ping_pong() * 2


@pytest.mark.gpu
def test_a_ping_pong_on_the_gpu() -> None:
    x = np.zeros(128, np.uint32)
    run_body_on_gpu(PING_PONG, {"x": x}, block=64, grid=2, shared_bytes=768)
    assert x.tolist() == ping_pong() * 2


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
def test_the_assembler_takes_the_ping_pong(target: str) -> None:
    assert runtime.assemble(kernel_text(PING_PONG, ("x",), target), target).spill_bytes == 0


@pytest.mark.parametrize("which", range(PING_PONG.count("bar.sync")))
def test_each_barrier_of_the_ping_pong_is_needed(which: int) -> None:
    lines = PING_PONG.splitlines()
    barriers = [place for place, line in enumerate(lines) if "bar.sync" in line]
    without = "\n".join(lines[: barriers[which]] + lines[barriers[which] + 1 :])
    with pytest.raises(SimulationError, match="race in shared memory"):
        run_body(without, {"x": np.zeros(64, np.uint32)}, block=64, shared_bytes=768)


WARP = """
    mad.lo.u32 %r0, %r100, 4, %r104;
    st.shared.u32 [%r0], %r100;
    {first}
    xor.b32 %r1, %r100, 1;
    mad.lo.u32 %r2, %r1, 4, %r104;
    ld.shared.u32 %r3, [%r2];
    {second}
    st.shared.u32 [%r0], %r3;
    ld.shared.u32 %r4, [%r0];
    st.global.u32 [%rd50], %r4;
    ret;
"""
SYNC = f"bar.warp.sync {FULL};"


def test_lanes_of_a_warp_need_a_warp_barrier() -> None:
    x = np.zeros(64, np.uint32)
    run_body(WARP.format(first=SYNC, second=SYNC), {"x": x}, block=64)
    assert x.tolist() == [t ^ 1 for t in range(64)]
    for first, second in (("", SYNC), (SYNC, "")):
        with pytest.raises(SimulationError, match="race in shared memory"):
            run_body(WARP.format(first=first, second=second), {"x": x}, block=64)


@pytest.mark.parametrize("other", [f"shfl.sync.idx.b32 %r9, %r0, 0, 31, {FULL};", SYNC[:14] + "1;"])
def test_a_shuffle_or_a_partial_warp_barrier_orders_nothing(other: str) -> None:
    if "bar" in other:
        other = "bar.warp.sync 65535;"
        other = "setp.lt.u32 %p0, %r100, 16;\n@%p0 " + other
    with pytest.raises(SimulationError, match=r"race in shared memory: read without a barrier"):
        run_body(WARP.format(first=other, second=SYNC), {"x": np.zeros(32, np.uint32)})


def test_ldmatrix_reads_for_the_whole_warp() -> None:
    """Even a row that its own lane wrote needs a barrier before ldmatrix."""
    body = """
        mad.lo.u32 %r0, %r100, 16, %r104;
        st.shared.v4.b32 [%r0], {%r100, %r100, %r100, %r100};
        SYNC
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r0];
        OTHER
        st.shared.v4.b32 [%r0], {%r100, %r100, %r100, %r100};
        ret;
    """
    x = {"x": np.zeros(32, np.uint32)}
    run_body(body.replace("SYNC", SYNC).replace("OTHER", SYNC), x)
    with pytest.raises(SimulationError, match="read without a barrier after the write by warp 0"):
        run_body(body.replace("SYNC", "").replace("OTHER", SYNC), x)
    with pytest.raises(SimulationError, match="write without a barrier after the read by warp 0"):
        run_body(body.replace("SYNC", SYNC).replace("OTHER", ""), x)


def test_a_race_names_both_lines() -> None:
    with pytest.raises(SimulationError) as caught:
        run_body(WARP.format(first="", second=""), {"x": np.zeros(32, np.uint32)})
    said = str(caught.value)
    assert "after the write by warp 0, lane 1 in line" in said
    assert "(st.shared.u32 [%r0], %r100;)" in said
    assert "block (0, 0, 0), warp 0, lane 0" in said
    assert "ld.shared.u32 %r3, [%r2];" in said


def test_two_warps_that_write_one_word_race() -> None:
    body = "st.shared.u32 [%r104], %r101;\nret;"
    run_body(body, {"x": np.zeros(1)}, block=32)
    with pytest.raises(SimulationError, match="two warps write the same bytes"):
        run_body(body, {"x": np.zeros(1)}, block=64)
    with pytest.raises(SimulationError, match="lanes of one instruction write different values"):
        run_body(body.replace("%r101", "%r100"), {"x": np.zeros(1)}, block=32)


def test_neighbouring_halves_do_not_race() -> None:
    """Cells are as small as the smallest access: two warps may share a word, half each."""
    body = """
        mad.lo.u32 %r0, %r100, 2, %r104;
        cvt.u16.u32 %h0, %r100;
        st.shared.b16 [%r0], %h0;
        bar.sync 0;
        and.b32 %r1, %r100, 31;
        mad.lo.u32 %r1, %r1, 4, %r104;
        ld.shared.b32 %r2, [%r1];
        st.global.b32 [%rd50], %r2;
        ret;
    """
    x = np.zeros(64, np.uint32)
    run_body(body, {"x": x}, block=64)
    assert x[:32].view(np.uint16).tolist() == list(range(64))


def test_races_can_be_left_unchecked() -> None:
    run_body(WARP.format(first="", second=""), {"x": np.zeros(32)}, check_races=False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("st.global.u32 [%rd0], %r101;", "two blocks write the same bytes|different values"),
        ("mov.u32 %r1, 1;\nst.global.u32 [%rd0], %r1;", "two blocks write the same bytes"),
        (
            "st.global.u32 [%rd50], %r101;\nld.global.u32 %r1, [%rd0];",
            r"byte 0: read of bytes that block \d writes",
        ),
        (
            "ld.global.u32 %r1, [%rd0];\nst.global.u32 [%rd50], %r101;",
            r"write of bytes that several blocks reads",
        ),
        (
            "st.global.u32 [%rd50], %r101;\nld.global.nc.u32 %r1, [%rd50];",
            r"ld.global.nc of bytes that block \d writes",
        ),
    ],
)
def test_blocks_that_share_bytes_race(body: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message) as caught:
        run_body(body + "\nret;", {"x": np.zeros(96, np.uint32)}, grid=3)
    assert "race" in str(caught.value)


def test_blocks_may_read_the_same_and_write_their_own() -> None:
    body = """
        ld.global.u32 %r1, [%rd1];
        add.u32 %r1, %r1, %r103;
        st.global.u32 [%rd50], %r1;
        ld.global.u32 %r2, [%rd50];
        st.global.u32 [%rd50], %r2;
        ret;
    """
    x, y = np.zeros(96, np.uint32), np.full(1, 5, np.uint32)
    run_body(body, {"x": x, "y": y}, grid=3)
    assert x.tolist() == list(range(5, 101))


def test_launches_are_ordered() -> None:
    """A second launch may read what another block of the first wrote."""
    text = kernel_text(
        "xor.b32 %r0, %r103, 32;\nmul.wide.u32 %rd7, %r0, 4;\nadd.u64 %rd8, %rd0, %rd7;\n"
        "ld.global.u32 %r1, [%rd8];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd51], %r1;\nret;",
        ("x", "y"),
    )

    def launch(source: str, target: str) -> Launch:
        return Launch("k", (2, 1, 1), (32, 1, 1), 0, (Pointer(source), Pointer(target)))

    x = fresh_rng().integers(0, 1000, 64).astype(np.uint32)
    buffers = {"x": x, "w": np.zeros(64, np.uint32), "y": np.zeros(64, np.uint32)}
    counters = run(
        text, [launch("x", "w"), launch("w", "y")], buffers, uninitialised=["w", "y"],
        complete=["w", "y"],
    )  # fmt: skip
    assert (buffers["y"] == x + 2).all()
    assert [each.launch[:1] for each in counters.launches] == ["k", "k"]
