"""Which passes over streamed axes a term takes, and what work each of them does.

A pass is one fold over an axis. A fold in the body of another one is an inner contraction, part of
that pass, where its result varies along the streamed axis; where it does not, it is hoisted and is
a pass of its own. What goes through memory is computed by passes of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from .axes import Axis
from .carriers import bases_of, channels_of, closure, is_twisted, lift_of, monoid_of, tower_of
from .cost import Work, predict
from .dtypes import DTYPES
from .free import free
from .machines import Machine
from .pipes import is_scaling
from .terms import Chan, Term, fill, make

Axes = frozenset[Axis]
MATRIX_DTYPES = ("f16", "bf16")
STORED_BYTES = 4  # buffers between stages are f32

_RESOURCE = {"Exp": "mufu", "Log": "mufu", "Tanh": "mufu", "Sqrt": "mufu", "Div": "mufu"}
_RESOURCE |= {"Add": "fma", "Sub": "fma", "Mul": "fma"}


@dataclass
class Body:
    """Pointwise operations and loads, each with the axes along which it repeats."""

    ops: dict[Any, tuple[str, Axes]] = field(default_factory=dict)
    loads: dict[Term, Axes] = field(default_factory=dict)
    inner: dict[Term, None] = field(default_factory=dict)  # results of contractions inside

    def include(self, other: Body) -> None:
        self.ops.update(other.ops)
        self.loads.update(other.loads)
        self.inner.update(other.inner)


@dataclass(eq=False)
class Pass:
    """One fold: `place` is its state or reduction, `used` the channels that are read."""

    place: Term
    axis: Axis
    used: tuple[Chan, ...]
    free: Axes
    body: Body
    unsafe: frozenset[Term]
    stored: bool = False  # computed for a buffer, so no other pass can contain it
    cost_us: float = 0.0

    @property
    def results(self) -> list[Any]:
        """The expressions that read it."""
        if self.place.head == "Red":
            return [self.place]
        return [make("Get", self.place, channel) for channel in self.used]

    @cached_property
    def contracts(self) -> bool:
        return any(kind in ("mma", "dot") for kind, _ in self.body.ops.values())


@dataclass
class Outline:
    """The passes of a term by place, what stands outside of them, and its unsafe operations."""

    passes: dict[Any, Pass] = field(default_factory=dict)
    body: Body = field(default_factory=Body)
    stores: dict[Term, Axes] = field(default_factory=dict)
    unsafe: frozenset[Term] = frozenset()

    @property
    def count(self) -> int:
        return len(self.passes)


class Analyst:
    """Outlines of terms on a machine; `is_unsafe` says which terms may overflow or cancel."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.is_unsafe: Callable[[Any], bool] = lambda term: False  # a solver knows better
        self._outlines: dict[Term, Outline] = {}
        self._passes: dict[Any, tuple[Pass, Outline]] = {}
        self._costs: dict[Any, float] = {}

    # ---- outlines --------------------------------------------------------------------------------

    def outline(self, term: Any) -> Outline:
        return self._outlines.get(term) or fill(term, self._outlines, self._outline, _parts)

    def _outline(self, term: Any) -> Outline:
        if term.head == "Load":
            return Outline(body=Body(loads={term: frozenset(free(term))}))
        if term.head in ("Num", "Idx", "Len"):
            return Outline()
        if term.head == "Red":
            return self._folded(term, term.args[1], (term,))
        if term.head == "Get":
            state, channel = term.args
            used = _union(state, closure((channel,)), ())
            return self._folded(state, tower_of(state)[0][0].root, used)
        if term.head == "Mat":
            return self._stored(term)
        out = self.joined(child for child in term.children if child.sort == "Expr")
        if self.is_unsafe(term):
            out.unsafe |= {term}
        if term.head != "Risk":
            kind = "fma" if is_scaling(term) else _RESOURCE.get(term.head, "alu")
            out.body.ops[term] = (kind, frozenset(free(term)))
        return out

    def joined(self, terms: Iterable[Any]) -> Outline:
        """The outline of several terms computed together; a pass that they share counts once."""
        out = Outline()
        for term in terms:
            part = self.outline(term)
            out.body.include(part.body)
            out.stores.update(part.stores)
            out.unsafe |= part.unsafe
            self._merge(out, part.passes.values())
        return out

    def _merge(self, out: Outline, passes: Iterable[Pass]) -> None:
        for item in passes:
            other = out.passes.get(item.place)
            if other is None or other.used == item.used:
                out.passes[item.place] = item
                continue
            used = _union(item.place, other.used, item.used)
            merged, hoisted = self._pass(item.place, item.axis, used)
            out.passes[item.place] = merged
            out.unsafe |= merged.unsafe
            self._merge(out, hoisted.passes.values())

    def _stored(self, term: Any) -> Outline:
        inner = self.outline(term.args[0])
        axes = frozenset(free(term))
        out = Outline(unsafe=inner.unsafe, stores={**inner.stores, term: axes})
        out.body.loads[term] = axes
        for item in inner.passes.values():
            sealed = Pass(
                item.place, item.axis, item.used, frozenset(), item.body, item.unsafe, stored=True
            )
            sealed.cost_us = item.cost_us
            out.passes["stored", item.place] = sealed
        return out

    def _folded(self, place: Term, axis: Axis, used: tuple[Any, ...]) -> Outline:
        item, hoisted = self._pass(place, axis, used)
        out = Outline(passes=dict(hoisted.passes), stores=dict(hoisted.stores))
        out.passes[place] = item
        out.unsafe = hoisted.unsafe | item.unsafe
        return out

    def _pass(self, place: Term, axis: Axis, used: tuple[Any, ...]) -> tuple[Pass, Outline]:
        name = (place, used)
        if name not in self._passes:
            self._passes[name] = self._build(place, axis, used)
        return self._passes[name]

    def _build(self, place: Term, axis: Axis, used: tuple[Any, ...]) -> tuple[Pass, Outline]:
        body, hoisted = Body(), Outline()
        for channel in used:
            self._lift(channel, axis, body, hoisted)
        axes = frozenset(a for channel in used for a in free(channel) if a is not axis)
        item = Pass(place, axis, used, axes, body, hoisted.unsafe)
        item.cost_us = predict(_work(item), self.machine).total_us
        return item, hoisted

    def _lift(self, channel: Any, axis: Axis, body: Body, hoisted: Outline) -> None:
        """Add one channel's lift, and its own operation, to the body of a pass."""
        lift = channel.args[2] if channel.head == "Red" else lift_of(channel)
        parts = [lift]
        if lift.head == "Mul" and _sums(channel):
            parts = list(lift.args)
        for part in parts:
            outline = self.outline(part)
            body.include(outline.body)
            hoisted.unsafe |= outline.unsafe
            hoisted.stores.update(outline.stores)
            for inner in outline.passes.values():
                if axis in inner.free:
                    body.include(inner.body)
                    body.inner.update(dict.fromkeys(inner.results))
                else:
                    self._merge(hoisted, [inner])
        along = frozenset(free(channel)) | {axis}
        if channel.head != "Red" and is_twisted(channel):
            bases = bases_of(channel)
            weight = frozenset(a for base in bases for a in free(base)) | {axis}
            body.ops["weight", bases] = ("mufu", weight)
            body.ops["move", bases] = ("fma", weight)
            if not _product(weight, frozenset(free(lift))):
                body.ops[channel] = ("fma", along)
                return
            operands: tuple[Any, ...] = (lift,)
        else:
            operands = tuple(parts)
            if len(parts) < 2 or not _product(*(frozenset(free(part)) for part in parts)):
                body.ops[channel] = ("alu" if len(parts) < 2 else "fma", along)
                return
        matrix = any(_loads_matrix(self.outline(part).body) for part in operands)
        body.ops[channel] = ("mma" if matrix else "dot", along)

    # ---- cost ------------------------------------------------------------------------------------

    def cost_us(self, outline: Outline) -> float:
        """All passes one after the other, then what stands outside of them."""
        passes = sum(item.cost_us for item in outline.passes.values())
        return passes + self._outside_us(outline)

    def _outside_us(self, outline: Outline) -> float:
        machine = self.machine
        per_us = machine.chip_clock_per_us
        total = 0.0
        for kind, axes in outline.body.ops.values():
            rate = machine.mufu_per_clock if kind == "mufu" else machine.alu_per_clock
            total += _size(axes) / (rate * per_us)
        moved = sum(_size(axes) * _item_bytes(load) for load, axes in outline.body.loads.items())
        moved += sum(_size(axes) * STORED_BYTES for axes in outline.stores.values())
        # each operation costs something however few elements it has, so that shorter terms win
        return total + moved / (machine.hbm_gbps * 1e3) + 1e-6 * len(outline.body.ops)


