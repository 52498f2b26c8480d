"""What of a stage's work does not depend on its geometry: operations, reads, contractions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from .axes import Axis, size_of
from .carriers import bases_of, lift_of, monoid_of, plain
from .dtypes import DTYPES
from .free import free
from .pipes import operations
from .roles import Contraction, placeholder, summand
from .shapes import shape_of
from .stages import Stage, Target
from .terms import rewrite, subterms, variable

_OTHER = variable("Expr", "other")


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

    @property
    def is_looked_up(self) -> bool:
        """Whether a table says where elements are."""
        return any(node.head == "Load" for node in subterms(*self.load.args[1]))


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
    again: tuple[Read, ...]  # what an epilogue reads once more, if it is not at hand
    drifts: bool  # a base that others are kept relative to grows with the fold's own index


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
        for node in subterms(plain(monoid_of(channel), placeholder(channel), _OTHER)):
            for pipe, count in operations(node).items():
                counted[True, True, pipe] = counted.get((True, True, pipe), 0.0) + count
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
    read_bytes = _read_bytes(reads)
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
        again=tuple(
            read
            for read in reads
            if stage.roles.fold in read.axes
            and any(
                read.load is node for target in stage.epilogue for node in subterms(target.expr)
            )
        ),
        drifts=_drifts(stage),
    )


_KEEPS_GROWTH = ("Add", "Sub", "Mul", "Div", "Neg", "Where", "Max2", "Min2", "Cast", "Mat")


def _drifts(stage: Stage) -> bool:
    """Whether the lift of some base has the index of the fold in it, outside of conditions, array
    indices and functions that bound it."""
    if stage.fold is None:
        return False

    def grows(term: Any) -> bool:
        if term.head == "Idx":
            return term.args[0] is stage.roles.fold
        parts = [child for child in term.children if child.sort == "Expr"]
        parts = parts[1:] if term.head == "Where" else parts
        return term.head in _KEEPS_GROWTH and any(map(grows, parts))

    bases = {base for channel in stage.channels for base in bases_of(channel)}
    return any(grows(lift_of(base)) for base in bases if monoid_of(base) == "Max")


def _read_bytes(reads: tuple[Read, ...]) -> float:
    """What is read at least once: of each array what its indices reach, or all that it has."""
    total: dict[Any, float] = {}
    for read in reads:
        array = read.load.args[0]
        reached = math.prod(axis.size for axis in read.axes)
        held = math.prod(size_of(extent) for extent in array.args[2])
        total[array] = max(total.get(array, 0.0), float(min(reached, held)) * read.size_bytes)
    return sum(total.values())


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
    after = [
        rewrite(target.expr, {node: placeholder(node.args[1]) for node in _channels_read(target)})
        for target in stage.epilogue
    ]
    operands = {channel: [found.left, found.right] for channel, found in shape_of(stage).outer}
    for channel in stage.channels:
        alone = summand(channel, {base: placeholder(base) for base in bases_of(channel)})
        after += operands.get(channel, [alone])  # products of tensor cores are no operations
    return after


def _channels_read(target: Target) -> Iterator[Any]:
    return (node for node in subterms(target.expr) if node.head == "Get")


def _outside_sums(expr: Any) -> Iterator[Any]:
    """The pointwise nodes of an expression that stand in no reduction and read no fold."""
    if expr.head in ("Red", "Get", "Load", "Num", "Idx", "Len", "Var"):
        return
    for child in expr.children:
        if child.sort == "Expr":
            yield from _outside_sums(child)
    yield expr
