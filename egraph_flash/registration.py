"""Monoids and laws of one's own: checked on sampled values, then rows like any others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .errors import LawError
from .monoids import MONOIDS, Monoid
from .notation import text
from .operators import OPERATORS
from .terms import HEADS, SORTS, Head, subterms, variable

if TYPE_CHECKING:
    from .rules import Row

_OWN: dict[str, str] = {}  # the definition of each registered monoid, by name
# What the engine calls its own sorts, and what ours of several terms are called in it.
RESERVED = {"Unit", "String", "BigInt", "BigRat", "Rational"}
RESERVED |= {"Extents", "Exprs", "Chans", "ChanSet", "Axes"}
A, B = variable("Expr", "a"), variable("Expr", "b")


class Registered:
    """What `register` added: until `remove` is called, or a `with` block ends."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def remove(self) -> None:
        """Take the rows back. Terms and kernels that use them can no longer be read."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Registered:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()


def register(*rows: Monoid | Row) -> Registered:
    """Add monoids and laws, each checked on sampled values first; all of them or none.

    A monoid must be associative and commutative with its identity; both sides of a law must agree
    wherever its premises hold, and it must fire while its example saturates. The rows stay until
    the result's `remove()`, or only for a block: `with register(row): ...`. What is registered
    already, just as it is, is left as it is.

    Raises LawError with a counterexample for a claim that fails, and for a name that is taken.
    """
    added = Registered()
    try:
        for row in rows:
            if isinstance(row, Monoid):
                _add_monoid(row, added)
            else:
                _add_law(row, added)
    except BaseException:
        added.remove()
        raise
    return added


def definitions(expression: str) -> tuple[str, ...]:
    """What decides the kernel of an expression, given as text, beyond the package: every law that
    is registered, and the monoids that stand in one of them or in the expression."""
    from .rules import OWN

    laws = [OWN[name].egglog for name in sorted(OWN)]
    read = "\n".join((expression, *laws))
    return (*(_OWN[name] for name in sorted(_OWN) if f"({name})" in read), *laws)


# ---- monoids -------------------------------------------------------------------------------------


def _add_monoid(row: Monoid, added: Registered) -> None:
    from .counterexamples import of_monoid

    definition = _definition(row)
    if _OWN.get(row.name) == definition:
        MONOIDS[row.name] = row
        return
    if row.name in {*HEADS, *SORTS, *RESERVED}:
        raise LawError(f"monoid {row.name}: the name is taken; wants another one")
    found = of_monoid(row)
    if found is not None:
        raise LawError(f"monoid {row.name}: {found}")
    MONOIDS[row.name], HEADS[row.name] = row, Head(row.name, (), "Monoid")
    _OWN[row.name] = definition
    added._undo += [lambda table=table: table.pop(row.name) for table in (MONOIDS, HEADS, _OWN)]  # type: ignore[misc]


def _definition(row: Monoid) -> str:
    """All that a kernel may depend on, as text; checks that it is an expression of two values."""
    parts = [row.name, row.symbol, repr(float(row.identity))]
    for what, made, inputs in (
        ("combine", row.combine(A, B), (A, B)),
        ("domain", A if row.domain is None else row.domain(A), (A,)),
    ):
        from .expressions import lift

        term = lift(made)
        for node in subterms(term):
            if node.head not in OPERATORS and node.head != "Num" and node not in inputs:
                raise LawError(
                    f"monoid {row.name}: its {what} reads {node}, wants a pointwise expression of "
                    f"its {len(inputs)} argument{'s' * (len(inputs) > 1)} and of numbers"
                )
        parts.append(text(term))
    return "\n".join(parts)


# ---- laws ----------------------------------------------------------------------------------------


def _add_law(row: Row, added: Registered) -> None:
    from .rules import OWN, Law, laws
    from .rules.sampling import is_claim, refutation

    if not isinstance(row, Law) or not is_claim(row):
        raise LawError(
            f"register: got {getattr(row, 'name', row)!r}, wants a Monoid, or a Law that concludes "
            "something about numbers"
        )
    if row.name in OWN and OWN[row.name].egglog == row.egglog:
        return
    if row.name in laws():
        raise LawError(f"law {row.name}: the name is taken; wants another one")
    found = refutation(row)
    if found is not None:
        raise LawError(f"law {row.name}: {found}")
    OWN[row.name] = row
    added._undo.append(lambda: OWN.pop(row.name))
    if not _fires(row):
        raise LawError(
            f"law {row.name}: it does not fire while its example {row.example} saturates; wants an "
            f"example that has its premises, or another phase than {row.phase!r}"
        )


def _fires(row: Row) -> bool:
    from .egraph import Session

    session = Session((row.example,))
    session.saturate()
    return session.hits[row.name] > 0
