"""What one instruction of each class costs the simulator: the figures of simulator/speed.py.

    python benchmarks/simulator_speed.py

Each line is a loop of one instruction; the time of 64 rounds less that of 16, for 4, 32 and 128
warps, split into a part that does not grow with the lanes and one that does.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # works uninstalled too

from egraph_flash.simulator.speed import SPEEDS
from tests.support.small_kernels import run_body

SETUP = "".join(f"mov.f32 %f{i}, 0f3F800000;\n" for i in range(8)) + (
    "mad.lo.u32 %r0, %r100, 16, %r104;\n"
    "st.shared.v4.b32 [%r0], {%r100, %r100, %r100, %r100};\n"
    "bar.warp.sync 4294967295;\nmov.u32 %r50, 0;\n"
)
MMA = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "
    "{%r100, %r100, %r100, %r100}, {%r100, %r100}, {%f4, %f5, %f6, %f7};"
)
LINES = [
    ("move", "mov.f32 %f1, %f2;"),
    ("alu", "add.u32 %r5, %r100, %r101;"),
    ("alu", "shl.b32 %r5, %r100, 3;"),
    ("alu", "max.NaN.f32 %f1, %f2, %f3;"),
    ("fma", "mul.rn.f32 %f1, %f2, %f3;"),
    ("fma", "fma.rn.f32 %f1, %f2, %f3, %f4;"),
    ("mufu", "ex2.approx.ftz.f32 %f1, %f2;"),
    ("convert", "cvt.rn.f16x2.f32 %r5, %f1, %f2;"),
    ("mma", MMA),
    ("lsu_global", "ld.global.f32 %f1, [%rd50];"),
    ("lsu_global", "st.global.f32 [%rd50], %f1;"),
    ("lsu_shared", "ld.shared.b32 %r7, [%r0];"),
    ("lsu_shared", "st.shared.b32 [%r0], %r100;"),
    ("lsu_shared", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r0];"),
    ("warp", "shfl.sync.bfly.b32 %r5, %r100, 1, 31, 4294967295;"),
    ("barrier", "bar.sync 0;"),
]
BLOCKS, UNROLLED = (1, 8, 32), 8


def step_us(line: str, blocks: int) -> float:
    """µs of one step over this many blocks of 128 threads."""
    taken = []
    for rounds in (16, 64):
        body = (
            f"{SETUP}loop:\n" + f"{line}\n" * UNROLLED + "add.u32 %r50, %r50, 1;\n"
            f"setp.lt.u32 %p7, %r50, {rounds};\n@%p7 bra loop;\nret;"
        )
        x = np.zeros(blocks * 128, np.float32)
        started = time.perf_counter()
        run_body(body, {"x": x}, block=128, grid=blocks, shared_bytes=4096)
        taken.append(time.perf_counter() - started)
    return (taken[1] - taken[0]) / (48 * UNROLLED) * 1e6


def main() -> None:
    print(f"{'class':12}{'4 warps':>10}{'32':>10}{'128':>10}   fixed µs  ns a lane  (speed.py)")
    step_us(LINES[6][1], 1)  # reads the table once
    for counter, line in LINES:
        few, some, many = (step_us(line, blocks) for blocks in BLOCKS)
        lane_ns = (many - few) / (4096 - 128) * 1e3
        known = SPEEDS[counter]
        print(
            f"{counter:12}{few:10.1f}{some:10.1f}{many:10.1f} {few - lane_ns * 0.128:10.1f} "
            f"{lane_ns:10.2f}  ({known.step_us}, {known.lane_ns})  {line[:44]}"
        )


if __name__ == "__main__":
    main()
