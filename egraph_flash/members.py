"""Which terms the classes of an e-graph hold: how many, and some of them at random."""

from __future__ import annotations

import math
import random
from typing import Any

from .free import free
from .frozen import Frozen, Klass, Node
from .terms import make

_DEEP = 10**9
_RETRIES = 40  # in one member, where a term mentioned an axis that it may not


class Sampler:
    """Samples terms of a class, each node with equal chance as long as a height budget lasts.

    Within one member a channel class has one term, so that projections find their channels and
    twisted channels their bases.
    """

    def __init__(self, frozen: Frozen, rng: random.Random) -> None:
        self.frozen, self.rng = frozen, rng
        self.heights = _heights(frozen)
        self.channels: dict[Klass, Any] = {}
        self.retries = 0

    def member(self, klass: Klass, slack: int) -> Any:
        """A term of the class, or None where the sample mentioned an axis it may not."""
        self.channels, self.retries = {}, _RETRIES
        return self._term(klass, self.heights[klass] + slack)

    def _term(self, klass: Klass, budget: int) -> Any:
        if klass in self.frozen.loads:
            return self.frozen.loads[klass]
        if klass.sort == "Chan" and klass in self.channels:
            return self.channels[klass]
        term = self._attempt(klass, budget)
        while term is None and self.retries > 0:
            self.retries -= 1
            term = self._attempt(klass, budget)
        if klass.sort == "Chan" and term is not None:
            term = self.channels.setdefault(klass, term)
        return term

    def _attempt(self, klass: Klass, budget: int) -> Any:
        node = self._choose(klass, budget)
        args = [self._argument(arg, budget - 1) for arg in node.args]
        if any(arg is None for arg in args):
            return None
        term = make(node.head, *args)
        if klass.sort == "Expr" and klass.free is not None and not set(free(term)) <= klass.free:
            return None
        return term

    def _choose(self, klass: Klass, budget: int) -> Node:
        fitting = [node for node in klass.nodes if self._height(node) < budget]
        return self.rng.choice(fitting) if fitting else min(klass.nodes, key=self._height)

    def _height(self, node: Node) -> int:
        return max((self.heights.get(below, _DEEP) for below in node.below), default=0)

    def _argument(self, arg: Any, budget: int) -> Any:
        if isinstance(arg, Klass):
            return self._term(arg, budget)
        if isinstance(arg, tuple | frozenset):
            # a set's order may not depend on object identity: classes are in the order of the rows
            order = {klass: place for place, klass in enumerate(self.frozen.classes)}
            items = arg if isinstance(arg, tuple) else sorted(arg, key=order.__getitem__)
            terms = tuple(self._term(item, budget) for item in items)
            return None if any(term is None for term in terms) else terms
        return arg


def _heights(frozen: Frozen) -> dict[Klass, int]:
    """The height of the lowest term of each class."""
    heights = dict.fromkeys(frozen.loads, 1)
    changed = True
    while changed:
        changed = False
        for klass in frozen.classes:
            for node in klass.nodes:
                below = [heights.get(part) for part in node.below]
                if None in below:
                    continue
                height = 1 + max((h for h in below if h is not None), default=0)
                if height < heights.get(klass, _DEEP):
                    heights[klass], changed = height, True
    return heights


def count(frozen: Frozen, klass: Klass, height: int) -> int:
    """How many terms of a class are at most so high; a class of loads counts as one term.

    Terms that mention an axis which their class does not depend on are counted too.
    """
    counts: dict[Klass, int] = {}
    for _ in range(height):
        counts = {
            each: 1 if each in frozen.loads else sum(_spelled(node, counts) for node in each.nodes)
            for each in frozen.classes
        }
    return counts.get(klass, 0)


def _spelled(node: Node, counts: dict[Klass, int]) -> int:
    return math.prod(counts.get(part, 0) for part in node.below)
