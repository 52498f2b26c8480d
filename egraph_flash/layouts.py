"""Where an array's elements lie: its strides, and what its addresses are multiples of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .dtypes import DTYPES
from .errors import ExpressionError
from .terms import make

ALIGNMENT_BYTES = 16

Strides = tuple[int | None, ...]  # in elements, outermost first; None: known at launch alone


@dataclass(frozen=True)
class Layout:
    """How an array lies: row-major without gaps, or with strides; see `array_term`."""

    strides: Strides | None = None
    alignment_bytes: int = ALIGNMENT_BYTES

    @staticmethod
    def open(rank: int, alignment_bytes: int) -> Layout:
        """Contiguous rows that lie wherever a call says."""
        return Layout((*[None] * (rank - 1), 1) if rank else (), alignment_bytes)


DENSE = Layout()


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


def settled(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides where no index moves as if the dimension lay around those inside of it.

    An array without gaps has dense strides then, whatever was said of its single rows.

    >>> settled((1, 3, 1, 4), (99, 4, 7, 1)), settled((2, 0), (5, 5))
    ((12, 4, 4, 1), (0, 1))
    """
    if 0 in shape:
        return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
    found: list[int] = []
    inside = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        found.append(inside if extent == 1 else stride)
        inside = found[-1] * extent
    return tuple(reversed(found))


def alignment_class(
    shape: Sequence[int], strides: Sequence[int], address: int, size_bytes: int
) -> int:
    """16, 8, 4, 2 or 1: bytes that divide an address and all strides but the innermost.

    >>> alignment_class((2, 3, 8), (24, 8, 1), 64, 2), alignment_class((3, 8), (0, 1), 36, 2)
    (16, 4)
    """
    moving = [n for extent, n in zip(shape[:-1], strides[:-1], strict=True) if extent > 1]
    return math.gcd(ALIGNMENT_BYTES, address, *(stride * size_bytes for stride in moving))


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions from the outermost to the innermost in memory; None where two overlap.

    >>> memory_order((1, 2, 5, 8), (80, 8, 16, 1)), memory_order((2, 3), (0, 1))
    ((0, 2, 1, 3), None)
    """
    steps = settled(shape, strides)
    order = sorted(range(len(shape)), key=lambda dim: -steps[dim])
    inside = 0
    for dim in reversed(order):
        if shape[dim] > 1 and steps[dim] <= inside:
            return None
        inside += steps[dim] * (shape[dim] - 1)
    return tuple(order)


def strides_in_order(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, the dimensions lying in the given order, the outermost first.

    >>> strides_in_order((1, 2, 5, 8), (0, 2, 1, 3))
    (80, 8, 16, 1)
    """
    steps = [1] * len(shape)
    inside = 1
    for dim in reversed(order):
        steps[dim] = inside
        inside *= max(shape[dim], 1)
    return tuple(steps)


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
