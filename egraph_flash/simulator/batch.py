"""Which warps run together: their registers, special registers, and lanes that are still alive.

A batch is some of a launch's blocks. Its warps are numbered block by block; every per-thread
quantity is an array `[warps, 32]`. `rows` picks warps: a slice where they are all, else indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..codegen.ptx_types import REGISTER_CLASSES
from ..plan import Launch

Array = npt.NDArray[Any]
Rows = slice | Array
LANES = 32


class Batch:
    """State of up to `blocks` blocks; `start` loads the next ones into the same arrays."""

    def __init__(self, launch: Launch, blocks: int, registers: dict[str, int]) -> None:
        self.launch = launch
        self.warps_per_block = -(-launch.threads // LANES)
        self.capacity = blocks * self.warps_per_block
        shape = (self.capacity, LANES)
        self.files = {
            name: np.zeros((count, *shape), REGISTER_CLASSES[name].storage)
            for name, count in registers.items()
        }
        self.block_of_warp = np.repeat(np.arange(blocks), self.warps_per_block)
        self.warp_in_block = np.tile(np.arange(self.warps_per_block), blocks)
        self.thread = self.warp_in_block[:, None] * LANES + np.arange(LANES)
        self.alive = np.zeros(shape, np.bool_)
        self.whole = launch.threads % LANES == 0
        self.block_ids = np.zeros(blocks, np.int64)
        self.warps = 0
        self.specials = self._specials(shape)

    def start(self, block_ids: Array) -> None:
        """Run the blocks of these linear numbers next."""
        self.block_ids[: block_ids.size] = block_ids
        self.warps = block_ids.size * self.warps_per_block
        self.alive[:] = False
        self.alive[: self.warps] = self.thread[: self.warps] < self.launch.threads
        x, y, _ = self.launch.grid
        linear = self.block_ids[self.block_of_warp][:, None]
        for axis, value in zip(
            "xyz", (linear % x, linear // x % y, linear // (x * y)), strict=True
        ):
            self.specials[f"ctaid.{axis}"][:] = value

    @property
    def everyone(self) -> slice:
        return slice(0, self.warps)

    def rows_of(self, chosen: Array) -> Rows:
        """The rows of the warps that are True in `[warps]`."""
        indices = np.flatnonzero(chosen)
        if indices.size and indices[-1] - indices[0] + 1 == indices.size:
            return slice(int(indices[0]), int(indices[-1]) + 1)
        return indices

    def thread_name(self, rows: Rows, lanes: Array) -> str:
        """Where the first True of `lanes` `[rows, 32]` is: block, warp and lane in words."""
        row, lane = np.argwhere(lanes)[0]
        warp = int(np.arange(self.capacity)[rows][row])
        return self.name(warp, int(lane))

    def name(self, warp: int, lane: int | None = None) -> str:
        x, y, _ = self.launch.grid
        linear = int(self.block_ids[self.block_of_warp[warp]])
        block = (linear % x, linear // x % y, linear // (x * y))
        lane_text = "" if lane is None else f", lane {lane}"
        return f"block {block}, warp {int(self.warp_in_block[warp])}{lane_text}"

    def _specials(self, shape: tuple[int, int]) -> dict[str, Array]:
        x, y, _ = self.launch.block
        lane = np.arange(LANES)
        values: dict[str, Any] = {
            "tid.x": self.thread % x,
            "tid.y": self.thread // x % y,
            "tid.z": self.thread // (x * y),
            "laneid": lane,
            "warpid": self.warp_in_block[:, None],
            "nwarpid": self.warps_per_block,
            "lanemask_eq": 1 << lane,
            "lanemask_lt": (1 << lane) - 1,
            "lanemask_le": (2 << lane) - 1,
            "lanemask_gt": 0xFFFFFFFF ^ ((2 << lane) - 1),
            "lanemask_ge": 0xFFFFFFFF ^ ((1 << lane) - 1),
        }
        for axis, ntid, nctaid in zip("xyz", self.launch.block, self.launch.grid, strict=True):
            values |= {f"ntid.{axis}": ntid, f"nctaid.{axis}": nctaid, f"ctaid.{axis}": 0}
        return {
            name: np.broadcast_to(np.asarray(value), shape).astype(np.uint32)
            for name, value in values.items()
        }
