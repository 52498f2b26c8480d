"""How evenly blocks of different weight spread over the SMs, in the order in which they start."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache

MOST_BLOCKS = 1 << 14  # above it blocks spread evenly enough, whatever their order


def in_order(tiles: Sequence[int], order: str, others: int, *, heavy_last: bool) -> list[int]:
    """The weights of all blocks as they start: `tiles` are those of the row tiles, which each of
    `others` column tiles and batches has.

    >>> in_order([1, 2, 3], "heavy", 2, heavy_last=True)
    [3, 3, 2, 2, 1, 1]
    >>> in_order([1, 2, 3], "pair", 1, heavy_last=True)
    [4, 2]
    """
    count = len(tiles)
    if order == "rows":
        return list(tiles) * others
    if order == "pair":
        pairs = [tiles[i] + tiles[count - 1 - i] for i in range(count // 2)]
        return (pairs + list(tiles[count // 2 : -(-count // 2)])) * others
    ranked = reversed(tiles) if heavy_last else tiles
    blocks = [weight for weight in ranked for _ in range(others)]
    half = -(-len(blocks) // 2)
    return blocks if order == "heavy" else blocks[:half] + blocks[half:][::-1]


@lru_cache(maxsize=4096)
def busiest_share(weights: tuple[int, ...], sms: int, resident: int) -> float:
    """The part of all work that the busiest SM does: blocks go to the SMs in turn while these have
    room, then to whichever has done most of what it was given."""
    total = sum(weights)
    if not total:
        return 1.0
    first = sms * resident
    loads = [sum(weights[sm:first:sms]) for sm in range(min(sms, len(weights)))]
    if len(weights) > first:
        heapq.heapify(loads)
        for weight in weights[first:]:
            heapq.heappush(loads, heapq.heappop(loads) + weight)
    return max(loads) / total
