"""How blocks of a grid take turns at a word of global memory: atom, and the fence beside it.

A thread's `atom.relaxed` after its own `fence.acq_rel` releases what came before the fence; a fence
after it acquires what those before it in the word's order released. `atom.acq_rel` does both alone.
`inc` counts round: where it wraps at the number of those who come, less one, the last one is given
that number and leaves the word as the first one found it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .machine import Array, Atomics
from .row import instr

SYNCHRONIZATION = "PTX ISA, Parallel Synchronization: "
MODEL = "; Memory Consistency Model: Release and Acquire Patterns"


def _add(held: Array, b: Array) -> Array:
    return held + b


def _inc(held: Array, b: Array) -> Array:
    return np.where(held >= b, np.zeros_like(held), held + np.uint32(1))


def _atom(operation: str, change: Callable[[Array, Array], Array], order: str) -> None:
    def meaning(atomics: Atomics, a: Array, b: Array) -> Array:
        """d = the word at address a, which becomes d + b (add), or d < b ? d + 1 : 0 (inc).

        Threads take their turns in any order, each of which finds what the one before it left.
        """
        return atomics.update(a, change, b, order == "acq_rel")

    instr(
        f"atom.{order}.gpu.global.{operation}.u32 $d, [$a], $b;",
        name=f"atom_{operation}_{order}",
        d="u32",
        a="address global",
        b="u32",
        counter="atomic",
        access_bytes=4,
        source=f"{SYNCHRONIZATION}atom (.{order}, .gpu, .{operation}){MODEL}",
    )(meaning)


for _order in ("relaxed", "acq_rel"):
    _atom("add", _add, _order)
    _atom("inc", _inc, _order)


@instr(
    "fence.acq_rel.gpu;",
    name="fence_acq_rel_gpu",
    counter="fence",
    source=f"{SYNCHRONIZATION}membar/fence (fence.acq_rel){MODEL}",
)
def _fence(atomics: Atomics) -> None:
    """Atomics of this thread before it acquire, and those after it release."""
    atomics.fence()
