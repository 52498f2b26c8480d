"""The best few terms of every class, by a small dynamic program under fixed dials."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

from .carriers import channels_of, closure
from .free import free
from .frozen import Frozen, Klass, Node
from .passes import Analyst, Outline
from .terms import HEADS, Term, fill, make

Keep = Callable[[Klass, Node], bool]
Store = Callable[[Klass, Any], bool]

_WIDTH = {"Expr": 3, "Chan": 1, "State": 1}  # all projections of a carrier share one state
_ROUNDS = 64


class Digests:
    """A short text for each term that is equal in every process, to break ties with.

    It begins with how many products have their constant in front: people write it behind.
    """

    def __init__(self) -> None:
        self._known: dict[Term, str] = {}

    def __call__(self, term: Term) -> str:
        return self._known.get(term) or fill(term, self._known, self._of)

    def _of(self, node: Term) -> str:
        parts = [node.head]
        swapped = node.head == "Mul" and node.args[0].head == "Num" != node.args[1].head
        count = swapped + sum(int(self._known[child][:4], 16) for child in node.children)
        for arg in node.args:
            if isinstance(arg, Term):
                parts.append(self._known[arg])
            elif isinstance(arg, tuple):
                parts.append("[" + ",".join(map(self._known.__getitem__, arg)) + "]")
            else:
                parts.append(repr(arg))
        name = blake2b(" ".join(parts).encode(), digest_size=8).hexdigest()
        return f"{min(count, 0xFFFF):04x}{name}"


# Fewer unsafe operations first, then less time, then fewer operations outside of passes, then
# fewer symbols when written out.
Rank = tuple[int, float, int, int]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A term for a class, with its outline and its rank, the lower the better."""

    term: Any
    outline: Outline
    rank: Rank

    @cached_property
    def signature(self) -> frozenset[Any]:
        """Which passes it takes and which channels it reads there: what sharing depends on."""
        return frozenset((place, item.used) for place, item in self.outline.passes.items())


class Solver:
    """Finds terms in a frozen e-graph; keeps what it learns about terms between runs."""

    def __init__(self, frozen: Frozen, analyst: Analyst) -> None:
        self.frozen, self.analyst = frozen, analyst
        self.klass_of: dict[Any, Klass] = {}
        self.digest = Digests()
        self._sizes: dict[Any, int] = {}
        self._candidates: dict[Any, Candidate] = {}
        analyst.is_unsafe = self.is_unsafe

    def is_unsafe(self, term: Any) -> bool:
        """Exponentials whose argument is not proved <= 0, and sums that may cancel."""
        if term.head == "Risk":
            return True
        if term.head != "Exp":
            return False
        argument = term.args[0]
        klass = self.klass_of.get(argument) or self.frozen.find(argument)
        return klass is None or not klass.nonpositive

    def candidate(self, term: Any) -> Candidate:
        found = self._candidates.get(term)
        if found is None:
            outline = self.analyst.outline(term)
            found = Candidate(term, outline, self._rank(outline, self.size(term)))
            self._candidates[term] = found
        return found

    def joint(self, terms: tuple[Any, ...]) -> tuple[Rank, Outline]:
        """The rank of several terms computed by one plan, and the outline of the plan."""
        outline = self.analyst.joined(terms)
        return self._rank(outline, sum(map(self.size, terms))), outline

    def _rank(self, outline: Outline, size: int) -> Rank:
        cost = float(f"{self.analyst.cost_us(outline):.9g}")  # sums in any order are equal
        return len(outline.unsafe), cost, len(outline.body.ops), size

    def size(self, term: Any) -> int:
        """The number of symbols of a term when written out."""
        known = self._sizes
        return known.get(term) or fill(
            term, known, lambda node: 1 + sum(known[child] for child in node.children)
        )

    def solve(self, keep: Keep, store: Store) -> tuple[Any, ...] | None:
        """The best terms of the roots under a filter of nodes, or None where none is left.

        `store(klass, term)` says whether a term goes through memory where others use it.
        """
        run = _Run(self, keep, store)
        run.finish()
        choices = [run.best.get(klass, []) for klass in self.frozen.roots]
        if not all(choices):
            return None
        combos = itertools.islice(itertools.product(*choices), 256)
        terms = [tuple(choice.term for choice in combo) for combo in combos]
        return min(terms, key=lambda combo: (self.joint(combo)[0], *map(self.digest, combo)))


