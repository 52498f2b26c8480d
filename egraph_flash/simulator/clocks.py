"""What happened before what within a block: one vector clock a warp, advanced at barriers.

A warp's clock counts its synchronisations. `known[b, w, v]` is the largest clock of warp v of
block b all of whose accesses come before whatever warp w does now. A lane's own accesses always
come before its later ones; those of other lanes of its warp only across a barrier, so `known` of
a warp about itself is one behind its clock. Async copies will be further agents `v`.
"""

from __future__ import annotations

import numpy as np

from .batch import Array, Batch, Rows


class Clocks:
    def __init__(self, blocks: int, warps_per_block: int) -> None:
        self.now = np.ones((blocks, warps_per_block), np.int64)
        self.known = np.zeros((blocks, warps_per_block, warps_per_block), np.int64)
        self._floor: int | None = 0

    def reset(self) -> None:
        self.now[:] = 1
        self.known[:] = 0
        self._floor = 0

    @property
    def floor(self) -> int:
        """A clock that every warp of every block knows of every other."""
        if self._floor is None:
            self._floor = int(self.known.min())
        return self._floor

    def meet(self, taking_part: Array) -> None:
        """A block barrier among the warps that are True in `[blocks, warps]`."""
        part = taking_part[:, :, None]
        joined = np.where(part, self.known, 0).max(axis=1)
        joined = np.where(taking_part, np.maximum(joined, self.now), joined)
        self.known = np.where(part, joined[:, None, :], self.known)
        self.now = self.now + taking_part
        self._floor = None

    def meet_in_warp(self, batch: Batch, rows: Rows, whole: Array) -> None:
        """A warp barrier of all living lanes, for those of `rows` that are `whole`."""
        block, warp = batch.block_of_warp[rows][whole], batch.warp_in_block[rows][whole]
        self.known[block, warp, warp] = self.now[block, warp]
        self.now[block, warp] += 1
        self._floor = None
