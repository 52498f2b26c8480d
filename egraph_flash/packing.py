"""Rows that one operand serves: two axes of an output become one, whose tiles they fill together.

A contraction reads its right operand once for each tile of rows. Where that operand sees an axis
only as the group that an element belongs to, or not at all, the elements of a group are rows of one
tile like any others. Decoding with few query rows and several query heads for each head of keys is
the known case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .axes import Axis
from .expressions import lift
from .free import free
from .request import Root
from .sharing import axis_of, fresh
from .stages import Stage
from .terms import subterms

MOST_ROWS = 64  # of the axis that takes others in: longer ones fill their tiles alone


@dataclass(frozen=True)
class Packing:
    """`group` elements of `axis` are rows of a tile, each with those of `row` if there is one."""

    axis: Axis
    group: int
    row: Axis | None


def packings(stages: Sequence[Stage]) -> tuple[Packing, ...]:
    """What may be packed in the stages of a plan, each once."""
    bound = {axis_of(node) for stage in stages for node in _nodes(stage) if node.head in _FOLDS}
    found: dict[Packing, None] = {}
    for stage in stages:
        loads = [n for n in _nodes(stage) if n.head == "Load" and stage.fold in free(n)]
        own = [axis for axis in stage.roles.axes if axis.extent.head == "Known"]
        own = [axis for axis in own if axis not in bound and axis.size > 0]
        rows = [axis for axis in own if all(axis not in free(load) for load in loads)]
        row = max(rows, key=lambda axis: axis.size, default=None)
        if not loads or (row is not None and row.size > MOST_ROWS):
            continue
        for axis in own:
            group = _group(axis, loads)
            if group > 1 and axis is not row:
                found[Packing(axis, group, row)] = None
    return tuple(found)


_FOLDS = ("Red", "Get")


def _nodes(stage: Stage) -> list[Any]:
    return subterms(*stage.channels, *(target.expr for target in stage.targets))


def _group(axis: Axis, loads: Sequence[Any]) -> int:
    """How many elements of an axis read the same of all loads; 1 where that cannot be told."""
    seen = {_seen(axis, index) for load in loads for index in load.args[1]} - {axis.size}
    group = seen.pop() if len(seen) == 1 else 1 if seen else axis.size
    return group if axis.size % group == 0 else 1


def _seen(axis: Axis, index: Any) -> int:
    """How many elements of the axis an index takes for one."""
    if axis not in free(index):
        return axis.size
    if index.head == "Idx":
        return 1
    if index.head == "FloorDiv" and index.args[0] is axis.index and index.args[1].head == "Num":
        return int(index.args[1].args[0])
    inner = {_seen(axis, child) for child in index.children if axis in free(child)}
    return inner.pop() if len(inner) == 1 else 1


def packed(root: Root, packing: Packing) -> Root:
    """The root with its values computed over the packed axes, and stored where they were."""
    taken = {node.args[0] for term in root.terms for node in subterms(term) if node.head == "Ax"}
    rows = packing.row.size if packing.row is not None else 1
    group = packing.group
    tile = Axis(fresh(f"{packing.axis.name}_row", taken), group * rows)
    groups = Axis(fresh(f"{packing.axis.name}_group", taken), packing.axis.size // group)
    member = tile // rows if rows > 1 else tile.index
    element = (groups.index * group + member if groups.size > 1 else member).expr
    change = {packing.axis.index: element}
    if packing.row is not None:
        change[packing.row.index] = tile % rows if rows > 1 else lift(0.0).expr
    moved = root.rewritten(change)
    whole = groups.index if groups.size > 1 else lift(0.0).expr
    quotients = {
        node: whole
        for term in moved.terms
        for node in subterms(term)
        if node.head == "FloorDiv" and node.args[0] is element and node.args[1] is lift(group).expr
    }
    return moved.rewritten(quotients)
