"""What stands in a tile program: its operations in order, what they read, how they are changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..roles import Contraction
from ..terms import subterms
from .tile import (
    AcrossLanes,
    Ahead,
    Block,
    Columns,
    Contract,
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
    Store,
    Sweep,
)


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Every operation, those inside of others included, in order."""
    for op in ops:
        yield op
        if isinstance(op, Loop):
            yield from walk((*op.before, *op.body, *op.after))
        elif isinstance(op, Sweep):
            yield from walk((*op.before, *op.early, *op.plain, *op.masked, *op.last))
        elif isinstance(op, Ahead | Block | Columns):
            yield from walk(op.ops)


def arrays_of(ops: tuple[Op, ...]) -> dict[str, Any]:
    """The arrays that operations read and write, by name, in order of first appearance."""
    found: dict[str, Any] = {}
    for op in walk(ops):
        for expr in _expressions(op):
            for node in subterms(expr):
                if node.head == "Array":
                    found.setdefault(node.args[0], node)
        if isinstance(op, Store):
            found.setdefault(op.target.name, op.target.array)
    return found


def _expressions(op: Any) -> tuple[Any, ...]:
    if isinstance(op, Contract):
        return (op.contraction.left, op.contraction.right)
    if isinstance(op, InnerFold):
        return (op.red,)
    if isinstance(op, Rebase):
        return tuple(expr for _, _, expr in op.moved)
    if isinstance(op, Store):
        more = () if op.target.where is None else (op.target.where,)
        return (op.expr, *op.target.at, *more)
    return (op.expr,) if isinstance(op, Map) else ()


def changed(op: Any, change: Callable[[Any], Any]) -> Any:
    """A plain operation with its expressions changed."""
    if isinstance(op, Map | Store):
        return replace(op, expr=change(op.expr))
    if isinstance(op, InnerFold):
        return replace(op, red=change(op.red))
    if isinstance(op, Contract):
        found = op.contraction
        sides = Contraction(found.depth, change(found.left), change(found.right))
        return replace(op, contraction=sides)
    if isinstance(op, Rebase):
        moved = tuple((tile, shape, change(expr)) for tile, shape, expr in op.moved)
        return replace(op, moved=moved)
    return op


def read_by(op: Op) -> set[Any]:
    """The tiles that a plain operation reads."""
    if isinstance(op, RowFold | LaneFold | FirstColumn):
        return {op.tile}
    if isinstance(op, AcrossLanes):
        return {op.part}
    if isinstance(op, Publish):
        return set(op.tiles)
    if isinstance(op, Receive):
        return {op.tile}
    if isinstance(op, Rebase):
        return {op.base, op.part, *(v for tile, _, expr in op.moved for v in (tile, *_vars(expr)))}
    if isinstance(op, Contract):
        found = {*_vars(op.contraction.left), *_vars(op.contraction.right)}
        held = (op.start, op.handoff, op.ones[1] if op.ones else None)
        return found | {each for each in held if each is not None}
    if isinstance(op, InnerFold):
        return _vars(op.red)
    return _vars(op.expr) if isinstance(op, Map | Store) else set()


def _vars(expr: Any) -> set[Any]:
    return {node for node in subterms(expr) if node.head == "Var"}
