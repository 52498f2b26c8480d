"""How a term reads when its shared parts get names: one line for each, then the term itself."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from .axes import Axis
from .carriers import bases_of, channels_of, closure, is_twisted, lift_of, monoid_of, tower_of
from .monoids import MONOIDS
from .notation import pretty_node
from .terms import Chan, Term, subterms

_LEAVES = ("Load", "Num", "Idx", "Len")
_LETTERS = {"Max": "m", "Sum": "s"}


def listing(*terms: Any) -> str:
    """The terms for people: shared expressions and folds are named once and then referred to.

    A fold lists its channels with labels, `m` for a maximum, `s` for a sum, `r` for another
    reduction, `t` for a twisted channel, which says in brackets which channels are its bases.

    >>> from egraph_flash import Axis, Tensor, exp, f32
    >>> (n,) = Axis.many(n=8)
    >>> x = Tensor("x", (n,), f32)
    >>> print(listing(exp(x.max(n)) * exp(x.max(n))))
    a = exp(max_n(x[n]))
    a * a
    """
    lister = _Lister(terms)
    results = [lister.say(term)[0] for term in terms]
    return "\n".join([*lister.lines, *results])


class _Lister:
    def __init__(self, terms: tuple[Any, ...]) -> None:
        nodes = subterms(*terms)
        self.shared = _shared(nodes, terms)
        self.lines: list[str] = []
        self.written: dict[Term, tuple[str, int]] = {}
        self.labels: dict[tuple[Term, Chan], str] = {}
        taken = {node.args[0] for node in nodes if node.head in ("Ax", "Array", "Symbol")}
        self.names = _fresh("abcfghpqruvwyz", taken)
        self.folds = _fresh("FGHJKLPQRUVWXYZ", taken)
        for node in nodes:  # parts first, so that no depth is too great
            if node.sort == "Expr":
                self.say(node)

    def say(self, term: Any) -> tuple[str, int]:
        """How a term is written, and how tightly its outermost operator binds."""
        if term not in self.written:
            self.written[term] = self._say(term)
        return self.written[term]

    def _say(self, term: Any) -> tuple[str, int]:
        if term.head == "Get":
            state, channel = term.args
            return f"{self._fold(state)}.{self.labels[state, channel]}", 9
        said = pretty_node(term, self.say)
        if term not in self.shared:
            return said
        name = next(self.names)
        self.lines.append(f"{name} = {said[0]}")
        return name, 9

    def _fold(self, state: Any) -> str:
        if state in self.written:
            return self.written[state][0]
        channels = closure(channels_of(state))
        labels = _labels(channels)
        parts = [f"{labels[channel]}: {self._channel(channel, labels)}" for channel in channels]
        levels = " ".join(_level(axis, name) for axis, name in tower_of(state))
        name = next(self.folds)
        self.lines.append(f"{name} = fold {levels} {{{'; '.join(parts)}}}")
        self.labels.update({(state, channel): labels[channel] for channel in channels})
        self.written[state] = (name, 9)
        return name

    def _channel(self, channel: Any, labels: dict[Chan, str]) -> str:
        lift = self.say(lift_of(channel))[0]
        if not is_twisted(channel):
            return f"{MONOIDS[monoid_of(channel)].symbol} {lift}"
        bases = ", ".join(labels[base] for base in bases_of(channel))
        return f"{channel.args[0].args[0]}[{bases}] {lift}"


def _level(axis: Axis, level: str) -> str:
    where = "" if level == "Flat" else f"{level.lower()} "
    return f"{where}{pretty_node(axis, _axis)[0]}"


def _axis(term: Any) -> tuple[str, int]:
    return pretty_node(term, _axis)


def _labels(channels: tuple[Any, ...]) -> dict[Chan, str]:
    """A letter for each channel by its kind, numbered where there are several of it."""
    letters = ["t" if is_twisted(c) else _LETTERS.get(monoid_of(c), "r") for c in channels]
    several = Counter(letters)
    seen: Counter[str] = Counter()
    found = {}
    for channel, letter in zip(channels, letters, strict=True):
        seen[letter] += 1
        found[channel] = f"{letter}{seen[letter]}" if several[letter] > 1 else letter
    return found


def _shared(nodes: list[Any], terms: tuple[Any, ...]) -> set[Term]:
    """Expressions that stand in more than one place and are worth a name."""
    uses: Counter[Term] = Counter(terms)
    for node in nodes:
        if node.head == "Load":
            continue
        # a projection reads its fold; the channel inside it is a label, not another place
        below = node.args[:1] if node.head == "Get" else node.children
        uses.update(child for child in dict.fromkeys(below))
        if node.head == "Mul" and node.args[0] is node.args[1]:
            uses.update(below[:1])
    inner = _inside_loads(nodes)
    return {
        node
        for node in nodes
        if node.sort == "Expr"
        and uses[node] > 1
        and node not in inner
        and node.head not in (*_LEAVES, "Get")
    }


def _inside_loads(nodes: list[Any]) -> set[Term]:
    return {part for node in nodes if node.head == "Load" for part in subterms(*node.args[1])}


def _fresh(letters: str, taken: set[str]) -> Iterator[str]:
    """Letters, then letters with numbers, that the user does not use."""
    numbered = (f"{letter}{n}" for n in itertools.count(1) for letter in letters)
    return (name for name in itertools.chain(letters, numbered) if name not in taken)
