"""Views with gaps between their elements, unaligned ones, and ones larger than memory."""

from __future__ import annotations

import mmap
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egraph_flash.errors import SimulationError
from egraph_flash.plan import Launch, Pointer, Scalar
from egraph_flash.simulator import run
from tests.support.small_kernels import kernel_text, run_body

# y[row, column] = x[row, column] for 8 rows of 4 words, a thread each; strides are in bytes
COPY = """
shr.u32 %r0, %r100, 2;
and.b32 %r1, %r100, 3;
mul.wide.u32 %rd10, %r0, XROW;
mul.wide.u32 %rd11, %r0, YROW;
mul.wide.u32 %rd12, %r1, 4;
add.u64 %rd13, %rd0, %rd10;
add.u64 %rd14, %rd13, %rd12;
add.u64 %rd15, %rd1, %rd11;
add.u64 %rd16, %rd15, %rd12;
ld.global.u32 %r2, [%rd14];
st.global.u32 [%rd16], %r2;
ret;
"""


def copy(x: np.ndarray, y: np.ndarray, x_row: int | None = None, y_row: int | None = None) -> None:
    x_row, y_row = (x_row or x.strides[0]), (y_row or y.strides[0])
    body = COPY.replace("XROW", str(x_row)).replace("YROW", str(y_row))
    run_body(body, {"x": x, "y": y}, uninitialised=["y"], complete=["y"])


