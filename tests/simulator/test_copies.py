"""Does cp.async copy what the manual says, when the waits say, and is it objected to otherwise?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash.errors import SimulationError
from tests.support.fresh import fresh_rng
from tests.support.small_kernels import run_body, run_body_on_gpu

ROWS = [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)]

# each thread copies `width` bytes to its own place, waits, and stores them from there
COPY = """
    mul.lo.u32 %r0, %r100, WIDTH;
    add.u32 %r1, %r0, %r104;
    mul.wide.u32 %rd2, %r103, WIDTH;
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    SIZE
    LINE
    cp.async.wait_all;
    mov.u32 %r9, 0;
loop:
    ld.shared.u32 %r2, [%r1];
    st.global.u32 [%rd4], %r2;
    add.u32 %r1, %r1, 4;
    add.u64 %rd4, %rd4, 4;
    add.u32 %r9, %r9, 4;
    setp.lt.u32 %p0, %r9, WIDTH;
    @%p0 bra loop;
    ret;
"""


def copy(cached: str, width: int, size: str = "", line: str = "") -> str:
    operand = ", %r20" if size else ""
    line = line or f"cp.async.{cached}.shared.global [%r1], [%rd3], {width}{operand};"
    return COPY.replace("WIDTH", str(width)).replace("SIZE", size).replace("LINE", line)


def data(width: int) -> dict[str, np.ndarray]:
    x = fresh_rng().integers(0, 1 << 32, 128 * width // 4, dtype=np.uint32)
    return {"x": x, "y": np.zeros_like(x)}


@pytest.mark.parametrize(("cached", "width"), ROWS)
def test_a_thread_sees_its_own_copies_after_a_wait(cached: str, width: int) -> None:
    buffers = data(width)
    run_body(copy(cached, width), buffers, block=64, grid=2, shared_bytes=2048)
    assert (buffers["y"] == buffers["x"]).all()


SIZES = "rem.u32 %r20, %r103, {};"  # as many bytes as the thread's number, modulo


def filled(x: np.ndarray, width: int) -> np.ndarray:
    rows = x.view(np.uint8).reshape(-1, width)
    kept = np.arange(width) < np.arange(len(rows))[:, None] % (width + 1)
    return np.where(kept, rows, 0).astype(np.uint8)


@pytest.mark.parametrize(("cached", "width"), ROWS)
def test_bytes_past_the_source_size_are_zeros(cached: str, width: int) -> None:
    buffers = data(width)
    body = copy(cached, width, SIZES.format(width + 1))
    counters = run_body(body, buffers, block=64, grid=2, shared_bytes=2048)
    wanted = filled(buffers["x"], width)
    assert (buffers["y"].view(np.uint8).reshape(-1, width) == wanted).all()
    sizes = np.arange(128) % (width + 1)
    assert counters.total.global_bytes_read == sizes.sum()


@pytest.mark.gpu
@pytest.mark.parametrize(("cached", "width"), ROWS)
def test_bytes_past_the_source_size_are_zeros_on_the_gpu(cached: str, width: int) -> None:
    buffers = data(width)
    body = copy(cached, width, SIZES.format(width + 1))
    run_body_on_gpu(body, buffers, block=64, grid=2, shared_bytes=2048)
    wanted = filled(buffers["x"], width)
    assert (buffers["y"].view(np.uint8).reshape(-1, width) == wanted).all()


def test_a_copy_of_no_bytes_needs_no_source() -> None:
    buffers = data(16)
    body = copy("cg", 16, "mov.u32 %r20, 0;\nmov.u64 %rd3, 16;")
    run_body(body, buffers, block=64, grid=2, shared_bytes=2048)
    assert not buffers["y"].any()


@pytest.mark.parametrize("hint", ["evict_first", "evict_last"])
def test_a_policy_changes_no_bytes(hint: str) -> None:
    buffers = data(16)
    line = (
        f"createpolicy.fractional.L2::{hint}.b64 %rd9;\n"
        "cp.async.cg.shared.global.L2::cache_hint [%r1], [%rd3], 16, %rd9;"
    )
    run_body(copy("cg", 16, "", line), buffers, block=64, grid=2, shared_bytes=2048)
    assert (buffers["y"] == buffers["x"]).all()


PLAIN = "cp.async.ca.shared.global [%r1], [%rd3], 4;"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add.u32 %r1, %r1, 2;\n" + PLAIN, "of 4 bytes at offset 2: misaligned"),
        ("add.u64 %rd3, %rd3, 2;\n" + PLAIN, "misaligned: 4 bytes at byte 2 of buffer 'x'"),
        ("add.u32 %r1, %r1, 4096;\n" + PLAIN, "out of bounds of the block's 2048 shared bytes"),
        ("add.u64 %rd3, %rd3, 512;\n" + PLAIN, "out of bounds: 4 bytes at byte 512 of buffer 'x'"),
        (PLAIN.replace("4;", "4, 5;"), "source size 5, wants at most 4"),
        ("mov.u32 %r1, %r104;\n" + PLAIN, "two copies write the same bytes"),
        (PLAIN + "\nst.shared.u32 [%r1], %r9;", "write without a wait for an asynchronous copy"),
        (PLAIN + "\nld.shared.u32 %r9, [%r1];", "read without a wait for an asynchronous copy"),
        (PLAIN + "\n" + PLAIN, "write without a wait for an asynchronous copy of warp 0, lane 0"),
        (
            PLAIN + "\ncp.async.wait_all;\nxor.b32 %r0, %r0, 4;\nadd.u32 %r1, %r0, %r104;",
            "read without a wait for an asynchronous copy of warp 0, lane 1",
        ),
    ],
)
def test_a_bad_copy_is_objected_to(line: str, message: str) -> None:
    body = "mov.u32 %r9, 1;\n" + copy("ca", 4, "", line)
    with pytest.raises(SimulationError, match=message):
        run_body(body, data(4), block=64, grid=2, shared_bytes=2048)


def test_a_copy_that_nobody_waits_for_is_objected_to() -> None:
    body = copy("ca", 4).replace("cp.async.wait_all;", "ret;")
    with pytest.raises(SimulationError, match="ends before a wait for an asynchronous copy"):
        run_body(body, data(4), block=64, grid=2, shared_bytes=2048)


def test_lanes_commit_for_themselves() -> None:
    """Odd lanes commit a second, empty group, so their wait for all but one covers the copy."""
    line = PLAIN + (
        "\ncp.async.commit_group;\nand.b32 %r30, %r100, 1;\nsetp.eq.u32 %p1, %r30, {};\n"
        "@%p1 cp.async.commit_group;\ncp.async.wait_group {};\n@!%p1 ret;"
    )
    body = copy("ca", 4, "", line.format(1, 1)).replace("cp.async.wait_all;", "")
    with pytest.raises(SimulationError, match=r"ends before a wait .* lane 0"):
        run_body(body, data(4), block=64, grid=2, shared_bytes=2048)
    for lanes, groups in ((1, 0), (0, 0)):
        body = copy("ca", 4, "", line.format(lanes, groups)).replace("cp.async.wait_all;", "")
        buffers = data(4)
        run_body(body, buffers, block=64, grid=2, shared_bytes=2048)
        chosen = np.arange(128) % 2 == lanes
        assert (buffers["y"][chosen] == buffers["x"][chosen]).all()


@pytest.mark.parametrize("order", ["{sync}", "bar.warp.sync 4294967295;", "", "{sync} wait"])
def test_others_see_a_copy_only_after_a_wait_and_then_a_barrier(order: str) -> None:
    """Thread t reads what thread t ^ 1, of its warp, copied."""
    sync = "bar.sync 0;"
    steps = order.format(sync=sync)
    lines = [PLAIN, "cp.async.wait_all;", steps]
    if steps.endswith(" wait"):
        lines = [PLAIN, sync, "cp.async.wait_all;"]
    line = "\n".join([*lines, "xor.b32 %r0, %r0, 4;", "add.u32 %r1, %r0, %r104;"])
    body, buffers = copy("ca", 4, "", line), data(4)
    if steps and not steps.endswith(" wait"):
        run_body(body, buffers, block=64, grid=2, shared_bytes=2048)
        assert (buffers["y"] == buffers["x"][np.arange(128) ^ 1]).all()
    else:
        with pytest.raises(SimulationError, match="read without a wait for an asynchronous copy"):
            run_body(body, buffers, block=64, grid=2, shared_bytes=2048)
