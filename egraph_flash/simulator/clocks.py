"""What happened before what within a block: vector clocks of warps and of what works beside them.

A warp's clock counts its synchronisations. `known[b, w, v]` is the largest clock of agent v of
block b all of whose accesses come before whatever warp w does now. A lane's own accesses always
come before its later ones; those of other lanes of its warp only across a barrier, so `known` of
a warp about itself is behind its clock. `fenced` is the part of `known` that a fence between the
proxies lies after: only that comes before a bulk copy.

Agents beside the warps (agents.py): a warp's cp.async, whose clock counts its commits; a barrier,
whose clock counts its phases; a warp's voice, the lane that speaks for it where only some of its
lanes arrive; and its steps, which tell how far it has come, but nothing of its memory accesses.
Lanes that wait alone know more than their warp: that is `solo`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .agents import Agents
from .batch import LANES, Array, Batch, Rows
from .solo import Solo

NOBODY, SEVERAL = -1, -2  # whose voice a warp's is


class Vector(NamedTuple):
    """What some threads know, `[n, agents]`."""

    known: Array
    fenced: Array


class Clocks:
    def __init__(self, blocks: int, agents: Agents) -> None:
        self.agents = agents
        self.warps = agents.warps
        self.now = np.ones((blocks, self.warps), np.int64)
        self.known = np.zeros((blocks, self.warps, agents.columns), np.int64)
        self.fenced = np.zeros_like(self.known) if agents.bulk else self.known
        self.own_fence = np.zeros((blocks, self.warps, LANES + 1), np.int64)
        self.voice = np.full((blocks, self.warps), NOBODY)
        self.solo: Solo | None = None
        self.copied: Callable[[], Array] | None = None  # [warps] of the batch; copies.py
        self._floors: Array | None = None

    @property
    def floors(self) -> Array:
        """For each agent, a clock that every warp of every block knows."""
        if self._floors is None:
            self._floors = self.known.min(axis=(0, 1))
            self._floor = int(self._floors[: self.warps].min())
        return self._floors

    @property
    def floor(self) -> int:
        """A clock of every warp that every warp of every block knows."""
        if self._floors is None:
            _ = self.floors
        return self._floor

    def widen(self) -> None:
        """There are more agents."""
        self.known = widened(self.known, self.agents.columns)
        self.fenced = widened(self.fenced, self.agents.columns) if self.agents.bulk else self.known
        if self.solo is not None:
            self.solo.known = widened(self.solo.known, self.agents.columns)
            self.solo.fenced = widened(self.solo.fenced, self.agents.columns)
        self._floors = None

    def knows(self, block: Any, warp: Any, lane: Any, agent: Any, fenced: bool = False) -> Array:
        """What that lane (or, by number 32, every lane) of a warp knows of an agent; broadcast."""
        found: Array = (self.fenced if fenced else self.known)[block, warp, agent]
        if self.solo is None:
            return found
        more = (self.solo.fenced if fenced else self.solo.known)[block, warp, agent]
        return np.where(self.solo.lanes[block, warp, lane], more, found)

    # ---- whole warps ----------------------------------------------------------------------------

    def meet(self, taking_part: Array, before: Vector | None = None) -> None:
        """A block barrier among the warps that are True in `[blocks, warps]`.

        `before` is what those know that came to it without waiting, `[blocks, agents]`.
        """
        if self.solo is not None:
            self.solo.merge(self, taking_part)
        part = taking_part[:, :, None]
        joined = np.where(part, self.known, 0).max(axis=1)
        own = self._own()
        for first, clocks in own.items():
            column = joined[:, first : first + self.warps]
            np.maximum(column, np.where(taking_part, clocks, 0), out=column)
        if before is not None:
            np.maximum(joined, before.known, out=joined)
        self.known = np.where(part, joined[:, None, :], self.known)
        if self.agents.bulk:
            fenced = np.where(part, self.fenced, 0).max(axis=1)
            if before is not None:
                np.maximum(fenced, before.fenced, out=fenced)
            self.fenced = np.where(part, fenced[:, None, :], self.fenced)
        else:
            self.fenced = self.known
        self.now = self.now + taking_part
        self._floors = None

    def meet_in_warp(self, batch: Batch, rows: Rows, whole: Array) -> None:
        """A warp barrier of all living lanes, for those of `rows` that are `whole`."""
        block, warp = batch.block_of_warp[rows][whole], batch.warp_in_block[rows][whole]
        if self.solo is not None:
            chosen = np.zeros(self.now.shape, np.bool_)
            chosen[block, warp] = True
            self.solo.merge(self, chosen)
        for first, clocks in self._own().items():
            self.known[block, warp, first + warp] = clocks[block, warp]
        self.now[block, warp] += 1
        self._floors = None

    def _own(self) -> dict[int, Array]:
        """What whole warps tell of themselves: by first column, clocks `[blocks, warps]`."""
        own = {0: self.now}
        if self.agents.voices:
            own[self.agents.voices] = own[self.agents.steps] = self.now
        if self.copied is not None:
            blocks = len(self.now)
            own[self.agents.copies] = self.copied().reshape(-1, self.warps)[:blocks]
        return own

    # ---- some lanes of warps --------------------------------------------------------------------

    def tell(self, block: Array, warp: Array, lanes: Array, alive: Array) -> Vector:
        """What lanes `[n, 32]` of n warps know now; their later accesses are not part of it."""
        whole = (lanes | ~alive).all(axis=1)
        known, fenced = self.known[block, warp], self.fenced[block, warp]
        if self.solo is not None:
            speaks = (self.solo.lanes[block, warp, :LANES] & lanes).any(axis=1, keepdims=True)
            known = np.where(speaks, self.solo.known[block, warp], known)
            fenced = np.where(speaks, self.solo.fenced[block, warp], fenced)
        each = np.arange(len(warp))
        for first, clocks in self._own().items():
            if first and first in (self.agents.voices, self.agents.steps):
                known[each, first + warp] = clocks[block, warp]
            else:
                held = known[each, first + warp]
                known[each, first + warp] = np.where(whole, clocks[block, warp], held)
        self.now[block, warp] += 1
        return Vector(known, fenced)

    def step(self, block: Array, warp: Array, lanes: Array, alive: Array) -> Array:
        """How far all have come that these lanes know of, and they themselves: `[n, agents]`."""
        known = self.tell(block, warp, lanes, alive).known
        known[:, : self.agents.steps] = 0
        known[:, self.agents.steps + self.warps :] = 0
        return known

    def speak(self, block: Array, warp: Array, lanes: Array, alive: Array) -> None:
        """Remember which lane speaks for a warp, as long as it is always the same."""
        whole = (lanes | ~alive).all(axis=1)
        held = self.voice[block, warp]
        inside = np.take_along_axis(lanes, np.maximum(held, 0)[:, None], axis=1)[:, 0]
        first = lanes.argmax(axis=1)
        kept = np.where(inside, held, SEVERAL)
        spoken = np.where(held == NOBODY, first, np.where(held == SEVERAL, SEVERAL, kept))
        self.voice[block, warp] = np.where(whole, held, spoken)

    def hear(self, block: Array, warp: Array, lanes: Array, alive: Array, told: Vector) -> None:
        """Lanes `[n, 32]` of n warps learn what `told` `[n, agents]` says."""
        whole = (lanes | ~alive).all(axis=1)
        if whole.all():
            self.known[block, warp] = np.maximum(self.known[block, warp], told.known)
            if self.agents.bulk:
                self.fenced[block, warp] = np.maximum(self.fenced[block, warp], told.fenced)
            if self.solo is not None:
                self.solo.add(block, warp, told.known, told.fenced)
            self._floors = None
            return
        for chosen in (whole, ~whole):
            if not chosen.any():
                continue
            part = Vector(told.known[chosen], told.fenced[chosen])
            if chosen is whole:
                self.hear(block[chosen], warp[chosen], lanes[chosen], alive[chosen], part)
            else:
                if self.solo is None:
                    self.solo = Solo(self)
                self.solo.hear(self, block[chosen], warp[chosen], lanes[chosen], *part)

    def fence(self, block: Array, warp: Array, lanes: Array, alive: Array) -> None:
        """What these lanes know, and did, comes before bulk copies after it."""
        if not self.agents.bulk:
            return
        told = self.tell(block, warp, lanes, alive)
        clock = self.now[block, warp] - 1
        held = self.own_fence[block, warp, :LANES]
        self.own_fence[block, warp, :LANES] = np.where(lanes, clock[:, None], held)
        self.hear(block, warp, lanes, alive, Vector(np.zeros_like(told.known), told.known))


def widened(table: Array, columns: int) -> Array:
    """The table with zeros in new last columns."""
    grown = np.zeros((*table.shape[:-1], columns), table.dtype)
    grown[..., : table.shape[-1]] = table
    return grown
