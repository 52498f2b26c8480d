"""Which kernels a term needs: one stage for each pass, with buffers where a value is cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .axes import Axis
from .carriers import channels_of, closure, is_twisted, lift_of
from .dtypes import f32
from .free import free
from .layouts import DENSE, Layout, array_term
from .once import hashed_once
from .request import Root
from .roles import Roles, assign_roles
from .terms import Chan, State, Term, make, rewrite, subterms

NO_LAYOUTS: Mapping[str, Layout] = MappingProxyType({})


@dataclass(frozen=True)
class Target:
    """An array that a stage writes, lying as `array` says: each value of `expr` over `axes` at the
    indices `at`, where `where` holds (None: everywhere)."""

    array: Any
    axes: tuple[Axis, ...]
    expr: Any
    is_output: bool
    at: tuple[Any, ...]
    where: Any | None = None

    @property
    def name(self) -> str:
        return str(self.array.args[0])


@hashed_once
@dataclass(frozen=True)
class Stage:
    """One kernel: at most one fold, and the values that follow from it.

    The targets read the fold's channels as `Get(state, channel)`; `channels` are those that they
    read, with their bases before them. A stage without a fold is a map. Targets that have the
    fold's own axis are its epilogue: they follow once the fold is done, element by element. A stage
    that `joins` runs in the launch of the one before it, which is `followed` (joining.py). Where a
    fold over the columns of accumulators comes last, `columns` is that one's stage (turning.py).
    """

    targets: tuple[Target, ...]
    state: State | None
    channels: tuple[Chan, ...]
    roles: Roles
    followed: bool = False
    joins: bool = False
    columns: Stage | None = None

    @property
    def fold(self) -> Axis | None:
        return self.state.args[0] if self.state is not None else None

    @property
    def read(self) -> Stage:
        """The stage whose fold the targets read: its own, or that over its columns."""
        return self.columns or self

    def follows(self, target: Target) -> bool:
        """Whether a target is part of the epilogue."""
        return self.roles.fold in target.axes

    @property
    def epilogue(self) -> tuple[Target, ...]:
        return tuple(filter(self.follows, self.targets))


def split(
    roots: Sequence[Root],
    taken: Iterable[str],
    layouts: Mapping[str, Layout] = NO_LAYOUTS,
    *,
    epilogues: bool = False,
) -> tuple[Stage, ...]:
    """The stages that compute `roots` (name, expression, axes in their order, dtype), in order.

    Folds that stand at the top of a stored value are passes; reductions in the body of a fold
    stay inside it where they move with its axis, and are passes of their own where they do not.
    `taken` are the names that buffers must not have; `layouts` says of outputs how they lie,
    where they are not row-major without gaps. With `epilogues`, values that vary along a fold's
    own axis are computed in its stage, where they can be; else in a stage of their own.
    """
    splitter = _Splitter({*taken, *(root.name for root in roots)}, layouts, epilogues)
    for root in roots:
        splitter.store(root)
    return splitter.finish()


class _Splitter:
    """Collects targets, each after the buffers that it reads."""

    def __init__(self, taken: set[str], layouts: Mapping[str, Layout], epilogues: bool) -> None:
        self.taken, self.layouts, self.epilogues = taken, layouts, epilogues
        self.loads: dict[Term, Any] = {}
        self.pending: list[tuple[Target, State | None]] = []

    def store(self, root: Root, *, is_output: bool = True) -> None:
        expr = _replace(root.expr, ("Mat",), lambda cut: self.buffer(cut.args[0]))
        expr = _replace(expr, _REDUCTIONS, self._pass)
        states = list(dict.fromkeys(get.args[0] for get in _outermost(expr, _REDUCTIONS)))
        fusible = [state for state in states if set(free(expr)) <= _axes_read(expr, state)]
        if not fusible and self.epilogues:
            fusible = [state for state in states if _may_follow(expr, state)]
        kept = fusible[-1] if fusible else None
        expr = _replace(
            expr, _REDUCTIONS, lambda get: get if get.args[0] is kept else self.buffer(get)
        )
        layout = self.layouts.get(root.name, DENSE)
        extents = [axis.extent for axis in root.axes]
        stored = array_term(
            root.name, root.dtype.name, extents, layout.strides, layout.alignment_bytes
        )
        axes = tuple(dict.fromkeys(axis for index in root.at for axis in free(index)))
        self.pending.append((Target(stored, axes, expr, is_output, root.at, root.where), kept))

    def buffer(self, term: Any) -> Any:
        """A load of the f32 buffer that holds `term`, which an earlier stage computes."""
        term = _plain(term)
        if term not in self.loads:
            name = next(n for i in range(1 << 30) if (n := f"work{i}") not in self.taken)
            self.taken.add(name)
            axes = free(term)
            plain = tuple(axis.index for axis in axes)
            self.store(Root(name, term, axes, f32, plain), is_output=False)
            held = array_term(name, f32.name, [axis.extent for axis in axes])
            self.loads[term] = make("Load", held, plain)
        return self.loads[term]

    def _pass(self, node: Any) -> Any:
        """A reduction as the reading of a fold whose body holds only reductions that move."""
        get = _as_get(node)
        axis = get.args[0].args[0]
        bodies = [part for chan in channels_of(get.args[0]) for part in _lifts(chan)]
        change = {
            inner: self._inner(inner)
            if axis in free(inner) and _is_short(inner)
            else self.buffer(inner)
            for body in bodies
            for inner in _outermost(body, _REDUCTIONS)
        }
        get = rewrite(get, {old: new for old, new in change.items() if old is not new})
        return rewrite(get, {red: self.buffer(red) for red in _with_columns(get)})

    def _inner(self, node: Any) -> Any:
        """A reduction inside a fold's body: plain, and itself without reductions."""
        if node.head == "Get" and is_twisted(node.args[1]):
            return self.buffer(node)
        red = _as_red(node)
        return make("Red", *red.args[:2], _replace(red.args[2], _REDUCTIONS, self.buffer))

    def finish(self) -> tuple[Stage, ...]:
        """Targets that read one state share a stage, unless they need what comes after it."""
        groups: list[tuple[State | None, list[Target]]] = []
        for target, state in self.pending:
            place = next(
                (i for i, (known, _) in enumerate(groups) if state is not None and known is state),
                None,
            )
            if place is not None and not _reads(target) & _written(groups[place:]):
                groups[place][1].append(target)
            else:
                groups.append((state, [target]))
        return tuple(_stage(tuple(targets), state) for state, targets in groups)


