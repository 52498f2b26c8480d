"""What a small kernel with asynchronous data is, its result, and the parts that all of them share.

All compute the same: thread t of a block adds up, over the rounds r, (r + 1) times the word of
thread t ^ 33 of tile r, so that every word is read by another warp than the one that copied it and
a tile that comes too early or too late shows. 64 threads add; a tile is 64 words.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from egraph_flash import runtime
from egraph_flash.plan import Launch
from egraph_flash.simulator import Counters, run
from egraph_flash.tensor_map import TensorMap
from tests.support.deletions import without_each
from tests.support.small_kernels import kernel_text, launch_of

Array = np.ndarray
WORDS, GRID = 64, 3
SLOT_BYTES = 1024  # a tile's 256, and what the alignment of a swizzle wants


@dataclass(frozen=True)
class AsyncKernel:
    """A body, what it runs over, and how; `x` holds the tiles, `y` gets the sums."""

    name: str
    body: str
    rounds: int
    block: int = WORDS
    shared_bytes: int = 8192
    maps: tuple[TensorMap, ...] = ()

    def text(self, target: str = "sm_120") -> str:
        names = tuple(f"map{place}" for place, _ in enumerate(self.maps))
        return kernel_text(self.body, ("x", "y"), target, names)

    def launch(self, buffers: Mapping[str, Array]) -> Launch:
        return launch_of(buffers, self.block, GRID, self.shared_bytes, self.maps)

    def buffers(self, seed: int = 1) -> dict[str, Array]:
        x = np.random.default_rng(seed).integers(0, 1000, (GRID, self.rounds, WORDS))
        return {"x": x.astype(np.uint32), "y": np.zeros((GRID, WORDS), np.uint32)}

    def wanted(self, buffers: Mapping[str, Array]) -> Array:
        weights = np.arange(1, self.rounds + 1, dtype=np.uint32)[:, None]
        swapped = buffers["x"][:, :, np.arange(WORDS) ^ 33]
        total: Array = (swapped * weights).sum(axis=1, dtype=np.uint32)
        return total

    def simulate(self, seed: int = 0, **options: object) -> tuple[Array, Array, Counters]:
        """What the simulator gives, what it should, and what it counted."""
        buffers = self.buffers()
        counters = run(
            self.text(), [self.launch(buffers)], buffers, seed=seed, uninitialised=["y"],
            complete=["y"], **options,  # type: ignore[arg-type]
        )  # fmt: skip
        return buffers["y"], self.wanted(buffers), counters

    def on_gpu(self) -> tuple[Array, Array]:
        target = runtime.present_target()
        assert target is not None, "a test that asks for the GPU has the marker gpu"
        buffers = self.buffers()
        runtime.run(self.text(target), [self.launch(buffers)], buffers, target=target)
        return buffers["y"], self.wanted(buffers)

    def deletions(self) -> Iterator[tuple[str, AsyncKernel]]:
        """The kernel without each of its synchronisations."""
        for what, body in without_each(self.body):
            yield what, replace(self, body=body)

    def changed(self, old: str, new: str, count: int = -1) -> AsyncKernel:
        assert old in self.body, f"{self.name} has no {old!r}"
        return replace(self, body=self.body.replace(old, new, count))


def kernel_of(name: str, body: str, rounds: int, **options: object) -> AsyncKernel:
    return AsyncKernel(name, textwrap.dedent(body), rounds, **options)  # type: ignore[arg-type]


# %r10 the round, %r11 the sum, %rd10 this thread's word of the next tile to copy,
# %r12 this thread's place in a tile, %r13 the place that it reads
SETUP = f"""
    mov.u32 %r10, 0;
    mov.u32 %r11, 0;
    mad.lo.u32 %r12, %r100, 4, %r104;
    and.b32 %r13, %r100, 63;
    xor.b32 %r13, %r13, 33;
    mad.lo.u32 %r13, %r13, 4, %r104;
    and.b32 %r14, %r100, 63;
    mul.lo.u32 %r15, %r101, ROUNDS;
    mad.lo.u32 %r15, %r15, {WORDS}, %r14;
    mul.wide.u32 %rd10, %r15, 4;
    add.u64 %rd10, %rd0, %rd10;
"""
ADD = """
    add.u32 %r20, %r10, 1;
    mad.lo.u32 %r11, %r21, %r20, %r11;
"""
AGAIN = """
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p0, %r10, ROUNDS;
    @%p0 bra loop;
"""
FINISH = f"""
    mad.lo.u32 %r22, %r101, {WORDS}, %r14;
    mul.wide.u32 %rd20, %r22, 4;
    add.u64 %rd20, %rd1, %rd20;
    st.global.u32 [%rd20], %r11;
    ret;
"""


def body_of(*parts: str, **values: object) -> str:
    """The parts in order; capital words stand for values."""
    text = "".join(textwrap.dedent(part) for part in parts)
    for name, value in values.items():
        text = re.sub(rf"\b{name.upper()}\b", str(value), text)
    return text
