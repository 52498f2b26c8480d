"""What a stage does under a geometry: operations and bytes that follow from its terms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

from .axes import Axis
from .candidates import Candidate, demand
from .carriers import bases_of, lift_of, monoid_of
from .choices import PLAIN, Choices
from .codegen.arena import Arena, arena
from .codegen.atoms import Atom, atom
from .codegen.resources import registers
from .codegen.slabs import CHUNK_BYTES, SlabLayout
from .cost import Work
from .dtypes import DTYPES
from .free import free
from .pipes import PIPES, TANH_APPROX, operations
from .roles import Contraction, placeholder, summand
from .shapes import shape_of
from .stages import Stage
from .terms import subterms


@dataclass(frozen=True)
class Pointwise:
    """Operations of the body that vary over the same sides of its tiles, by pipe."""

    by_rows: bool
    by_columns: bool
    pipe: str
    count: float


@dataclass(frozen=True)
class Read:
    """An array that a block reads, at the axes of its index, and what for.

    A contraction's `left` and `right` operands are loaded as fragments; a `tile` as it is laid
    out. `along_columns` says that a right operand's neighbours lie along the columns.
    """

    load: Any
    axes: tuple[Axis, ...]
    size_bytes: int
    part: Literal["left", "right", "tile"]
    along_columns: bool

    @property
    def name(self) -> str:
        return str(self.load.args[0].args[0])


@dataclass(frozen=True)
class Profile:
    """What of a stage's work does not depend on its geometry."""

    pointwise: tuple[Pointwise, ...]
    reads: tuple[Read, ...]
    hbm_bytes: float
    inner: tuple[Contraction, ...]
    outer: tuple[Contraction, ...]
    rescaled: int  # accumulators that are multiplied once a round
    exponentials: int  # of each element of the body
    tanhs: int
    maxima: int  # channels that fold rows
    sums: int


@lru_cache(maxsize=64)
def profile(stage: Stage) -> Profile:
    sums, roles = shape_of(stage), stage.roles
    bodies = _bodies(stage)
    counted: dict[tuple[bool, bool, str], float] = {}
    for node in dict.fromkeys(n for expr in bodies for n in _outside_sums(expr)):
        axes = set(free(node))
        where = roles.row in axes, roles.inner_columns in axes
        for pipe, count in operations(node).items():
            counted[*where, pipe] = counted.get((*where, pipe), 0.0) + count
    for channel in sums.plain:
        pipe = "fma" if monoid_of(channel) == "Sum" else "alu"
        counted[True, True, pipe] = counted.get((True, True, pipe), 0.0) + 1.0
    for red in sums.serial:
        axes = set(free(red))
        where = roles.row in axes, roles.inner_columns in axes
        counted[*where, "fma"] = counted.get((*where, "fma"), 0.0) + 2.0 * red.args[1].size
    loads = dict.fromkeys(
        node
        for expr in (*bodies, *(target.expr for target in stage.targets))
        for node in subterms(expr)
        if node.head == "Load"
    )
    reads = tuple(_read(load, stage) for load in loads)
    read_bytes = sum(math.prod(a.size for a in read.axes) * read.size_bytes for read in reads)
    written_bytes = sum(
        math.prod(axis.size for axis in target.axes) * DTYPES[target.array.args[1]].size_bytes
        for target in stage.targets
    )
    return Profile(
        pointwise=tuple(Pointwise(*where, count) for where, count in counted.items()),
        reads=reads,
        hbm_bytes=float(read_bytes + written_bytes),
        inner=tuple(found for _, found in sums.inner),
        outer=tuple(found for _, found in sums.outer),
        rescaled=sum(bool(bases_of(channel)) for channel, _ in sums.outer),
        exponentials=_by_element(bodies, stage, "Exp"),
        tanhs=_by_element(bodies, stage, "Tanh"),
        maxima=sum(monoid_of(channel) == "Max" for channel in sums.plain),
        sums=sum(monoid_of(channel) == "Sum" for channel in sums.plain),
    )


def _read(load: Any, stage: Stage) -> Read:
    found = shape_of(stage).contractions
    left, right = ([getattr(each, side) for each in found] for side in ("left", "right"))
    part: Literal["left", "right", "tile"] = (
        "left" if load in left else "right" if load in right else "tile"
    )
    last = load.args[1][-1] if load.args[1] else None
    along_columns = last is not None and stage.roles.column in free(last)
    size_bytes = DTYPES[load.args[0].args[1]].size_bytes
    return Read(load, free(load), size_bytes, part, part == "right" and along_columns)


def _by_element(bodies: list[Any], stage: Stage, head: str) -> int:
    """The different exps, or other operators, that vary over both sides of the body's tile."""
    both = {stage.roles.row, stage.roles.inner_columns}
    nodes = dict.fromkeys(n for expr in bodies for n in _outside_sums(expr) if n.head == head)
    return sum(both <= set(free(node)) for node in nodes)


def _bodies(stage: Stage) -> list[Any]:
    if stage.fold is None:
        return [target.expr for target in stage.targets]
    return [
        summand(channel, {base: placeholder(base) for base in bases_of(channel)})
        if monoid_of(channel) == "Sum"
        else lift_of(channel)
        for channel in stage.channels
    ]


