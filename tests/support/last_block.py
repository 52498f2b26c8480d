"""Small kernels in which the last block to come adds up what the others left in global memory.

Each block squares 64 words of f32; the last block of a row adds up the squares of all its blocks,
in the order of the blocks, so that its bits depend on no order of arrival. Thread t adds up the
words of thread t ^ 33, so that every word is read by another warp than the one that wrote it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from egraph_flash import runtime
from egraph_flash.plan import Launch
from egraph_flash.simulator import Counters, run
from tests.support.deletions import without_each
from tests.support.small_kernels import kernel_text, launch_of

Array = np.ndarray
WORDS, BLOCKS, ROWS = 64, 5, 3
NAMES = ("x", "part", "counter", "y")


@dataclass(frozen=True)
class LastBlock:
    """A body over x, the parts, a counter for each row and one for all, and the sums in y."""

    name: str
    body: str
    launches: int = 2

    def text(self, target: str = "sm_120") -> str:
        return kernel_text(self.body, NAMES, target)

    def buffers(self) -> dict[str, Array]:
        x = np.random.default_rng(1).standard_normal((ROWS, BLOCKS, WORDS)).astype(np.float32)
        return {
            "x": x,
            "part": np.zeros_like(x),
            "counter": np.zeros(ROWS + 1, np.uint32),
            "y": np.zeros((ROWS, WORDS), np.float32),
        }

    def wanted(self) -> Array:
        squares = self.buffers()["x"][:, :, np.arange(WORDS) ^ 33] ** 2
        total = np.zeros((ROWS, WORDS), np.float32)
        for block in range(BLOCKS):
            total += squares[:, block]
        return total

    def launch(self, buffers: dict[str, Array]) -> Launch:
        return launch_of(buffers, WORDS, ROWS * BLOCKS)

    def simulate(self, seed: int = 0) -> tuple[dict[str, Array], Counters]:
        """The buffers after the launches, one after another, and what they counted."""
        buffers = self.buffers()
        launches = [self.launch(buffers)] * self.launches
        counters = run(
            self.text(), launches, buffers, seed=seed, uninitialised=["part", "y"],
            complete=["part", "y"],
        )  # fmt: skip
        return buffers, counters

    def on_gpu(self) -> dict[str, Array]:
        target = runtime.present_target()
        assert target is not None, "a test that asks for the GPU has the marker gpu"
        buffers = self.buffers()
        launches = [self.launch(buffers)] * self.launches
        runtime.run(self.text(target), launches, buffers, target=target)
        return buffers

    def deletions(self) -> Iterator[tuple[str, LastBlock]]:
        """The kernel without each of its synchronisations."""
        for what, body in without_each(self.body):
            yield what, replace(self, body=body)

    def changed(self, old: str, new: str) -> LastBlock:
        assert old in self.body, f"{self.name} has no {old!r}"
        return replace(self, body=self.body.replace(old, new))


def _kernel(name: str, *parts: str) -> LastBlock:
    text = "".join(textwrap.dedent(part) for part in parts)
    text = text.replace("BLOCKS", str(BLOCKS)).replace("LAST_ROW", str(ROWS - 1))
    return LastBlock(name, text.replace("LAST", str(BLOCKS - 1)).replace("ROWS", str(ROWS)))


# %r10 the row, %rd10 its counter
WRITE = """
    div.u32 %r10, %r101, BLOCKS;
    mul.wide.u32 %rd10, %r10, 4;
    add.u64 %rd10, %rd2, %rd10;
    ld.global.f32 %f0, [%rd50];
    mul.rn.f32 %f1, %f0, %f0;
    st.global.f32 [%rd51], %f1;
"""
ARRIVE = """
    bar.sync 0;
    setp.ne.u32 %p0, %r100, 0;
    @%p0 bra told;
"""
FENCED = """
    fence.acq_rel.gpu;
    atom.relaxed.gpu.global.inc.u32 %r11, [%rd10], LAST;
    fence.acq_rel.gpu;
"""
ALONE = """
    atom.acq_rel.gpu.global.inc.u32 %r11, [%rd10], LAST;
"""
RESET = """
    atom.acq_rel.gpu.global.add.u32 %r11, [%rd10], 1;
    setp.ne.u32 %p3, %r11, LAST;
    @%p3 bra kept;
    mov.u32 %r16, 0;
    st.global.u32 [%rd10], %r16;
    kept:
"""
TELL = """
    st.shared.u32 [%r104], %r11;
    told:
    bar.sync 0;
    ld.shared.u32 %r12, [%r104];
    setp.ne.u32 %p1, %r12, LAST;
    @%p1 bra done;
"""
# %r14 the thread's word of a row's parts, %rd12 its word of the sums
COMBINE = """
    xor.b32 %r13, %r100, 33;
    mul.lo.u32 %r14, %r10, BLOCKS;
    mad.lo.u32 %r14, %r14, 64, %r13;
    mul.wide.u32 %rd11, %r14, 4;
    add.u64 %rd11, %rd1, %rd11;
    mad.lo.u32 %r17, %r10, 64, %r100;
    mul.wide.u32 %rd12, %r17, 4;
    add.u64 %rd12, %rd3, %rd12;
    mov.f32 %f2, 0f00000000;
    mov.u32 %r15, 0;
    loop:
    ld.global.f32 %f3, [%rd11];
    add.rn.f32 %f2, %f2, %f3;
    add.u64 %rd11, %rd11, 256;
    add.u32 %r15, %r15, 1;
    setp.lt.u32 %p2, %r15, BLOCKS;
    @%p2 bra loop;
    st.global.f32 [%rd12], %f2;
"""
DONE = """
    done:
    ret;
"""
# the last block of a row comes to a second counter, and the last of those takes up every row;
# the fence after the first atomic acquires what that read, and the second one tells it
SECOND = """
    setp.ne.u32 %p0, %r100, 0;
    @%p0 bra known;
    atom.relaxed.gpu.global.inc.u32 %r11, [%rd2+12], LAST_ROW;
    fence.acq_rel.gpu;
    st.shared.u32 [%r104+4], %r11;
    known:
    bar.sync 0;
    ld.shared.u32 %r12, [%r104+4];
    setp.ne.u32 %p1, %r12, LAST_ROW;
    @%p1 bra done;
    mov.u32 %r10, 0;
    row:
"""
NEXT = """
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p2, %r10, ROWS;
    @%p2 bra row;
"""

FENCES = _kernel("fences", WRITE, ARRIVE, FENCED, TELL, COMBINE, DONE)
ACQ_REL = _kernel("acq_rel", WRITE, ARRIVE, ALONE, TELL, COMBINE, DONE)
RESETS = _kernel("reset", WRITE, ARRIVE, RESET, TELL, COMBINE, DONE)
LEVELS = _kernel("two levels", WRITE, ARRIVE, FENCED, TELL, SECOND, COMBINE, NEXT, DONE)
KERNELS = (FENCES, ACQ_REL, RESETS, LEVELS)
