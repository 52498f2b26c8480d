"""Do ldmatrix and mma fit together as a matrix product, and the same on hardware?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash import runtime
from egraph_flash.arithmetic import tensor_core_dot
from egraph_flash.dtypes import bf16
from egraph_flash.plan import Launch, Pointer
from egraph_flash.simulator import run
from tests.support.fresh import fresh_rng
from tests.support.small_kernels import kernel_text

Array = np.ndarray

# One warp: A [16, 16] and B [16, 8] go row by row through shared memory; lane l of ldmatrix.x4
# gives row l % 16, half l / 16 of A; of .x2.trans, row l of B.
PRODUCT = """
    mul.wide.u32 %rd10, %r100, 16;
    add.u64 %rd11, %rd0, %rd10;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd11];
    mad.lo.u32 %r4, %r100, 16, %r104;
    st.shared.v4.b32 [%r4], {%r0, %r1, %r2, %r3};
    mul.wide.u32 %rd10, %r100, 8;
    add.u64 %rd11, %rd1, %rd10;
    ld.global.v2.b32 {%r0, %r1}, [%rd11];
    mad.lo.u32 %r5, %r100, 8, %r104;
    st.shared.v2.b32 [%r5+512], {%r0, %r1};
    bar.warp.sync 4294967295;
    and.b32 %r6, %r100, 15;
    shr.u32 %r7, %r100, 4;
    mul.lo.u32 %r8, %r6, 32;
    mad.lo.u32 %r8, %r7, 16, %r8;
    add.u32 %r8, %r8, %r104;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r8];
    mad.lo.u32 %r9, %r6, 16, %r104;
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r9+512];
    shr.u32 %r20, %r100, 2;
    and.b32 %r21, %r100, 3;
    mul.lo.u32 %r22, %r20, 32;
    mad.lo.u32 %r22, %r21, 8, %r22;
    cvt.u64.u32 %rd20, %r22;
    add.u64 %rd21, %rd2, %rd20;
    ld.global.v2.f32 {%f0, %f1}, [%rd21];
    ld.global.v2.f32 {%f2, %f3}, [%rd21+256];
    MMA {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f0, %f1, %f2, %f3};
    st.global.v2.f32 [%rd21], {%f0, %f1};
    st.global.v2.f32 [%rd21+256], {%f2, %f3};
    ret;
"""
LAUNCH = Launch("k", (1, 1, 1), (32, 1, 1), 1024, tuple(map(Pointer, "abc")))


def product(type: str, target: str) -> tuple[str, dict[str, Array], Array]:
    """The text, random buffers, and the bits that the tensor core's rule gives."""
    rng = fresh_rng()
    a, b = rng.normal(size=(16, 16)), rng.normal(size=(16, 8))
    if type == "f16":
        halves = a.astype(np.float16), b.astype(np.float16)
    else:
        halves = bf16.encode(a), bf16.encode(b)
    c = rng.normal(size=(16, 8)).astype(np.float32)
    text = kernel_text(
        PRODUCT.replace("MMA", f"mma.sync.aligned.m16n8k16.row.col.f32.{type}.{type}.f32"),
        ("a", "b", "c"),
        target,
    )
    return text, {"a": halves[0], "b": halves[1], "c": c}, tensor_core_dot(*halves, c)


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_a_tile_product_through_shared_memory(type: str) -> None:
    text, buffers, wanted = product(type, "sm_120")
    plain = buffers["a"].astype(np.float64) @ buffers["b"].astype(np.float64) + buffers["c"]
    counters = run(text, [LAUNCH], buffers)
    assert (buffers["c"].view(np.uint32) == wanted.view(np.uint32)).all()
    if type == "f16":
        assert np.abs(wanted - plain).max() < 1e-5
    assert counters.total.mma == 1
    assert [t.conflicts for t in counters.launches[0].shared.values()] == [0, 0, 4, 0]


@pytest.mark.gpu
@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_a_tile_product_on_the_gpu(type: str) -> None:
    target = runtime.present_target()
    assert target is not None
    text, buffers, wanted = product(type, target)
    runtime.run(text, [LAUNCH], buffers, target=target)
    assert (buffers["c"].view(np.uint32) == wanted.view(np.uint32)).all()


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
def test_the_assembler_takes_it(target: str) -> None:
    text, _, _ = product("f16", target)
    assert runtime.assemble(text, target).spill_bytes == 0
