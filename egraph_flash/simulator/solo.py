"""What single lanes know that their warp does not: those that waited at a barrier alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .batch import LANES, Array

if TYPE_CHECKING:
    from .clocks import Clocks


class Solo:
    """For each warp one set of lanes, and what they all know, until the warp meets again.

    Where another set of lanes waits alone, what the first one learnt is forgotten: that may object
    to a program that is right, never accept one that is wrong.
    """

    def __init__(self, clocks: Clocks) -> None:
        self.lanes = np.zeros((*clocks.now.shape, LANES + 1), np.bool_)  # the last: every lane
        self.known = clocks.known.copy()
        self.fenced = clocks.fenced.copy()

    def add(self, block: Array, warp: Array, known: Array, fenced: Array) -> None:
        """The whole warps learn something."""
        self.known[block, warp] = np.maximum(self.known[block, warp], known)
        self.fenced[block, warp] = np.maximum(self.fenced[block, warp], fenced)

    def hear(
        self, clocks: Clocks, block: Array, warp: Array, lanes: Array, known: Array, fenced: Array
    ) -> None:
        """Some lanes `[n, 32]` of n warps learn something."""
        held = self.lanes[block, warp, :LANES]
        inside = (held | ~lanes).all(axis=1, keepdims=True)
        before = np.where(inside, self.known[block, warp], clocks.known[block, warp])
        self.known[block, warp] = np.maximum(before, known)
        before = np.where(inside, self.fenced[block, warp], clocks.fenced[block, warp])
        self.fenced[block, warp] = np.maximum(before, fenced)
        self.lanes[block, warp, :LANES] = lanes

    def merge(self, clocks: Clocks, chosen: Array) -> None:
        """The warps that are True in `[blocks, warps]` meet: all their lanes know all of it."""
        told = chosen & self.lanes.any(axis=2)
        if told.any():
            part = told[:, :, None]
            clocks.known = np.where(part, np.maximum(clocks.known, self.known), clocks.known)
            if clocks.agents.bulk:
                more = np.maximum(clocks.fenced, self.fenced)
                clocks.fenced = np.where(part, more, clocks.fenced)
            self.lanes[told] = False
