"""What matrix instructions multiply: mma.sync of half precisions into f32."""

from __future__ import annotations

from ...arithmetic import tensor_core_dot
from ..lanes import A_M16K16, B_K16N8, C_M16N8
from .machine import Array
from .row import instr


def _mma_m16n8k16(type: str) -> None:
    @instr(
        f"mma.sync.aligned.m16n8k16.row.col.f32.{type}.{type}.f32 {{$d}}, {{$a}}, {{$b}}, {{$c}};",
        name=f"mma_m16n8k16_{type}",
        d="f32 x4",
        a=f"{type}x2 x4",
        b=f"{type}x2 x2",
        c="f32 x4",
        counter="mma",
        collective=True,
        source=f"PTX ISA, mma.m16n8k16 with .{type}; rounding: MMA-Sim (arXiv 2511.10909)",
    )
    def meaning(a: Array, b: Array, c: Array) -> Array:
        """D[16,8] = A[16,16] B[16,8] + C[16,8], by the tensor core's own rounding."""
        tile = tensor_core_dot(A_M16K16.scatter(a), B_K16N8.scatter(b), C_M16N8.scatter(c))
        return C_M16N8.gather(tile)


for _type in ("f16", "bf16"):
    _mma_m16n8k16(_type)
