"""Where an array's elements lie: its strides, and what its addresses are multiples of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .dtypes import DTYPES
from .errors import ExpressionError
from .terms import make

ALIGNMENT_BYTES = 16

Strides = tuple[int | None, ...]  # in elements, outermost first; None: known at launch alone


def array_term(
    name: str,
    dtype: str,
    extents: Sequence[Any],
    strides: Strides | None = None,
    alignment_bytes: int = ALIGNMENT_BYTES,
) -> Any:
    """The term of an array: row-major without gaps, or with these strides.

    `alignment_bytes` divides the address of the first element, and each stride that is not 1.
    """
    given = () if strides is None else tuple(_stride(name, dim, n) for dim, n in enumerate(strides))
    return make("Array", name, dtype, tuple(extents), given, alignment_bytes)


def _stride(name: str, dim: int, stride: int | None) -> Any:
    if stride is None:
        return make("Symbol", f"stride {dim} of {name}", 0)
    return make("Known", stride)


def strides_of(term: Any) -> Strides:
    """The strides of an array term, in elements."""
    _, _, extents, given, _ = term.args
    if given:
        return tuple(each.args[0] if each.head == "Known" else None for each in given)
    return dense([each.args[0] if each.head == "Known" else None for each in extents])


def dense(extents: Sequence[int | None]) -> Strides:
    """Row-major strides; None where an extent inside of the dimension is not known.

    >>> dense((2, 3, 4)), dense((2, None, 4))
    ((12, 4, 1), (None, 4, 1))
    """
    found: list[int | None] = []
    stride: int | None = 1
    for extent in reversed(extents):
        found.append(stride)
        stride = None if stride is None or extent is None else stride * extent
    return tuple(reversed(found))


def alignment_of(term: Any) -> int:
    """What divides, in bytes, the address of the first element and strides not known yet."""
    _, dtype, extents, given, alignment_bytes = term.args
    if given:
        return int(alignment_bytes)
    size = DTYPES[dtype].size_bytes
    inside = 1
    for extent in reversed(extents):
        if extent.head != "Known":
            return math.gcd(int(alignment_bytes), inside * size)
        inside *= extent.args[0]
    return int(alignment_bytes)


def check_strides(
    where: str, rank: int, strides: Sequence[int | None] | None, alignment_bytes: int, size: int
) -> None:
    """Raise ExpressionError for strides that no array of that rank has."""
    if alignment_bytes not in (1, 2, 4, 8, 16) or alignment_bytes < size:
        raise ExpressionError(
            f"{where}: got an alignment of {alignment_bytes} bytes, wants 16, 8, 4, 2 or 1 and no "
            f"fewer than the {size} of an element"
        )
    if strides is None:
        return
    if len(strides) != rank:
        raise ExpressionError(f"{where}: got {len(strides)} strides, wants {rank}, one a dimension")
    if any(n is not None and n < 0 for n in strides):
        raise ExpressionError(f"{where}: got strides {tuple(strides)}, wants each >= 0 or None")
