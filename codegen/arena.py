"""What of a stage lies where in shared memory: slots, what is kept, hand-over, barriers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..axes import Axis
from ..choices import Choices, Staging
from ..dtypes import DTYPES
from ..errors import ScheduleError
from ..knobs import Tile
from ..layouts import alignment_of
from ..roles import Contraction
from ..shapes import shape_of, tiles_of
from ..stages import Stage
from .affine import linear
from .atoms import Atom, atom
from .frames import row_offsets
from .lanes import LaneMap
from .slabs import SlabLayout, slab_layout

BARRIER_BYTES = 8
LANES_BYTES = 32 * 4  # a word of each lane
SCAN_BYTES = 32 * 4 * 4  # four words of each of 32 warps


@dataclass(frozen=True)
class Placed:
    """An operand in shared memory: `along` is the axis of its rows, `across` the other one.

    `offset_bytes` counts from the start of its slot, or of shared memory where it has none.
    """

    load: Any
    layout: SlabLayout
    across: Axis
    along: Axis
    offset_bytes: int
    lanes: LaneMap | None = None  # of a tile of the body, whose places lanes hold as an atom's do

    @property
    def name(self) -> str:
        return str(self.load.args[0].args[0])

    @property
    def run_bytes(self) -> int:
        """How many bytes of a row lie together, aligned to their number: 16 at most."""
        form, size = linear(self.load), DTYPES[self.load.args[0].args[1]].size_bytes
        cuts = [scale for axis, scale in form.axes if axis is not self.along]
        cuts += [form.constant, *(scale for _, scale in form.terms)]
        if self.along.extent.head == "Symbol":
            cuts.append(1)
        elif self.along.size % (self.layout.row_bytes // size):
            cuts.append(self.along.size)
        return math.gcd(alignment_of(self.load.args[0]) // size, *cuts) * size


@dataclass(frozen=True)
class RingPlan:
    """The slots of operands that come together. `lead` are those of the block before the first
    group's, which operands that run ahead need once; they lie outside of the slots."""

    staging: Staging
    slabs: tuple[Placed, ...]
    lead: tuple[Placed, ...]
    offset_bytes: int
    slot_bytes: int
    full: int  # where the barriers of full slots begin, and those of empty ones
    empty: int


@dataclass(frozen=True)
class Arena:
    """Shared memory of one block of a kernel. `copies` is how many of its rings there are."""

    rings: tuple[RingPlan, ...]
    kept: tuple[Placed, ...]
    handoff: SlabLayout | None
    handoff_offset: int
    once: int  # where the barrier of what is fetched once lies
    barriers: int  # where barriers begin
    size_bytes: int
    scan: int  # where a block's warps leave words for each other while they scan data
    exchange: int = 0  # where warps along the fold publish their states
    private_bytes: int = 0  # distance of a warp's own rings, where each warp has its own

    def ring_of(self, load: Any) -> RingPlan | None:
        return next((r for r in self.rings if any(p.load is load for p in r.slabs)), None)


Streamed = tuple[Contraction | None, Staging]  # None: a tile of the body


def arena(stage: Stage, inner: Tile, outer: Tile, choices: Choices) -> Arena:
    """The arena of a stage with these tiles, whatever the form of the algebra.

    Raises ScheduleError for what no slab can hold.
    """
    return _arena(stage, inner, outer, choices.movement)


@lru_cache(maxsize=8192)
def _arena(stage: Stage, inner: Tile, outer: Tile, movement: Choices) -> Arena:
    return _Planner(stage, inner, outer, movement).plan()


