"""A kernel written by hand, y = 2 x, so that what runs kernels can be tested without a compiler."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from egraph_flash import Axis, Tensor
from egraph_flash.dtypes import Dtype, bf16, f16, f32
from egraph_flash.open_plan import Length, OpenBuffer, OpenLaunch, OpenPlan, Tiles
from egraph_flash.plan import Pointer, Role, Scalar, dense_strides
from egraph_flash.record import Cost, Derivation, Record, Schedule, Spec, Step
from egraph_flash.request import request_for

# add y[i], x[i], x[i]: exact in every dtype, so all backends agree on the bits
PTX = """.version 8.7
.target {target}
.address_size 64

.visible .entry twice(
    .param .u64 source,
    .param .u64 result,
    .param .u32 count
)
{{
    .reg .pred %p<1>;
    .reg .b16 %h<2>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<5>;
    .reg .f32 %f<2>;
    // place: i = ctaid * ntid + tid
    ld.param.u64 %rd0, [source];
    ld.param.u64 %rd1, [result];
    ld.param.u32 %r0, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p0, %r4, %r0;
    @%p0 bra $DONE;
    mul.wide.u32 %rd2, %r4, {size};
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    // term: (Add x x)
{body}
$DONE:
    ret;
}}
"""

BODIES = {
    "f32": """    ld.global.f32 %f0, [%rd3];
    add.rn.f32 %f1, %f0, %f0;
    st.global.f32 [%rd4], %f1;""",
    "f16": """    ld.global.b16 %h0, [%rd3];
    cvt.f32.f16 %f0, %h0;
    add.rn.f32 %f1, %f0, %f0;
    cvt.rn.f16.f32 %h1, %f1;
    st.global.b16 [%rd4], %h1;""",
    "bf16": """    ld.global.b16 %h0, [%rd3];
    cvt.f32.bf16 %f0, %h0;
    add.rn.f32 %f1, %f0, %f0;
    cvt.rn.bf16.f32 %h1, %f1;
    st.global.b16 [%rd4], %h1;""",
}
DTYPES = (f32, f16, bf16)


def ptx(dtype: Dtype = f32, target: str = "sm_120") -> str:
    return PTX.format(target=target, size=dtype.size_bytes, body=BODIES[dtype.name])


def record(
    rows: int = 3,
    columns: int = 40,
    dtype: Dtype = f32,
    target: str = "sm_120",
    stages: int = 1,
    instructions: Mapping[str, int] = MappingProxyType({"alu": 5, "lsu_global": 2}),
) -> Record:
    """y = 2 x over [rows, columns]; with two stages y = 4 x, through a workspace."""
    shape, axes, count = (rows, columns), ("m", "n"), rows * columns
    names = ["x", *(f"w{stage}" for stage in range(1, stages)), "y"]
    launches = tuple(
        OpenLaunch(
            entry="twice",
            tiles=Tiles(((count, 32),)),
            block=(32, 1, 1),
            shared_bytes=0,
            arguments=(Pointer(source), Pointer(result), Scalar("u32", count)),
            instructions=dict(instructions),
        )
        for source, result in itertools.pairwise(names)
    )
    roles: dict[str, Role] = {"x": "input", "y": "output"}
    buffers = tuple(
        OpenBuffer(name, shape, dtype, roles.get(name, "workspace"), dense_strides(shape), 16)
        for name in names
    )
    step = Step("naive", (), "(Add x x)", 0, 0, 1.5)
    return Record(
        name="doubling",
        target=target,
        derivation=Derivation(
            (step, replace(step, law_family="homomorphism", laws=("sum/twice",), max_error=0.0)),
            {"sum/twice": 2, "sum/never": 0},
        ),
        term="(Add (Num 1.0) (Num 2.0))",
        schedule=Schedule({"TILE": "a:fma_f32", "PLACE": "fold=fuse"}),
        cost=Cost("RTX 5090", 1.5, {"memory": 1.5, "fma": 0.1}),
        passes=0,
        tile="map y = x + x",
        checks=(),
        plan=OpenPlan(ptx(dtype, target), target, launches, buffers),
        inputs=(Spec("x", shape, dtype, axes),),
        outputs=(Spec("y", shape, dtype, axes),),
        asked=asked(rows, columns, dtype, stages),
        pins={},
    )


def open_record(hint: int = 3) -> Record:
    """y = 2 x over [rows], where a call says how many."""
    closed = record(hint, 1)
    (launch,) = closed.plan.launches
    source, result, _ = launch.arguments
    arguments = (source, result, Length("rows"))
    launch = replace(launch, tiles=Tiles((("rows", 32),)), arguments=arguments)
    buffers = tuple(replace(each, shape=("rows",), strides=(1,)) for each in closed.plan.buffers)
    plan = replace(closed.plan, launches=(launch,), buffers=buffers, hints={"rows": hint})
    spec = replace(closed.inputs[0], shape=(hint,), axes=("m",), lengths=("rows",))
    outputs = (replace(spec, name="y"),)
    return replace(closed, inputs=(spec,), outputs=outputs, plan=plan)


def asked(rows: int, columns: int, dtype: Dtype, stages: int) -> str:
    """The request for x + x, doubled as often as there are stages."""
    m, n = Axis.many(m=rows, n=columns)
    expr = Tensor("x", (m, n), dtype).expr
    for _ in range(stages):
        expr = expr + expr
    return request_for(expr, "sm_120", {}, "doubling").text.replace('"name": "out"', '"name": "y"')
