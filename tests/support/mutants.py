"""Laws with one mistake each: a premise dropped, a sign flipped, a factor forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from egraph_flash.carriers import closure
from egraph_flash.rules.facts import Fact, fact
from egraph_flash.rules.law import Clause, Equal, Law, variables
from egraph_flash.terms import Term, make, rewrite, subterms

_SWAPPED = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Max2": "Min2"}
_OPPOSITE = {
    "nonpositive": "positive",
    "nonnegative": "nonpositive",
    "positive": "nonpositive",
}
_DEFINING = ("split", "shifted", "count")  # without them other variables have no meaning


def mutants(law: Law) -> Iterator[tuple[str, Law]]:
    """(what is wrong, the law with that mistake), each different from the law."""
    yield from _dropped(law)
    for place, clause in enumerate(law.then):
        for what, wrong in _wrong(clause):
            then = (*law.then[:place], wrong, *law.then[place + 1 :])
            yield what, replace(law, then=then)


def _dropped(law: Law) -> Iterator[tuple[str, Law]]:
    for place, clause in enumerate(law.given):
        if not isinstance(clause, Fact) or clause.kind.steers or clause.kind.name in _DEFINING:
            continue
        rest = (*law.given[:place], *law.given[place + 1 :])
        if not variables(law.then) - variables(rest):
            yield f"without {clause}", replace(law, given=rest)


def _wrong(clause: Clause) -> Iterator[tuple[str, Clause]]:
    if isinstance(clause, Equal):
        for what, right in _wrong_terms(clause.right):
            yield what, Equal(clause.left, right)
        return
    name, args = clause.kind.name, clause.args
    if name in _OPPOSITE:
        yield f"{_OPPOSITE[name]}", fact(_OPPOSITE[name], *args)
    elif name == "bounded":
        yield "bounded the other way", fact(name, args[1], args[0])
    elif name in ("split", "shifted"):
        for place in range(2, len(args)):
            for what, wrong in _wrong_terms(args[place]):
                yield (
                    f"{what} in part {place}",
                    fact(name, *args[:place], wrong, *args[place + 1 :]),
                )


def _wrong_terms(term: Any) -> Iterator[tuple[str, Any]]:
    """The term with one node of it wrong."""
    for node in _read(term):
        for what, wrong in _wrong_nodes(node):
            yield what, rewrite(term, {node: wrong})


def _read(term: Any) -> list[Any]:
    """The nodes that a value depends on: of a projected state, only the channels that it reads."""
    if term.head != "Get":
        below = [node for child in term.children for node in _read(child)]
    else:
        axes = [node for node in subterms(term.args[0]) if node.sort == "Axis"]
        below = [*subterms(*closure((term.args[1],))), *axes]
    return list(dict.fromkeys([*below, term]))


def _wrong_nodes(node: Any) -> Iterator[tuple[str, Any]]:
    if node.head in _SWAPPED:
        yield f"{node} with {_SWAPPED[node.head]}", make(_SWAPPED[node.head], *node.args)
    if node.head == "Neg":
        yield f"{node} without its sign", node.args[0]
    if node.head == "Mul":
        for place in (0, 1):
            yield f"{node} without factor {place}", node.args[1 - place]
    if node.head == "Exp":
        yield f"{node} of the opposite", make("Exp", make("Neg", node.args[0]))
    if node.head == "Red" and node.args[0].head in ("Sum", "Max"):
        other = "Max" if node.args[0].head == "Sum" else "Sum"
        yield f"{node} with {other}", make("Red", make(other), *node.args[1:])
    if node.head == "Inner" and isinstance(node.args[1], Term):
        yield f"{node} without the outer level", node.args[0]
