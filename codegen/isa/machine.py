"""What a meaning may ask of the machine that runs it: memory, lanes, copies, atomics, barriers.

A row whose meaning has a parameter of one of these names is given an object of that protocol,
for the warps `[warps, 32]` that execute it. A meaning that needs none of them is plain numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Memory(Protocol):
    """The state space that the row's address operand names."""

    def load(self, address: Array, element: np.dtype[Any], count: int) -> Array:
        """`count` elements at each lane's address: `[warps, 32, count]`, or without it if 1."""

    def store(self, address: Array, values: Array, count: int) -> None:
        """Each lane writes its `count` elements: values are `[warps, 32(, count)]`."""

    def load_rows(self, address: Array) -> Array:
        """16 bytes at the addresses of the first lanes `[warps, rows]`: `[warps, rows, 8]` b16."""

    def store_rows(self, address: Array, rows: Array) -> None:
        """16 bytes `[warps, rows, 8]` b16 go to the addresses of the first lanes."""


class Exchange(Protocol):
    """The other lanes of a warp, for the lanes of a member mask."""

    def take(self, values: Array, lane: Array, wanted: Array) -> Array:
        """Each lane's value from `lane` `[warps, 32]` where `wanted`, else its own."""

    def ballot(self, predicate: Array, mask: Array) -> Array:
        """One word a warp, `[warps, 1]`: bit l is lane l's predicate, for lanes in the mask."""


class Copies(Protocol):
    """Copies from global to shared memory that a thread starts and later waits for."""

    def copy(self, to: Array, source: Array, given_bytes: Array | None) -> None:
        """Start to copy the row's `access_bytes`; those past `given_bytes` are zeros."""

    def commit(self) -> None:
        """The copies that this thread started since its last commit are one group."""

    def wait(self, groups: Array) -> None:
        """All groups of this thread but the latest `groups` are complete."""

    def wait_all(self) -> None:
        """All copies of this thread are complete."""


class Atomics(Protocol):
    """Words of global memory that threads of all blocks change one after another."""

    def update(
        self, address: Array, change: Callable[[Array, Array], Array], given: Array, acq_rel: bool
    ) -> Array:
        """Each lane's word becomes `change` of it and of what is given; the words before that."""

    def fence(self) -> None:
        """What this thread's atomics before it read, and what those after it tell, is ordered."""


class Mbarriers(Protocol):
    """Barriers in shared memory: phases of arrivals and of bytes that copies bring."""

    def init(self, address: Array, count: Array) -> None:
        """A new barrier whose phases want so many arrivals."""

    def inval(self, address: Array) -> None:
        """The barrier is no more."""

    def arrive(self, address: Array, count: Array | int, expected_bytes: Array | int) -> None:
        """The phase expects so many more bytes, then has so many more arrivals."""

    def arrive_after_copies(self, address: Array) -> None:
        """An arrival once the copies that this thread has started are complete."""

    def expect(self, address: Array, expected_bytes: Array) -> None:
        """The phase expects so many more bytes."""

    def passed(self, address: Array, parity: Array) -> Array:
        """Whether the phase of that parity is complete; a lane that waits is given True later."""

    def fence_init(self) -> None:
        """Barriers that this thread initialised are seen by the copies' proxy."""

    def fence_proxy(self) -> None:
        """Accesses of shared memory before this come before those of the copies' proxy after."""


class Tensors(Protocol):
    """Boxes of global arrays that a tensor map, a parameter of the kernel, describes."""

    def generic(self, address: Array) -> Array:
        """An address in parameter space as a generic one."""

    def load(self, to: Array, map: Array, at: Array, barrier: Array) -> None:
        """Start to copy the box at `at` `[warps, 32, rank]` in elements, dimension 0 first."""

    def prefetch(self, map: Array) -> None:
        """The map will be used."""


CONTEXT: dict[str, type] = {
    "memory": Memory,
    "exchange": Exchange,
    "copies": Copies,
    "atomics": Atomics,
    "mbarriers": Mbarriers,
    "tensors": Tensors,
}
