"""How a stage becomes a tile program: by the roles of its axes and the carrier's own combine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..carriers import (
    bases_of,
    identity,
    is_twisted,
    lift_of,
    monoid_of,
    plain,
    representation_of,
)
from ..choices import Choices
from ..knobs import Tile as Geometry
from ..roles import Contraction, beside, summand, transported
from ..shapes import Shape as Sums
from ..shapes import (
    free_base,
    inner_contraction,
    monotone,
    multiple_of,
    reductions,
    riders,
    scaled,
    scales_outward,
    shape_of,
    stays_in_lanes,
    tiles_of,
)
from ..skipping import (
    assume,
    before_the_end,
    end_of_columns,
    end_of_rows,
    heavy_last,
    is_static,
    part_of_fold,
)
from ..stages import Stage
from ..terms import Chan, make, rewrite, subterms, variable
from .atoms import atom
from .pipelining import pipelined, swept
from .tile import (
    AcrossLanes,
    Columns,
    Contract,
    Fill,
    FirstColumn,
    InnerFold,
    LaneFold,
    Loop,
    Map,
    Op,
    Publish,
    Rebase,
    Receive,
    RowFold,
    Shape,
    Store,
    Sweep,
    TileProgram,
)
from .walking import changed


def tile_program(
    stage: Stage,
    name: str,
    inner: Geometry,
    outer: Geometry,
    depth_steps: Mapping[Any, int],
    choices: Choices,
) -> TileProgram:
    """The stage on tiles of these geometries.

    `inner` is the geometry of tiles row × fold axis (row × column in a map), `outer` that of the
    accumulators row × column; `depth_steps` gives the depth steps for each contracted axis.
    """
    writer = _Writer(stage, inner, outer, depth_steps, choices)
    rows = atom(inner.atom).rows * inner.row_atoms * inner.row_warps
    last = stage.fold is None or heavy_last(stage, rows)
    ops = tuple(writer.program())
    ends = end_of_rows(stage), end_of_columns(stage)
    return TileProgram(name, stage.roles, inner, outer, choices, ops, last, *ends)


class _Writer:
    def __init__(
        self,
        stage: Stage,
        inner: Geometry,
        outer: Geometry,
        depth_steps: Mapping[Any, int],
        choices: Choices,
    ) -> None:
        self.stage, self.roles, self.choices = stage, stage.roles, choices
        self.inner, self.outer, self.depth_steps = inner, outer, depth_steps
        self.sums: Sums = shape_of(stage)
        self.rows = {self.roles.row} if self.roles.row is not None else set()
        self.contracted = {channel for channel, _ in self.sums.outer}
        movable = (c for c in stage.channels if free_base(stage, c))
        self.lazy = set(movable) if choices.base != "max" else set()
        self.shifted = {
            base
            for base in self.lazy
            if choices.start == "base" and multiple_of(stage, base) is not None
        }
        self.partners = riders(stage) if choices.sum == "ones" else {}
        self.names = 0
        self.old = {c: self.fresh("s") for c in stage.channels}
        self.inside: dict[Any, Any] = {}
        self.new: dict[Chan, Any] = {}

    def fresh(self, prefix: str) -> Any:
        self.names += 1
        return variable("Expr", f"{prefix}{self.names}")

    def shape(self, channel: Chan) -> Shape:
        if channel in self.partners.values():
            return "ones"
        return "outer" if channel in self.contracted else "rows"

    # ---- the program -----------------------------------------------------------------------------

    def program(self) -> list[Op]:
        ops: list[Op] = [Fill(self.old[c], self.shape(c), identity(c)) for c in self.stage.channels]
        if self.roles.fold is not None:
            ops.append(self.loop())
            for channel in self.partners.values():
                whole = self.fresh("r")
                ops.append(FirstColumn(whole, self.old[channel]))
                self.old[channel] = whole
            for channel in self.stage.channels:
                if self.in_lanes(channel):
                    whole, part = self.fresh("r"), self.old[channel]
                    ops.append(AcrossLanes(whole, monoid_of(channel), part))
                    self.old[channel] = whole
            if self.inner.column_warps > 1:
                self.merge(ops)
        if self.stage.columns is not None:
            return [*ops, self.columns(self.stage.columns)]
        own = [each for each in self.stage.targets if not self.stage.follows(each)]
        return [*ops, *map(self.store, own), *self.epilogue()]

    def columns(self, stage: Stage) -> Columns:
        """The fold over the columns of the accumulators: one block is all of it, and no state is
        before it."""
        ((red, _),), (channel,) = shape_of(stage).inner, self.stage.channels
        after = _Writer(stage, self.outer, self.outer, self.depth_steps, self.choices)
        after.names, after.old = self.names, {}
        after.inside[red] = self.old[channel]
        held = before_the_end(stage)
        ops = [changed(op, lambda expr: assume(expr, held)) for op in after.body()]
        after.old = after.new
        if after.inner.column_warps > 1:
            after.merge(ops)
        return Columns((*ops, *map(after.store, stage.targets)))

    def epilogue(self) -> list[Op]:
        """What follows for each element of the fold, over its blocks once more.

        Where one block is all, what it loaded is still in registers; else the last blocks come
        first, which caches still have.
        """
        ops = [self.store(target) for target in self.stage.epilogue]
        if not ops:
            return []
        fold, choices = self.roles.fold, replace(self.choices, skew="off")
        assert fold is not None, "an epilogue follows a fold"
        return [replace(pipelined(fold, self.block, ops, (), (), choices), backwards=True)]

    def merge(self, ops: list[Op]) -> None:
        """The states of the warps along the fold combined, in the order of their places."""
        channels = self.stage.channels
        ops.append(Publish(tuple(self.old[channel] for channel in channels)))
        total: dict[Chan, Any] = {}
        for place in range(self.inner.column_warps):
            part = {channel: self.fresh("r") for channel in channels}
            empty = (None if self.all_fold else identity(c) for c in channels)
            pairs = zip(channels, empty, strict=True)
            ops += [Receive(part[c], self.old[c], place, nothing) for c, nothing in pairs]
            total = self.combined(ops, total, part) if total else part
        self.old = total

    @property
    def all_fold(self) -> bool:
        """Whether every warp along the fold has an element of it."""
        fold = self.roles.fold
        assert fold is not None, "warps along a fold have one"
        return is_static(self.stage, self.choices) and fold.size >= self.block

    def combined(
        self, ops: list[Op], one: Mapping[Chan, Any], other: Mapping[Chan, Any]
    ) -> dict[Chan, Any]:
        """Two states as one, each channel carried to the bases that both have together."""
        new: dict[Chan, Any] = {}
        for channel in self.stage.channels:  # bases stand before what they twist
            sides = (transported(channel, each, {**each, **new}) for each in (one, other))
            both = plain(monoid_of(channel), *sides)
            new[channel] = self.fresh("s")
            ops.append(Map(new[channel], "rows", both))
        return new

    def store(self, target: Any) -> Store:
        gets = {
            node: self.old[node.args[1]]
            for node in subterms(target.expr)
            if node.head == "Get" and node.args[0] is self.stage.state
        }
        if self.roles.fold is None or self.stage.follows(target):
            return Store(target, "inner", rewrite(target.expr, gets))
        columns = self.roles.column is not None and self.roles.column in target.axes
        return Store(target, "outer" if columns else "rows", rewrite(target.expr, gets))

    @property
    def block(self) -> int:
        """Elements of the fold in one round of its loop."""
        inner = self.inner
        return inner.column_atoms * inner.column_warps * atom(inner.atom).columns

    def loop(self) -> Loop | Sweep:
        fold = self.roles.fold
        assert fold is not None, "only a stage with a fold has a loop"
        ops = self.body()
        carried = tuple(
            (self.old[c], self.new[c])
            for c in self.stage.channels
            if self.new[c] is not self.old[c]
        )
        state = tuple(old for channel, old in self.old.items() if channel not in self.lazy)
        tiles = tiles_of(self.stage)
        if is_static(self.stage, self.choices):
            return pipelined(fold, self.block, ops, carried, state, self.choices, tiles)
        extent = part_of_fold(self.stage, self.choices)
        early, plain = (
            [changed(op, lambda expr: assume(expr, held)) for op in ops]  # noqa: B023
            for held in (extent.early, extent.assumed)
        )
        return swept(
            fold, self.block, ops, early, plain, carried, state, self.choices, extent, tiles
        )

    def body(self) -> list[Op]:
        """The operations that merge one block of the fold into the state."""
        ops: list[Op] = []
        self.reduce(ops)
        for channel in self.stage.channels:
            if channel in self.lazy:
                self.rebase(ops, channel)
            elif channel in self.contracted:
                self.contract(ops, channel)
            elif channel not in self.partners.values():
                self.fold_rows(ops, channel)
        return ops

    def element(self, channel: Chan) -> Any:
        """What one element of the fold adds, with the body's reductions as tiles."""
        return self.in_tiles(summand(channel, self.new))

    def in_tiles(self, expr: Any) -> Any:
        """A term of the body in the body's tiles; differences from a base that a contraction
        starts at are there already."""
        expr = rewrite(scales_outward(expr), self.inside)
        for base in self.shifted & set(self.new):
            lift = rewrite(lift_of(base), self.inside)
            expr = rewrite(expr, {make("Sub", lift, self.new[base]): lift})
        return expr

    def reduce(self, ops: list[Op]) -> None:
        """A tile for each reduction in the body, computed once for all channels."""
        assert self.roles.fold is not None, "only a fold has a body"
        lifts = [
            lift_of(each)
            for channel in self.stage.channels
            for each in (channel, *bases_of(channel))
        ]
        for red in dict.fromkeys(red for lift in lifts for red in reductions(lift)):
            if red in self.inside:
                continue
            into = self.inside[red] = self.fresh("t")
            product_of = inner_contraction(red, self.rows, self.roles.fold)
            if product_of is None:
                ops.append(InnerFold(into, red))
                continue
            geometry = self.inner.with_columns(
                self.inner.column_atoms, self.depth_steps[product_of.depth]
            )
            start = self.relative(ops, red)
            ops.append(Contract(into, "inner", product_of, geometry, start))

    def relative(self, ops: list[Op], red: Any) -> Any | None:
        """Where a contraction starts at minus the base that its elements are kept relative to."""
        for base in self.shifted:
            if multiple_of(self.stage, base) is red:
                start, scale = self.fresh("r"), scaled(lift_of(base))[1]
                ops.append(Map(start, "rows", -_finite(self.old[base]) / scale))
                return start
        return None

    # ---- channels --------------------------------------------------------------------------------

    def in_lanes(self, channel: Chan) -> bool:
        """Whether each lane keeps its own part of the channel's rows until the end."""
        return (
            self.choices.sum == "lane"
            and channel not in self.contracted
            and stays_in_lanes(self.stage, channel)
        )

    def start(self, channel: Chan) -> Any:
        """The channel's old value as it reads at the new bases."""
        if any(base in self.lazy for base in bases_of(channel)):
            return self.old[channel]  # it moved with its base
        return transported(channel, self.old, self.new)

    def fold_rows(self, ops: list[Op], channel: Chan) -> None:
        monoid, target = monoid_of(channel), self.fresh("s")
        tile, folded = self.fresh("t"), self.fresh("r")
        element, scale = monotone(monoid, self.element(channel))
        ops.append(Map(tile, "inner", element, identity(channel)))
        in_lanes = self.in_lanes(channel)
        ops.append((LaneFold if in_lanes else RowFold)(folded, monoid, tile))
        whole = scale * folded if scale != 1.0 else folded
        if channel in self.old:
            whole = plain(monoid, self.start(channel), whole)
        if whole is not folded:
            ops.append(Map(target, "rows", whole))
        self.new[channel] = target if whole is not folded else folded

    def rebase(self, ops: list[Op], channel: Chan) -> None:
        """A base that moves only where it must, and what is kept relative to it along with it."""
        monoid, old, new = monoid_of(channel), self.old[channel], self.fresh("r")
        tile, part = self.fresh("t"), self.fresh("r")
        element, scale = monotone(monoid, self.element(channel))
        ops.append(Map(tile, "inner", element, identity(channel)))
        ops.append(LaneFold(part, monoid, tile))
        whole: Any = scale * part if scale != 1.0 else part
        if channel in self.shifted:
            whole = whole + _finite(old)
        if whole is not part:
            ops.append(Map(absolute := self.fresh("r"), "rows", whole))
            part = absolute
        twisted = [c for c in self.stage.channels if channel in bases_of(c)]
        slacks = [representation_of(c).slack for c in twisted]
        moved = tuple(
            (self.old[c], self.shape(c), transported(c, self.old, {**self.old, channel: new}))
            for c in twisted
        )
        if channel in self.shifted:
            change = (_finite(old) - _finite(new)) / scale
            moved = (*moved, (element, "inner", element + change))
        slack = min(s for s in slacks if s is not None) if self.choices.base == "lazy" else 0.0
        ops.append(Rebase(old, monoid, part, slack, new, moved))
        self.new[channel] = old

    def contract(self, ops: list[Op], channel: Chan) -> None:
        fold, column = self.roles.fold, self.roles.column
        assert fold is not None, "a contraction over the fold has one"
        assert column is not None, "a contraction over the fold has columns"
        target, start = self.fresh("s"), self.start(channel)
        if is_twisted(channel) and start is not self.old[channel]:
            moved = self.fresh("t")
            ops.append(Map(moved, "outer", start))
            start = moved
        found = beside(summand(channel, self.new), fold, self.rows, {column})
        assert found is not None, f"the roles promised a contraction of {channel}"
        left, right = self.in_tiles(found.left), self.in_tiles(found.right)
        handoff = None
        if not set(self.inside.values()).isdisjoint(subterms(left)):
            handoff = self.fresh("t")
            ops.append(Map(handoff, "inner", left, 0.0))
        geometry = self.outer.with_columns(self.outer.column_atoms, self.depth_steps[fold])
        product_of = Contraction(fold, left, right)
        ones = self.ride(ops, channel)
        ops.append(Contract(target, "outer", product_of, geometry, start, handoff, ones))
        self.new[channel] = target

    def ride(self, ops: list[Op], channel: Chan) -> tuple[Any, Any] | None:
        """The sum that rides this contraction: its new tile, and its old value at the new bases."""
        if channel not in self.partners:
            return None
        other = self.partners[channel]
        start = self.start(other)
        if start is not self.old[other]:
            moved = self.fresh("t")
            ops.append(Map(moved, "ones", start))
            start = moved
        self.new[other] = self.fresh("s")
        return self.new[other], start


def _finite(base: Any) -> Any:
    """A base, or 0 where nothing has been folded into it yet."""
    return make("Where", make("Eq", base, make("Num", float("-inf"))), make("Num", 0.0), base)
