"""Which bytes a strided array's elements take, between the first element and the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .dtypes import Array

MOST_RUNS = 1 << 22  # of arrays whose dimensions interleave: each run is listed


@dataclass(frozen=True, eq=False)
class Footprint:
    """Runs of `run_bytes` bytes that all belong to elements, repeated by `dims`.

    `dims` are (count, step in bytes), the largest step first, and each step is larger than all
    that repeats inside of it; `listed` has the beginnings and ends of runs where no such order
    exists. Offsets are bytes from the first element. `size_bytes` reaches to the end of the last
    one, `used_bytes` counts those of elements, once each; `element_bytes` with repeats.
    """

    size_bytes: int
    used_bytes: int
    element_bytes: int
    run_bytes: int
    dims: tuple[tuple[int, int], ...] = ()
    listed: tuple[Array, Array] | None = None

    @staticmethod
    def of(shape: Sequence[int], strides_bytes: Sequence[int], item_bytes: int) -> Footprint:
        """The footprint of an array whose strides are 0 or more.

        Raises ValueError where dimensions interleave in more than `MOST_RUNS` runs.
        """
        assert min(strides_bytes, default=0) >= 0, f"got strides {tuple(strides_bytes)}"
        if 0 in shape:
            return Footprint(0, 0, 0, 0)
        total = item_bytes * _product(shape)
        pairs = zip(strides_bytes, shape, strict=True)
        steps = sorted((step, count) for step, count in pairs if count > 1 and step > 0)
        run, place = item_bytes, 0
        while place < len(steps) and steps[place][0] <= run:  # these leave no gap
            step, count = steps[place]
            run += step * (count - 1)
            place += 1
        size = run + sum(step * (count - 1) for step, count in steps[place:])
        dims: list[tuple[int, int]] = []
        inside = run
        for step, count in steps[place:]:
            if dims and step == dims[-1][0] * dims[-1][1]:
                dims[-1] = (dims[-1][0] * count, dims[-1][1])
            elif step > inside:
                dims.append((count, step))
            else:
                return _listed(size, total, run, steps[place:])
            inside += step * (count - 1)
        used = run * _product([count for count, _ in dims])
        return Footprint(size, used, total, run, tuple(reversed(dims)))

    @property
    def is_dense(self) -> bool:
        """Whether every byte from the first element to the last is an element's."""
        return self.size_bytes == self.used_bytes

    @property
    def overlaps_itself(self) -> bool:
        """Whether two elements share a byte."""
        return self.used_bytes != self.element_bytes

    def holds(self, offsets: Array, size_bytes: int) -> Array:
        """Whether all of `size_bytes` bytes at each offset (int64) belong to elements."""
        if self.listed is not None:
            begins, ends = self.listed
            place = np.searchsorted(begins, offsets, "right") - 1
            held: Array = (place >= 0) & (offsets + size_bytes <= ends[place])
            return held
        rest = offsets
        for count, step in self.dims:
            rest = rest - np.minimum(rest // step, count - 1) * step
        inside: Array = (offsets >= 0) & (rest + size_bytes <= self.run_bytes)
        return inside


def _listed(size: int, total: int, run: int, steps: Sequence[tuple[int, int]]) -> Footprint:
    """The footprint of runs at every sum of steps, found by listing them."""
    runs = _product([count for _, count in steps])
    if runs > MOST_RUNS:
        raise ValueError(
            f"got {runs} pieces of {run} bytes that interleave, wants at most {MOST_RUNS}, or "
            "strides each of which steps over all that lies inside of it"
        )
    starts = np.zeros(1, np.int64)
    for step, count in steps:
        starts = (starts[:, None] + step * np.arange(count)).reshape(-1)
    starts = np.unique(starts)
    first = np.ones(len(starts), np.bool_)
    first[1:] = starts[1:] > starts[:-1] + run
    last = np.append(first[1:], True)
    begins, ends = starts[first], starts[last] + run
    return Footprint(size, int((ends - begins).sum()), total, run, listed=(begins, ends))


def _product(counts: Sequence[int]) -> int:
    total = 1
    for count in counts:
        total *= count
    return total
