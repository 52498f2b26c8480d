"""How lanes of a warp see each other's values: the machine's side of shfl and vote."""

from __future__ import annotations

from typing import Any

import numpy as np

from .batch import LANES, Array, Batch, Rows
from .where import Where, objection

LANE_BIT = np.uint32(1) << np.arange(LANES, dtype=np.uint32)


def lanes_of(mask: Any) -> Array:
    """Member masks `[…]` or `[…, 32]` (one a lane) → the lanes they name, `[…, 32]`."""
    lanes: Array = np.not_equal(np.asarray(mask) & LANE_BIT, 0)
    return lanes


class WarpExchange:
    """One instruction's exchange; `rows` and `active` are set before each use."""

    def __init__(self, batch: Batch, where: Where) -> None:
        self.batch = batch
        self.where = where
        self.rows: Rows = batch.everyone
        self.active: Array | None = None

    def take(self, values: Any, lane: Array, wanted: Array) -> Array:
        warps = len(self.batch.alive[self.rows])
        values = np.broadcast_to(values, (warps, LANES))
        source = np.where(wanted, lane, np.arange(LANES)) & (LANES - 1)
        if self.active is not None:
            self._check(source)
        if source.ndim == 1:
            taken: Array = values[:, source]
            return taken
        return np.take_along_axis(values, np.broadcast_to(source, values.shape), axis=1)

    def ballot(self, predicate: Array, mask: Any) -> Array:
        votes = predicate & lanes_of(mask)
        if self.active is not None:
            votes = votes & self.active
        return np.bitwise_or.reduce(np.where(votes, LANE_BIT, np.uint32(0)), axis=1, keepdims=True)

    def _check(self, source: Array) -> None:
        """Every active lane reads a lane that is active too."""
        active = self.active
        assert active is not None
        source = np.broadcast_to(source, active.shape)
        wrong = active & ~np.take_along_axis(active, source, axis=1)
        if wrong.any():
            row, lane = np.argwhere(wrong)[0]
            raise objection(
                self.where,
                f"shuffle from lane {int(source[row, lane])}, which does not take part",
                self.batch.thread_name(self.rows, wrong),
            )


def check_members(batch: Batch, where: Where, rows: Rows, active: Array | None, mask: Any) -> None:
    """A `.sync` instruction needs its own lanes in the mask, and all of the mask's that live."""
    if active is None and not isinstance(mask, np.ndarray) and int(mask) == 0xFFFFFFFF:
        return
    alive = batch.alive[rows]
    running = np.ones_like(alive) if active is None else active
    members = lanes_of(np.broadcast_to(mask, alive.shape))  # of lane l's mask, bit l only
    outside = running & ~members
    if outside.any():
        raise objection(
            where, "divergent collective: a lane executes it outside its member mask",
            batch.thread_name(rows, outside),
        )  # fmt: skip
    masks = np.where(running, np.broadcast_to(mask, alive.shape), 0).max(axis=1).astype(np.uint32)
    missing = lanes_of(masks[:, None]) & alive & ~running & running.any(axis=1, keepdims=True)
    if missing.any():
        raise objection(
            where, "divergent collective: a lane of the member mask is elsewhere",
            batch.thread_name(rows, missing),
        )  # fmt: skip


def check_whole_warps(
    batch: Batch, where: Where, rows: Rows, active: Array | None, every_lane: bool
) -> None:
    """An `.aligned` instruction needs all lanes of its warps: those that live, or all 32."""
    if active is None:
        return
    wanted = np.ones_like(active) if every_lane else batch.alive[rows]
    missing = wanted & ~active & active.any(axis=1, keepdims=True)
    if missing.any():
        raise objection(
            where, "divergent collective: a lane of the warp does not reach it",
            batch.thread_name(rows, missing),
        )  # fmt: skip