class _Run:
    """One dynamic program: rounds over the nodes whose parts changed, until none does.

    Channels and states have one term each, so that all projections of a carrier share it. While
    these terms still change, expressions may refer to old ones; so once all have settled, the
    expressions are found again with the carriers held fast.
    """

    def __init__(self, solver: Solver, keep: Keep, store: Store) -> None:
        self.solver, self.keep, self.store = solver, keep, store
        self.best: dict[Klass, list[Any]] = {}
        self.operands: dict[Klass, list[Any]] = {}
        self.nodes: dict[Klass, list[Node]] = {}
        self.users: dict[Klass, dict[Klass, set[int]]] = {}  # and the places of their nodes
        self._reach()

    def _reach(self) -> None:
        stack = list(self.solver.frozen.roots)
        while stack:
            klass = stack.pop()
            if klass in self.nodes:
                continue
            if klass in self.solver.frozen.loads:
                self.nodes[klass] = []
                continue
            kept = [n for n in klass.nodes if n.head != "Mat" and self.keep(klass, n)]
            self.nodes[klass] = kept
            for place, node in enumerate(kept):
                for below in node.below:
                    self.users.setdefault(below, {}).setdefault(klass, set()).add(place)
                    stack.append(below)

    def finish(self) -> None:
        self._settle()
        carriers = {klass for klass in self.nodes if klass.sort != "Expr"}
        self.best = {klass: self.best[klass] for klass in carriers if klass in self.best}
        self.operands = {klass: [item.term for item in self.best[klass]] for klass in self.best}
        self._settle(carriers)

    def _settle(self, held: Iterable[Klass] = ()) -> None:
        fixed = set(held)
        tried: dict[Klass, set[Any]] = {}
        for klass, load in self.solver.frozen.loads.items():
            self._offer(klass, [load])
        todo = {klass: set(range(len(nodes))) for klass, nodes in self.nodes.items()}
        for _ in range(_ROUNDS + len(self.nodes)):  # a term may be as deep as there are classes
            found = {}
            for klass, places in todo.items():
                if klass not in fixed and self.nodes[klass]:
                    found[klass] = self._terms(klass, places, tried.setdefault(klass, set()))
            changed = [klass for klass, terms in found.items() if self._offer(klass, terms)]
            if not changed:
                return
            todo = {}
            for klass in changed:
                for user, places in self.users.get(klass, {}).items():
                    todo.setdefault(user, set()).update(places)

    # ---- terms of a node -------------------------------------------------------------------------

    def _terms(self, klass: Klass, places: set[int], tried: set[Any]) -> list[Any]:
        """The new terms of a class, of its nodes at those places, whose parts have changed; of a
        channel or state, all that its parts allow now."""
        terms = []
        nodes = self.nodes[klass]
        for place in sorted(places) if klass.sort == "Expr" else range(len(nodes)):
            node = nodes[place]
            for args in itertools.product(*(self._choices(node, arg) for arg in node.args)):
                if klass.sort == "Expr":
                    if (place, args) in tried:
                        continue
                    tried.add((place, args))
                term = self._get(args) if node.head == "Get" else make(node.head, *args)
                if term is not None and self._within(klass, term):
                    self.solver.klass_of[term] = klass
                    terms.append(term)
        return terms

    def _choices(self, node: Node, arg: Any) -> list[Any]:
        if isinstance(arg, Klass):
            if node.head == "Get" and arg.sort == "Chan":
                return [arg]
            return self.operands.get(arg, [])
        if isinstance(arg, tuple | frozenset):
            parts = [self.operands.get(item, [])[:1] for item in arg]
            return [tuple(part[0] for part in parts)] if all(parts) else []
        return [arg]

    def _get(self, args: tuple[Any, ...]) -> Any:
        """The projection of a state, unless the state still holds an older base of the channel."""
        state, wanted = args
        channels = channels_of(state)
        for channel in channels:
            if self.solver.klass_of.get(channel) is wanted:
                whole = set(closure((channel,))) <= set(channels)
                return make("Get", state, channel) if whole else None
        return None

    def _within(self, klass: Klass, term: Any) -> bool:
        """A member may not mention an axis that its class does not depend on."""
        return klass.free is None or klass.free.issuperset(free(term))

    # ---- the best of a class ---------------------------------------------------------------------

    def _offer(self, klass: Klass, terms: list[Any]) -> bool:
        """Keep the best of the old and new terms; whether they changed."""
        old = self.best.get(klass, [])
        if klass.sort == "Expr" and not terms:
            return False
        kept = [item.term for item in old] if klass.sort == "Expr" else []
        best = self._select(klass, kept + terms)
        if len(best) == len(old) and all(a.term is b.term for a, b in zip(best, old, strict=True)):
            return False
        self.best[klass] = best
        operands = [self._operand(klass, item.term) for item in best]
        self.operands[klass] = list(dict.fromkeys(operands))
        return True

    def _operand(self, klass: Klass, term: Any) -> Any:
        if klass.sort != "Expr" or not self.store(klass, term):
            return term
        stored = make("Mat", term)
        self.solver.klass_of[stored] = klass
        return stored

    def _select(self, klass: Klass, terms: list[Any]) -> list[Any]:
        judge = self._judge if klass.sort == "Expr" else self._judge_part
        items = [judge(term) for term in dict.fromkeys(terms)]
        items.sort(key=lambda item: (item.rank, self.solver.digest(item.term)))
        chosen: list[Any] = []
        signatures: set[Any] = set()
        for item in items:  # one for each set of passes, since sharing a pass may pay later
            if item.signature not in signatures:
                signatures.add(item.signature)
                chosen.append(item)
            if len(chosen) == _WIDTH[klass.sort]:
                break
        return chosen

    def _judge(self, term: Any) -> Candidate:
        return self.solver.candidate(term)

    def _judge_part(self, term: Any) -> Candidate:
        """Channels and states are ranked by the expressions that they lift."""
        rank, outline = self.solver.joint(tuple(_lifts(term)))
        return Candidate(term, outline, rank)


def _lifts(term: Any) -> Iterator[Any]:
    """The expressions directly below a channel or a state."""
    for sort, arg in zip(HEADS[term.head].arguments, term.args, strict=True):
        if sort == "Expr":
            yield arg
        elif isinstance(arg, Term) and arg.sort in ("Chan", "State"):
            yield from _lifts(arg)
        elif isinstance(arg, tuple):
            for item in arg:
                yield from _lifts(item)
