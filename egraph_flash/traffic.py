"""What a block of a stage moves: bytes by where they lie, and the trips to memory it waits for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from .axes import Axis
from .candidates import Candidate, columns_of
from .choices import Choices
from .codegen.arena import Arena, arena
from .codegen.atoms import Atom, atom
from .codegen.slabs import CHUNK_BYTES, SlabLayout
from .profiles import Read, profile
from .roles import Roles
from .stages import Stage

NEAR_BYTES = 64 << 10  # of an array that an SM's cache holds beside what streams through it
RING_WAIT = 0.05  # of a trip: the barrier of a slot that is full already
TABLE_WAIT = 0.6  # of a trip: where to copy from is read first, mostly from a cache
LINE_BYTES = 128.0


def traffic_of(stage: Stage, candidate: Candidate, choices: Choices) -> Traffic:
    """The traffic of a stage under a geometry and a realization, of which only how operands move
    matters: searches ask for it once for all forms of the algebra."""
    return _traffic(stage, candidate, choices.movement)


@dataclass(frozen=True)
class Traffic:
    """What one block moves under a geometry and a movement."""

    stage: Stage
    candidate: Candidate
    choices: Choices

    @property
    def kind(self) -> Atom:
        return atom(self.candidate.inner.atom)

    @property
    def reads(self) -> tuple[Read, ...]:
        return profile(self.stage).reads

    @cached_property
    def arena(self) -> Arena:
        return arena(self.stage, self.candidate.inner, self.candidate.outer, self.choices)

    def handoff_bytes(self, handed: float) -> float:
        """16 bits an element, written and read, as many times over as rows share banks."""
        layout = self.arena.handoff
        if layout is None:
            return 0.0
        return 2 * handed * 2 * _conflicts(layout)

    @cached_property
    def round_bytes(self) -> tuple[float, float, float]:
        """Bytes that a block reads in one round, those of the lines that its loads touch, and
        those that its fragments move through shared memory.

        Every warp takes fragments for itself, so what does not depend on the rows is moved once
        for each of them.
        """
        roles, candidate = self.stage.roles, self.candidate
        extent = _extents(self.stage, candidate)
        read_bytes = touched_bytes = drained_bytes = 0.0
        for read in self.reads:
            block = _block_bytes(read, roles, extent)
            warps = 1 if roles.row in read.axes else candidate.inner.row_warps
            where = self._residence(read)
            if where == "register":
                continue  # once a block of the grid: nothing beside its rounds
            if where == "global":
                read_bytes += 0.0 if _stays_near(self.stage, self.candidate, read) else block
                touched_bytes += block * warps * LINE_BYTES / self._line_share(read)
            else:
                layout = where
                drained_bytes += block * warps * _conflicts(layout)
                if roles.fold in read.axes:
                    copies = warps if self.choices.roles == "each" else 1
                    read_bytes += block * copies
                    drained_bytes += block * copies
                    boxed = self.choices.staging(read.name).transport == "tma"
                    touched_bytes += 0.0 if boxed else block
        return read_bytes, touched_bytes, drained_bytes

    @cached_property
    def again_bytes(self) -> float:
        """Bytes of its own that the epilogue of a block reads in one round."""
        roles, candidate = self.stage.roles, self.candidate
        extent = {roles.row: candidate.rows, roles.fold: candidate.block}
        return sum(
            read.size_bytes * math.prod(min(extent.get(a, 1), a.size) for a in read.axes)
            for read in profile(self.stage).again
            if not _stays_near(self.stage, self.candidate, read)
        )

    def _residence(self, read: Read) -> SlabLayout | Literal["global", "register"]:
        """Where fragments of an array come from."""
        if self.kind.on_tensor_cores:
            for ring in self.arena.rings:
                for placed in ring.slabs:
                    if placed.load is read.load:
                        return placed.layout
            for placed in self.arena.kept:
                if placed.load is read.load:
                    return placed.layout
            still = self.stage.roles.fold not in read.axes
            if read.part != "tile" and self.choices.hoist == "registers" and still:
                return "register"
        return "global"

    @cached_property
    def trips(self) -> float:
        """Trips to memory that a round waits for, one after the other."""
        roles = self.stage.roles
        trips = 0.0
        for part in dict.fromkeys(read.part for read in self.reads):
            found = [read for read in self.reads if read.part == part]
            waits = [self._wait(read) for read in found if roles.fold in read.axes]
            waits += [
                1.0
                for read in found
                if part != "tile"  # whose loads leave the loop
                and self._residence(read) == "global"
                and roles.fold not in read.axes
            ]
            trips += max(waits, default=0.0)
        return trips

    def _wait(self, read: Read) -> float:
        """The share of a trip that a round waits for an array."""
        staging = self.choices.staging(read.name)
        if read.part == "tile" and not staging.depth:  # independent of all else in the basic block
            return 1.0 / max((s.steps for _, s in self.choices.stage if s.depth), default=1)
        if self._residence(read) == "global" or not staging.depth:
            return 1.0
        if not staging.ring:
            return 1.0 / staging.steps
        looked_up = read.is_looked_up and self.choices.roles != "producer"
        return (TABLE_WAIT if looked_up else RING_WAIT) / staging.steps

    def _line_share(self, read: Read) -> float:
        """Of each line that a load touches, the bytes that its warp uses."""
        if self.kind.instruction is None:  # a warp lies along a row
            return min(LINE_BYTES, 32.0 * self.kind.c.elements * read.size_bytes)
        if not self.kind.on_tensor_cores:
            return 16.0  # each lane has a row of its own, or all share one element
        if read.part == "tile":
            return 8.0 * read.size_bytes  # four lanes, two elements each
        return LINE_BYTES if read.along_columns else 16.0 * read.size_bytes  # of a depth step


def _conflicts(layout: SlabLayout) -> int:
    """How many of 8 consecutive rows' chunks lie in the same banks."""
    return 1 if layout.chunk_bits else math.gcd(8, layout.pitch_bytes // CHUNK_BYTES)


def streamed_bytes(stage: Stage, candidate: Candidate) -> float:
    """What a block reads in one round, however operands move: what varies along the fold."""
    roles, extent = stage.roles, _extents(stage, candidate)
    streamed = (read for read in profile(stage).reads if roles.fold in read.axes)
    far = (read for read in streamed if not _stays_near(stage, candidate, read))
    return sum(_block_bytes(read, roles, extent) for read in far)


def _stays_near(stage: Stage, candidate: Candidate, read: Read) -> bool:
    """Whether blocks that work on plain rows read the same, which a cache of the SM holds."""
    size_bytes = read.size_bytes * math.prod(axis.size for axis in read.axes)
    plain = atom(candidate.inner.atom).instruction is None
    return plain and stage.roles.row not in read.axes and size_bytes <= NEAR_BYTES


def _extents(stage: Stage, candidate: Candidate) -> dict[Axis | None, int]:
    """How far a round of a block reaches along the axes that it has tiles of."""
    roles, columns = stage.roles, columns_of(stage, candidate)
    return {roles.row: candidate.rows, roles.column: columns, roles.fold: candidate.block}


def _block_bytes(read: Read, roles: Roles, extent: Mapping[Axis | None, int]) -> float:
    """The bytes of an array that a round of a block takes."""
    block = float(read.size_bytes)
    for axis in read.axes:
        if axis not in roles.batch:
            block *= min(extent.get(axis, axis.size), axis.size)
    return block


@lru_cache(maxsize=8192)
def _traffic(stage: Stage, candidate: Candidate, movement: Choices) -> Traffic:
    return Traffic(stage, candidate, movement)
