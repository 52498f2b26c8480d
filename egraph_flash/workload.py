"""What a stage does under a geometry: operations and bytes that follow from its terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from .axes import Axis
from .balance import MOST_BLOCKS, in_order
from .candidates import Candidate, demand
from .choices import LEAST_REGISTERS, PLAIN, Choices
from .codegen.arena import Arena, arena
from .codegen.atoms import Atom, atom
from .codegen.frames import column_offsets, row_offsets
from .codegen.residency import PRODUCER_THREADS
from .codegen.resources import registers
from .codegen.slabs import CHUNK_BYTES, SlabLayout
from .cost import Work
from .knobs import Tile
from .pipes import PIPES, TANH_APPROX
from .profiles import Profile, Read, profile
from .shapes import shape_of
from .skipping import heavy_last, weights
from .stages import Stage


@dataclass(frozen=True)
class Counts:
    """The work of one launch of a stage under one geometry and realization."""

    stage: Stage
    candidate: Candidate
    choices: Choices

    def work(self) -> Work:
        known, roles = profile(self.stage), self.stage.roles
        candidate, kind = self.candidate, self.kind
        rows = kind.rows * candidate.inner.row_atoms * candidate.inner.row_warps
        columns = self._columns()
        batch = math.prod(axis.size for axis in roles.batch)
        others = max(_tiles(roles.column, columns) * batch, 1)
        tiles = self._blocks_of_tiles(rows)
        ctas = max(len(tiles) * others, 1)
        steps = sum(tiles) / max(len(tiles), 1)
        width = candidate.block * steps if roles.fold is not None else columns
        elements = float(ctas) * rows * width
        body = self._pointwise(known, candidate.inner, elements, rows * steps * ctas)
        if self._moves_always():
            body["fma"] += known.rescaled * rows * steps * ctas * columns
        after = self._after(float(ctas) * rows, columns)
        pipes = {pipe: count + after[pipe] for pipe, count in body.items()}
        flop = (
            2.0
            * ctas
            * rows
            * (
                sum(width * _rounded(found.depth.size, kind.depth) for found in known.inner)
                + len(known.outer) * (columns + self._ones()) * width
            )
        )
        handed = elements if self._hands_over() else 0.0
        read, touched, drained = self._read_bytes(rows, columns)
        again = self._again_bytes(rows) * steps if steps > 1 else 0.0
        ops = flop / FLOP_OF_MMA + (sum(body.values()) + handed / 2) / 32 + drained / SHARED_OF_OP
        code = INSTRUCTION_BYTES * ops  # of every warp, each time that it runs it
        blocks = max(ctas * self._warps() * steps, 1.0)
        return Work(
            mma_flop=flop if kind.on_tensor_cores else 0.0,
            fma_flop=(0.0 if kind.on_tensor_cores else flop) + 2 * pipes["fma"],
            mufu_ops=pipes["mufu"],
            alu_ops=pipes["alu"] + handed / 2,  # operands are rounded two at a time
            hbm_bytes=known.hbm_bytes,
            again_bytes=ctas * again,
            again_after_bytes=again,
            l2_bytes=ctas * (steps * read + again),
            l1_bytes=ctas * (steps * touched + again),
            shared_bytes=self._handoff_bytes(handed) + ctas * steps * drained,
            code_bytes=code,
            loop_bytes=code / blocks * self._group() if self.kind.on_tensor_cores else 0.0,
            ctas=-(-len(tiles) // 2) * others if self.choices.order == "pair" else ctas,
            weights=self._weights(tiles, others),
            warps_per_cta=self._warps(),
            producer_warps=self._producers(),
            registers_per_thread=self._registers(),
            shared_bytes_per_cta=self._arena.size_bytes,
            serial_steps=self._serial_steps(steps) + (steps if again else 0.0),
            chain_clocks=self._chain_clocks(steps),
            slots=steps / self._group(),
            ahead=self._ahead(),
            overlap=self._overlap(),
            spills=self._need > self._most_registers(),
        )

    def _blocks_of_tiles(self, rows: int) -> tuple[int, ...]:
        """How many blocks of the fold each row tile works on, in whole groups of a slot."""
        roles, block = self.stage.roles, self.candidate.block
        count = _tiles(roles.row, rows)
        if roles.fold is None or self.choices.skip == "none":
            return (_tiles(roles.fold, block),) * count
        group = block * self._group()
        return tuple(-(-n // group) * group // block for n in weights(self.stage, rows))

    def _group(self) -> int:
        """Blocks of the fold that a round of the loop works on."""
        return max((s.steps for _, s in self.choices.stage if s.depth), default=1)

    def _ahead(self) -> int:
        """How many slots before its turn the slot of a ring is asked for; 0 without a ring."""
        return min((s.depth - 1 for _, s in self.choices.stage if s.ring), default=0)

    def _weights(self, tiles: tuple[int, ...], others: int) -> tuple[int, ...]:
        """The blocks' weights in the order in which they start; empty where all are alike."""
        if len(set(tiles)) < 2 or len(tiles) * others > MOST_BLOCKS:
            return ()
        last = heavy_last(self.stage, self.candidate.rows)
        return tuple(in_order(tiles, self.choices.order, others, heavy_last=last))

    def _overlap(self) -> float:
        """Blocks that a warp works on at a time: two where the next one's scores do not wait, by
        the skew or because several blocks stand in one basic block."""
        several = self._group() > 1
        if self._moves_always() and self.choices.base != "max":
            return 1.0  # a path that every block takes stands between them
        return 2.0 if several or self.choices.skew != "off" else 1.0

    # ---- what the block is -----------------------------------------------------------------------

    @property
    def kind(self) -> Atom:
        return atom(self.candidate.inner.atom)

    @cached_property
    def _arena(self) -> Arena:
        return arena(self.stage, self.candidate.inner, self.candidate.outer, self.choices)

    @cached_property
    def _need(self) -> int:
        return registers(demand(self.stage, self.candidate, self.choices))

    def _registers(self) -> int:
        return max(min(self._need, self._most_registers()), LEAST_REGISTERS)

    def _most_registers(self) -> int:
        return min(MOST_REGISTERS, self.choices.regs.limit(self._warps()))

    def _warps(self) -> int:
        return max(self.candidate.inner.warps, self.candidate.outer.warps) + self._producers()

    def _producers(self) -> int:
        return PRODUCER_THREADS // 32 if self.choices.roles == "producer" else 0

    def _chain_clocks(self, steps: float) -> float:
        """What a block waits for beside memory: bases that move, and states that are merged."""
        moves = self._moves_always() and profile(self.stage).rescaled
        tile = self.candidate.outer if self.stage.columns is not None else self.candidate.inner
        warps = tile.column_warps if self.stage.fold is not None else 1
        merges = len(self.stage.read.channels) * warps if warps > 1 else 0
        return (steps * MOVE_CLOCKS if moves else 0.0) + merges * MERGE_CLOCKS

    def _hands_over(self) -> bool:
        return shape_of(self.stage).hands_over and self.kind.on_tensor_cores

    def _columns(self) -> int:
        tile = self.candidate.outer if self.stage.fold is not None else self.candidate.inner
        return atom(tile.atom).columns * tile.column_atoms * tile.column_warps

    def _ones(self) -> int:
        """Columns of ones beside those of an accumulator."""
        return self.kind.columns if self.choices.sum == "ones" else 0

    # ---- arithmetic ------------------------------------------------------------------------------

    def _after(self, rows: float, columns: int) -> dict[str, float]:
        """Operations by pipe of a fold over the columns of accumulators with so many rows."""
        stage, tile = self.stage.columns, self.candidate.outer
        if stage is None:
            return dict.fromkeys(ARITHMETIC, 0.0)
        return self._pointwise(profile(stage), tile, rows * columns, rows * tile.column_warps)

    def _pointwise(
        self, known: Profile, tile: Tile, elements: float, folds: float
    ) -> dict[str, float]:
        """Operations by pipe on so many elements of a tile, of which so many rows are folded; the
        forms of the algebra leave some of them out."""
        choices, held = self.choices, self.kind.c
        pipes = dict.fromkeys(ARITHMETIC, 0.0)
        of_lane = (
            tile.row_atoms * len(row_offsets(held)),
            tile.column_atoms * len(column_offsets(held)),
        )
        for each in known.pointwise:  # a lane computes what its own rows and columns need
            share = (1 if each.by_rows else 1 / of_lane[0]) * (
                1 if each.by_columns else 1 / of_lane[1]
            )
            pipes[each.pipe] += each.count * elements * share
        exps = known.exponentials * elements
        if choices.exp.form in ("fold", "poly"):
            pipes["fma"] -= 2 * exps  # the scale, the difference and log2 e are one fma
        if choices.exp.form == "accurate":
            pipes["fma"] += 6 * exps
            pipes["alu"] += 4 * exps
        if choices.exp.form == "poly":
            pipes["mufu"] -= exps * choices.exp.share / 8
            pipes["fma"] += 8 * exps * choices.exp.share / 8
            pipes["alu"] += 6 * exps * choices.exp.share / 8
        if choices.tanh == "approx":
            for pipe, count in PIPES["Tanh"].items():
                pipes[pipe] += (TANH_APPROX.get(pipe, 0.0) - count) * known.tanhs * elements
        if choices.sum == "ones":
            pipes["fma"] -= exps
        across = [self._moves_always()] * known.maxima + [choices.sum == "block"] * known.sums
        if self.kind.on_tensor_cores:
            pipes["alu"] += SHUFFLE_OPS * folds * 4 * sum(across)  # four lanes hold a row
        return pipes

    def _moves_always(self) -> bool:
        """Whether a base moves in every block: by choice, or because it grows along the fold."""
        return self.choices.base == "max" or profile(self.stage).drifts

    # ---- bytes -----------------------------------------------------------------------------------

    def _handoff_bytes(self, handed: float) -> float:
        """16 bits an element, written and read, as many times over as rows share banks."""
        layout = self._arena.handoff
        if layout is None:
            return 0.0
        return 2 * handed * 2 * _conflicts(layout)

    def _read_bytes(self, rows: int, columns: int) -> tuple[float, float, float]:
        """Bytes that a block reads in one round, those of the lines that its loads touch, and
        those that its fragments move through shared memory.

        Every warp takes fragments for itself, so what does not depend on the rows is moved once
        for each of them.
        """
        roles, candidate = self.stage.roles, self.candidate
        extent = {roles.row: rows, roles.column: columns, roles.fold: candidate.block}
        read_bytes = touched_bytes = drained_bytes = 0.0
        for read in profile(self.stage).reads:
            block = float(read.size_bytes)
            for axis in read.axes:
                if axis not in roles.batch:
                    block *= min(extent.get(axis, axis.size), axis.size)
            warps = 1 if roles.row in read.axes else candidate.inner.row_warps
            where = self._residence(read)
            if where == "register":
                continue  # once a block of the grid: nothing beside its rounds
            if where == "global":
                read_bytes += block
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

    def _again_bytes(self, rows: int) -> float:
        """Bytes that the epilogue of a block reads in one round."""
        extent = {self.stage.roles.row: rows, self.stage.roles.fold: self.candidate.block}
        return sum(
            read.size_bytes * math.prod(min(extent.get(a, 1), a.size) for a in read.axes)
            for read in profile(self.stage).again
        )

    def _residence(self, read: Read) -> SlabLayout | Literal["global", "register"]:
        """Where fragments of an array come from."""
        if self.kind.on_tensor_cores:
            for ring in self._arena.rings:
                for placed in ring.slabs:
                    if placed.load is read.load:
                        return placed.layout
            for placed in self._arena.kept:
                if placed.load is read.load:
                    return placed.layout
            still = self.stage.roles.fold not in read.axes
            if read.part != "tile" and self.choices.hoist == "registers" and still:
                return "register"
        return "global"

    def _serial_steps(self, steps: float) -> float:
        """Trips to memory that a block waits for, one after the other."""
        roles = self.stage.roles
        trips = 0.0
        for part in dict.fromkeys(read.part for read in profile(self.stage).reads):
            found = [read for read in profile(self.stage).reads if read.part == part]
            waits = [self._wait(read) for read in found if roles.fold in read.axes]
            waits += [
                1.0
                for read in found
                if part != "tile"  # whose loads leave the loop
                and self._residence(read) == "global"
                and roles.fold not in read.axes
            ]
            trips += max(waits, default=0.0)
        return steps * trips

    def _wait(self, read: Read) -> float:
        """The share of a trip that a round waits for an array."""
        staging = self.choices.staging(read.name)
        if read.part == "tile" and not staging.depth:  # independent of all else in the basic block
            return 1.0 / max((s.steps for _, s in self.choices.stage if s.depth), default=1)
        if self._residence(read) == "global" or not staging.depth:
            return 1.0
        if not staging.ring:
            return 1.0 / staging.steps
        return RING_WAIT / staging.steps

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


ARITHMETIC = ("fma", "mufu", "alu")
MOST_REGISTERS = 255
INSTRUCTION_BYTES = 16
FLOP_OF_MMA = 2 * 16 * 8 * 16
SHARED_OF_OP = 512  # bytes that one instruction of a warp takes from a slab
MOVE_CLOCKS = 150.0  # of a base: two exchanges, the exp of a difference, a product; about so many
MERGE_CLOCKS = 30.0  # of one channel of one warp: its word arrives, a factor, a sum; about so many
SHUFFLE_OPS = 4.0  # two exchanges and two operations, for each lane that holds a row
RING_WAIT = 0.05  # of a trip: the barrier of a slot that is full already
LINE_BYTES = 128.0


def work_of(stage: Stage, candidate: Candidate, choices: Choices = PLAIN) -> Work:
    """The work of one launch of the stage under this geometry and realization."""
    return Counts(stage, candidate, choices).work()


def _tiles(axis: Axis | None, extent: int) -> int:
    return -(-axis.size // extent) if axis is not None else 1


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
