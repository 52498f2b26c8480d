"""What a stage does under a geometry: operations and bytes that follow from its terms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from .axes import Axis
from .candidates import Candidate, needs
from .carriers import bases_of, lift_of, monoid_of
from .codegen.atoms import atom
from .cost import Work
from .dtypes import DTYPES
from .free import free
from .roles import Contraction, placeholder, summand
from .shapes import shape_of
from .stages import Stage
from .terms import subterms

# On which pipe each pointwise operator runs, and how many of its operations it takes there.
_ON = {
    "fma": ("Add", "Sub", "Mul", "Neg", "Abs"),
    "alu": ("Max2", "Min2", "Where", "Lt", "Le", "Eq", "Ne", "And", "Or", "Not"),
}
PIPES: dict[str, dict[str, float]] = {
    **{name: {pipe: 1.0} for pipe, names in _ON.items() for name in names},
    "FloorDiv": {"alu": 4.0},
    "Mod": {"alu": 4.0},
    "Exp": {"fma": 1.0, "mufu": 1.0},
    "Log": {"fma": 1.0, "mufu": 1.0},
    "Tanh": {"fma": 8.0, "mufu": 2.0},
    "Sqrt": {"fma": 6.0, "mufu": 1.0},
    "Div": {"fma": 8.0, "mufu": 1.0},
    "Cast": {"alu": 2.0},
}


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

    axes: tuple[Axis, ...]
    size_bytes: int
    part: Literal["left", "right", "tile"]
    along_columns: bool


@dataclass(frozen=True)
class Profile:
    """What of a stage's work does not depend on its geometry."""

    pointwise: tuple[Pointwise, ...]
    reads: tuple[Read, ...]
    hbm_bytes: float
    inner: tuple[Contraction, ...]
    outer: tuple[Contraction, ...]
    rescaled: int  # accumulators that are multiplied once a round


@lru_cache(maxsize=64)
def profile(stage: Stage) -> Profile:
    sums, roles = shape_of(stage), stage.roles
    bodies = _bodies(stage)
    counted: dict[tuple[bool, bool, str], float] = {}
    for node in dict.fromkeys(n for expr in bodies for n in _outside_sums(expr)):
        axes = set(free(node))
        where = roles.row in axes, roles.inner_columns in axes
        for pipe, count in PIPES.get(node.head, {}).items():
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
    return Read(free(load), size_bytes, part, part == "right" and along_columns)


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
    """The work of one launch of a stage under one geometry."""

    stage: Stage
    candidate: Candidate

    def work(self) -> Work:
        known, need = profile(self.stage), needs(self.stage, self.candidate)
        candidate, roles = self.candidate, self.stage.roles
        kind = atom(candidate.inner.atom)
        rows = kind.rows * candidate.inner.row_atoms * candidate.inner.row_warps
        columns = self._columns()
        batch = math.prod(axis.size for axis in roles.batch)
        ctas = max(_tiles(roles.row, rows) * _tiles(roles.column, columns) * batch, 1)
        steps = _tiles(roles.fold, candidate.block)
        width = candidate.block * steps if roles.fold is not None else columns
        elements = float(ctas) * rows * width
        pipes = {"fma": 0.0, "mufu": 0.0, "alu": 0.0}
        for each in known.pointwise:
            share = (1 if each.by_rows else 1 / rows) * (
                1 if each.by_columns else 1 / candidate.block
            )
            pipes[each.pipe] += each.count * elements * share
        pipes["fma"] += known.rescaled * float(ctas) * rows * columns * steps
        flop = (
            2.0
            * ctas
            * rows
            * (
                sum(width * _rounded(found.depth.size, kind.depth) for found in known.inner)
                + len(known.outer) * columns * width
            )
        )
        handed = elements if known.inner and known.outer and kind.on_tensor_cores else 0.0
        read, touched = self._read_bytes(rows, columns)
        return Work(
            mma_flop=flop if kind.on_tensor_cores else 0.0,
            fma_flop=(0.0 if kind.on_tensor_cores else flop) + 2 * pipes["fma"],
            mufu_ops=pipes["mufu"],
            alu_ops=pipes["alu"] + handed / 2,  # operands are rounded two at a time
            hbm_bytes=known.hbm_bytes,
            l2_bytes=ctas * steps * read,
            l1_bytes=ctas * steps * touched,
            shared_bytes=4 * handed,  # 16 bits an element, written and read
            ctas=ctas,
            warps_per_cta=max(candidate.inner.warps, candidate.outer.warps),
            registers_per_thread=max(need.registers, 32),
            shared_bytes_per_cta=need.shared_bytes,
            serial_steps=steps * len(dict.fromkeys(r.part for r in known.reads)),
        )

    def _columns(self) -> int:
        tile = self.candidate.outer if self.stage.fold is not None else self.candidate.inner
        return atom(tile.atom).columns * tile.column_atoms * tile.column_warps

    def _read_bytes(self, rows: int, columns: int) -> tuple[float, float]:
        """Bytes that a block reads in one round, and those of the lines that its loads touch.

        Every warp loads its own fragments, so what does not depend on the rows is touched once
        for each of them.
        """
        roles, candidate = self.stage.roles, self.candidate
        extent = {roles.row: rows, roles.column: columns, roles.fold: candidate.block}
        read_bytes = touched_bytes = 0.0
        for read in profile(self.stage).reads:
            block = float(read.size_bytes)
            for axis in read.axes:
                if axis not in roles.batch:
                    block *= min(extent.get(axis, axis.size), axis.size)
            read_bytes += block
            warps = 1 if roles.row in read.axes else candidate.inner.row_warps
            touched_bytes += block * warps * LINE_BYTES / self._line_share(read)
        return read_bytes, touched_bytes

    def _line_share(self, read: Read) -> float:
        """Of each line that a load touches, the bytes that its warp uses."""
        kind = atom(self.candidate.inner.atom)
        if kind.instruction is None:
            return LINE_BYTES  # a warp lies along a row
        if not kind.on_tensor_cores:
            return 16.0  # each lane has a row of its own, or all share one element
        if read.part == "tile":
            return 8.0 * read.size_bytes  # four lanes, two elements each
        return LINE_BYTES if read.along_columns else 16.0 * read.size_bytes  # of a depth step


LINE_BYTES = 128.0


def work_of(stage: Stage, candidate: Candidate) -> Work:
    """The work of one launch of the stage under this geometry."""
    return Counts(stage, candidate).work()


def _tiles(axis: Axis | None, extent: int) -> int:
    return -(-axis.size // extent) if axis is not None else 1


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