def _parts(term: Any) -> list[Any]:
    """The expressions whose outlines an outline is made from."""
    if term.head == "Load":
        return []
    if term.head == "Get":
        return [lift_of(channel) for channel in closure((term.args[1],))]
    return [child for child in term.children if child.sort == "Expr"]


def _union(place: Any, a: tuple[Chan, ...], b: tuple[Chan, ...]) -> tuple[Chan, ...]:
    """The channels of a state that either reads, in the state's order."""
    wanted = {*a, *b}
    assert wanted <= set(channels_of(place)), "a carrier lacks a base of a channel that is read"
    return tuple(channel for channel in channels_of(place) if channel in wanted)


def _sums(channel: Any) -> bool:
    if channel.head == "Red":
        return bool(channel.args[0].head == "Sum")
    return not is_twisted(channel) and monoid_of(channel) == "Sum"


def _product(left: Axes, right: Axes) -> bool:
    """Whether a sum of products is a matrix product: each side has an axis the other lacks."""
    return bool(left - right) and bool(right - left)


def _loads_matrix(body: Body) -> bool:
    return any(load.head == "Load" and load.args[0].args[1] in MATRIX_DTYPES for load in body.loads)


def _item_bytes(load: Term) -> int:
    return DTYPES[load.args[0].args[1]].size_bytes if load.head == "Load" else STORED_BYTES


