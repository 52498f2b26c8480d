"""How an extracted term gets its final shape: unread channels dropped, passes spelled as folds,
folds spelled as towers. None of it changes a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .axes import Axis
from .carriers import channels_of, closure, lift_of, tower_of
from .expressions import Expr
from .terms import Chan, State, Term, make, rewrite, subterms

Axes = frozenset[Axis]


def channels_read(terms: Iterable[Any]) -> dict[State, tuple[Chan, ...]]:
    """For each fold that is evaluated, the channels that are read from it, and their bases."""
    read: dict[State, dict[Chan, None]] = {}
    seen: set[Term] = set()
    stack = list(terms)
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        if term.head != "Get":
            stack.extend(child for child in term.children if child.sort == "Expr")
            continue
        state, channel = term.args
        for part in closure((channel,)):
            read.setdefault(state, {})[part] = None
            stack.append(lift_of(part))
    return {
        state: tuple(channel for channel in channels_of(state) if channel in used)
        for state, used in read.items()
    }


def shaped(terms: tuple[Expr, ...], *, whole: bool = False) -> tuple[Expr, ...]:
    """The terms with unread channels dropped (unless `whole`), and every pass a fold.

    A reduction whose value varies along an enclosing streamed axis stays a reduction: it is an
    inner contraction of that pass. Every other one becomes a fold of one channel.
    """
    read = channels_read(terms)
    shape = _Shape({state: channels_of(state) for state in read} if whole else read)
    return tuple(shape.expr(term, frozenset()) for term in terms)


class _Shape:
    def __init__(self, read: Mapping[State, tuple[Chan, ...]]) -> None:
        self.read = read
        self.done: dict[tuple[Term, Axes], Any] = {}

    def expr(self, term: Any, streamed: Axes) -> Any:
        """The term as it stands inside folds over the streamed axes."""
        name = (term, streamed)
        if name not in self.done:
            self.done[name] = self._expr(term, streamed)
        return self.done[name]

    def _expr(self, term: Any, streamed: Axes) -> Any:
        if term.head in ("Load", "Num", "Idx", "Len"):
            return term
        if term.head == "Red":
            monoid, axis, body = term.args
            if streamed & set(term.axes):
                return make("Red", monoid, axis, self.expr(body, streamed | {axis}))
            return _single(axis, make("Ch", monoid, self.expr(body, frozenset({axis}))))
        if term.head == "Get":
            return self._get(term, streamed)
        inside = frozenset() if term.head == "Mat" else streamed
        return make(term.head, *(self._argument(arg, inside) for arg in term.args))

    def _argument(self, arg: Any, streamed: Axes) -> Any:
        return self.expr(arg, streamed) if isinstance(arg, Term) and arg.sort == "Expr" else arg

    def _get(self, term: Any, streamed: Axes) -> Any:
        state, wanted = term.args
        axis = tower_of(state)[0][0].root
        inner = bool(streamed & set(term.axes))
        inside = (streamed if inner else frozenset()) | {axis}
        channels = tuple(self._channel(item, inside) for item in self.read[state])
        channel = self._channel(wanted, inside)
        if inner and len(channels) == 1 and channel.head == "Ch":
            return make("Red", channel.args[0], axis, channel.args[1])
        return make("Get", make("Fold", axis, make("Flat"), make("Lift", channels)), channel)

    def _channel(self, channel: Any, streamed: Axes) -> Any:
        if channel.head == "Ch":
            return make("Ch", channel.args[0], self.expr(channel.args[1], streamed))
        representation, bases, lift = channel.args
        moved = tuple(self._channel(base, streamed) for base in bases)
        return make("Tw", representation, moved, self.expr(lift, streamed))


def _single(axis: Axis, channel: Chan) -> Any:
    return make("Get", make("Fold", axis, make("Flat"), make("Lift", (channel,))), channel)


def keep_result(term: Expr) -> Expr:
    """The term without the buffer of the pass that makes the output itself.

    Where pointwise operations on stored results make an output, the one result that has all of
    the output's axes need not be stored: the operations go to the end of its pass.
    """
    stored = [node for node in _outside(term) if node.head == "Mat"]
    own = [node for node in stored if set(node.axes) == set(term.axes)]
    if len(own) != 1 or own[0].args[0].head != "Get":
        return term
    return rewrite(term, {own[0]: own[0].args[0]})  # type: ignore[no-any-return]


def _outside(term: Any) -> Iterator[Any]:
    """The nodes above all folds and stores, those included."""
    yield term
    if term.head not in ("Get", "Mat", "Red", "Load"):
        for child in term.children:
            yield from _outside(child)


def flat_folds(terms: Iterable[Term]) -> list[Any]:
    """The flat folds below the terms, inner ones first."""
    return [
        node for node in subterms(*terms) if node.head == "Fold" and node.args[1].head == "Flat"
    ]


def towers(
    terms: tuple[Expr, ...], blocks: Mapping[Axis, int], shares: Mapping[Axis, int]
) -> tuple[Expr, ...]:
    """The terms with each flat fold over an axis of `blocks` as a tower of blocks of that size.

    `shares` further gives every block of the grid that many serial steps of the axis.
    """
    change: dict[Term, Any] = {}
    for node in subterms(*terms):
        new = make(node.head, *(_moved(arg, change) for arg in node.args))
        if new.head == "Fold" and new.args[1].head == "Flat" and new.args[0] in blocks:
            new = _tower(new, blocks[new.args[0]], shares.get(new.args[0]))
        change[node] = new
    return tuple(change[term] for term in terms)


def _moved(arg: Any, change: Mapping[Term, Any]) -> Any:
    if isinstance(arg, tuple):
        return tuple(change[item] for item in arg)
    return change[arg] if isinstance(arg, Term) else arg


def _tower(state: Any, block: int, share: int | None) -> Any:
    axis, _, body = state.args
    tile = make("Fold", make("Inner", axis, block), make("Tile"), body)
    outer = make("Outer", axis, block)
    if share is None:
        return make("Fold", outer, make("Serial"), tile)
    steps = make("Fold", make("Inner", outer, share), make("Serial"), tile)
    return make("Fold", make("Outer", outer, share), make("Grid"), steps)
