"""What the lanes of a warp tell each other: shfl, vote and elect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .machine import Array, Exchange
from .row import instr

SHFL = "PTX ISA, Data Movement and Conversion: shfl.sync"
VOTE = "PTX ISA, Parallel Synchronization: vote.sync"
LANE = np.arange(32, dtype=np.int64)


def source_lane(mode: str, b: Array, c: Array) -> tuple[Array, Array]:
    """The lane that each lane reads in `shfl.mode`, and whether it lies inside the segment."""
    offset = np.asarray(b).astype(np.int64) & 0x1F
    clamp = np.asarray(c).astype(np.int64) & 0x1F
    segment = (np.asarray(c).astype(np.int64) >> 8) & 0x1F
    high = (LANE & segment) | (clamp & ~segment)
    low = LANE & segment
    if mode == "up":
        lane = LANE - offset
        return lane, lane >= high
    lane = {
        "down": LANE + offset,
        "bfly": LANE ^ offset,
        "idx": low | (offset & ~segment),
    }[mode]
    return lane, lane <= high


def _shfl(mode: str) -> None:
    def meaning(a: Array, b: Array, c: Array, mask: Array, exchange: Exchange) -> Array:
        """d = a of another lane, or the own a where that lies outside the segment."""
        lane, inside = source_lane(mode, b, c)
        return exchange.take(a, lane, inside)

    def with_predicate(
        a: Array, b: Array, c: Array, mask: Array, exchange: Exchange
    ) -> tuple[Array, Array]:
        """The same, and p = whether the source lay inside the segment."""
        lane, inside = source_lane(mode, b, c)
        return exchange.take(a, lane, inside), inside

    name = f"shfl_sync_{mode}_b32"
    text = f"shfl.sync.{mode}.b32"
    instr(
        f"{text} $d, $a, $b, $c, $mask;",
        name=name,
        d="b32",
        a="b32",
        b="u32",
        c="u32",
        mask="u32",
        counter="warp",
        source=SHFL,
    )(meaning)
    instr(
        f"{text} $d|$p, $a, $b, $c, $mask;",
        name=name + "_pred",
        d="b32",
        p="pred",
        a="b32",
        b="u32",
        c="u32",
        mask="u32",
        counter="warp",
        source=SHFL,
    )(with_predicate)


for _mode in ("bfly", "idx", "up", "down"):
    _shfl(_mode)


def _vote(text: str, meaning: Callable[..., Array]) -> None:
    d = "b32" if text.startswith("ballot") else "pred"
    instr(
        f"vote.sync.{text} $d, $a, $mask;", d=d, a="pred", mask="u32", counter="warp", source=VOTE
    )(meaning)


def _any(a: Array, mask: Array, exchange: Exchange) -> Array:
    """d = whether some lane of the mask has a."""
    return np.not_equal(exchange.ballot(a, mask), 0)


def _all(a: Array, mask: Array, exchange: Exchange) -> Array:
    """d = whether every lane of the mask has a."""
    return np.equal(exchange.ballot(~a, mask), 0)


def _ballot(a: Array, mask: Array, exchange: Exchange) -> Array:
    """Bit l of d is lane l's a, zero outside the mask."""
    return exchange.ballot(a, mask)


_vote("any.pred", _any)
_vote("all.pred", _all)
_vote("ballot.b32", _ballot)


def _elected(mask: Array, exchange: Exchange) -> tuple[Array, Array]:
    """d = the lowest lane of the mask, p = whether this lane is it."""
    present = exchange.ballot(np.ones((1, 32), np.bool_), mask).astype(np.int64)
    lowest = present & -present
    leader = np.log2(np.maximum(lowest, 1)).astype(np.uint32)
    return np.broadcast_to(leader, (*leader.shape[:-1], 32)), leader == LANE


def _leader(mask: Array, exchange: Exchange) -> Array:
    """p = whether this lane is the lowest of the mask."""
    return _elected(mask, exchange)[1]


ELECT = "PTX ISA, Parallel Synchronization: elect.sync (which lane: as an H200 chooses)"
instr(
    "elect.sync $d|$p, $mask;",
    name="elect_sync",
    d="u32",
    p="pred",
    mask="u32",
    counter="warp",
    sm=90,
    source=ELECT,
)(_elected)
instr(
    "elect.sync _|$p, $mask;",
    name="elect_sync_pred",
    p="pred",
    mask="u32",
    counter="warp",
    sm=90,
    source=ELECT,
)(_leader)
