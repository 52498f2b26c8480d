"""What a term means: its value in float64, the oracle of every test."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from .absence import ABSENT, identity_kinds, settle
from .axes import Axis, size_of
from .carriers import bases_of, channels_of, closure, combine, identity, lift_of, tower_of
from .dtypes import DTYPES, Array
from .errors import InputError
from .expressions import Expr, Output, lift
from .monoids import MONOIDS, Monoid
from .operators import OPERATORS
from .terms import Chan, Extent, State, Term, make, subterms, variable

NO_LENGTHS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Value:
    """An array with one dimension for each of `axes`; `absent` marks what a mask removed."""

    array: Array
    axes: tuple[Axis, ...]
    absent: Array

    def along(self, axes: tuple[Axis, ...]) -> Array:
        """The array with one dimension for each of these axes, of length 1 where it has none."""
        return spread(self.array, self.axes, axes)


def evaluate(
    expr: Any,
    arrays: Mapping[str, Array],
    at: Mapping[str, Sequence[int]] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> Any:
    """The float64 value of an expression, with one dimension for each of its axes, in their order.

    `arrays` holds one array for each tensor, by name: floats are taken as real numbers, and bf16
    tensors may be given as their bit patterns (uint16). `at` restricts axes of the result, by
    name, to the given indices; `lengths` gives those that no array's shape tells, else their
    hints stand. A tuple of expressions gives a tuple of arrays.

    Raises InputError for a missing array or a shape that disagrees with the tensor's axes.

    >>> from egraph_flash import Axis, Tensor, f32
    >>> (n,) = Axis.many(n=3)
    >>> float(evaluate(Tensor("x", (n,), f32).expr.sum(n), {"x": np.array([1.0, 2.0, 4.0])}))
    7.0
    """
    if isinstance(expr, tuple):
        return tuple(evaluate(item, arrays, at, lengths) for item in expr)
    if isinstance(expr, Output) and expr.is_placed:
        return _placed(expr, arrays, lengths or {})
    axes = expr.axes
    term: Expr = expr.expr
    folded = {axis.name for axis in _folded(term)}
    within = {name: indices for name, indices in (at or {}).items() if name not in folded}
    value = Evaluator(term, arrays, within, lengths or {}).value(term)
    wanted = tuple(axis for axis in axes if axis in value.axes)
    found = spread(value.array, value.axes, wanted)
    for place, axis in enumerate(wanted):
        if axis.name in folded & set(at or {}):
            found = found.take(list((at or {})[axis.name]), axis=place)
    return found


def _folded(term: Any) -> Iterator[Any]:
    """The axes that something in a term is folded over, of which all elements are needed."""
    for node in subterms(term):
        if node.head == "Red":
            yield node.args[1].root
        elif node.head == "Fold":
            yield node.args[0].root


def _placed(output: Output, arrays: Mapping[str, Array], lengths: Mapping[str, int]) -> Array:
    """The array of an output whose values are put at indices; 0 where no value goes.

    Raises InputError for a place outside of the array, or one that gets two values.
    """
    parts = (output.expr, lift(1.0 if output.where is None else output.where), *output.indices)
    all_of_them = functools.reduce(operator.add, parts)
    evaluator = Evaluator(all_of_them, arrays, {}, lengths)
    values = [evaluator.value(part) for part in parts]
    axes = tuple(dict.fromkeys(axis for value in values for axis in value.axes))
    value, holds, *places = np.broadcast_arrays(*(v.along(axes) for v in values))
    result = np.zeros([evaluator.size(axis) for axis in output.axes])
    kept = holds != 0
    where = tuple(place[kept].astype(np.int64) for place in places)
    for axis, place in zip(output.axes, where, strict=True):
        if place.size and not 0 <= place.min() <= place.max() < evaluator.size(axis):
            raise InputError(
                f"placed: got places {place.min()} to {place.max()} along {axis}, wants 0 to "
                f"{evaluator.size(axis) - 1}"
            )
    taken = np.zeros(result.shape, np.int64)
    np.add.at(taken, where, 1)
    if (taken > 1).any():
        at = tuple(int(i[0]) for i in np.nonzero(taken > 1))
        raise InputError(f"placed: the element {at} gets {taken[at]} values, wants one")
    result[where] = value[kept]
    return result


class Evaluator:
    """Evaluates the subterms of one term once each; also gives the states of its folds."""

    def __init__(
        self,
        root: Term,
        arrays: Mapping[str, Array],
        at: Mapping[str, Sequence[int]],
        lengths: Mapping[str, int] = NO_LENGTHS,
    ) -> None:
        self.arrays = dict(arrays)
        self.extents = _bind_extents(root, arrays, lengths)
        self.at = {name: np.asarray(indices) for name, indices in at.items()}
        self.values: dict[Term, Value] = {}
        self.states: dict[Term, dict[Chan, Value]] = {}

    def value(self, term: Expr) -> Value:
        with np.errstate(all="ignore"):
            for node in subterms(term):
                if node.sort == "Expr" and node not in self.values:
                    self.values[node] = self._value(node)
        return self.values[term]

    def size(self, axis: Axis) -> int:
        return self.extents.get(axis.extent, size_of(axis.extent))

    def positions(self, axis: Axis) -> Array:
        if axis.name in self.at:
            return self.at[axis.name]
        return np.arange(self.size(axis))

    def _value(self, node: Any) -> Value:
        if node.head in OPERATORS:
            return self._apply(node)
        return getattr(self, f"_{node.head.lower()}")(node)  # type: ignore[no-any-return]

    def _num(self, node: Any) -> Value:
        value = np.asarray(node.args[0])
        return Value(value, (), np.asarray(value == -np.inf))

    def _idx(self, node: Any) -> Value:
        places = self.positions(node.args[0]).astype(np.float64)
        return Value(places, (node.args[0],), np.zeros(places.shape, bool))

    def _len(self, node: Any) -> Value:
        return Value(np.asarray(float(self.size(node.args[0]))), (), np.asarray(False))

    def _load(self, node: Any) -> Value:
        tensor, indices = node.args
        stored = self.arrays[tensor.args[0]]
        axes = tuple(dict.fromkeys(a for index in indices for a in self.values[index].axes))
        places = [
            spread(self.values[index].array, self.values[index].axes, axes).astype(np.int64)
            for index in indices
        ]
        shape = np.broadcast_shapes(*(place.shape for place in places)) if places else ()
        picked = _real(_pick(stored, places), tensor.args[1])
        outside = np.broadcast_to(_outside(places, stored.shape), shape)
        picked = np.where(outside, np.nan, picked)
        return Value(picked, axes, np.zeros(shape, bool))

    def _apply(self, node: Any) -> Value:
        operands = [self.values[child] for child in node.args]
        axes = tuple(dict.fromkeys(axis for operand in operands for axis in operand.axes))
        arrays = tuple(spread(operand.array, operand.axes, axes) for operand in operands)
        flags = tuple(spread(operand.absent, operand.axes, axes) for operand in operands)
        array = np.asarray(OPERATORS[node.head].meaning(*arrays))
        if node.head not in ABSENT or not any(flag.any() for flag in flags):
            return Value(array, axes, np.zeros(array.shape, bool))
        paired = [part for pair in zip(arrays, flags, strict=True) for part in pair]
        absent = np.broadcast_to(ABSENT[node.head](*paired), array.shape)
        return Value(settle(node.head, array, arrays, absent), axes, absent)

    def _cast(self, node: Any) -> Value:
        value, dtype = self.values[node.args[1]], DTYPES[node.args[0]]
        return Value(dtype.decode(dtype.encode(value.array)), value.axes, value.absent)

    def _mat(self, node: Any) -> Value:
        return self.values[node.args[0]]

    _risk = _mat

    def _red(self, node: Any) -> Value:
        monoid, axis, body = MONOIDS[node.args[0].head], node.args[1], self.values[node.args[2]]
        array, flags = body.array, body.absent
        if axis not in body.axes:
            shape = (*array.shape, self.size(axis))
            array, flags = np.broadcast_to(array[..., None], shape), flags[..., None]
            flags = np.broadcast_to(flags, shape)
            place = array.ndim - 1
        else:
            place = body.axes.index(axis)
        axes = tuple(a for a in body.axes if a is not axis)
        if monoid.reduce is None:
            parts = tuple(np.moveaxis(part, place, -1) for part in (array, flags))
            return _reduced(monoid, Value(parts[0], (*axes, axis), parts[1]))
        return Value(
            np.asarray(monoid.reduce(array, place)), axes, np.asarray(flags.all(axis=place))
        )

    def _get(self, node: Any) -> Value:
        state, channel = node.args
        if state not in self.states:
            self.states[state] = self.fold(state)
        return self.states[state][channel]

    # ---- folds -----------------------------------------------------------------------------------

    def fold(self, state: State) -> dict[Chan, Value]:
        """The state that a tower of folds computes, bracket by bracket, as the tower says."""
        channels, tower = channels_of(state), tower_of(state)
        missing = [base for base in closure(channels) if base not in channels]
        assert not missing, f"a channel's base is not in its carrier: {missing}"
        levels = tuple(level for level, _ in tower)
        axis = levels[0].root
        lifts = {channel: self.value(lift_of(channel)) for channel in channels}
        axes = tuple(a for a in dict.fromkeys(a for v in lifts.values() for a in v.axes))
        axes = tuple(a for a in axes if a is not axis)
        elements = {c: _along(lift, axes, axis, self.size(axis)) for c, lift in lifts.items()}
        merge = Merge(closure(channels), axes)
        result = self._bracket(levels, {}, axis, elements, merge)
        return {
            channel: _restrict(result[channel], self._depends(channel, axis))
            for channel in channels
        }

    def _depends(self, channel: Chan, axis: Axis) -> tuple[Axis, ...]:
        lifts = [lift_of(c) for c in (*bases_of(channel), channel)]
        axes = dict.fromkeys(a for lift in lifts for a in self.values[lift].axes)
        return tuple(a for a in axes if a is not axis)

    def _bracket(
        self,
        levels: tuple[Any, ...],
        places: dict[Any, int],
        axis: Axis,
        elements: dict[Chan, Value],
        merge: Merge,
    ) -> dict[Chan, Value]:
        if not levels:
            place = _place(axis, places)
            if place >= self.size(axis):  # an index past the end is the identity
                return merge.identity
            return {c: _element(v, place) for c, v in elements.items()}
        state = merge.identity
        for index in range(self._count(levels[0])):
            inner = {**places, levels[0]: index}
            state = merge(state, self._bracket(levels[1:], inner, axis, elements, merge))
        return state

    def _count(self, level: Axis) -> int:
        if level.head == "Ax":
            return self.size(level)
        block: int = level.args[1]
        return -(-self._count(level.args[0]) // block) if level.head == "Outer" else block


class Merge:
    """The combine of a carrier, derived from its channels, as a function on states of arrays."""

    def __init__(self, channels: tuple[Chan, ...], axes: tuple[Axis, ...]) -> None:
        self.axes = axes
        self.left = {c: variable("Expr", f"a{i}") for i, c in enumerate(channels)}
        self.right = {c: variable("Expr", f"b{i}") for i, c in enumerate(channels)}
        self.combined = combine(channels, self.left, self.right)
        self.identity = {c: _filled(identity(c), axes, (1,) * len(axes)) for c in channels}

    def __call__(self, a: dict[Chan, Value], b: dict[Chan, Value]) -> dict[Chan, Value]:
        sides = Evaluator(next(iter(self.combined.values())), {}, {})
        for variables, state in ((self.left, a), (self.right, b)):
            sides.values.update({variables[c]: state[c] for c in state})
        return {c: sides.value(term) for c, term in self.combined.items()}


_LEFT, _RIGHT = variable("Expr", "left"), variable("Expr", "right")


def _reduced(monoid: Monoid, value: Value) -> Value:
    """A value folded along its last axis: halves are combined until one element is left."""
    axes = value.axes[:-1]
    combined = monoid.combine(_LEFT, _RIGHT)
    while (half := value.array.shape[-1] // 2) > 0:
        sides = Evaluator(combined, {}, {})
        sides.values |= {_LEFT: _part(value, 0, half), _RIGHT: _part(value, half, 2 * half)}
        both, rest = sides.value(combined), _part(value, 2 * half, None)
        value = Value(
            np.concatenate([both.array, rest.array], axis=-1),
            value.axes,
            np.concatenate([both.absent, rest.absent], axis=-1),
        )
    if not value.array.shape[-1]:
        return _filled(monoid.identity, axes, value.array.shape[:-1])
    return Value(value.array[..., 0], axes, value.absent[..., 0])


def _part(value: Value, start: int, end: int | None) -> Value:
    """The elements of the last axis from `start` up to `end`."""
    return Value(value.array[..., start:end], value.axes, value.absent[..., start:end])


def _filled(number: float, axes: tuple[Axis, ...], shape: tuple[int, ...]) -> Value:
    """An identity everywhere, which is what a mask leaves where it is -inf or 0."""
    return Value(np.full(shape, number), axes, np.full(shape, bool(identity_kinds(number))))


def _place(axis: Any, places: dict[Any, int]) -> int:
    """The index of `axis` that the indices of the levels of its tower stand for."""
    if axis in places:
        return places[axis]
    for level, index in places.items():
        if level.head == "Inner" and level.args[0] is axis:
            block: int = level.args[1]
            return _place(make("Outer", axis, block), places) * block + index
    raise AssertionError(f"no level of the tower gives the index of {axis}")


def _along(value: Value, axes: tuple[Axis, ...], axis: Axis, size: int) -> Value:
    """The value with its dimensions in the order (*axes, axis), the last one `size` long."""
    order = (*axes, axis)
    array, absent = (spread(part, value.axes, order) for part in (value.array, value.absent))
    shape = (*array.shape[:-1], size)
    return Value(np.broadcast_to(array, shape), order, np.broadcast_to(absent, shape))


def _pick(stored: Array, places: Sequence[Array]) -> Array:
    """The elements at these indices, which are moved inside where they lie outside."""
    if not places or 0 in stored.shape:
        shape = np.broadcast_shapes(*(place.shape for place in places)) if places else ()
        return stored if not places else np.zeros(shape, stored.dtype)
    pairs = zip(places, stored.shape, strict=True)
    return np.asarray(stored[tuple(np.clip(place, 0, extent - 1) for place, extent in pairs)])


def _outside(places: Sequence[Array], shape: Sequence[int]) -> Array:
    """Where an index lies outside: an element of nothing is no number."""
    outside = np.zeros((), bool)
    for place, extent in zip(places, shape, strict=True):
        outside = outside | (place < 0) | (place >= extent)
    return outside


def _element(value: Value, place: int) -> Value:
    return Value(value.array[..., place], value.axes[:-1], value.absent[..., place])


def _restrict(value: Value, axes: tuple[Axis, ...]) -> Value:
    """Drop the axes that a channel does not depend on, along which its value is constant."""
    array, absent = value.array, value.absent
    kept = tuple(axis for axis in value.axes if axis in axes)
    for place in reversed(range(len(value.axes))):
        if value.axes[place] not in axes:
            array, absent = array.take(0, axis=place), absent.take(0, axis=place)
    return Value(array, kept, absent)


def spread(array: Array, axes: tuple[Axis, ...], wanted: tuple[Axis, ...]) -> Array:
    """The array with one dimension for each wanted axis, of length 1 where it has none."""
    have = [axis for axis in wanted if axis in axes]
    moved = np.transpose(array, [axes.index(axis) for axis in have]) if array.ndim else array
    lengths = iter(moved.shape)
    return moved.reshape([next(lengths) if axis in axes else 1 for axis in wanted])


def _real(stored: Array, dtype: str) -> Array:
    if dtype == "bf16" and stored.dtype.kind != "f":
        return DTYPES[dtype].decode(stored)
    if DTYPES[dtype].is_boolean:
        return DTYPES[dtype].decode(stored).astype(np.float64)
    return np.asarray(stored, dtype=np.float64)


def _bind_extents(
    root: Term, arrays: Mapping[str, Array], lengths: Mapping[str, int]
) -> dict[Extent, int]:
    """The sizes of symbolic extents, as given and read off the arrays' shapes."""
    nodes = subterms(root)
    bound: dict[Any, int] = {
        node: lengths[node.args[0]]
        for node in nodes
        if node.head == "Symbol" and node.args[0] in lengths
    }
    for node in nodes:
        if node.head != "Array":
            continue
        name, _, extents, *_ = node.args
        if name not in arrays:
            raise InputError(f"evaluate: no array for the tensor {name!r}, got {sorted(arrays)}")
        shape = np.shape(arrays[name])
        if len(shape) != len(extents):
            raise InputError(f"{name}: got {len(shape)} dimensions, wants {len(extents)}")
        for extent, length in zip(extents, shape, strict=True):
            size = size_of(extent) if extent.head == "Known" else bound.setdefault(extent, length)
            if size != length:
                raise InputError(f"{name}: got shape {shape}, wants {extents}")
    return bound
