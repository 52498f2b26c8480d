"""How a test runs a few lines of PTX: the text around them, and one launch over numpy buffers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from egraph_flash import runtime
from egraph_flash.plan import Launch, Pointer
from egraph_flash.simulator import Counters, run
from egraph_flash.tensor_map import TensorMap

REGISTERS = """\
.reg .pred %p<16>;
.reg .b16 %h<16>;
.reg .b32 %r<128>;
.reg .b64 %rd<128>;
.reg .f32 %f<64>;
"""
PROLOGUE = """\
mov.u32 %r100, %tid.x;
mov.u32 %r101, %ctaid.x;
mov.u32 %r102, %ntid.x;
mad.lo.u32 %r103, %r101, %r102, %r100;
mul.wide.u32 %rd103, %r103, 4;
mov.u32 %r104, smem;
"""


def kernel_text(
    body: str,
    params: tuple[str, ...] = ("x",),
    target: str = "sm_120",
    maps: tuple[str, ...] = (),
) -> str:
    """An entry `k` whose pointer parameters are in %rd0, %rd1, …, each of them advanced by this
    thread's 4 bytes in %rd50, %rd51, …; the addresses of its tensor maps are in %rd60, %rd61, …

    Before the body, %r100 is the thread in its block, %r103 in the grid, %rd103 four times that,
    %r104 the address of dynamic shared memory.
    """
    lines = [PROLOGUE]
    for place, name in enumerate(params):
        lines.append(f"ld.param.u64 %rd{place}, [p_{name}];")
        lines.append(f"add.u64 %rd{50 + place}, %rd{place}, %rd103;")
    for place, name in enumerate(maps, 60):
        lines.append(f"mov.b64 %rd{place}, m_{name};")
        lines.append(f"cvta.param.u64 %rd{place}, %rd{place};")
    given = [f"    .param .u64 p_{name}" for name in params]
    given += [f"    .param .align 64 .b8 m_{name}[128]" for name in maps]
    declared = ",\n".join(given)
    head = (
        f".version 8.7\n.target {target}\n.address_size 64\n"
        ".extern .shared .align 1024 .b8 smem[];\n"
        f".visible .entry k(\n{declared}\n)\n{{\n{REGISTERS}// prologue\n"
    )
    return head + "\n".join(lines) + "\n// body\n" + textwrap.dedent(body).strip() + "\n}\n"


def launch_of(
    buffers: Mapping[str, np.ndarray],
    block: int | tuple[int, int, int] = 32,
    grid: int | tuple[int, int, int] = 1,
    shared_bytes: int = 1024,
    maps: Sequence[TensorMap] = (),
) -> Launch:
    """The launch of `k` over buffers, whose names are the parameters in order, and then maps."""
    shape = (block, 1, 1) if isinstance(block, int) else block
    extent = (grid, 1, 1) if isinstance(grid, int) else grid
    return Launch("k", extent, shape, shared_bytes, (*map(Pointer, buffers), *maps))


def run_body(
    body: str,
    buffers: Mapping[str, np.ndarray],
    *,
    block: int | tuple[int, int, int] = 32,
    grid: int | tuple[int, int, int] = 1,
    shared_bytes: int = 1024,
    target: str = "sm_120",
    **options: Any,
) -> Counters:
    """Simulate the body over buffers."""
    launch = launch_of(buffers, block, grid, shared_bytes)
    return run(kernel_text(body, tuple(buffers), target), [launch], buffers, **options)


def run_body_on_gpu(
    body: str,
    buffers: Mapping[str, np.ndarray],
    *,
    block: int | tuple[int, int, int] = 32,
    grid: int | tuple[int, int, int] = 1,
    shared_bytes: int = 1024,
) -> None:
    """The same on the GPU that is present."""
    target = runtime.present_target()
    assert target is not None, "a test that asks for the GPU has the marker gpu"
    launch = launch_of(buffers, block, grid, shared_bytes)
    runtime.run(kernel_text(body, tuple(buffers), target), [launch], buffers, target=target)
