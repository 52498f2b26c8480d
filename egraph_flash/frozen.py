"""What the tables of a saturated e-graph say: classes of equal terms, and the facts about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .axes import Axis
from .terms import HEADS, Term, make

# Sorts whose classes are read as constants: their terms are unique up to equality.
_CONSTANT = frozenset({"Extent", "Axis", "Tensor", "Monoid", "Level", "Representation"})
_ELEMENTS = {"Extents": "Extent", "Exprs": "Expr", "Chans": "Chan", "ChanSet": "Chan"}


@dataclass(eq=False, slots=True, repr=False)
class Node:
    """One way to build a class: a head over classes, constants, tuples or sets of classes."""

    head: str
    args: tuple[Any, ...]
    retired: bool = False  # shown in derivations only

    @property
    def below(self) -> Iterator[Klass]:
        for arg in self.args:
            if isinstance(arg, Klass):
                yield arg
            elif isinstance(arg, tuple | frozenset):
                yield from (item for item in arg if isinstance(item, Klass))


@dataclass(eq=False, slots=True, repr=False)
class Klass:
    """A class of equal expressions, channels or states."""

    sort: str
    nodes: list[Node] = field(default_factory=list)
    free: frozenset[Axis] | None = None
    nonpositive: bool = False

    def having(self, head: str) -> Iterator[Node]:
        return (node for node in self.nodes if node.head == head)


@dataclass(eq=False, repr=False)
class Frozen:
    """A read-only copy of an e-graph. `roots` are the classes of the outputs, in order."""

    classes: list[Klass]
    roots: tuple[Klass, ...]
    pools: dict[Axis, frozenset[Klass]]
    loads: dict[Klass, Term]
    streams: frozenset[tuple[Klass, Axis]]  # expressions that one pass over an axis computes
    _nodes: dict[tuple[Any, ...], Klass]

    def node(self, head: str, args: tuple[Any, ...]) -> Klass | None:
        """The class of the node `head(args)`, or None."""
        return self._nodes.get((head, args))

    def find(self, term: Term) -> Klass | None:
        """The class of a term, or None where the e-graph does not hold it."""
        found: dict[Term, Any] = {}
        from .terms import subterms

        for node in subterms(term):
            if node.sort in _CONSTANT:
                found[node] = node
                continue
            args = tuple(_image(sort, arg, found) for sort, arg in _arguments(node))
            klass = self._nodes.get((node.head, args))
            if klass is None:
                return None
            found[node] = klass
        return found[term]  # type: ignore[no-any-return]


def _arguments(node: Term) -> Iterator[tuple[str, Any]]:
    return zip(HEADS[node.head].arguments, node.args, strict=True)


def _image(sort: str, arg: Any, found: dict[Term, Any]) -> Any:
    if isinstance(arg, tuple):
        images = [found[item] for item in arg]
        return frozenset(images) if sort.startswith("Set") else tuple(images)
    return found[arg] if isinstance(arg, Term) else arg


class _Reader:
    """Turns the engine's rows into classes; values of the engine stay inside."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.tables = engine.freeze().functions
        self.classes: dict[tuple[str, Any], Klass] = {}
        self.constants: dict[tuple[str, Any], Term] = {}
        self.literals = {
            "String": engine.value_to_string,
            "i64": engine.value_to_i64,
            "f64": engine.value_to_f64,
        }

    def value(self, sort: str, value: Any) -> Any:
        if sort in self.literals:
            return self.literals[sort](value)
        if sort in _CONSTANT:
            return self.constants[sort, value]
        if sort == "ChanSet":
            return frozenset(self.value("Chan", item) for item in self.engine.value_to_set(value))
        if sort in _ELEMENTS:
            items = self.engine.value_to_vec(value)
            return tuple(self.value(_ELEMENTS[sort], item) for item in items)
        return self.classes.setdefault((sort, value), Klass(sort))

    def read_constants(self) -> None:
        """Axes, tensors and the like, whose rows may refer to each other."""
        rows = [
            (head, row)
            for head in HEADS.values()
            if head.result in _CONSTANT and head.name in self.tables
            for row in self.tables[head.name].rows
        ]
        while rows:
            later = []
            for head, row in rows:
                try:
                    args = self.values(head.name, row)
                except KeyError:  # refers to a constant that is not read yet
                    later.append((head, row))
                    continue
                self.constants[head.result, row.output] = make(head.name, *args)
            assert len(later) < len(rows), "constants that refer to each other in a circle"
            rows = later

    def values(self, table: str, row: Any) -> tuple[Any, ...]:
        sorts = self.tables[table].input_sorts
        return tuple(self.value(s, v) for s, v in zip(sorts, row.inputs, strict=True))

    def facts(self, name: str) -> list[tuple[Any, ...]]:
        if name not in self.tables:
            return []
        return [self.values(name, row) for row in self.tables[name].rows]


def read(engine: Any, loads: list[Term]) -> Frozen:
    """The classes and facts of an egglog e-graph; `loads` are the user's, in order of addition."""
    reader = _Reader(engine)
    reader.read_constants()
    nodes: dict[tuple[Any, ...], Klass] = {}
    for head in HEADS.values():
        if head.result in _CONSTANT or head.name not in reader.tables:
            continue
        for row in reader.tables[head.name].rows:
            if row.subsumed:
                continue
            args = reader.values(head.name, row)
            klass = reader.value(head.result, row.output)
            klass.nodes.append(Node(head.name, args))
            nodes[head.name, args] = klass
    for row in reader.tables["free"].rows if "free" in reader.tables else ():
        (klass,) = reader.values("free", row)
        axes = engine.value_to_set(row.output)
        klass.free = frozenset(reader.value("Axis", axis) for axis in axes)
    for (klass,) in reader.facts("nonpositive"):
        klass.nonpositive = True
    for klass, left, right in reader.facts("retired"):
        klass.nodes.append(Node("Mul", (left, right), retired=True))
    pools = {}
    for row in reader.tables["pool"].rows if "pool" in reader.tables else ():
        (axis,) = reader.values("pool", row)
        pools[axis] = reader.value("ChanSet", row.output)
    results = dict(sorted(reader.facts("result"), key=lambda pair: pair[0]))
    origins = sorted(reader.facts("origin"), key=lambda pair: -pair[0])
    return Frozen(
        classes=list(reader.classes.values()),
        roots=tuple(results.values()),
        pools=pools,
        loads={klass: loads[place] for place, klass in origins},
        streams=frozenset((klass, axis) for klass, axis in reader.facts("streams")),
        _nodes=nodes,
    )
