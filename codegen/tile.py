"""What a tile program is: a small, closed set of operations on tiles that know their axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..axes import Axis
from ..choices import Choices, Staging
from ..intervals import Interval, Truth
from ..knobs import Tile as Geometry
from ..monoids import MONOIDS
from ..notation import pretty
from ..roles import Contraction, Roles
from ..stages import Target

# one value a row; a tile row × fold; row × column; and row × one atom of columns that are alike
Shape = Literal["rows", "inner", "outer", "ones"]


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
    `ones` is a tile and its start for one more atom of columns, where the right operand is 1.
    """

    into: Any
    shape: Shape
    contraction: Contraction
    geometry: Geometry
    start: Any | None = None
    handoff: Any | None = None
    ones: tuple[Any, Any] | None = None

    def __str__(self) -> str:
        left = f"handoff({self.handoff})" if self.handoff is not None else self.contraction.left
        start = "" if self.start is None else f"{self.start} + "
        return (
            f"{self.into} = {start}contract over {self.contraction.depth}: {left} @ "
            f"{self.contraction.right} by {self.geometry} [{self.shape}]"
            + ("" if self.ones is None else f"; {self.ones[0]} = {self.ones[1]} + {left} @ 1")
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
class LaneFold:
    """Each row of an inner tile folded as far as each lane holds it: a part of a row a lane."""

    into: Any
    monoid: str
    tile: Any

    def __str__(self) -> str:
        return f"{self.into} = {MONOIDS[self.monoid].symbol} in each lane of {self.tile} [rows]"


@dataclass(frozen=True)
class AcrossLanes:
    """Parts of rows folded over the lanes that share the row."""

    into: Any
    monoid: str
    part: Any

    def __str__(self) -> str:
        return f"{self.into} = {MONOIDS[self.monoid].symbol} across lanes of {self.part} [rows]"


@dataclass(frozen=True)
class Publish:
    """What each warp along the fold has of these tiles, left where those of its rows find it."""

    tiles: tuple[Any, ...]

    def __str__(self) -> str:
        return f"publish {', '.join(map(str, self.tiles))} to the warps of the same rows"


@dataclass(frozen=True)
class Receive:
    """What the warp at a place along the fold has published of a tile of one value a row.

    It is `empty` where the warp had no element of the fold; None: every warp has one.
    """

    into: Any
    tile: Any
    place: int
    empty: float | None

    def __str__(self) -> str:
        return f"{self.into} = {self.tile} of fold warp {self.place} [rows]"


@dataclass(frozen=True)
class FirstColumn:
    """One value a row of a tile whose columns are alike."""

    into: Any
    tile: Any

    def __str__(self) -> str:
        return f"{self.into} = first column of {self.tile} [rows]"


@dataclass(frozen=True)
class Rebase:
    """The base moves only where it must: where some lane's part exceeds it by more than `slack`.

    Then `base` becomes the true fold of both, and each tile in `moved` is carried along: it takes
    the value of its expression, in which `new` is the base after the move. Else nothing changes.
    """

    base: Any
    monoid: str
    part: Any
    slack: float
    new: Any
    moved: tuple[tuple[Any, Shape, Any], ...]

    def __str__(self) -> str:
        lines = [f"where {self.part} > {self.base} + {self.slack:g} in any lane of the warp:"]
        symbol = MONOIDS[self.monoid].symbol
        lines.append(f"  {self.new} = {symbol}({self.base}, {symbol} across lanes of {self.part})")
        lines += [f"  {tile} = {pretty(expr)} [{shape}]" for tile, shape, expr in self.moved]
        return "\n".join([*lines, f"  {self.base} <- {self.new}"])


# ---- streaming -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slab:
    """A streamed operand in shared memory; `lead` is how many blocks ahead of the slot's it is."""

    load: Any
    lead: int = 0

    @property
    def name(self) -> str:
        return str(self.load.args[0].args[0])

    def __str__(self) -> str:
        return f"{self.name}{f' (+{self.lead} block)' if self.lead else ''}"


@dataclass(frozen=True)
class Pipe:
    """Operands that come together: a ring of slots, `groups` times filled, `steps` blocks each."""

    slabs: tuple[Slab, ...]
    staging: Staging
    groups: int

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.slabs))} by {self.staging}"


@dataclass(frozen=True)
class Acquire:
    """Wait until the slot of a group is full. `group` is None for the loop's own."""

    pipe: Pipe
    group: int | None

    def __str__(self) -> str:
        return f"acquire {self.pipe}{'' if self.group is None else f', slot {self.group}'}"


@dataclass(frozen=True)
class Release:
    """A group's slot may be filled anew."""

    pipe: Pipe
    group: int | None

    def __str__(self) -> str:
        return f"release {self.pipe}{'' if self.group is None else f', slot {self.group}'}"


@dataclass(frozen=True)
class Ahead:
    """Operations on the block after the one in hand."""

    ops: tuple[Any, ...]

    def __str__(self) -> str:
        return "\n".join(["ahead:", *(f"  {line}" for line in lines_of(self.ops))])


