"""How evenly blocks of different weight spread over the SMs, in the order in which they start."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache

MOST_BLOCKS = 1 << 11  # above it blocks spread evenly enough, whatever their order


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
def busiest_share(weights: tuple[int, ...], sms: int, rates: tuple[float, ...]) -> float:
    """How long the busiest SM is at work, as a part of the time that one SM would take for all.

    Blocks go to the SMs in turn while these have room for as many as there are `rates`, then to
    whichever has done most of what it was given. `rates[k - 1]` is how fast an SM works with k
    blocks on it, relative to a full one: those that are left when others have finished have it to
    themselves, and may not fill it.
    """
    total = sum(weights)
    if not total:
        return 1.0
    first = sms * len(rates)
    held = [list(weights[sm:first:sms]) for sm in range(min(sms, len(weights)))]
    queue = [(sum(own), sm) for sm, own in enumerate(held)]
    heapq.heapify(queue)
    for weight in weights[first:]:
        load, sm = heapq.heappop(queue)
        held[sm].append(weight)
        heapq.heappush(queue, (load + weight, sm))
    return max(_busy(own, rates) for own in held) / total


def _busy(own: list[int], rates: tuple[float, ...]) -> float:
    """How long an SM works on its blocks, whose weights are in the order of their start."""
    busy = float(sum(own[: -len(rates)]))
    done = 0
    last = sorted(own[-len(rates) :])
    for place, weight in enumerate(last):
        left = len(last) - place
        busy += (weight - done) * left / rates[left - 1]
        done = weight
    return busy
