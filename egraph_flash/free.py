"""Which axes a term depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .axes import Axis

Axes = tuple["Axis", ...]


def free(term: Any) -> Axes:
    """The axes of an expression, channel or state: those of its inputs first, then the others.

    A channel's axes include those of its bases; a state's are the union over its channels.
    """
    if not hasattr(term, "_free"):
        _find(term)
    return term._free[2]  # type: ignore[no-any-return]


def _find(term: Any) -> None:
    """Keep on the term itself: axes of inputs, axes that stand outside inputs, all of them."""
    stack = [term]
    while stack:
        node = stack[-1]
        waiting = [child for child in node.children if not hasattr(child, "_free")]
        stack += waiting
        if not waiting:
            loaded, indexed = _of(stack.pop())
            every = tuple(dict.fromkeys(loaded + indexed))
            object.__setattr__(node, "_free", (loaded, indexed, every))


def _of(node: Any) -> tuple[Axes, Axes]:
    if node.head == "Idx":
        return (), (node.args[0],)
    loaded = tuple(dict.fromkeys(a for child in node.children for a in child._free[0]))
    indexed = tuple(dict.fromkeys(a for child in node.children for a in child._free[1]))
    if node.head == "Load":
        return tuple(dict.fromkeys(loaded + indexed)), ()
    if node.head == "Get":  # only the channel is read; the fold has bound its axis
        loaded, indexed, _ = node.args[1]._free
        bound = _bound(node.args[0])
    elif node.head == "Red":
        bound = {node.args[1]}
    elif node.head == "Fold":
        bound = {node.args[0], node.args[0].root}
    else:
        return loaded, indexed
    return tuple(a for a in loaded if a not in bound), tuple(a for a in indexed if a not in bound)


def _bound(state: Any) -> set[Any]:
    bound = set()
    while state.head == "Fold":
        bound |= {state.args[0], state.args[0].root}
        state = state.args[2]
    return bound
