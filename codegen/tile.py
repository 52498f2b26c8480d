"""What a tile program is: a small, closed set of operations on tiles that know their axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ..axes import Axis
from ..knobs import Tile as Geometry
from ..monoids import MONOIDS
from ..notation import pretty
from ..roles import Contraction, Roles
from ..stages import Target

Shape = Literal["rows", "inner", "outer"]  # one value a row; a tile row × fold; row × column


@dataclass(frozen=True)
class Fill:
    """A new tile that holds one value everywhere."""

    into: Any
    shape: Shape
    value: float

    def __str__(self) -> str:
        return f"{self.into} = fill {self.value:g} [{self.shape}]"


@dataclass(frozen=True)
class Map:
    """A pointwise expression of tiles, loads and indices, element by element.

    Where `masked` is a number, elements past the end of the fold axis take it instead.
    """

    into: Any
    shape: Shape
    expr: Any
    masked: float | None = None

    def __str__(self) -> str:
        mask = "" if self.masked is None else f", {self.masked:g} past the end"
        return f"{self.into} = map {pretty(self.expr)}{mask} [{self.shape}]"


@dataclass(frozen=True)
class InnerFold:
    """A reduction inside the body that no atom computes: a loop over its axis in each lane,
    then a butterfly over the lanes that hold the same element."""

    into: Any
    red: Any

    def __str__(self) -> str:
        return f"{self.into} = loop {pretty(self.red)} [inner]"


@dataclass(frozen=True)
class Contract:
    """`into = start + left @ right` by an atom; without a start the sum starts at zero.

    `handoff` is the tile that the left operand is, held as an accumulator: it passes through
    shared memory to become an operand. Other operands are evaluated where they are needed.
    """

    into: Any
    shape: Shape
    contraction: Contraction
    geometry: Geometry
    start: Any | None = None
    handoff: Any | None = None

    def __str__(self) -> str:
        left = f"handoff({self.handoff})" if self.handoff is not None else self.contraction.left
        start = "" if self.start is None else f"{self.start} + "
        return (
            f"{self.into} = {start}contract over {self.contraction.depth}: {left} @ "
            f"{self.contraction.right} by {self.geometry} [{self.shape}]"
        )


@dataclass(frozen=True)
class RowFold:
    """Each row of an inner tile folded: in registers, then over the lanes that share the row."""

    into: Any
    monoid: str
    tile: Any

    def __str__(self) -> str:
        return f"{self.into} = {MONOIDS[self.monoid].symbol} over columns of {self.tile} [rows]"


@dataclass(frozen=True)
class Loop:
    """The serial level of the tower: `body` for each block of the fold axis, in order.

    `carried` pairs each tile with the one that replaces it for the next round. `rounds` full
    blocks run in a loop; a remainder runs `rest` once, masked by the carrier's identity.
    """

    axis: Axis
    block: int
    rounds: int
    body: tuple[Any, ...]
    rest: tuple[Any, ...]
    carried: tuple[tuple[Any, Any], ...]

    def __str__(self) -> str:
        lines = [f"loop {self.axis} by {self.block}, {self.rounds} full blocks:"]
        lines += [f"  {line}" for op in self.body for line in str(op).splitlines()]
        lines += [f"  {old} <- {new}" for old, new in self.carried]
        if self.rest:
            lines += [f"rest of {self.axis}:"]
            lines += [f"  {line}" for op in self.rest for line in str(op).splitlines()]
            lines += [f"  {old} <- {new}" for old, new in self.carried]
        return "\n".join(lines)


@dataclass(frozen=True)
class Store:
    """An output or buffer written: `expr` at each element of a shape."""

    target: Target
    shape: Shape
    expr: Any

    def __str__(self) -> str:
        axes = ", ".join(map(str, self.target.axes))
        return f"{self.target.name}[{axes}] = store {pretty(self.expr)} [{self.shape}]"


Op = Fill | Map | InnerFold | Contract | RowFold | Loop | Store


@dataclass(frozen=True)
class TileProgram:
    """One kernel as operations on tiles; `inner` and `outer` are the geometries of its tiles."""

    name: str
    roles: Roles
    inner: Geometry
    outer: Geometry
    ops: tuple[Op, ...]

    def __str__(self) -> str:
        batch = ", ".join(f"{axis}={axis.size}" for axis in self.roles.batch) or "1"
        head = (
            f"{self.name}: grid over {batch}; rows {self.roles.row} by {self.inner}; "
            f"columns {self.roles.column} by {self.outer}; fold {self.roles.fold}"
        )
        return "\n".join([head, *(f"  {line}" for op in self.ops for line in str(op).splitlines())])


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Every operation, loops' bodies included, in order."""
    for op in ops:
        yield op
        if isinstance(op, Loop):
            yield from walk(op.body)
            yield from walk(op.rest)
