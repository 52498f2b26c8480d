"""How the chosen term follows from the naive one: a chain of members of the root class.

Each step is the best member under a pin that says which laws it may use; each is checked to be in
the class of its output, and compared with the naive term on a small instance in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .axes import Axis
from .carriers import bases_of, channels_of, is_twisted
from .extraction import Extraction, Search, bracket
from .frozen import Klass, Node
from .listing import listing
from .miniature import Miniature
from .record import Derivation, Step
from .rules import OWN, Row, laws
from .shaping import flat_folds, shaped
from .solver import Keep

Terms = tuple[Any, ...]


def derive(
    extraction: Extraction,
    blocks: Mapping[Axis, int] | None = None,
    shares: Mapping[Axis, int] | None = None,
) -> Derivation:
    """The chain from naive to the extracted term, and to its tower if `blocks` are given.

    `shares` says how many blocks of an axis each block of the grid folds. Steps that change nothing
    are left out; every one is checked. The result's `hits` counts how often each law matched while
    the e-graph was saturated.
    """
    chain = list(_chain(extraction))
    if blocks:
        flat = chain[-1]
        tower = bracket(extraction, blocks, shares)
        renamed = tuple(map(extraction.search.naming.canonical, tower))
        if renamed != flat.terms:
            chain.append(_Member("bracketing", renamed, flat.passes, flat.unsafe, flat.cost_us))
    _check(extraction.search, chain)
    errors = _errors(extraction, chain)
    hits = dict(sorted(extraction.search.session.hits.items()))
    steps = [
        _step(extraction, hits, member, error) for member, error in zip(chain, errors, strict=True)
    ]
    return Derivation(steps=tuple(steps), hits=hits)


@dataclass(frozen=True, eq=False)
class _Member:
    """A member of the class of each output, in canonical names."""

    family: str
    terms: Terms
    passes: int
    unsafe: int
    cost_us: float


def _chain(extraction: Extraction) -> Iterator[_Member]:
    """The flat members, each different from the one before it."""
    search = extraction.search
    final = tuple(map(search.naming.canonical, extraction.roots))
    yield _member(search, "naive", search.roots, search.roots)
    seen = [shaped(search.roots), final]
    for family, keep in _pins(final):
        terms = search.solver.solve(keep, lambda klass, term: False)
        if terms is None:
            continue
        spelled = shaped(terms, whole=family == "tupling")
        if spelled not in seen:
            seen.append(spelled)
            yield _member(search, family, terms, spelled)
    if final != shaped(search.roots):
        yield _Member(
            _last_family(final), final, extraction.passes, extraction.unsafe, extraction.cost_us
        )


def _member(search: Search, family: str, terms: Terms, spelled: Terms) -> _Member:
    (unsafe, cost_us, *_), outline = search.solver.joint(terms)
    shown = terms if family in ("naive", "homomorphism") else spelled
    return _Member(family, shown, outline.count, unsafe, cost_us)


def _last_family(terms: Terms) -> str:
    """What the chosen term has that no step before it may have."""
    carriers = [channels_of(state) for state in flat_folds(terms)]
    if any(len(channels) > 1 and not _one_twist(channels) for channels in carriers):
        return "absorption"
    if any(is_twisted(channel) for channels in carriers for channel in channels):
        return "twist"
    return "placement" if any("store(" in repr(term) for term in terms) else "homomorphism"


def _one_twist(channels: tuple[Any, ...]) -> bool:
    """Whether a carrier is just one twisted channel with its bases."""
    twisted = [channel for channel in channels if is_twisted(channel)]
    return len(twisted) == 1 and len(channels) == 1 + len(bases_of(twisted[0]))


# ---- pins ----------------------------------------------------------------------------------------


def _pins(final: Terms) -> Iterator[tuple[str, Keep]]:
    """What each family of laws may show, as filters of nodes.

    Carriers show on the axes where the chosen terms have them.
    """
    yield "homomorphism", _Pin(_no_fold, frozenset())
    carriers = [state for state in flat_folds(final) if len(channels_of(state)) > 1]
    if carriers:
        axes = frozenset(state.args[0] for state in carriers)
        yield "tupling", _Pin(_pair, axes)
        yield "twist", _Pin(_twist, axes)


@dataclass(frozen=True)
class _Pin:
    """Keeps folds over `axes` whose carriers fit, and reductions over the other axes."""

    fits: Callable[[frozenset[Klass]], bool]
    axes: frozenset[Axis]

    def __call__(self, klass: Klass, node: Node) -> bool:
        if node.head == "Risk":
            return False
        if node.retired:
            return bool(self.axes)
        if node.head == "Fold":
            axis, level, state = node.args
            carriers = [lift.args[0] for lift in state.having("Lift")]
            return axis in self.axes and level.head == "Flat" and any(map(self.fits, carriers))
        return node.head != "Red" or node.args[1] not in self.axes


def _no_fold(carrier: frozenset[Klass]) -> bool:
    return False


def _heads(carrier: frozenset[Klass]) -> list[str]:
    return [node.head for channel in carrier for node in channel.nodes]


def _pair(carrier: frozenset[Klass]) -> bool:
    return "Tw" not in _heads(carrier) and len(carrier) == 2


def _twist(carrier: frozenset[Klass]) -> bool:
    twisted = [node for channel in carrier for node in channel.nodes if node.head == "Tw"]
    if not twisted:
        return len(carrier) == 1
    return len(twisted) == 1 and len(carrier) == 1 + len(twisted[0].args[1])


# ---- checks --------------------------------------------------------------------------------------


def _check(search: Search, chain: list[_Member]) -> None:
    search.admit([term for member in chain for term in member.terms])
    claims = [(m.family, pair) for m in chain for pair in enumerate(m.terms)]
    held = search.session.members([pair for _, pair in claims])
    wrong = [family for (family, _), is_member in zip(claims, held, strict=True) if not is_member]
    assert not wrong, f"not members of their classes: {wrong}"


def _errors(extraction: Extraction, chain: list[_Member]) -> list[float]:
    """The largest difference of each member from the naive terms on a small instance."""
    roots = extraction.search.roots
    small = Miniature(roots, [term for member in chain for term in member.terms])
    return [
        max(small.differs(term, root) for term, root in zip(member.terms, roots, strict=True))
        for member in chain
    ]


def _step(extraction: Extraction, hits: Mapping[str, int], member: _Member, error: float) -> Step:
    own = [name for name, law in laws().items() if member.family in _families(law)]
    fired = [name for name in own if name in hits and laws()[name].equates]
    terms = tuple(map(extraction.search.naming.original, member.terms))
    return Step(
        law_family=member.family,
        laws=tuple(fired),
        term=listing(*terms),
        passes=member.passes,
        unsafe=member.unsafe,
        cost_us=member.cost_us,
        max_error=error,
    )


def _families(law: Row) -> tuple[str, ...]:
    """At which steps a law shows: one of a user's own where laws of its phase do."""
    return (law.family, law.phase) if law.name in OWN else (law.family,)
