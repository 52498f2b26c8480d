"""Operands of contractions that are computed, and may be stored before the contraction reads them.

Each block of the grid computes them for itself where it contracts. Stored by an earlier stage they
are computed once, and come as any array does: rounded as the contraction would round them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .axes import Axis
from .carriers import closure, is_twisted, lift_of, monoid_of
from .dtypes import DTYPES, Dtype
from .free import free
from .roles import assign_roles, contraction
from .terms import make, rewrite, subterms

Store = Callable[[Any, Dtype, tuple[Axis, ...]], Any]


def with_stored(get: Any, store: Store) -> Any:
    """A reading of a fold whose element is a product of a computed operand and an array of 16
    bits, with what `store` gives for the computed one; any other as it is.

    `store` takes the operand, the array's dtype and axes of which the contracted one is last.
    """
    state, channel = get.args
    axis, element = state.args[0].root, lift_of(channel)
    if is_twisted(channel) or monoid_of(channel) != "Sum":
        return get
    roles = assign_roles(closure((channel,)), axis, free(get))
    if roles.row is None or roles.column is None:
        return get
    found = contraction(element, axis, {roles.row}, {roles.column})
    if found is None:
        return get
    left = _stored(found.left, found.right, axis, store)
    right = _stored(found.right, found.left, axis, store)
    if left is found.left and right is found.right:
        return get
    summed = make("Ch", channel.args[0], make("Mul", left, right))
    return rewrite(get, {channel: summed})


def _stored(side: Any, other: Any, axis: Axis, store: Store) -> Any:
    if not _is_computed(side, axis) or other.head != "Load":
        return side
    dtype = DTYPES[other.args[0].args[1]]
    if dtype.size_bytes != 2:
        return side
    axes = tuple(a for a in free(side) if a is not axis)
    return store(side, dtype, (*axes, axis))


def _is_computed(side: Any, axis: Axis) -> bool:
    """Whether an operand is computed of what it loads, and not by the fold's own blocks."""
    moving = any(axis in free(red) for red in _sums(side))
    return side.head != "Load" and not moving and any(n.head == "Load" for n in subterms(side))


def _sums(term: Any) -> Iterator[Any]:
    return (node for node in subterms(term) if node.head in ("Red", "Get"))
