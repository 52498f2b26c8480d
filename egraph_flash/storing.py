"""Operands of contractions that are computed, and may be stored before the contraction reads them.

Each block of the grid computes them for itself where it contracts. Stored by an earlier stage they
are computed once, and come as any array does: rounded as the contraction would round them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .axes import Axis
from .carriers import channels_of, closure, is_twisted, lift_of, monoid_of
from .dtypes import DTYPES, Dtype
from .free import free
from .roles import Contraction, assign_roles, contraction
from .terms import make, rewrite, subterms

Store = Callable[[Any, Dtype, tuple[Axis, ...]], Any]


def with_stored(get: Any, store: Store) -> Any:
    """A reading of a fold whose contractions have stored operands in place of computed ones: those
    in its body, and that over the fold's own axis which it reads.

    `store` takes an operand, the dtype of what is contracted, and axes, the contracted one last.
    """
    state, channel = get.args
    axis, channels = state.args[0].root, closure(channels_of(state))
    axes = tuple(dict.fromkeys(a for each in channels for a in free(each) if a is not axis))
    roles = assign_roles(channels, axis, axes)
    if roles.row is None:
        return get
    change: dict[Any, Any] = {}
    for node in subterms(*map(lift_of, channels)):
        if node.head == "Red" and node.args[0].head == "Sum":
            depth, body = node.args[1:]
            summed = _summed(body, contraction(body, depth, {roles.row}, {axis}), store)
            change[node] = make("Red", node.args[0], depth, summed)
    if roles.column is not None and not is_twisted(channel) and monoid_of(channel) == "Sum":
        element = lift_of(channel)
        found = contraction(element, axis, {roles.row}, {roles.column})
        change[channel] = make("Ch", channel.args[0], _summed(element, found, store))
    return rewrite(get, {old: new for old, new in change.items() if new is not old})


def _summed(body: Any, found: Contraction | None, store: Store) -> Any:
    """What a contraction sums, of stored operands where it is one of 16 bits and computes some."""
    sizes = {DTYPES[name].size_bytes for name in found.dtypes} if found is not None else set()
    if found is None or len(found.dtypes) != 1 or sizes != {2}:
        return body
    dtype = DTYPES[found.dtypes[0]]
    computed = [_is_computed(side, found.depth) for side in (found.left, found.right)]
    if not any(computed):
        return body
    sides: list[Any] = [found.left, found.right]
    for place, side in enumerate(sides):
        if computed[place]:
            axes = tuple(a for a in free(side) if a is not found.depth)
            sides[place] = store(side, dtype, (*axes, found.depth))
    return make("Mul", *sides)


def _is_computed(side: Any, depth: Axis) -> bool:
    """Whether an operand is computed of what it loads, and not by the fold's own blocks."""
    nodes = subterms(side)
    moving = any(depth in free(node) for node in nodes if node.head in ("Red", "Get"))
    return side.head != "Load" and not moving and any(node.head == "Load" for node in nodes)
