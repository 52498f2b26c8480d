"""How a stage becomes a tile program: by the roles of its axes and the carrier's own combine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..carriers import bases_of, identity, is_twisted, lift_of, monoid_of, plain
from ..knobs import Tile as Geometry
from ..roles import Contraction, contraction, summand, transported
from ..shapes import Shape as Sums
from ..shapes import inner_contraction, reductions, shape_of
from ..stages import Stage
from ..terms import Chan, rewrite, subterms, variable
from .atoms import atom
from .tile import Contract, Fill, InnerFold, Loop, Map, Op, RowFold, Shape, Store, TileProgram


def tile_program(
    stage: Stage, name: str, inner: Geometry, outer: Geometry, depth_steps: Mapping[Any, int]
) -> TileProgram:
    """The stage on tiles of these geometries.

    `inner` is the geometry of tiles row × fold axis (row × column in a map), `outer` that of the
    accumulators row × column; `depth_steps` gives the depth steps for each contracted axis.
    """
    writer = _Writer(stage, inner, outer, depth_steps)
    return TileProgram(name, stage.roles, inner, outer, tuple(writer.program()))


class _Writer:
    def __init__(
        self, stage: Stage, inner: Geometry, outer: Geometry, depth_steps: Mapping[Any, int]
    ) -> None:
        self.stage, self.roles = stage, stage.roles
        self.inner, self.outer, self.depth_steps = inner, outer, depth_steps
        self.sums: Sums = shape_of(stage)
        self.rows = {self.roles.row} if self.roles.row is not None else set()
        self.contracted = {channel for channel, _ in self.sums.outer}
        self.names = 0
        self.old = {c: self.fresh("s") for c in stage.channels}

    def fresh(self, prefix: str) -> Any:
        self.names += 1
        return variable("Expr", f"{prefix}{self.names}")

    def shape(self, channel: Chan) -> Shape:
        return "outer" if channel in self.contracted else "rows"

    # ---- the program -----------------------------------------------------------------------------

    def program(self) -> list[Op]:
        ops: list[Op] = [Fill(self.old[c], self.shape(c), identity(c)) for c in self.stage.channels]
        if self.roles.fold is not None:
            ops.append(self.loop())
        return ops + [self.store(target) for target in self.stage.targets]

    def store(self, target: Any) -> Store:
        gets = {
            node: self.old[node.args[1]]
            for node in subterms(target.expr)
            if node.head == "Get" and node.args[0] is self.stage.state
        }
        columns = self.roles.column is not None and self.roles.column in target.axes
        if self.roles.fold is None:
            return Store(target, "inner", target.expr)
        return Store(target, "outer" if columns else "rows", rewrite(target.expr, gets))

    def loop(self) -> Loop:
        fold = self.roles.fold
        assert fold is not None, "only a stage with a fold has a loop"
        block = self.inner.column_atoms * self.inner.column_warps * atom(self.inner.atom).columns
        rounds, rest = divmod(fold.size, block)
        body, new = self.block(masked=False)
        carried = tuple((self.old[c], new[c]) for c in self.stage.channels)
        masked = self.block(masked=True, names=new)[0] if rest else []
        return Loop(fold, block, rounds, tuple(body), tuple(masked), carried)

    def block(
        self, *, masked: bool, names: Mapping[Chan, Any] | None = None
    ) -> tuple[list[Op], dict[Chan, Any]]:
        """The operations that merge one block of the fold into the state, and the new state."""
        ops: list[Op] = []
        new: dict[Chan, Any] = {}
        inside = self.reduced(ops)
        for channel in self.stage.channels:
            target = names[channel] if names else self.fresh("s")
            if channel in self.contracted:
                self.contract(ops, channel, inside, new, target, masked)
            else:
                self.fold_rows(ops, channel, inside, new, target, masked)
            new[channel] = target
        return ops, new

    def element(self, channel: Chan, new: Mapping[Chan, Any]) -> Any:
        return summand(channel, new) if monoid_of(channel) == "Sum" else lift_of(channel)

    def reduced(self, ops: list[Op]) -> dict[Any, Any]:
        """A tile for each reduction in the body, computed once for all channels."""
        assert self.roles.fold is not None, "only a fold has a body"
        found: dict[Any, Any] = {}
        lifts = [
            lift_of(each)
            for channel in self.stage.channels
            for each in (channel, *bases_of(channel))
        ]
        for red in dict.fromkeys(red for lift in lifts for red in reductions(lift)):
            into = found[red] = self.fresh("t")
            product_of = inner_contraction(red, self.rows, self.roles.fold)
            if product_of is None:
                ops.append(InnerFold(into, red))
                continue
            geometry = self.inner.with_columns(
                self.inner.column_atoms, self.depth_steps[product_of.depth]
            )
            ops.append(Contract(into, "inner", product_of, geometry))
        return found

    # ---- channels --------------------------------------------------------------------------------

    def fold_rows(
        self,
        ops: list[Op],
        channel: Chan,
        inside: dict[Any, Any],
        new: Mapping[Chan, Any],
        target: Any,
        masked: bool,
    ) -> None:
        monoid = monoid_of(channel)
        tile, folded = self.fresh("t"), self.fresh("r")
        expr = rewrite(self.element(channel, new), inside)
        ops.append(Map(tile, "inner", expr, identity(channel) if masked else None))
        ops.append(RowFold(folded, monoid, tile))
        moved = transported(channel, self.old, new)
        ops.append(Map(target, "rows", plain(monoid, moved, folded)))

    def contract(
        self,
        ops: list[Op],
        channel: Chan,
        inside: dict[Any, Any],
        new: Mapping[Chan, Any],
        target: Any,
        masked: bool,
    ) -> None:
        fold, column = self.roles.fold, self.roles.column
        assert fold is not None, "a contraction over the fold has one"
        assert column is not None, "a contraction over the fold has columns"
        start = self.old[channel]
        if is_twisted(channel):
            start = self.fresh("t")
            ops.append(Map(start, "outer", transported(channel, self.old, new)))
        found = contraction(self.element(channel, new), fold, self.rows, {column})
        assert found is not None, f"the roles promised a contraction of {channel}"
        left, right = rewrite(found.left, inside), rewrite(found.right, inside)
        handoff = None
        if not set(inside.values()).isdisjoint(subterms(left)):
            handoff = self.fresh("t")
            ops.append(Map(handoff, "inner", left, 0.0 if masked else None))
        geometry = self.outer.with_columns(self.outer.column_atoms, self.depth_steps[fold])
        ops.append(
            Contract(target, "outer", Contraction(fold, left, right), geometry, start, handoff)
        )