_REDUCTIONS = ("Red", "Get")


def _is_short(node: Any) -> bool:
    """Whether a reduction goes over an axis of known length, as one inside of a fold's body must:
    its tiles hold all of it."""
    axis = _as_get(node).args[0].args[0].root
    return bool(axis.extent.head == "Known")


def _outermost(term: Any, heads: tuple[str, ...]) -> Iterator[Any]:
    """The subterms of those heads that stand below no other such subterm, each once."""
    if term.head in heads:
        yield term
        return
    found = dict.fromkeys(f for child in term.children for f in _outermost(child, heads))
    yield from found


def _replace(expr: Any, heads: tuple[str, ...], change: Any) -> Any:
    found = {node: change(node) for node in _outermost(expr, heads)}
    return rewrite(expr, {old: new for old, new in found.items() if old is not new})


def _as_get(node: Any) -> Any:
    if node.head == "Get":
        return node
    monoid, axis, body = node.args
    channel = make("Ch", monoid, body)
    return make("Get", make("Fold", axis, make("Flat"), make("Lift", (channel,))), channel)


def _with_columns(get: Any) -> list[Any]:
    """Reductions in a fold's body that vary along its column axis: no tile of the body has it."""
    axis, axes = get.args[0].args[0].root, free(get)
    column = assign_roles(closure((get.args[1],)), axis, axes).column
    inner = (red for part in _lifts(get.args[1]) for red in _outermost(part, ("Red",)))
    return [red for red in dict.fromkeys(inner) if column is not None and column in free(red)]


def _plain(node: Any) -> Any:
    """A fold of one plain channel as a reduction, so that both spellings share a buffer."""
    alone = node.head == "Get" and len(channels_of(node.args[0])) == 1
    return _as_red(node) if alone and not is_twisted(node.args[1]) else node


def _as_red(node: Any) -> Any:
    if node.head == "Red":
        return node
    state, channel = node.args
    return make("Red", channel.args[0], state.args[0].root, channel.args[1])


def _lifts(channel: Chan) -> tuple[Any, ...]:
    return tuple(lift_of(each) for each in closure((channel,)))


def _may_follow(expr: Any, state: State) -> bool:
    """Whether a value that varies along a fold's axis may be computed where the fold is done: the
    state gives all its other axes, and is folded of plain tiles that can be read again."""
    axis, channels = state.args[0].root, _read(expr, state)
    sums = [red for channel in channels for part in _lifts(channel) for red in _reductions(part)]
    within = set(free(expr)) <= _axes_read(expr, state) | {axis}
    axes = tuple(a for a in free(expr) if a is not axis)
    column = assign_roles(closure(channels), axis, axes).column
    return within and axis.extent.head == "Known" and column is None and not sums


def _reductions(part: Any) -> list[Any]:
    return list(_outermost(part, _REDUCTIONS))


def _read(expr: Any, state: State | None) -> tuple[Chan, ...]:
    gets = (node for node in _outermost(expr, ("Get",)) if node.args[0] is state)
    return tuple(dict.fromkeys(get.args[1] for get in gets))


def _axes_read(expr: Any, state: State) -> set[Axis]:
    """The axes that the channels of `state` give to `expr`."""
    axis = state.args[0].root
    return {a for chan in _read(expr, state) for a in free(chan) if a is not axis}


def _reads(target: Target) -> set[str]:
    return {str(node.args[0]) for node in subterms(target.expr) if node.head == "Array"}


def _written(groups: list[tuple[State | None, list[Target]]]) -> set[str]:
    return {target.name for _, targets in groups for target in targets}


def _stage(targets: tuple[Target, ...], state: State | None) -> Stage:
    read = dict.fromkeys(chan for target in targets for chan in _read(target.expr, state))
    channels = closure(tuple(read))
    axes = tuple(dict.fromkeys(axis for target in targets for axis in target.axes))
    fold = state.args[0].root if state is not None else None
    others = tuple(axis for axis in axes if axis is not fold)
    return Stage(targets, state, channels, assign_roles(channels, fold, others))
