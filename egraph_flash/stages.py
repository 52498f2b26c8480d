"""Which kernels a term needs: one stage for each pass, with buffers where a value is cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .axes import Axis
from .carriers import channels_of, closure, is_twisted, lift_of
from .dtypes import Dtype, f32
from .free import free
from .layouts import DENSE, Layout, array_term
from .once import hashed_once
from .request import Root
from .roles import Roles, assign_roles
from .storing import with_stored
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
    operands: bool = False,
) -> tuple[Stage, ...]:
    """The stages that compute `roots` (name, expression, axes in their order, dtype), in order.

    Folds that stand at the top of a stored value are passes; reductions in the body of a fold
    stay inside it where they move with its axis, and are passes of their own where they do not.
    `taken` are the names that buffers must not have; `layouts` says of outputs how they lie,
    where they are not row-major without gaps. With `epilogues`, values that vary along a fold's
    own axis are computed in its stage, where they can be; else in a stage of their own. With
    `operands`, computed operands of contractions are stored by an earlier stage.
    """
    names = {*taken, *(root.name for root in roots)}
    splitter = _Splitter(names, layouts, epilogues, operands)
    for root in roots:
        splitter.store(root)
    return splitter.finish()


Group = tuple[State | None, list[Target]]


class _Splitter:
    """Collects targets, each after the buffers that it reads."""

    def __init__(
        self, taken: set[str], layouts: Mapping[str, Layout], epilogues: bool, operands: bool
    ) -> None:
        self.taken, self.layouts = taken, layouts
        self.epilogues, self.operands = epilogues, operands
        self.loads: dict[Term, Any] = {}
        self.rounded: dict[tuple[Term, str], Any] = {}
        self.pending: list[tuple[Target, State | None]] = []

    def store(self, root: Root, *, is_output: bool = True) -> None:
        expr = root.expr
        if self.operands:
            expr = _replace(expr, _REDUCTIONS, lambda n: with_stored(_as_get(n), self.operand))
        expr = _replace(expr, ("Mat",), lambda cut: self.buffer(cut.args[0]))
        expr = _replace(expr, _REDUCTIONS, self._pass)
        states = list(dict.fromkeys(get.args[0] for get in _outermost(expr, _REDUCTIONS)))
        fusible = [state for state in states if set(free(expr)) <= _axes_read(expr, state)]
        if not fusible and self.epilogues:
            fusible = [s for s in states if _may_follow(expr, s, _read(expr, s))]
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
            self.loads[term] = self.stored(term, f32, free(term))
        return self.loads[term]

    def operand(self, term: Any, dtype: Dtype, axes: tuple[Axis, ...]) -> Any:
        """The same for an operand of a contraction, rounded as the contraction rounds it; folds
        that it follows from need not go through memory before it does."""
        term = _replace(term, ("Mat",), lambda cut: cut.args[0])
        known = (term, dtype.name)
        if known not in self.rounded:
            self.rounded[known] = self.stored(term, dtype, axes)
        return self.rounded[known]

    def stored(self, term: Any, dtype: Dtype, axes: tuple[Axis, ...]) -> Any:
        name = next(n for i in range(1 << 30) if (n := f"work{i}") not in self.taken)
        self.taken.add(name)
        plain = tuple(axis.index for axis in axes)
        self.store(Root(name, term, axes, dtype, plain), is_output=False)
        return make("Load", array_term(name, dtype.name, [axis.extent for axis in axes]), plain)

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
        groups: list[Group] = []
        for target, state in self.pending:
            place = next(
                (i for i, (known, _) in enumerate(groups) if state is not None and known is state),
                None,
            )
            if place is not None and not _reads(target) & _written(groups[place:]):
                groups[place][1].append(target)
            else:
                groups.append((state, [target]))
        if self.epilogues:
            groups = _accompanied(groups)
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


def _may_follow(expr: Any, state: State, channels: tuple[Chan, ...]) -> bool:
    """Whether a value that varies along a fold's axis may be computed where the fold is done:
    channels of the state give all its other axes, and are folded of plain tiles that can be read
    again."""
    axis = state.args[0].root
    sums = [red for channel in channels for part in _lifts(channel) for red in _reductions(part)]
    given = {a for channel in channels for a in free(channel)}
    within = axis in free(expr) and set(free(expr)) <= given | {axis}
    axes = tuple(a for a in free(expr) if a is not axis)
    column = assign_roles(closure(channels), axis, axes).column
    return within and axis.extent.head == "Known" and column is None and not sums


def _accompanied(groups: list[Group]) -> list[Group]:
    """The groups with values that follow from no fold moved to one of what they read, where they
    may be: it has loaded that already."""
    for place, (state, targets) in enumerate(groups):
        for target in list(targets) if state is None else ():
            fold = next((g for g in range(len(groups)) if _takes(groups, g, target, place)), None)
            if fold is not None:
                targets.remove(target)
                groups[fold][1].append(target)
    return [group for group in groups if group[1]]


def _takes(groups: list[Group], fold: int, target: Target, place: int) -> bool:
    """Whether a value of the group at `place` may follow the fold of another group."""
    state, targets = groups[fold]
    if state is None:
        return False
    channels = tuple(dict.fromkeys(c for each in targets for c in _read(each.expr, state)))
    lifts = [lift for channel in channels for lift in _lifts(channel)]
    loads = {node for node in subterms(*lifts) if node.head == "Load"}
    if fold > place:
        later = [each for _, between in groups[place : fold + 1] for each in between]
        free_to_move = all(target.name not in _reads(each) for each in later)
    else:
        free_to_move = not _reads(target) & _written(groups[fold:place])
    shares = not loads.isdisjoint(subterms(target.expr))
    return free_to_move and shares and _may_follow(target.expr, state, channels)


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


def _written(groups: list[Group]) -> set[str]:
    return {target.name for _, targets in groups for target in targets}


def _stage(targets: tuple[Target, ...], state: State | None) -> Stage:
    read = dict.fromkeys(chan for target in targets for chan in _read(target.expr, state))
    channels = closure(tuple(read))
    axes = tuple(dict.fromkeys(axis for target in targets for axis in target.axes))
    fold = state.args[0].root if state is not None else None
    others = tuple(axis for axis in axes if axis is not fold)
    return Stage(targets, state, channels, assign_roles(channels, fold, others))