def poisoned(shape: tuple[int, int], at: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """NaN all over a larger array, and the view `[8, 4]` of it that starts at `at`."""
    whole = np.full(shape, np.nan, np.float32)
    return whole, whole[at[0] : at[0] + 8, at[1] : at[1] + 4]


@pytest.mark.parametrize("start", [(0, 0), (2, 3), (1, 5)])
def test_views_are_read_and_written_in_place(start: tuple[int, int]) -> None:
    """Also at addresses that are no multiple of 16; what lies between keeps what it held."""
    whole_x, x = poisoned((12, 11), start)
    whole_y, y = poisoned((13, 9), start)
    x[...] = np.arange(32).reshape(8, 4)
    copy(x, y)
    np.testing.assert_array_equal(y, x)
    assert np.count_nonzero(~np.isnan(whole_y)) == 32
    assert np.count_nonzero(~np.isnan(whole_x)) == 32


def test_reading_between_elements_is_objected_to() -> None:
    _, x = poisoned((12, 11), (2, 3))
    _, y = poisoned((12, 11), (2, 3))
    with pytest.raises(SimulationError, match=r"out of the tensor, between its elements: 4 bytes "
                       r"at byte 16 of buffer 'x' \(its first element is 4 past 16\)"):  # fmt: skip
        copy(x, y, x_row=16)
    with pytest.raises(SimulationError, match=r"out of the tensor.*at byte 40 of buffer 'y'"):
        copy(x, y, y_row=40)
    with pytest.raises(SimulationError, match=r"out of bounds.*byte 352 of buffer 'x'.*has 324"):
        copy(x, y, x_row=88)


def test_repeated_elements_are_read() -> None:
    whole, y = poisoned((8, 4), (0, 0))
    x = np.broadcast_to(np.arange(4, dtype=np.float32), (8, 4))
    run_body(COPY.replace("XROW", "0").replace("YROW", "16"), {"x": x, "y": y})
    np.testing.assert_array_equal(whole, x)


def test_negative_strides_are_refused() -> None:
    x = np.zeros((8, 4), np.float32)
    with pytest.raises(SimulationError, match=r"buffer x: got byte strides \(-16, 4\)"):
        copy(x[::-1], x, x_row=16)


def test_only_elements_have_to_be_written() -> None:
    """A row that is left out is named by its first byte, not by the gap before it."""
    _, x = poisoned((12, 11), (0, 0))
    _, y = poisoned((12, 11), (2, 3))
    body = COPY.replace("XROW", "44").replace("YROW", "44")
    body = body.replace("ld.global.u32", "setp.eq.u32 %p0, %r0, 3;\n@%p0 ret;\nld.global.u32")
    options: dict[str, Any] = {"uninitialised": ["y"], "complete": ["y"]}
    message = "output 'y': 16 of its 128 bytes are never written, the first at byte 132"
    with pytest.raises(SimulationError, match=message):
        run_body(body, {"x": x, "y": y}, **options)


def test_alignment_is_that_of_the_callers_memory() -> None:
    """16 bytes at the 16 bytes before a view's first element, and 16 bytes further on."""
    memory = np.zeros(64, np.float32)
    start = -memory.ctypes.data % 16 // 4
    body = "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd0+OFFSET];\nret;"
    run_body(body.replace("OFFSET", "12"), {"x": memory[start + 1 :]})
    for offset in ("0", "4", "16"):
        with pytest.raises(SimulationError, match=rf"misaligned: 16 bytes at byte {offset} of"):
            run_body(body.replace("OFFSET", offset), {"x": memory[start + 1 :]})


# each lane reads x[index] and writes y[index] for an index of its own, past byte 2^33
FAR = """
.version 8.7
.target sm_90
.address_size 64
.visible .entry far(
    .param .u64 x,
    .param .u64 y,
    .param .s64 step
)
{
    .reg .b16 %h<1>;
    .reg .b32 %r<1>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.s64 %rd2, [step];
    mov.u32 %r0, %tid.x;
    cvt.s64.s32 %rd3, %r0;
    mul.lo.s64 %rd4, %rd3, %rd2;
    add.s64 %rd5, %rd0, %rd4;
    add.s64 %rd6, %rd1, %rd4;
    ld.global.b16 %h0, [%rd5];
    st.global.b16 [%rd6], %h0;
    ret;
}
"""
SHAPE = (2, 1 << 30, 8)


def huge() -> np.ndarray:
    """f16 [2, 2^30, 8], 32 GiB that exist where they are touched only."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    memory = mmap.mmap(-1, 2 * int(np.prod(SHAPE)), flags=flags)
    return np.frombuffer(memory, np.float16).reshape(SHAPE)


def far_copy() -> None:
    """Run in a process of its own: prints the seconds and the resident megabytes it took."""
    x, y = huge(), huge()
    step = (1 << 30) + 48  # bytes; lane 31 reads past byte 2^34
    at = np.arange(32) * step // 2
    x.reshape(-1)[at] = np.arange(32)
    assert at[-1] * 2 > 1 << 33
    started = time.perf_counter()
    given = (Pointer("x"), Pointer("y"), Scalar("s64", step))
    launch = Launch("far", (1, 1, 1), (32, 1, 1), 0, given)
    run(FAR, [launch], {"x": x, "y": y}, uninitialised=["y"])
    seconds = time.perf_counter() - started
    np.testing.assert_array_equal(y.reshape(-1)[at], np.arange(32))
    status = Path("/proc/self/status").read_text()
    print(seconds, int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024)


@pytest.mark.skipif(sys.platform != "linux", reason="reserves address space as Linux does")
def test_buffers_may_be_larger_than_memory() -> None:
    code = "from tests.simulator.test_strided_buffers import far_copy; far_copy()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=sys.path[0] or "."
    )
    assert not done.returncode, done.stderr
    seconds, resident_mb = map(float, done.stdout.split())
    assert seconds < 2
    assert resident_mb < 200


@pytest.mark.skipif(sys.platform != "linux", reason="reserves address space as Linux does")
def test_far_objections_name_the_byte() -> None:
    """Between the elements of a strided view, past the end, and where nothing was written."""
    x, y = huge(), huge()
    body = "ld.global.b16 %h0, [%rd0+OFFSET];\nst.global.b16 [%rd1], %h0;\nret;"
    text = kernel_text(body, ("x", "y"))
    launch = Launch("k", (1, 1, 1), (1, 1, 1), 0, (Pointer("x"), Pointer("y")))
    last = (1 << 34) + 16 * 5  # x[1, 5, 0]
    for view, offset, message in (
        (x[:, ::2], last, f"out of the tensor, between its elements: 2 bytes at byte {last} of"),
        (x[:, :, :7], last + 14, f"out of the tensor.*at byte {last + 14} of buffer 'x'"),
        (x, 1 << 35, f"out of bounds: 2 bytes at byte {1 << 35} of buffer 'x'"),
    ):
        with pytest.raises(SimulationError, match=message):
            run(text.replace("OFFSET", str(offset)), [launch], {"x": view, "y": y})
    with pytest.raises(SimulationError, match=re.escape(f"read of byte {last} of buffer 'x', whi")):
        run(text.replace("OFFSET", str(last)), [launch], {"x": x, "y": y}, uninitialised=["x"])
