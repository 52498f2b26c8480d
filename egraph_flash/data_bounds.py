"""Which checks of integer inputs a plan's stages ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .axes import size_of
from .carriers import closure, lift_of
from .codegen.affine import affine
from .data_checks import Check
from .expressions import lift
from .free import free
from .indices import bounds
from .notation import pretty, text
from .skipping import end_of_rows, extent_of_fold
from .stages import Stage
from .terms import make, subterms


def checks_of(stages: Sequence[Stage]) -> tuple[Check, ...]:
    """Every index that data or a call's lengths decide lies in its array, and every length that
    data gives is one, no longer than its axis."""
    return tuple(dict.fromkeys(check for stage in stages for check in _checks(stage)))


def _checks(stage: Stage) -> Iterator[Check]:
    fold, row = stage.roles.fold, stage.roles.row
    bound = extent_of_fold(stage).bound if fold is not None else None
    ends = {fold: bound, row: end_of_rows(stage)}
    for axis, end in ends.items():
        if axis is None or end is None:
            continue
        most = text(lift(axis.length + 1.0))
        for length in _lengths(end):
            yield Check(f"a length along {axis.name}", text(length), most, text(lift(1.0)))
    terms = [lift_of(channel) for channel in closure(stage.channels)]
    for target in stage.targets:
        terms += [target.expr, *target.at, *([] if target.where is None else [target.where])]
    always = lift(1.0)
    for load in (node for node in subterms(*terms) if node.head == "Load"):
        yield from _of_load(load, ends, always)
    for target in stage.targets:
        stored = make("Load", target.array, target.at)
        yield from _of_load(stored, ends, always if target.where is None else target.where)


def _of_load(load: Any, ends: dict[Any, Any], holds: Any) -> Iterator[Check]:
    tensor, indices = load.args
    for dim, (index, extent) in enumerate(zip(indices, tensor.args[2], strict=True)):
        if _is_inside(index, extent):
            continue
        where = holds
        for axis, end in ends.items():
            if axis in free(index) and end is not None:
                where = make("And", where, axis.index < end)
        length = make("Len", make("Ax", f"{tensor.args[0]}_{dim}", extent))
        size = lift(float(extent.args[0])) if extent.head == "Known" else length
        yield Check(f"index {dim} of {pretty(tensor)}", text(index), text(size), text(where))


def _is_inside(index: Any, extent: Any) -> bool:
    """Whether an index lies in its dimension whatever is called: others depend on the call."""
    if index.head == "Idx" and index.args[0].extent is extent:
        return True
    low, high = bounds(index)
    return low >= 0 and extent.head == "Known" and high < max(size_of(extent), 1)


def _lengths(end: Any) -> Iterator[Any]:
    """The lengths that data gives among those of which an end is the least or the greatest: an end
    that moves with a position, as a diagonal's, or that arithmetic moved, may well lie before the
    first element, and one that the expression itself says past the last."""
    if end.head in ("Min2", "Max2"):
        for part in end.args:
            yield from _lengths(part)
    elif _reads(end) and not _positions(end) and not affine(end).constant:
        yield end


def _positions(term: Any) -> bool:
    """Whether an index stands in a term other than to read data."""
    if term.head in ("Idx", "Load"):
        return bool(term.head == "Idx")
    return any(map(_positions, term.children))


def _reads(term: Any) -> bool:
    return any(node.head == "Load" for node in subterms(term))
