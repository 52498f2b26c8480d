"""Monoids and laws of one's own: checked on sampled values, then rows like any others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import LawError
from .monoids import MONOIDS, Monoid
from .notation import text
from .operators import OPERATORS
from .representations import REPRESENTATIONS, selection, selection_name
from .terms import HEADS, SORTS, Head, renew, subterms

if TYPE_CHECKING:
    from .rules import Row

_OWN: set[str] = set()  # the names of registered monoids
# What the engine calls its own sorts, and what ours of several terms are called in it.
RESERVED = {"Unit", "String", "BigInt", "BigRat", "Rational"}
RESERVED |= {"Extents", "Exprs", "Chans", "ChanSet", "Axes"}


class Registered:
    """What `register` added: until `remove` is called, or a `with` block ends."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []

    def remove(self) -> None:
        """Take the rows back. Terms and kernels that use a monoid can no longer be read, and what
        is compiled later, for another layout at a call too, is compiled without the laws."""
        while self.undo:
            self.undo.pop()()

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
    """What decides the kernel of an expression, given as text, beyond the package: the monoids in
    it, and every law that may fire on it, since no monoid is missing that its premises name."""
    from .rules import OWN

    names = _named(expression)
    laws: list[str] = []
    waiting = [OWN[name] for name in sorted(OWN)]
    while ready := [row for row in waiting if _named(_premises(row)) <= names]:
        waiting = [row for row in waiting if row not in ready]
        laws += [row.egglog for row in ready]
        names = names.union(*map(_named, laws))
    return (*(MONOIDS[name].definition for name in sorted(names)), *laws)


def _named(written: str) -> set[str]:
    """The registered monoids that a text in the engine's syntax names, themselves or as what a
    representation folds in."""
    return {n for n in _OWN if f"({n})" in written or f'"{selection_name(n)}"' in written}


def _premises(row: Row) -> str:
    """What a rule asks for, in the engine's syntax."""
    from .rules import Law, Steering
    from .rules.law import terms_of

    if isinstance(row, Steering):
        return row.premises
    assert isinstance(row, Law), f"{row.name} is of a kind that was never registered"
    return "\n".join(text(term) for clause in row.given for term in terms_of(clause))


# ---- monoids -------------------------------------------------------------------------------------


def _add_monoid(row: Monoid, added: Registered) -> None:
    from .counterexamples import of_monoid
    from .rules import OWN, laws, of_representation

    laws()  # those of the package are generated of the tables as they are without the row
    _check_terms(row)
    if row.name in _OWN and MONOIDS[row.name].definition == row.definition:
        return
    if row.name in {*HEADS, *SORTS, *RESERVED}:
        raise LawError(f"monoid {row.name}: the name is taken; wants another one")
    found = of_monoid(row)
    if found is not None:
        raise LawError(f"monoid {row.name}: {found}")
    _put(added, MONOIDS, row.name, row)
    _put(added, HEADS, row.name, Head(row.name, (), "Monoid"))
    added.undo.append(lambda: renew(row.name))
    _OWN.add(row.name)
    added.undo.append(lambda: _OWN.remove(row.name))
    select = selection(row.name)  # what it makes of the elements at a maximum
    _put(added, REPRESENTATIONS, select.name, select)
    OWN.update({law.name: law for law in of_representation(select)})
    added.undo.append(lambda: _drop_laws_of(row.name))


def _drop_laws_of(monoid: str) -> None:
    """No law names a monoid that is gone."""
    from .rules import OWN

    for name in [name for name, row in OWN.items() if monoid in _named(row.egglog)]:
        del OWN[name]


def _put(added: Registered, table: dict[str, Any], name: str, row: Any) -> None:
    table[name] = row
    added.undo.append(lambda: table.pop(name, None))


def _check_terms(row: Monoid) -> None:
    """A combine is pointwise and reads its arguments alone; so is a domain."""
    for what, term, inputs in zip(("combine", "domain"), row.terms, ("ab", "a"), strict=True):
        for node in subterms(term):
            known = node.head in OPERATORS or node.head == "Num"
            if not known and not (node.head == "Var" and node.args[0] in inputs):
                raise LawError(
                    f"monoid {row.name}: its {what} reads {node}, wants a pointwise expression of "
                    f"its {len(inputs)} argument{'s' * (len(inputs) > 1)} and of numbers"
                )


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
    _put(added, OWN, row.name, row)
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
