"""Where absent elements make a value infinite, so that what meets it needs a convention.

An absent element is -inf or 0; see `absence`. Each answer errs towards a guard too many.
"""

from __future__ import annotations

from typing import Any

from ..absence import LOG, ZERO, absence_of
from ..operators import OPERATORS
from .context import Context


def spoils_zero(ctx: Context, term: Any) -> bool:
    """Whether an absent 0 times the term may be no number: it may be -inf itself, or infinite."""
    return bool(absence_of(term, ctx.absent) & LOG) or _unbounded(ctx, term)


def may_be_infinite(ctx: Context, term: Any) -> bool:
    """Whether a term is +inf where something that it takes away is absent."""
    if term.head == "Sub":
        return bool(absence_of(term.args[1], ctx.absent) & LOG)
    return term.head == "Add" and any(may_be_infinite(ctx, child) for child in term.args)


def _unbounded(ctx: Context, term: Any) -> bool:
    """Whether an absent element can make the term infinite: x / 0, or minus -inf."""
    if term in ctx.bound or term.head not in OPERATORS:
        return False
    if term.head == "Div" and absence_of(term.args[1], ctx.absent) & ZERO:
        return True
    subtracted = term.args[-1] if term.head in ("Sub", "Neg") else None
    if subtracted is not None and subtracted not in ctx.upper:
        return bool(absence_of(subtracted, ctx.absent) & LOG) or _any_unbounded(ctx, term)
    return _any_unbounded(ctx, term)


def _any_unbounded(ctx: Context, term: Any) -> bool:
    return any(_unbounded(ctx, child) for child in term.args)