def _outside_sums(expr: Any) -> Iterator[Any]:
    """The pointwise nodes of an expression that stand in no reduction and read no fold."""
    if expr.head in ("Red", "Get", "Load", "Num", "Idx", "Var"):
        return
    for child in expr.children:
        if child.sort == "Expr":
            yield from _outside_sums(child)
    yield expr


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
        ctas = max(_tiles(roles.row, rows) * _tiles(roles.column, columns) * batch, 1)
        steps = _tiles(roles.fold, candidate.block)
        width = candidate.block * steps if roles.fold is not None else columns
        elements = float(ctas) * rows * width
        pipes = self._pointwise(elements, rows, columns, float(ctas) * steps)
        flop = (
            2.0
            * ctas
            * rows
            * (
                sum(width * _rounded(found.depth.size, kind.depth) for found in known.inner)
                + len(known.outer) * columns * width
            )
        )
        handed = elements if self._hands_over() else 0.0
        read, touched, drained = self._read_bytes(rows, columns)
        return Work(
            mma_flop=flop if kind.on_tensor_cores else 0.0,
            fma_flop=(0.0 if kind.on_tensor_cores else flop) + 2 * pipes["fma"],
            mufu_ops=pipes["mufu"],
            alu_ops=pipes["alu"] + handed / 2,  # operands are rounded two at a time
            hbm_bytes=known.hbm_bytes,
            l2_bytes=ctas * steps * read,
            l1_bytes=ctas * steps * touched,
            shared_bytes=self._handoff_bytes(handed) + ctas * steps * drained,
            ctas=ctas,
            warps_per_cta=self._warps(),
            registers_per_thread=self._registers(),
            shared_bytes_per_cta=self._arena.size_bytes,
            serial_steps=self._serial_steps(steps),
            overlap=self._overlap(),
            spills=self._need > min(MOST_REGISTERS, self.choices.regs.most),
        )

    def _overlap(self) -> float:
        """Blocks that a warp works on at a time: two where the next one's scores do not wait, by
        the skew or because several blocks stand in one basic block."""
        several = any(staging.steps > 1 for _, staging in self.choices.stage)
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
        return max(min(self._need, self.choices.regs.most, MOST_REGISTERS), 32)

    def _warps(self) -> int:
        consumers = max(self.candidate.inner.warps, self.candidate.outer.warps)
        return consumers + (4 if self.choices.roles == "producer" else 0)

    def _hands_over(self) -> bool:
        return shape_of(self.stage).hands_over and self.kind.on_tensor_cores

    def _columns(self) -> int:
        tile = self.candidate.outer if self.stage.fold is not None else self.candidate.inner
        return atom(tile.atom).columns * tile.column_atoms * tile.column_warps

    # ---- arithmetic ------------------------------------------------------------------------------

    def _pointwise(
        self, elements: float, rows: int, columns: int, rounds: float
    ) -> dict[str, float]:
        """Operations by pipe; the forms of the algebra leave some of them out."""
        known, choices = profile(self.stage), self.choices
        pipes = {"fma": 0.0, "mufu": 0.0, "alu": 0.0}
        for each in known.pointwise:
            share = (1 if each.by_rows else 1 / rows) * (
                1 if each.by_columns else 1 / self.candidate.block
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
        if choices.base == "max":
            pipes["fma"] += known.rescaled * rounds * rows * columns
        across = [choices.base == "max"] * known.maxima + [choices.sum == "block"] * known.sums
        if self.kind.on_tensor_cores:
            folds = rounds * rows * 4  # four lanes hold a row
            pipes["alu"] += SHUFFLE_OPS * folds * sum(across)
        return pipes

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

    def _residence(self, read: Read) -> SlabLayout | Literal["global", "register"]:
        """Where fragments of an array come from."""
        if read.part != "tile" and self.kind.on_tensor_cores:
            for ring in self._arena.rings:
                for placed in ring.slabs:
                    if placed.load is read.load:
                        return placed.layout
            for placed in self._arena.kept:
                if placed.load is read.load:
                    return placed.layout
            if self.choices.hoist == "registers" and self.stage.roles.fold not in read.axes:
                return "register"
        return "global"

    def _serial_steps(self, steps: int) -> float:
        """Trips to memory that a block waits for, one after the other."""
        roles = self.stage.roles
        trips = 0.0
        for part in dict.fromkeys(read.part for read in profile(self.stage).reads):
            found = [read for read in profile(self.stage).reads if read.part == part]
            waits = [
                self._wait(read) for read in found if roles.fold in read.axes or part == "tile"
            ]
            waits += [
                1.0
                for read in found
                if self._residence(read) == "global" and roles.fold not in read.axes
            ]
            trips += max(waits, default=0.0)
        return steps * trips

    def _wait(self, read: Read) -> float:
        """The share of a trip that a round waits for an array."""
        staging = self.choices.staging(read.name)
        if self._residence(read) == "global" or not staging.depth:
            return 1.0
        if not staging.ring:
            return 1.0 / staging.steps
        return RING_WAIT / staging.steps

    def _line_share(self, read: Read) -> float:
        """Of each line that a load touches, the bytes that its warp uses."""
        if self.kind.instruction is None:
            return LINE_BYTES  # a warp lies along a row
        if not self.kind.on_tensor_cores:
            return 16.0  # each lane has a row of its own, or all share one element
        if read.part == "tile":
            return 8.0 * read.size_bytes  # four lanes, two elements each
        return LINE_BYTES if read.along_columns else 16.0 * read.size_bytes  # of a depth step


def _conflicts(layout: SlabLayout) -> int:
    """How many of 8 consecutive rows' chunks lie in the same banks."""
    return 1 if layout.chunk_bits else math.gcd(8, layout.pitch_bytes // CHUNK_BYTES)


MOST_REGISTERS = 255
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
