"""What a stage does under a geometry: operations and bytes that follow from its terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from .axes import Axis
from .balance import MOST_BLOCKS, in_order
from .candidates import Candidate, columns_of, registers_of
from .choices import LEAST_REGISTERS, PLAIN, Choices
from .codegen.atoms import Atom, atom
from .codegen.frames import column_offsets, row_offsets
from .codegen.residency import PRODUCER_THREADS
from .cost import MOST_STRANDS, Work
from .dtypes import DTYPES
from .knobs import Tile
from .pipes import PIPES, TANH_APPROX
from .profiles import Profile, profile
from .shapes import shape_of
from .skipping import heavy_last, weights
from .stages import Stage
from .traffic import streamed_bytes, traffic_of


@dataclass(frozen=True)
class Counts:
    """The work of one launch of a stage under one geometry and realization."""

    stage: Stage
    candidate: Candidate
    choices: Choices

    def work(self) -> Work:
        known, roles = profile(self.stage), self.stage.roles
        candidate, kind = self.candidate, self.kind
        rows = candidate.rows
        columns = columns_of(self.stage, candidate)
        others = self._others()
        tiles = self._blocks_of_tiles(rows)
        ctas = max(len(tiles) * others, 1)
        steps = sum(tiles) / max(len(tiles), 1)
        width = candidate.block * steps if roles.fold is not None else columns
        elements = float(ctas) * rows * width
        copies = candidate.outer.column_warps if known.outer else 1  # of what warps contract
        body = self._pointwise(known, candidate.inner, copies * elements, rows * steps * ctas)
        if self._moves_always():
            body["fma"] += known.rescaled * rows * steps * ctas * columns
        after = self._after(float(ctas) * rows, columns)
        pipes = {pipe: count + after[pipe] for pipe, count in body.items()}
        flop = self._flop(ctas, width)
        handed = elements if self._hands_over() else 0.0
        traffic = traffic_of(self.stage, candidate, self.choices)
        read, touched, drained = traffic.round_bytes
        reread = traffic.again_bytes * steps if steps > 1 else 0.0
        ops = flop / FLOP_OF_MMA + (sum(body.values()) + handed / 2) / 32 + drained / SHARED_OF_OP
        code = INSTRUCTION_BYTES * ops  # of every warp, each time that it runs it
        blocks = max(ctas * self._warps() * steps, 1.0)
        return Work(
            mma_flop=flop if kind.on_tensor_cores else 0.0,
            fma_flop=(0.0 if kind.on_tensor_cores else flop) + 2 * pipes["fma"],
            mufu_ops=pipes["mufu"],
            alu_ops=pipes["alu"] + handed / 2,  # operands are rounded two at a time
            hbm_bytes=known.hbm_bytes,
            again_bytes=ctas * reread,
            again_after_bytes=reread,
            l2_bytes=ctas * (steps * read + reread),
            l1_bytes=ctas * (steps * touched + reread),
            shared_bytes=traffic.handoff_bytes(handed) + ctas * steps * drained,
            code_bytes=code,
            loop_bytes=code / blocks * self._group() if self.kind.on_tensor_cores else 0.0,
            ctas=-(-len(tiles) // 2) * others if self.choices.order == "pair" else ctas,
            weights=self._weights(tiles, others),
            warps_per_cta=self._warps(),
            producer_warps=self._producers(),
            registers_per_thread=self._registers(),
            shared_bytes_per_cta=traffic.arena.size_bytes,
            serial_steps=steps * traffic.trips + (steps if reread else 0.0),
            chain_clocks=self._chain_clocks(steps),
            edge_clocks=self._edge_clocks(rows, columns),
            slots=steps / self._group(),
            ahead=self._ahead(),
            overlap=self._overlap(),
            spills=self._need > self._most_registers(),
        )

    def least(self) -> Work:
        """What this and every realization that leaves out no more of the fold does: its products,
        and the bytes of what varies along the fold."""
        candidate = self.candidate
        tiles = self._blocks_of_tiles(candidate.rows)
        ctas = max(len(tiles) * self._others(), 1)
        steps = sum(tiles) / max(len(tiles), 1)
        flop = self._flop(ctas, candidate.block * steps)
        return Work(
            mma_flop=flop if self.kind.on_tensor_cores else 0.0,
            fma_flop=0.0 if self.kind.on_tensor_cores else flop,
            hbm_bytes=profile(self.stage).hbm_bytes,
            l2_bytes=ctas * steps * streamed_bytes(self.stage, candidate),
            ctas=ctas,
            registers_per_thread=LEAST_REGISTERS,
            slots=AT_ONCE if self.kind.on_tensor_cores else 0.0,
            ahead=AT_ONCE**2 if self.kind.on_tensor_cores else 0.0,
            overlap=MOST_STRANDS,
        )

    def _others(self) -> int:
        """Blocks beside those of the row tiles: of column tiles, and batches."""
        roles, columns = self.stage.roles, columns_of(self.stage, self.candidate)
        batch = math.prod(axis.size for axis in roles.batch)
        return max(_tiles(roles.column, columns) * batch, 1)

    def _flop(self, ctas: int, width: float) -> float:
        """Of all products, with so many elements of the fold in each block."""
        known, columns = profile(self.stage), columns_of(self.stage, self.candidate)
        depth = self.kind.depth
        inner = sum(width * _rounded(found.depth.size, depth) for found in known.inner)
        outer = len(known.outer) * (columns + self._ones()) * width
        return 2.0 * ctas * self.candidate.rows * (inner + outer)

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

    def _ahead(self) -> float:
        """How many slots before its turn the slot of a ring is asked for; 0 without a ring."""
        return min((s.depth - 1.0 for _, s in self.choices.stage if s.ring), default=0.0)

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
    def _need(self) -> int:
        return registers_of(self.stage, self.candidate, self.choices)

    def _registers(self) -> int:
        return max(min(self._need, self._most_registers()), LEAST_REGISTERS)

    def _most_registers(self) -> int:
        return min(MOST_REGISTERS, self.choices.regs.limit(self._warps()))

    def _warps(self) -> int:
        return max(self.candidate.inner.warps, self.candidate.outer.warps) + self._producers()

    def _producers(self) -> int:
        return PRODUCER_THREADS // 32 if self.choices.roles == "producer" else 0

    def _chain_clocks(self, steps: float) -> float:
        """What a block waits for beside memory: sums of products, slots that change hands, bases
        that move, and states that are merged."""
        known, kind = profile(self.stage), self.kind
        round_clocks = 0.0
        if kind.on_tensor_cores:
            sums = sum(-(-found.depth.size // kind.depth) for found in known.inner)
            sums += self.candidate.block // kind.depth if known.outer else 0
            slot_clocks = SLOT_CLOCKS if self._ahead() else 0.0
            round_clocks = MMA_CLOCKS * sums + slot_clocks / self._group()
        if self._moves_always() and known.rescaled:
            round_clocks += MOVE_CLOCKS
        tile = self.candidate.outer if self.stage.columns is not None else self.candidate.inner
        warps = tile.column_warps if self.stage.fold is not None else 1
        merges = len(self.stage.read.channels) * warps if warps > 1 else 0
        return steps * round_clocks + merges * MERGE_CLOCKS

    def _edge_clocks(self, rows: int, columns: int) -> float:
        """What a block does after its last round: it folds columns, and stores."""
        sizes = {self.stage.roles.row: rows, self.stage.roles.column: columns}
        stored = sum(
            DTYPES[target.array.args[1]].size_bytes
            * math.prod(sizes.get(axis, 1) for axis in target.axes)
            for target in self.stage.targets
        )
        folded = self._after(float(rows), columns)
        clocks = sum(count / PER_CLOCK[pipe] for pipe, count in folded.items())
        return clocks + stored / STORED_PER_CLOCK

    def _hands_over(self) -> bool:
        return shape_of(self.stage).hands_over and self.kind.on_tensor_cores

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


ARITHMETIC = ("fma", "mufu", "alu")
PER_CLOCK = {"fma": 128, "mufu": 16, "alu": 64}  # operations of an SM, of every machine known
STORED_PER_CLOCK = 64  # bytes of an SM
MOST_REGISTERS = 255
INSTRUCTION_BYTES = 16
FLOP_OF_MMA = 2 * 16 * 8 * 16
SHARED_OF_OP = 512  # bytes that one instruction of a warp takes from a slab
AT_ONCE = 1e6  # slots, asked for so early that nothing waits for them
MMA_CLOCKS = 33.0  # until the next product can be added to a sum
SLOT_CLOCKS = 200.0  # of a slot: its barriers, and what asks for the next one; about so many
MOVE_CLOCKS = 150.0  # of a base: two exchanges, the exp of a difference, a product; about so many
MERGE_CLOCKS = 30.0  # of one channel of one warp: its word arrives, a factor, a sum; about so many
SHUFFLE_OPS = 4.0  # two exchanges and two operations, for each lane that holds a row


def work_of(stage: Stage, candidate: Candidate, choices: Choices = PLAIN) -> Work:
    """The work of one launch of the stage under this geometry and realization."""
    return Counts(stage, candidate, choices).work()


def least_work(stage: Stage, candidate: Candidate, choices: Choices) -> Work:
    """The work that no realization of a geometry does without, if none leaves out more of the fold
    than this one does, block by block."""
    return Counts(stage, candidate, choices).least()


def _tiles(axis: Axis | None, extent: int) -> int:
    return -(-axis.size // extent) if axis is not None else 1


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
