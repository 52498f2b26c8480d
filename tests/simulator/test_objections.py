"""Does the simulator object to what a GPU would leave undefined, and name line and term?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash.errors import SimulationError
from egraph_flash.simulator import run
from tests.support.small_kernels import kernel_text, run_body

FULL = "4294967295"


def objects(body: str, message: str, **options: object) -> str:
    """Run over a buffer x of 32 words and y, 16 bytes; the objection, which must have this text."""
    buffers = {"x": np.zeros(32, np.uint32), "y": np.zeros(4, np.float32)}
    with pytest.raises(SimulationError) as caught:
        run_body(body, buffers, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    return str(caught.value)


def test_an_objection_names_thread_line_text_and_term() -> None:
    body = "// row sums: Σ x\nadd.u64 %rd9, %rd50, 4;\nst.global.u32 [%rd9], %r100;\nret;"
    text = kernel_text(body, ("x", "y")).splitlines()
    line = next(place for place, each in enumerate(text, 1) if "%rd9]" in each)
    said = objects(body, "out of bounds: 4 bytes at byte 128 of buffer 'x', which has 128 bytes")
    assert said.endswith(
        f"(block (0, 0, 0), warp 0, lane 31) at k, line {line}: "
        "st.global.u32 [%rd9], %r100;, of term: row sums: Σ x"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.global.u32 %r0, [%rd50+-4];", "byte -4 of buffer 'x'"),
        ("ld.global.u32 %r0, [%rd51];", "byte 16 of buffer 'y', which has 16"),
        ("mov.u64 %rd7, 64;\nld.global.u32 %r0, [%rd7];", "address 0x40, which is far from every"),
        ("ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd50];", "misaligned: 16 bytes at byte 4 of"),
        ("st.global.b64 [%rd50+4], %rd0;", "misaligned: 8 bytes at byte 4 of buffer 'x'"),
        ("ld.shared.u32 %r0, [%r104+1024];", "at offset 1024: out of bounds of the block's 1024"),
        ("ld.shared.u32 %r0, [%r104+-4];", "at offset -4: out of bounds"),
        ("mov.u32 %r3, 0;\nst.shared.u32 [%r3], %r3;", "at offset -1024: out of bounds"),
        ("st.shared.b64 [%r104+4], %rd0;", "of 8 bytes at offset 4: misaligned"),
        (
            "ld.shared.u32 %r0, [%r104+8];",
            "offset 8: read of shared memory that nothing has written",
        ),
        ("add.u32 %r0, %r1, 1;", "read of register %r1, which holds no value"),
        ("@%p5 mov.u32 %r0, 1;", "read of register %p5, which holds no value"),
        ("@%p5 bra end;\nend:", "read of register %p5, which holds no value"),
        ("bar.sync 16;", "barrier number 16, wants 0 to 15"),
        ("bar.sync 0, 33;", "thread count 33, wants a multiple of 32 up to the block's 32"),
        ("bar.sync 0, 64;", "thread count 64, wants a multiple of 32"),
        ("setp.eq.u32 %p0, %r100, 99;\n@!%p0 bar.sync 0;", "a barrier under a guard"),
        ("mov.u32 %r0, %frobs;", "unknown special register %frobs in line"),
        ("mov.u32 %r0, nowhere;", "unknown shared array nowhere"),
        ("wgmma.fence.sync.aligned;", "unsupported instruction 'wgmma.fence.sync.aligned'"),
    ],
)
def test_a_bad_line_is_objected_to(body: str, message: str) -> None:
    objects(body + "\nret;", message)


def test_a_register_written_on_one_path_only_is_checked_lane_by_lane() -> None:
    body = """
        setp.lt.u32 %p0, %r100, {first};
        @%p0 bra skip;
        mov.u32 %r5, 1;
    skip:
        setp.ge.u32 %p1, %r100, 8;
        @%p1 st.global.u32 [%rd50], %r5;
        ret;
    """
    run_body(body.format(first=8), {"x": np.zeros(32, np.uint32)})
    said = objects(body.format(first=9), "read of register %r5, which holds no value")
    assert "lane 8" in said


def test_a_guarded_write_counts_for_its_lanes_only() -> None:
    body = """
        setp.lt.u32 %p0, %r100, 8;
        @%p0 mov.u32 %r5, 1;
        @{negated}%p0 st.global.u32 [%rd50], %r5;
        ret;
    """
    run_body(body.format(negated=""), {"x": np.zeros(32, np.uint32)})
    objects(body.format(negated="!"), "read of register %r5")


def test_workspace_must_be_written_before_it_is_read_and_outputs_entirely() -> None:
    read = "ld.global.u32 %r0, [%rd50];\nret;"
    objects(read, "read of byte 0 of buffer 'x', which nothing has written", uninitialised=["x"])
    run_body("st.global.u32 [%rd50], %r100;\n" + read, {"x": np.zeros(32)}, uninitialised=["x"])
    half = "setp.lt.u32 %p0, %r100, 30;\n@%p0 st.global.u32 [%rd50], %r100;\nret;"
    options = {"uninitialised": ["x"], "complete": ["x"]}
    objects(
        half, "output 'x': 8 of its 128 bytes are never written, the first at byte 120", **options
    )
    with pytest.raises(SimulationError, match=r"got uninitialised \['z'\], has buffers"):
        run_body(half, {"x": np.zeros(32)}, uninitialised=["z"])


MMA = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "
    "{%r100, %r100, %r100, %r100}, {%r100, %r100}, {%f0, %f1, %f2, %f3};"
)
ZEROS = "".join(f"mov.f32 %f{i}, 0f00000000;\n" for i in range(4))


@pytest.mark.parametrize(
    "line",
    [
        MMA,
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r104];",
        "bar.sync 0;",
        f"shfl.sync.idx.b32 %r0, %r100, 0, 31, {FULL};",
        f"vote.sync.any.pred %p1, %p0, {FULL};",
    ],
)
def test_a_collective_needs_all_its_lanes(line: str) -> None:
    body = f"{ZEROS}setp.lt.u32 %p0, %r100, 9;\n@%p0 bra end;\n{line}\nend:\nret;"
    objects(body, "divergent collective")


def test_a_shuffle_needs_no_lanes_beyond_its_mask() -> None:
    body = """
        setp.ge.u32 %p0, %r100, 8;
        @%p0 bra end;
        shfl.sync.bfly.b32 %r0, %r100, {offset}, 31, {mask};
        st.global.u32 [%rd50], %r0;
    end:
        ret;
    """
    x = np.zeros(32, np.uint32)
    run_body(body.format(offset=1, mask=0xFF), {"x": x})
    assert x[:8].tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
    objects(body.format(offset=8, mask=0xFF), "shuffle from lane 8, which does not take part")
    objects(body.format(offset=1, mask=0x1FF), "a lane of the member mask is elsewhere")
    objects(body.format(offset=1, mask=0x7F), "a lane executes it outside its member mask")


def test_a_matrix_instruction_needs_a_whole_warp() -> None:
    objects(f"{ZEROS}{MMA}\nret;", "divergent collective", block=24)


def test_a_barrier_that_some_warp_misses_is_a_deadlock() -> None:
    body = """
        setp.lt.u32 %p0, %r100, 32;
        @%p0 bra {where};
        bar.sync 1;
    first:
        bar.sync 0;
    end:
        ret;
    """
    said = objects(body.format(where="end"), "deadlock: barrier 1 waits for 64", block=64)
    assert "warps 0 have exited" in said
    said = objects(body.format(where="first"), "deadlock: barrier", block=64)
    assert "wait at another barrier" in said


def test_warps_must_agree_on_a_barrier_s_count() -> None:
    body = """
        shr.u32 %r0, %r100, 5;
        add.u32 %r1, %r0, 2;
        mul.lo.u32 %r1, %r1, 32;
        bar.sync 3, %r1;
        ret;
    """
    objects(body, "the same for all who meet", block=96)


def test_named_barriers_meet_in_parts() -> None:
    """Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2."""
    body = """
        shr.u32 %r0, %r100, 6;
        add.u32 %r0, %r0, 1;
        mad.lo.u32 %r1, %r100, 4, %r104;
        st.shared.u32 [%r1], %r100;
        bar.sync %r0, 64;
        xor.b32 %r2, %r100, {partner};
        mad.lo.u32 %r2, %r2, 4, %r104;
        ld.shared.u32 %r3, [%r2];
        st.global.u32 [%rd50], %r3;
        ret;
    """
    x = np.zeros(128, np.uint32)
    run_body(body.format(partner=32), {"x": x}, block=128)
    assert x.tolist() == [i ^ 32 for i in range(128)]
    with pytest.raises(SimulationError, match="race in shared memory"):
        run_body(body.format(partner=64), {"x": x}, block=128)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 1056}, "1056 threads a block, wants 1 to 1024"),
        ({"shared_bytes": 101377}, "101377 shared bytes a block, sm_120 has 101376"),
        ({"grid": (1, 70000, 1)}, "grid (1, 70000, 1), wants 1 to"),
    ],
)
def test_a_launch_over_the_limits_is_refused(options: dict[str, object], message: str) -> None:
    objects("ret;", message, **options)


def test_a_target_s_limits_hold() -> None:
    run_body("ret;", {"x": np.zeros(1)}, shared_bytes=200_000, target="sm_90")
    with pytest.raises(SimulationError, match="which sm_90 cannot run"):
        run(kernel_text("ret;"), [], {}, target="sm_90")
    with pytest.raises(SimulationError, match="got 'sm_60', wants one of"):
        run(kernel_text("ret;"), [], {}, target="sm_60")
