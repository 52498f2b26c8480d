"""The same expression with names that do not depend on the user's, so that no choice can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .layouts import array_term
from .terms import Term, make, rewrite, subterms


class Naming:
    """A one-to-one renaming of the axes, tensors and symbols of some expressions.

    Names are given in the order of first appearance: `a0 a1 …` for axes, `t0 …` for tensors and
    `s0 …` for symbolic extents. Two expressions that differ in names alone become one; so do those
    that differ in how their tensors lie, unless `lying` keeps that.
    """

    def __init__(self, roots: Sequence[Any], *, lying: bool = False) -> None:
        self.forward: dict[Term, Term] = {}
        self.backward: dict[Term, Term] = {}
        extents: dict[Term, Term] = {}
        counts = {"Symbol": 0, "Ax": 0, "Array": 0}
        for node in subterms(*roots):
            if node.head not in counts:
                continue
            fresh = f"{'sat'[('Symbol', 'Ax', 'Array').index(node.head)]}{counts[node.head]}"
            counts[node.head] += 1
            if node.head == "Symbol":
                new = extents[node] = make("Symbol", fresh, node.args[1])
            elif node.head == "Ax":
                new = make("Ax", fresh, extents.get(node.args[1], node.args[1]))
            else:
                sizes = tuple(extents.get(extent, extent) for extent in node.args[2])
                new = array_term(fresh, node.args[1], sizes)
                if lying:
                    strides = tuple(extents.get(stride, stride) for stride in node.args[3])
                    new = make("Array", *new.args[:3], strides, node.args[4])
            self.forward[node], self.backward[new] = new, node

    def canonical(self, term: Any) -> Any:
        return rewrite(term, self.forward)

    def original(self, term: Any) -> Any:
        return rewrite(term, self.backward)