@dataclass(frozen=True)
class Block:
    """The operations of one block of the fold: `at` counts blocks, in a loop from its counter.

    `step` is its place in the slot of its group (None: in what was fetched before the loop).
    `carried` pairs each tile with the one that replaces it. `masked` says that it is the last
    one and reaches past the end of the axis; `masked_ahead` the same of the block after it.
    """

    at: int
    step: int | None
    ops: tuple[Any, ...]
    carried: tuple[tuple[Any, Any], ...] = ()
    masked: bool = False
    masked_ahead: bool = False

    def __str__(self) -> str:
        lines = [f"block {self.at}{', masked' if self.masked else ''}:"]
        lines += [f"  {line}" for line in lines_of(self.ops)]
        return "\n".join([*lines, *(f"  {old} <- {new}" for old, new in self.carried)])


@dataclass(frozen=True)
class Loop:
    """The serial level of the tower: every block of the fold axis, in order.

    `before` runs once, then `body` for each `stride` blocks, `rounds` times, then `after`. Where it
    goes `backwards`, `after` runs first and then the rounds, the last one first.
    """

    axis: Axis
    block: int
    stride: int
    rounds: int
    pipes: tuple[Pipe, ...]
    before: tuple[Any, ...]
    body: tuple[Any, ...]
    after: tuple[Any, ...]
    backwards: bool = False

    def __str__(self) -> str:
        head = f"loop {self.axis} by {self.stride} x {self.block}, {self.rounds} rounds"
        head += ", the last first" if self.backwards else ""
        through = f", through {'; '.join(map(str, self.pipes))}" if self.pipes else ""
        rounds = [f"{head}{through}:", *(f"  {line}" for line in lines_of(self.body))]
        after = lines_of(self.after)
        ordered = [*after, *rounds] if self.backwards else [*rounds, *after]
        return "\n".join([*lines_of(self.before), *ordered])


@dataclass(frozen=True)
class Sweep:
    """The serial level of a tower whose first and last blocks each tile finds when it runs.

    Groups of `stride` blocks from the first that `live` reaches to the last are worked on: `plain`
    where `full` holds for a whole group, `early` before it, `masked` after it. `before` runs once
    ahead of the first group; `last`, if there is one, is what the last group is. A tile without
    live elements does nothing. Past `bound` memory may hold anything; None: there the axis ends.
    `scan` narrows the two down further, by data.
    """

    axis: Axis
    block: int
    stride: int
    pipes: tuple[Pipe, ...]
    live: Interval
    full: Interval
    bound: Any | None
    scan: Truth | None
    before: tuple[Any, ...]
    early: tuple[Any, ...]
    plain: tuple[Any, ...]
    masked: tuple[Any, ...]
    last: tuple[Any, ...]

    def __str__(self) -> str:
        head = f"sweep {self.axis} by {self.stride} x {self.block}, within {self.live}"
        through = f", through {'; '.join(map(str, self.pipes))}" if self.pipes else ""
        lines = [f"{head}{through}:"]
        lines += [f"  where {pretty(self.scan.may)}"] if self.scan is not None else []
        for name, ops in (
            ("first", self.before),
            ("before that", self.early),
            (f"within {self.full}", self.plain),
            ("elsewhere", self.masked),
            ("last", self.last),
        ):
            lines += [f"  {name}:", *(f"    {line}" for line in lines_of(ops))] if ops else []
        return "\n".join(lines)


def lines_of(ops: tuple[Any, ...]) -> list[str]:
    return [line for op in ops for line in str(op).splitlines()]


@dataclass(frozen=True)
class Store:
    """An output or buffer written: `expr` at each element of a shape."""

    target: Target
    shape: Shape
    expr: Any

    def __str__(self) -> str:
        axes = ", ".join(map(str, self.target.axes))
        return f"{self.target.name}[{axes}] = store {pretty(self.expr)} [{self.shape}]"


@dataclass(frozen=True)
class Columns:
    """Operations in which the accumulators are the tile row × fold: their columns are folded."""

    ops: tuple[Any, ...]

    def __str__(self) -> str:
        return "\n".join(["in the accumulators:", *(f"  {line}" for line in lines_of(self.ops))])


Op = (
    Fill | Map | InnerFold | Contract | RowFold | LaneFold | AcrossLanes | Publish | Receive
    | FirstColumn | Rebase | Acquire | Release | Ahead | Block | Loop | Sweep | Columns | Store
)  # fmt: skip


@dataclass(frozen=True)
class TileProgram:
    """One kernel as operations on tiles; `inner` and `outer` are the geometries of its tiles."""

    name: str
    roles: Roles
    inner: Geometry
    outer: Geometry
    choices: Choices
    ops: tuple[Op, ...]
    heavy_last: bool = True  # whether row tiles grow heavier with their number
    end_of_rows: Any | None = None  # before which row all lie that count; None: all do
    end_of_columns: Any | None = None  # the same of columns

    @property
    def warps(self) -> int:
        """The warps of a block that compute."""
        return max(self.inner.warps, self.outer.warps)

    def __str__(self) -> str:
        batch = ", ".join(f"{axis}={axis.size}" for axis in self.roles.batch) or "1"
        head = (
            f"{self.name}: grid over {batch}; rows {self.roles.row} by {self.inner}; "
            f"columns {self.roles.column} by {self.outer}; fold {self.roles.fold}"
        )
        return "\n".join([head, *(f"  {line}" for line in lines_of(self.ops))])
