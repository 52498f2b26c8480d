"""What a term is: an interned node of one of a few sorts, whose heads are rows of one table."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, ClassVar

from .monoids import LEVELS, MONOIDS
from .operators import OPERATORS


@dataclass(frozen=True)
class Head:
    """A constructor of terms: `arguments` name sorts, `Vec S`, `Set S`, or `String i64 f64`."""

    name: str
    arguments: tuple[str, ...]
    result: str


def _heads() -> Iterator[Head]:
    yield Head("Known", ("i64",), "Extent")
    yield Head("Symbol", ("String", "i64"), "Extent")
    yield Head("Ax", ("String", "Extent"), "Axis")
    yield Head("Outer", ("Axis", "i64"), "Axis")
    yield Head("Inner", ("Axis", "i64"), "Axis")
    yield Head("Array", ("String", "String", "Vec Extent", "Vec Extent", "i64"), "Tensor")
    for name in MONOIDS:
        yield Head(name, (), "Monoid")
    for name in LEVELS:
        yield Head(name, (), "Level")
    yield Head("Rep", ("String",), "Representation")
    yield Head("Num", ("f64",), "Expr")
    yield Head("Idx", ("Axis",), "Expr")
    yield Head("Len", ("Axis",), "Expr")
    yield Head("Load", ("Tensor", "Vec Expr"), "Expr")
    for row in OPERATORS.values():
        yield Head(row.name, ("Expr",) * row.arity, "Expr")
    yield Head("Cast", ("String", "Expr"), "Expr")
    yield Head("Red", ("Monoid", "Axis", "Expr"), "Expr")
    yield Head("Get", ("State", "Chan"), "Expr")
    yield Head("Mat", ("Expr",), "Expr")
    yield Head("Risk", ("Expr",), "Expr")
    yield Head("Ch", ("Monoid", "Expr"), "Chan")
    yield Head("Tw", ("Representation", "Vec Chan", "Expr"), "Chan")
    yield Head("Lift", ("Set Chan",), "State")
    yield Head("Fold", ("Axis", "Level", "State"), "State")


HEADS: dict[str, Head] = {head.name: head for head in _heads()}
SORTS = ("Extent", "Axis", "Tensor", "Monoid", "Level", "Representation", "Expr", "Chan", "State")


class Term:
    """An immutable node `head(args)`; equal terms are one object, so `is` is equality.

    Arguments are terms, tuples of terms, or plain strings and numbers, as the head declares.
    A head `Var` stands for any term of its sort: laws are written with such variables.
    """

    __slots__ = ("__weakref__", "_free", "_hash", "args", "children", "head")
    sort: ClassVar[str] = ""
    classes: ClassVar[dict[str, type[Term]]] = {}
    _interned: ClassVar[weakref.WeakValueDictionary[Any, Term]] = weakref.WeakValueDictionary()

    head: str
    args: tuple[Any, ...]
    children: tuple[Term, ...]  # directly below, in order, those inside tuples included

    def __init_subclass__(cls) -> None:
        if cls.sort:
            Term.classes[cls.sort] = cls

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"terms are immutable: cannot set {name!r} of {self.head}")

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined,no-any-return]

    def __reduce__(self) -> Any:
        return (_rebuild, (self.sort, self.head, self.args))

    def __repr__(self) -> str:
        from .notation import pretty

        return pretty(self)


def _children(args: tuple[Any, ...]) -> Iterator[Term]:
    for arg in args:
        if isinstance(arg, Term):
            yield arg
        elif isinstance(arg, tuple):
            yield from arg


def _known(sort: str, head: str, args: tuple[Any, ...]) -> Any:
    """The term of these arguments, or None where there is none, or a list among them."""
    try:
        return Term._interned.get((sort, head, args, tuple(map(type, args))))
    except TypeError:
        return None


def _intern(sort: str, head: str, args: tuple[Any, ...]) -> Any:
    # the types stand in the key because Python holds 1 == 1.0
    name = (sort, head, args, tuple(map(type, args)))
    found = Term._interned.get(name)
    if found is None:
        found = object.__new__(Term.classes.get(sort, Hole))
        object.__setattr__(found, "head", head)
        object.__setattr__(found, "args", args)
        object.__setattr__(found, "children", tuple(_children(args)))
        object.__setattr__(found, "_hash", hash(name))
        Term._interned[name] = found
    return found


def renew(head: str) -> None:
    """Have the next constant `head()` be another term than those of before: it means another thing,
    and what is remembered of terms is remembered of those."""
    Term._interned.pop((HEADS[head].result, head, (), ()), None)


def _rebuild(sort: str, head: str, args: tuple[Any, ...]) -> Any:
    return _intern(sort, head, args)


def make(head: str, *args: Any) -> Any:
    """The one term `head(args)`. Channels of a `Lift` are put in the order of `compare`."""
    row = HEADS[head]
    known = _known(row.result, head, args)
    if known is not None:  # made before of just these arguments, which it has checked then
        return known
    assert len(args) == len(row.arguments), f"{head} takes {row.arguments}, got {args}"
    checked = tuple(_checked(row, sort, arg) for sort, arg in zip(row.arguments, args, strict=True))
    return _intern(row.result, head, checked)


def variable(sort: str, name: str) -> Any:
    """A pattern variable of `sort`, for laws: a sort of terms, or `i64`, `f64`, `Set Chan` …"""
    return _intern(sort, "Var", (name,))


def _checked(row: Head, sort: str, arg: Any) -> Any:
    if sort == "f64":
        if isinstance(arg, Term):  # a variable for a number, in a law
            return arg
        value = float(arg)
        assert not math.isnan(value), f"{row.name}: NaN is no constant of the language"
        return value + 0.0  # folds -0.0 into 0.0
    if sort == "i64":
        return arg if isinstance(arg, Term) else int(arg)
    if sort == "String":
        return arg if isinstance(arg, Term) else str(arg)
    if sort.startswith("Vec "):
        if isinstance(arg, Term):  # a variable for the whole vector, in a law
            return arg
        assert all(item.sort == sort[4:] for item in arg), f"{row.name} takes {sort}, got {arg}"
        return tuple(arg)
    if sort.startswith("Set "):
        if isinstance(arg, Term):
            return arg
        assert all(item.sort == sort[4:] for item in arg), f"{row.name} takes {sort}, got {arg}"
        return tuple(sorted(dict.fromkeys(arg), key=cmp_to_key(compare)))
    assert isinstance(arg, Term), f"{row.name} takes {sort}, got {arg!r}"
    assert arg.sort == sort, f"{row.name} takes {sort}, got {arg!r}"
    return arg


def compare(a: Any, b: Any) -> int:
    """-1, 0 or 1: the order of terms by their heads, then by their arguments from the left.

    Different terms differ below the first argument in which they are not the same object, so this
    takes no longer than a term is deep.
    """
    while a is not b:
        if isinstance(a, Term) and isinstance(b, Term):
            if a.head != b.head:
                return -1 if a.head < b.head else 1
            a, b = a.args, b.args
        elif isinstance(a, tuple) and isinstance(b, tuple):
            pairs = ((x, y) for x, y in zip(a, b, strict=False) if not _is_same(x, y))
            a, b = next(pairs, (len(a), len(b)))
        else:
            return 0 if a == b else -1 if str(a) < str(b) else 1
    return 0


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a is b or (not isinstance(a, Term) and bool(a == b))


class Hole(Term):
    """A pattern variable that stands for a number, a string, a vector or a set."""


class Monoid(Term):
    sort = "Monoid"


class Level(Term):
    sort = "Level"


class Representation(Term):
    sort = "Representation"


class Source(Term):
    """The name, dtype and extents of an input, inside a load."""

    sort = "Tensor"


class Extent(Term):
    sort = "Extent"


class Chan(Term):
    sort = "Chan"


class State(Term):
    sort = "State"


def subterms(*roots: Term) -> list[Term]:
    """Every distinct term below `roots`, children before parents, in order of first appearance."""
    seen: dict[Term, None] = {}
    stack = list(reversed(roots))
    while stack:
        term = stack[-1]
        waiting = [] if term in seen else [child for child in term.children if child not in seen]
        if waiting:
            stack += reversed(waiting)
        else:
            seen[stack.pop()] = None
    return list(seen)


def fill(
    term: Any,
    known: dict[Any, Any],
    compute: Callable[[Any], Any],
    below: Callable[[Any], Iterable[Any]] = lambda node: node.children,
) -> Any:
    """`known[term]`, computed for the terms below first where they are not known yet.

    What a recursive function with a memory would do, at any depth.
    """
    stack = [term]
    while stack:
        node = stack[-1]
        missing = [] if node in known else [part for part in below(node) if part not in known]
        if missing:
            stack.extend(missing)
            continue
        if node not in known:
            known[node] = compute(node)
        stack.pop()
    return known[term]


def rewrite(term: Any, change: dict[Any, Any]) -> Any:
    """`term` with every occurrence of a term in `change` replaced, children first."""
    done: dict[Term, Any] = dict(change)
    for node in subterms(term):
        if node in done:
            continue
        if all(done[child] is child for child in node.children):
            done[node] = node
            continue
        args = (
            done[arg]
            if isinstance(arg, Term)
            else tuple(done[item] for item in arg)
            if isinstance(arg, tuple)
            else arg
            for arg in node.args
        )
        done[node] = make(node.head, *args)
    return done[term]
