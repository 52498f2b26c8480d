"""A kernel written by hand that copies one box of a tensor map, as it lies in shared memory."""

from __future__ import annotations

from egraph_flash.plan import Launch, Pointer, Scalar
from egraph_flash.tensor_map import TensorMap

PTX = """.version 8.7
.target {target}
.address_size 64

.visible .entry box_copy(
    .param .align 64 .b8 map[128],
    .param .u64 result,
    .param .u32 column,
    .param .u32 row
)
{{
    .reg .pred %p<2>;
    .reg .b16 %h<1>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<5>;
    .shared .align 1024 .b8 slab[{box_bytes}];
    .shared .align 8 .b64 full;
    ld.param.u64 %rd0, [result];
    ld.param.u32 %r0, [column];
    ld.param.u32 %r1, [row];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, slab;
    mov.u32 %r4, full;
    mov.u64 %rd1, map;
    cvta.param.u64 %rd2, %rd1;
    setp.ne.u32 %p0, %r2, 0;
    @%p0 bra $WAIT;
    mbarrier.init.shared.b64 [%r4], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 %rd3, [%r4], {box_bytes};
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r3], [%rd2, {{%r0, %r1}}], [%r4];
$WAIT:
    bar.sync 0;
$TRY:
    mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0;
    @!%p1 bra $TRY;
    mov.u32 %r5, %r2;
$NEXT:
    setp.ge.u32 %p0, %r5, {elements};
    @%p0 bra $DONE;
    shl.b32 %r6, %r5, 1;
    add.u32 %r7, %r3, %r6;
    ld.shared.b16 %h0, [%r7];
    mul.wide.u32 %rd3, %r5, 2;
    add.u64 %rd4, %rd0, %rd3;
    st.global.b16 [%rd4], %h0;
    add.u32 %r5, %r5, 32;
    bra $NEXT;
$DONE:
    ret;
}}
"""


def box_copy(map_: TensorMap, target: str, column: int = 0, row: int = 0) -> tuple[str, Launch]:
    """The PTX, and its launch into the buffer `y`, for a map of two dimensions."""
    elements = map_.box_bytes // map_.dtype.size_bytes
    text = PTX.format(target=target, box_bytes=map_.box_bytes, elements=elements)
    arguments = (map_, Pointer("y"), Scalar("u32", column), Scalar("u32", row))
    return text, Launch("box_copy", (1, 1, 1), (32, 1, 1), 0, arguments)
