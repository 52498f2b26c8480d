"""What a meaning may ask of the machine that runs it: memory, other lanes, which lanes execute.

A row whose meaning has a parameter of one of these names is given an object of that protocol,
for the warps `[warps, 32]` that execute it. New mechanisms (async groups, mbarriers) are new
names here; a meaning that needs none of them is plain numpy.
"""

from __future__ import annotations

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


class Exchange(Protocol):
    """The other lanes of a warp, for the lanes of a member mask."""

    def take(self, values: Array, lane: Array, wanted: Array) -> Array:
        """Each lane's value from `lane` `[warps, 32]` where `wanted`, else its own."""

    def ballot(self, predicate: Array, mask: Array) -> Array:
        """One word a warp, `[warps, 1]`: bit l is lane l's predicate, for lanes in the mask."""


CONTEXT: dict[str, type] = {"memory": Memory, "exchange": Exchange}