class _Planner:
    def __init__(self, stage: Stage, inner: Tile, outer: Tile, choices: Choices) -> None:
        self.stage, self.choices = stage, choices
        self.inner, self.outer = inner, outer
        self.kind = atom(inner.atom)
        self.sums, self.roles = shape_of(stage), stage.roles
        self.block = inner.column_atoms * inner.column_warps * self.kind.columns
        self.end = 0

    def take(self, size_bytes: int, align_bytes: int) -> int:
        start = -(-self.end // align_bytes) * align_bytes
        self.end = start + size_bytes
        return start

    def plan(self) -> Arena:
        streamed, kept = self.operands()
        kept_slabs = tuple(self.kept(load, found) for load, found in kept.items())
        fixed = self.end
        rings = [
            self.ring(staging, [load for load, s in streamed.items() if s[1] == staging], streamed)
            for staging in dict.fromkeys(s[1] for s in streamed.values())
        ]
        private = 0
        if self.choices.roles == "each":
            private = -(-(self.end - fixed) // 1024) * 1024
            warps = max(self.inner.warps, self.outer.warps)
            self.end = fixed + private * warps
        handoff, handoff_offset = None, 0
        if self.hands_over() and self.choices.handoff != "repack":
            rows = self.kind.rows * self.inner.row_atoms * self.inner.row_warps
            handoff = slab_layout(self.choices.slab, rows, self.block * 2)
            handoff_offset = self.take(handoff.size_bytes, handoff.align_bytes)
        barriers = self.take(0, BARRIER_BYTES)
        once = self.take(BARRIER_BYTES, BARRIER_BYTES) if self.boxed(rings, kept_slabs) else 0
        rings = [self.with_barriers(ring) for ring in rings]
        scan = self.take(SCAN_BYTES, 16) if self.choices.skip == "data" else 0
        exchange = self.exchange()
        return Arena(
            tuple(rings),
            kept_slabs,
            handoff,
            handoff_offset,
            once,
            barriers,
            self.end,
            scan,
            exchange,
            private,
        )

    def exchange(self) -> int:
        """Where warps along the fold publish their states, if there are any."""
        tile = self.outer if self.stage.columns is not None else self.inner
        if self.roles.fold is None or tile.column_warps == 1:
            return 0
        rows = tile.row_atoms * len(row_offsets(self.kind.c))
        words = len(self.stage.read.channels) * rows * tile.warps
        return self.take(words * LANES_BYTES, LANES_BYTES)

    def boxed(self, rings: list[RingPlan], kept: tuple[Placed, ...]) -> bool:
        """Whether something is fetched once by tensor copies."""
        by_tma = [ring for ring in rings if ring.staging.transport == "tma"]
        return bool(by_tma) and bool(kept or any(ring.lead for ring in by_tma))

    def with_barriers(self, ring: RingPlan) -> RingPlan:
        if ring.staging.transport != "tma":
            return ring
        copies = max(self.inner.warps, self.outer.warps) if self.choices.roles == "each" else 1
        size = ring.staging.depth * BARRIER_BYTES * copies
        full, empty = self.take(size, BARRIER_BYTES), self.take(size, BARRIER_BYTES)
        return RingPlan(
            ring.staging, ring.slabs, ring.lead, ring.offset_bytes, ring.slot_bytes, full, empty
        )

    # ---- operands --------------------------------------------------------------------------------

    def operands(self) -> tuple[dict[Any, Streamed], dict[Any, Contraction]]:
        """What is staged slot by slot, and the operands that are kept."""
        streamed: dict[Any, Streamed] = {}
        kept: dict[Any, Contraction] = {}
        for found in self.sums.contractions:
            for side in (found.left, found.right):
                if side.head != "Load":
                    continue
                staging = self.choices.staging(str(side.args[0].args[0]))
                if self.roles.fold in side.axes:
                    if staging.depth:
                        streamed.setdefault(side, (found, staging))
                elif self.choices.hoist == "shared":
                    kept.setdefault(side, found)
        for load in tiles_of(self.stage):
            staging = self.choices.staging(str(load.args[0].args[0]))
            if staging.depth:
                streamed[load] = (None, staging)
        return streamed, kept

    def hands_over(self) -> bool:
        return self.sums.hands_over and self.kind.on_tensor_cores

    def kept(self, load: Any, found: Contraction) -> Placed:
        placed = self.placed(load, found, self.block)
        start = self.take(placed.layout.size_bytes, placed.layout.align_bytes)
        return replace(placed, offset_bytes=start)

    def ring(
        self,
        staging: Staging,
        loads: list[Any],
        streamed: Mapping[Any, Streamed],
    ) -> RingPlan:
        inside = [found for _, found in self.sums.inner]
        lead = []
        if self.choices.skew != "off":
            for load in loads:
                if streamed[load][0] in inside:
                    one = self.placed(load, streamed[load][0], self.block)
                    start = self.take(one.layout.size_bytes, one.layout.align_bytes)
                    lead.append(replace(one, offset_bytes=start))
        slabs, end, align = [], 0, 128
        for load in loads:
            one = self.placed(load, streamed[load][0], self.block * staging.steps)
            start = -(-end // one.layout.align_bytes) * one.layout.align_bytes
            slabs.append(replace(one, offset_bytes=start))
            end, align = start + one.layout.size_bytes, max(align, one.layout.align_bytes)
        slot_bytes = -(-end // align) * align
        offset = self.take(slot_bytes * staging.depth, align)
        return RingPlan(staging, tuple(slabs), tuple(lead), offset, slot_bytes, 0, 0)

    def placed(self, load: Any, found: Contraction | None, block: int) -> Placed:
        """The slab of an operand, or of a tile of the body: rows along its contiguous axis, over
        its two axes' extents."""
        extents = self.extents(load, found, block)
        axes = [axis for axis in load.axes if axis in extents]
        form = linear(load)
        along = [axis for axis in axes if form.coefficient(axis) == 1]
        if len(axes) != 2 or len(along) != 1:
            raise ScheduleError(
                f"STAGE@{load.args[0].args[0]}: got a load whose rows are not contiguous along an "
                f"axis of its tile; the nearest legal value is d0"
            )
        across = next(axis for axis in axes if axis is not along[0])
        size = DTYPES[load.args[0].args[1]].size_bytes
        layout = slab_layout(self.choices.slab, extents[across], extents[along[0]] * size)
        return Placed(load, layout, across, along[0], 0, self.kind.c if found is None else None)

    def extents(self, load: Any, found: Contraction | None, block: int) -> dict[Axis, int]:
        """How far a block of the kernel reaches along each axis of what its operands, or a tile of
        the body, lie along: as far as the widest contraction that takes the load."""
        kind, roles = self.kind, self.roles
        columns = kind.columns * self.outer.column_atoms * self.outer.column_warps
        reach: dict[Any, int] = {
            roles.row: kind.rows * self.inner.row_atoms * self.inner.row_warps,
            roles.column: columns,
            roles.fold: block,
        }
        for each in self.sums.contractions if found is not None else ():
            taken = load is each.left or load is each.right
            if not taken or each.depth is roles.fold:
                continue
            if each.depth is roles.column and columns < each.depth.size:
                raise ScheduleError(
                    f"STAGE@{load.args[0].args[0]}: got an operand that one contraction takes by "
                    "tiles of columns, another whole; the nearest legal value is d0"
                )
            reach[each.depth] = max(_rounded(each.depth.size, kind), reach.get(each.depth, 0))
        return {axis: extent for axis, extent in reach.items() if axis is not None}


def _rounded(size: int, kind: Atom) -> int:
    return -(-size // kind.depth) * kind.depth
