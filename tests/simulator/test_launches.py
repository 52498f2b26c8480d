"""Do arguments, buffers and launches arrive in a kernel as a plan says, and are misfits named?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash.errors import SimulationError
from egraph_flash.plan import Argument, Launch, Pointer, Scalar
from egraph_flash.simulator import run
from tests.support.small_kernels import kernel_text

TEXT = """
.version 8.7
.target sm_90
.address_size 64
.shared .align 8 .b8 table[16];
.extern .shared .align 1024 .b8 smem[];
.visible .entry scale(
    .param .u64 x,
    .param .f32 by,
    .param .s32 plus,
    .param .u32 n
)
.reqntid 32, 1, 1
{
    .reg .pred %p<1>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .reg .f32 %f<4>;
    ld.param.u64 %rd0, [x];
    ld.param.f32 %f0, [by];
    ld.param.s32 %r0, [plus];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p0, %r2, %r1;
    @%p0 ret;
    mul.wide.u32 %rd1, %r2, 4;
    add.u64 %rd2, %rd0, %rd1;
    ld.global.f32 %f1, [%rd2];
    cvt.rn.f32.s32 %f2, %r0;
    fma.rn.f32 %f3, %f0, %f1, %f2;
    st.shared.f32 [smem], %f2;
    st.shared.f32 [table+12], %f2;
    st.global.f32 [%rd2], %f3;
    ret;
}
"""


def launch(*arguments: Argument, block: int = 32, shared: int = 64, entry: str = "scale") -> Launch:
    return Launch(entry, (1, 1, 1), (block, 1, 1), shared, arguments)


GOOD = (Pointer("x"), Scalar("f32", 2.0), Scalar("s32", -3), Scalar("u32", 20))


def test_arguments_arrive_by_type() -> None:
    x = np.arange(32, dtype=np.float32)
    run(TEXT, [launch(*GOOD)], {"x": x})
    assert x.tolist() == [2 * i - 3 if i < 20 else i for i in range(32)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (launch(*GOOD[:2]), "got 2 arguments, wants 4 (x, by, plus, n)"),
        (launch(Pointer("y"), *GOOD[1:]), "parameter x got buffer 'y', has x"),
        (launch(GOOD[0], Scalar("u32", 1), *GOOD[2:]), "parameter by is .f32, got Scalar"),
        (launch(GOOD[0], GOOD[1], Pointer("x"), GOOD[3]), "parameter plus is .s32, got Pointer"),
        (launch(*GOOD[:3], Scalar("u32", -1)), "parameter n is .u32, got -1"),
        (launch(*GOOD, block=64), "block (64, 1, 1), wants .reqntid (32, 1, 1)"),
        (launch(*GOOD, entry="other"), "got entry 'other', has scale"),
    ],
)
def test_a_launch_that_does_not_fit_is_named(given: Launch, message: str) -> None:
    with pytest.raises(SimulationError) as caught:
        run(TEXT, [given], {"x": np.zeros(32, np.float32)})
    assert message in str(caught.value)


def test_dynamic_memory_needs_a_declaration() -> None:
    text = TEXT.replace(".extern .shared .align 1024 .b8 smem[];\n", "").replace(
        "[smem]", "[table]"
    )
    with pytest.raises(SimulationError, match=r"the module declares no .extern .shared array"):
        run(text, [launch(*GOOD)], {"x": np.zeros(32, np.float32)})
    run(text, [launch(*GOOD, shared=0)], {"x": np.zeros(32, np.float32)})


def test_buffers_of_any_dtype_are_written_in_place() -> None:
    body = "ld.global.b16 %h0, [%rd0];\nst.global.b16 [%rd1+2], %h0;\nret;"
    x, y = np.array([1.5], np.float16), np.zeros(3, np.float16)
    run(kernel_text(body, ("x", "y")), [launch(Pointer("x"), Pointer("y"), entry="k")],
        {"x": x, "y": y})  # fmt: skip
    assert y.tolist() == [0, 1.5, 0]


def test_buffers_that_are_read_only_may_be_read() -> None:
    frozen = np.zeros(32, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(SimulationError, match="write to buffer 'x', which is read-only"):
        run(TEXT, [launch(*GOOD)], {"x": frozen})
    body = "ld.global.u32 %r0, [%rd50];\nst.global.u32 [%rd51], %r0;\nret;"
    y = np.ones(32, np.float32)
    run(kernel_text(body, ("x", "y")), [launch(Pointer("x"), Pointer("y"), entry="k")],
        {"x": frozen, "y": y})  # fmt: skip
    assert not y.any()


def test_one_access_may_fall_into_several_buffers() -> None:
    body = """
        and.b32 %r0, %r100, 1;
        setp.eq.u32 %p0, %r0, 0;
        selp.u64 %rd7, %rd50, %rd51, %p0;
        ld.global.u32 %r1, [%rd7];
        add.u32 %r1, %r1, 1;
        st.global.u32 [%rd7], %r1;
        ret;
    """
    x, y = np.zeros(32, np.uint32), np.full(32, 10, np.uint32)
    run(kernel_text(body, ("x", "y")), [launch(Pointer("x"), Pointer("y"), entry="k")],
        {"x": x, "y": y})  # fmt: skip
    assert x.tolist() == [1, 0] * 16
    assert y.tolist() == [10, 11] * 16


def test_the_trace_shows_each_step() -> None:
    lines: list[str] = []
    run(TEXT, [launch(*GOOD)], {"x": np.zeros(32, np.float32)}, trace=lines.append)
    assert any("fma.rn.f32 %f3, %f0, %f1, %f2;" in line and "20 lanes" in line for line in lines)