@lru_cache(maxsize=4096)
def _size(axes: Axes) -> int:
    return math.prod(axis.size for axis in axes)


# ---- the work of a pass under a default geometry -------------------------------------------------

_BLOCK = 128  # elements of a parallel axis in one block of a contraction
_ROWS = 4  # rows in one block of anything else
_SMALL_GRID = 128


def _work(item: Pass) -> Work:
    """The work of one pass in blocks of a default shape; schedules refine it later."""
    blocks = _blocks(item)
    work: Mapping[str, float] = _operations(item, blocks)
    hbm = l2 = 0.0
    for load, axes in item.body.loads.items():
        size = _size(axes) * _item_bytes(load)
        hbm += size
        l2 += size * _repeats(axes, blocks)
    ctas = math.prod(blocks.values())
    return Work(
        mma_flop=2 * work["mma"],
        fma_flop=2 * work["fma"] + 2 * work["dot"],
        mufu_ops=work["mufu"],
        alu_ops=work["alu"],
        hbm_bytes=hbm,
        l2_bytes=l2,
        ctas=max(ctas, 1),
        serial_steps=1,
    )


def _operations(item: Pass, blocks: Mapping[Axis, int]) -> dict[str, float]:
    totals = dict.fromkeys(("mma", "dot", "fma", "mufu", "alu"), 0.0)
    for kind, axes in item.body.ops.values():
        totals[kind] += _size(axes) * _repeats(axes, blocks)
    return totals


def _repeats(axes: Axes, blocks: Mapping[Axis, int]) -> int:
    """How many blocks do the same again, because it does not vary along their axis."""
    return math.prod(count for axis, count in blocks.items() if axis not in axes)


def _blocks(item: Pass) -> dict[Axis, int]:
    """The number of blocks along each parallel axis: one for each index of a batch axis."""
    wide = [axes for axes in item.body.loads.values() if len(axes) > 1]
    batch = {axis for axis in item.free if len(wide) > 1 and all(axis in axes for axes in wide)}
    edge = _BLOCK if item.contracts else _ROWS
    axes = sorted(item.free, key=lambda axis: (axis.size, axis.name))
    while True:
        counts = {a: a.size if a in batch else -(-a.size // edge) for a in axes}
        if math.prod(counts.values()) >= _SMALL_GRID or edge <= 16 or not item.contracts:
            return {axis: max(count, 1) for axis, count in counts.items()}
        edge //= 2
