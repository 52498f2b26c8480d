"""What the laws make of an expression: an egglog session, saturated in rounds that stop."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .engine import bindings
from .errors import EgraphFlashError
from .free import free
from .notation import flat_text, text
from .rules import laws, program_parts
from .terms import Term, subterms

if TYPE_CHECKING:
    from .expressions import Expr

# One round: derive facts and cancel, split summands, then apply the laws that make new reductions
# and carriers. Splitting and unit algebra feed each other, so they alternate a few times. A pair
# of folds is transported in the same round, so that what its base pays outside cancels before
# another reduction can split it.
_ROUND = tuple(
    f"(run-schedule {step})"
    for step in (
        "(saturate (run analysis))",
        "(repeat 8 (run units))",
        "(saturate (run analysis))",
        "(repeat 4 (run splitting) (run units))",
        "(repeat 8 (run units))",
        "(saturate (run analysis))",
        "(run homomorphism)",
        "(repeat 3 (run twist))",
        "(saturate (run tupling))",
    )
)

# When all channels are known: join the carriers, then let reductions go through memory.
_FINISH = "(run-schedule (run absorption) (run placement) (saturate (run analysis)))"

REPEATS = 3  # of questions that were answered by no

# Tables whose sizes say whether a round found anything new. Rows of other tables may still grow:
# unit algebra finds new spellings for ever, but no new reductions, carriers or proofs.
_SETTLED = ("Red", "Ch", "Tw", "Fold", "nonpositive", "streams", "carrier", "pool")


@dataclass(frozen=True)
class Limits:
    """How far saturation may go before it gives up on finding more."""

    rounds: int = 16
    rows: int = 60_000
    quiet_rounds: int = 2


@dataclass(frozen=True)
class Saturation:
    """How saturation went: `stopped` is `settled`, `rounds` or `rows` (the limit it met)."""

    rounds: int
    rows: int
    stopped: str
    seconds: float = field(default=0.0, compare=False)


class Session:
    """An e-graph with the laws, and `more` rules, loaded, and the outputs of an expression added.

    >>> from egraph_flash import Axis, Tensor, f32
    >>> (n,) = Axis.many(n=8)
    >>> session = Session((Tensor("x", (n,), f32).expr.sum(n) * 1.0,))
    >>> session.saturate().stopped
    'settled'
    >>> session.holds(0, Tensor("x", (n,), f32).expr.sum(n))
    True
    """

    def __init__(self, roots: Sequence[Expr], more: Sequence[str] = ()) -> None:
        self._read(more)
        self._begin(roots)

    @classmethod
    def of_laws(cls) -> Session:
        """The laws alone, read once for the sessions that begin in the same engine."""
        session = object.__new__(cls)
        session._read(())
        return session

    def _read(self, more: Sequence[str]) -> None:
        engine = bindings()
        self._error = engine.EggSmolError
        self._graph = engine.EGraph()
        self._forget()
        for part in (*program_parts(), *more):
            self.run(part)

    def _begin(self, roots: Sequence[Expr]) -> None:
        self._forget(roots)
        for part in _additions(self.roots):
            self.run(part)

    def _forget(self, roots: Sequence[Expr] = ()) -> None:
        self.roots = tuple(roots)
        self.hits: Counter[str] = Counter()
        self._asked = 0

    def beside(self, *roots: Expr) -> Session:
        """A session about other outputs in the same engine: to be taken back, see `restored`."""
        other = object.__new__(Session)
        other._error, other._graph = self._error, self._graph
        other._begin(roots)
        return other

    @contextmanager
    def aside(self, *roots: Expr) -> Iterator[Session]:
        """For a while, a session about other outputs in the same engine, its laws read once."""
        with self.restored():
            yield self.beside(*roots)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """For a while, the same session: what is added and found meanwhile is forgotten after."""
        hits, asked = self.hits.copy(), self._asked
        self.push()
        try:
            yield
        finally:
            self.pop()
            self.hits, self._asked = hits, asked

    def close(self) -> None:
        """Let go of the engine, which only the thread that made it may do, whoever holds the
        session still."""
        self._graph = None

    def push(self) -> None:
        """Remember the e-graph as it is now."""
        self.run("(push)")

    def pop(self) -> None:
        """Put the e-graph back as it was at the last `push` that is not yet undone."""
        self.run("(pop)")

    def run(self, program: str) -> list[Any]:
        """Run egglog text and count the matches of each law. Returns the outputs."""
        outputs: list[Any] = self._graph.run_program(*self._graph.parse_program(program))
        for output in outputs:
            report = getattr(output, "report", None)
            for law, matches in (report.num_matches_per_rule if report else {}).items():
                if matches and law in laws():
                    self.hits[law] += matches
        return outputs

    def saturate(self, limits: Limits | None = None) -> Saturation:
        """Apply the laws until the carriers stop changing, or a limit is met."""
        limits, started = limits or Limits(), time.perf_counter()
        before, quiet, rounds, stopped = self.sizes(), 0, 0, "rounds"
        while rounds < limits.rounds and stopped == "rounds":
            if not self._round(limits.rows):
                stopped = "rows"
            rounds += 1
            now = self.sizes()
            quiet = quiet + 1 if all(now[t] == before[t] for t in _SETTLED) else 0
            before = now
            if quiet >= limits.quiet_rounds:
                stopped = "settled"
        self.run(_FINISH)
        rows, seconds = sum(self.sizes().values()), time.perf_counter() - started
        return Saturation(rounds, rows, stopped, seconds)

    def _round(self, rows: int) -> bool:
        """One round; False as soon as the tables have more rows than that."""
        for step in _ROUND:
            self.run(step)
            if sum(self.sizes().values()) > rows:
                return False
        return True

    def sizes(self) -> Mapping[str, int]:
        """The number of rows of each table."""
        (output,) = self.run("(print-size)")
        return dict(output.sizes)

    def narrow(self, wanted: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        """Ask for the folds over an axis that have only the given channels, closed under bases."""
        if not wanted:
            return
        every = [channel for _, channels in wanted for channel in channels]
        bindings, names = shared(*every, prefix=f"$n{self._asked}_")
        self._asked += 1
        facts = [
            f"(narrow (set-of {' '.join(names[c] for c in channels)}) {text(axis)})"
            for axis, channels in wanted
        ]
        self.run("\n".join([*bindings, *facts, "(run-schedule (repeat 2 (run absorption)))"]))

    def bracket(self, blocks: Mapping[Any, int], shares: Mapping[Any, int] | None = None) -> None:
        """Ask for towers: fold blocks by axis, and serial steps a block of the grid by axis."""
        facts = [f"(tile {text(axis)} {size})" for axis, size in blocks.items()]
        facts += [f"(share {text(axis)} {steps})" for axis, steps in (shares or {}).items()]
        self.run("\n".join([*facts, "(run-schedule (repeat 2 (run bracketing)))"]))

    def holds(self, place: int, term: Expr) -> bool:
        """Whether the term is a member of the class of the output at that place."""
        return self.members([(place, term)])[0]

    def members(self, claims: Sequence[tuple[int, Expr]]) -> list[bool]:
        """For each (place, term) whether the term is in the class of that output.

        The terms are added for the time of the question, so that shared parts are asked once. The
        engine's index is at times behind its tables, and a term that it holds is then added anew,
        in a class of its own; this mends the index. So a yes counts at once, a no when repeated.
        """
        held = self._members(claims)
        for _ in range(REPEATS):
            if all(held):
                break
            again = self._members(claims)
            held = [one or other for one, other in zip(held, again, strict=True)]
        return held

    def _members(self, claims: Sequence[tuple[int, Expr]]) -> list[bool]:
        bindings, names = shared(*(term for _, term in claims))
        with self.restored():
            self.run("\n".join(bindings))
            return [self._succeeds(f"(check (result {place} {names[t]}))") for place, t in claims]

    def _succeeds(self, check: str) -> bool:
        try:
            self.run(check)
        except self._error:
            return False
        return True

    def freeze(self) -> Any:
        """The tables as they are now; see `frozen.read`."""
        return self._graph.freeze()

    @property
    def engine(self) -> Any:
        return self._graph


def shared(*terms: Term, prefix: str = "$v") -> tuple[list[str], dict[Term, str]]:
    """Terms as egglog text: a binding for each shared part, and how each part is written.

    Written out as one text a term may be exponentially long, and as one query it takes as long.
    Bindings that are not taken back need a prefix of their own.
    """
    nodes = subterms(*terms)
    uses = Counter(child for node in nodes for child in node.children)
    names: dict[Term, str] = {}
    bindings = []
    for place, node in enumerate(nodes):
        names[node] = flat_text(node, names)
        if node.sort in ("Expr", "Chan", "State") and uses[node] > 1:
            bindings.append(f"(let {prefix}{place} {names[node]})")
            names[node] = f"{prefix}{place}"
    return bindings, names


def _additions(roots: Sequence[Expr]) -> list[str]:
    """The outputs, and what only Python knows: axes of loads, extents, inputs being numbers."""
    if not roots:
        raise EgraphFlashError("e-graph: got no expression, wants at least one output")
    nodes = subterms(*roots)
    parts, written = shared(*roots, prefix="$r")
    for place, load in enumerate(node for node in nodes if node.head == "Load"):
        axes = " ".join(map(text, free(load)))
        several = f"(set-of {axes})" if axes else "(set-empty)"
        parts.append(f"(set (free {written[load]}) {several})")
        parts.append(f"(finite {written[load]}) (origin {place} {written[load]})")
    for axis in (node for node in nodes if node.head == "Ax"):
        extent = axis.args[1]
        if extent.head == "Known" and extent.args[0] > 0:
            parts.append(f"(inhabited {text(axis)}) (count {text(axis)} {float(extent.args[0])})")
    return parts + [f"(result {place} {written[root]})" for place, root in enumerate(roots)]
