"""Which term of the e-graph to run: few unsafe operations first, then the least predicted time.

The discrete dials stand outside: for each axis, whether its folds share the pooled carrier; and
which classes go through memory. Inside, a small dynamic program picks the terms (`solver`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from .axes import Axis
from .canonical import Naming
from .carriers import channels_of
from .egraph import Saturation
from .errors import ScheduleError
from .expressions import Expr
from .free import free
from .frozen import Klass, Node
from .machines import Machine
from .passes import Analyst, Outline
from .saturated import Saturated, kept, saturate
from .shaping import flat_folds, keep_result, shaped, towers
from .solver import Rank, Solver
from .terms import make

PLACES = ("fuse", "cut")
_MAX_POOLED_AXES = 2  # with more, only a few of the subsets are tried
_MANY_CLASSES = 1_000  # of an e-graph in which every trial is slow
_MAX_CUTS = 8

Axes = frozenset[Axis]
# (rank, number of pooled axes, digests of the terms, the terms)
Solution = tuple[Rank, int, tuple[str, ...], tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Choice:
    """How the dials stand: axes with pooled carriers, and what goes through memory.

    `cuts` are sets of axes: every contraction whose result has just these axes is stored. To cut
    one class alone would only make the program inside use another form of the same thing.
    """

    pooled: frozenset[Axis]
    cuts: frozenset[Axes] = frozenset()
    store_all: bool = False


@dataclass(frozen=True, eq=False)
class Extraction:
    """The chosen terms of the outputs, with flat folds, and what is known about them.

    `passes` counts the passes over streamed axes over the whole plan, `passes_by_axis` the same by
    axis; `unsafe` counts exponentials that may overflow and sums that may cancel.
    """

    roots: tuple[Expr, ...]
    passes: int
    passes_by_axis: dict[Axis, int]
    unsafe: int
    cost_us: float
    naive: tuple[Expr, ...]
    pins: dict[str, str]
    machine: Machine
    saturation: Saturation
    hits: dict[str, int]
    search: Search = field(repr=False)

    @property
    def term(self) -> Expr:
        """The term of the first output."""
        return self.roots[0]


def extract(roots: tuple[Expr, ...], machine: Machine, pins: Mapping[str, str]) -> Extraction:
    """The best terms for `roots` on a machine, under pins such as `{"PLACE": "fold=cut"}`.

    Raises ScheduleError for a PLACE that is not spelled `fold=fuse` or `fold=cut`.
    """
    search = Search(tuple(roots), machine)
    return search.extract(place_of(pins), dict(pins))


@contextmanager
def searching(roots: tuple[Expr, ...], machine: Machine) -> Iterator[Search]:
    """For a while, a search whose e-graph is kept afterwards, for other pins or another target."""
    with ExitStack() as stack:
        yield Search(roots, machine, lambda canonical: stack.enter_context(kept(canonical)))


def place_of(pins: Mapping[str, str]) -> str | None:
    """What the pin PLACE asks of the fold: `fuse`, `cut`, or None where it is left open."""
    given = pins.get("PLACE")
    if given is None:
        return None
    name, _, value = given.partition("=")
    if name != "fold" or value not in PLACES:
        near = "fold=cut" if "cut" in given else "fold=fuse"
        raise ScheduleError(
            f"PLACE: got {given!r}, wants fold=fuse or fold=cut; the nearest is {near!r}"
        )
    return value


class Search:
    """A saturated e-graph of some outputs on a machine, and the terms found in it so far.

    Inside, axes and tensors have canonical names, so that the user's cannot change a choice.
    """

    def __init__(
        self,
        roots: tuple[Expr, ...],
        machine: Machine,
        graph_of: Callable[[tuple[Expr, ...]], Saturated] = saturate,
    ) -> None:
        self.naive, self.machine = roots, machine
        self.naming = Naming(roots)
        self.roots = tuple(self.naming.canonical(root) for root in roots)
        graph = graph_of(self.roots)
        self.session, self.saturation, self.frozen = graph.session, graph.saturation, graph.frozen
        self.solver = Solver(self.frozen, Analyst(machine))

    # ---- dials -----------------------------------------------------------------------------------

    def extract(self, place: str | None, pins: dict[str, str]) -> Extraction:
        """The best solution over the dials; `place` None leaves cuts open."""
        solutions = [(self._solve(choice), choice) for choice in self._choices(place)]
        found = [(s, choice) for s, choice in solutions if s is not None]
        assert found, "the naive term itself is always a solution"
        solution, choice = min(found, key=lambda pair: pair[0])
        if place is None:
            solution = self._with_cuts(solution, choice)
        return self.finished(solution[-1], pins)

    def _choices(self, place: str | None) -> Iterator[Choice]:
        """Which axes pool their carriers: every subset of a few axes, else all but one or none."""
        if place == "cut":
            yield Choice(frozenset(), store_all=True)
            return
        pools = {axis: pool for axis, pool in self.frozen.pools.items() if len(pool) > 1}
        axes = sorted(pools, key=self.solver.digest)
        sizes: Iterable[int] = range(len(axes) + 1)
        if len(self.frozen.classes) > _MANY_CLASSES:
            sizes = (0, len(axes))
        elif len(axes) > _MAX_POOLED_AXES:
            sizes = (0, len(axes) - 1, len(axes))
        for size in sizes:
            for some in itertools.combinations(axes, size):
                yield Choice(frozenset(some))

    def _with_cuts(self, solution: Solution, choice: Choice) -> Solution:
        """The solution with inner contractions sent through memory as long as that pays."""
        cuts = choice.cuts
        trials = 1 if len(self.frozen.classes) > _MANY_CLASSES else _MAX_CUTS
        for axes in self._inner(solution[-1])[:trials]:
            trial = self._solve(Choice(choice.pooled, cuts | {axes}))
            if trial is not None and trial < solution:
                solution, cuts = trial, cuts | {axes}
        return solution

    def _solve(self, choice: Choice) -> Solution | None:
        """(rank, tie breaks, terms) of the best terms under a choice.

        Among equals the fewest pooled axes win, so that inner contractions stay apart.
        """
        terms = self.solver.solve(
            lambda klass, node: self._kept(choice, klass, node),
            lambda klass, term: self._stored(choice, klass, term),
        )
        if terms is None:
            return None
        rank, _ = self.solver.joint(terms)
        return rank, len(choice.pooled), tuple(map(self.solver.digest, terms)), terms

    def _kept(self, choice: Choice, klass: Klass, node: Node) -> bool:
        if node.retired:
            return False
        if node.head in ("Tw", "Lift"):
            return not choice.store_all
        if node.head == "Fold":
            axis, level, state = node.args
            return level.head == "Flat" and self._carrier_fits(choice, axis, state)
        if node.head == "Red" and node.args[1] in choice.pooled:
            return not self._pooled(node)
        return True

    def _carrier_fits(self, choice: Choice, axis: Axis, state: Klass) -> bool:
        lifts = [node.args[0] for node in state.having("Lift")]
        pool = self.frozen.pools.get(axis)
        if axis in choice.pooled:
            return pool in lifts
        return pool not in lifts and any(len(channels) > 1 for channels in lifts)

    def _pooled(self, node: Node) -> bool:
        """Whether the pooled carrier of the axis has this reduction as a channel."""
        monoid, axis, body = node.args
        channel = self.frozen.node("Ch", (monoid, body))
        return channel in self.frozen.pools[axis]

    def _stored(self, choice: Choice, klass: Klass, term: Any) -> bool:
        if not choice.store_all and klass.free not in choice.cuts:
            return False
        return term.head in ("Red", "Get") and any(klass.having("Mat"))

    def _inner(self, terms: tuple[Any, ...]) -> list[Axes]:
        """The axes of inner contractions, which a pass computes again for each of its blocks."""
        outline = self.solver.analyst.joined(terms)
        inner = dict.fromkeys(part for item in outline.passes.values() for part in item.body.inner)
        return list(dict.fromkeys(frozenset(free(part)) for part in inner))

    # ---- the finished term -----------------------------------------------------------------------

    def finished(self, terms: tuple[Any, ...], pins: dict[str, str]) -> Extraction:
        """The solution in its final shape, with the user's names put back."""
        # proofs that exponentials are safe are known of the e-graph's own terms
        (unsafe, *_), _ = self.solver.joint(terms)
        final = tuple(keep_result(term) for term in shaped(terms))
        (_, cost_us, *_), outline = self.solver.joint(final)
        return Extraction(
            roots=tuple(self.naming.original(term) for term in final),
            passes=outline.count,
            passes_by_axis=self._by_axis(outline),
            unsafe=unsafe,
            cost_us=cost_us,
            naive=self.naive,
            pins=pins,
            machine=self.machine,
            saturation=self.saturation,
            hits={name: self.session.hits[name] for name in sorted(self.session.hits)},
            search=self,
        )

    def _by_axis(self, outline: Outline) -> dict[Axis, int]:
        counts: dict[Axis, int] = {}
        for item in sorted(outline.passes.values(), key=lambda item: item.axis.name):
            axis = self.naming.original(item.axis)
            counts[axis] = counts.get(axis, 0) + 1
        return counts

    # ---- membership ------------------------------------------------------------------------------

    def admit(self, terms: Iterable[Any]) -> None:
        """Have the e-graph hold the narrow carriers of some terms (canonical names)."""
        wanted = [
            (state.args[0], channels_of(state))
            for state in flat_folds(terms)
            if len(channels_of(state)) > 1
        ]
        self.session.narrow(wanted)

    def members(self, terms: tuple[Any, ...]) -> bool:
        """Whether each term (canonical names) is in the class of its output."""
        return all(self.session.members(list(enumerate(terms))))


def bracket(
    extraction: Extraction, blocks: Mapping[Axis, int], shares: Mapping[Axis, int] | None = None
) -> tuple[Expr, ...]:
    """The extracted terms with the folds over the given axes as towers of blocks.

    `{n: 64}` spells a fold over n as a serial fold over ceil(n / 64) tiles of 64 elements; with
    shares `{n: 8}` each block of the grid has 8 of these steps. The laws are asked for these
    towers, and the result is checked to be a member of the class of its output.
    """
    for axis, size in blocks.items():
        if size < 1:
            raise ScheduleError(f"fold block of {axis}: got {size}, wants at least 1")
    search = extraction.search
    renamed = {search.naming.canonical(axis): size for axis, size in blocks.items()}
    several = {search.naming.canonical(axis): steps for axis, steps in (shares or {}).items()}
    flat = tuple(search.naming.canonical(root) for root in extraction.roots)
    search.admit(flat)
    outer = {make("Outer", axis, renamed[axis]): steps for axis, steps in several.items()}
    search.session.bracket(renamed, outer)
    terms = towers(flat, renamed, several)
    assert search.members(terms), f"not a member of its class: {terms}"
    return tuple(search.naming.original(term) for term in terms)
