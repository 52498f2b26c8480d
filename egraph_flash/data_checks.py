"""What integer inputs must hold, so that every index that data decides lies inside its array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .dtypes import Array
from .errors import InputError


@dataclass(frozen=True)
class Check:
    """`term` lies in 0 … `end` - 1 wherever `where` holds; terms as text.

    `what` says what the term is to people.
    """

    what: str
    term: str
    end: str
    where: str

    def holds_for(self, arrays: Mapping[str, Array], lengths: Mapping[str, int]) -> None:
        """Raise InputError, with the first place where it does not, for these inputs."""
        from .evaluation import Evaluator
        from .notation import pretty

        term, end, where = _parsed(self)
        evaluator = Evaluator(term + end * 0 + where * 0, arrays, {}, lengths)
        values = [evaluator.value(each) for each in (term, end, where)]
        axes = tuple(dict.fromkeys(axis for value in values for axis in value.axes))
        spread = np.broadcast_arrays(*(value.along(axes) for value in values))
        value, most, holds = spread
        wrong = (holds != 0) & ~((value >= 0) & (value < most))
        if not wrong.any():
            return
        place = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
        at = ", ".join(f"{axis} = {i}" for axis, i in zip(axes, place, strict=True))
        place_text = f" at {at}" if at else ""
        raise InputError(
            f"{self.what}: {pretty(term)} is {value[place]:.0f}{place_text}, "
            f"wants 0 to {int(most[place]) - 1}"
        )


@lru_cache(maxsize=256)
def _parsed(check: Check) -> tuple[Any, Any, Any]:
    from .notation import parse

    return parse(check.term), parse(check.end), parse(check.where)


def check_data(
    kernel: str,
    checks: Sequence[Check],
    arrays: Mapping[str, Array],
    lengths: Mapping[str, int],
) -> None:
    """Raise InputError for integer inputs, or lengths, that lead outside of an array."""
    for check in checks:
        try:
            if arrays_of((check,)):
                check.holds_for(arrays, lengths)
            else:
                _check_lengths(check, tuple(sorted(lengths.items())))
        except InputError as error:
            raise InputError(f"{kernel}: {error}") from None


@lru_cache(maxsize=1024)
def _check_lengths(check: Check, lengths: tuple[tuple[str, int], ...]) -> None:
    """A check that reads no array, once for all calls of the same lengths."""
    check.holds_for({}, dict(lengths))


def arrays_of(checks: Sequence[Check]) -> tuple[str, ...]:
    """The names of the arrays that the checks read."""
    from .terms import subterms

    terms = [term for check in checks for term in _parsed(check)]
    return tuple(node.args[0] for node in subterms(*terms) if node.head == "Array")
