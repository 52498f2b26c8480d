"""Which pairs of positions see each other, and what is added to a score: as index arithmetic.

Nothing here is known to the laws or to the lowering: every helper returns the expression that a
user could have written. A predicate masks by `where(predicate, scores, -inf)`, and predicates
combine by `&`, `|` and `~`. Queries are aligned with the *last* keys: query i of M stands at the
position i + (N - M) among N keys, as with a cache of earlier keys.
"""

from __future__ import annotations

import math
from typing import Any

from .axes import Axis
from .errors import ExpressionError
from .expressions import Expr, Tensor, lift, tanh

Value = Any  # an Expr, a Tensor, or a Python number


def causal(m: Axis, n: Axis) -> Expr:
    """Whether query m sees key n: no key after its own position.

    Raises ExpressionError for anything but two different axes.

    >>> m, n = Axis.many(m=4, n=6)
    >>> causal(m, n)
    n <= m + 2
    """
    at = _position("causal", m, n)
    return n.index <= at


def window(m: Axis, n: Axis, *, left: int | None = None, right: int | None = None) -> Expr:
    """Whether key n lies at most `left` before and `right` after query m; None is no limit.

    Raises ExpressionError for a negative limit, for no limit at all, and as `causal` does.

    >>> m, n = Axis.many(m=8, n=8)
    >>> window(m, n, left=4, right=0)
    m - 4 <= n & n <= m
    """
    at = _position("window", m, n)
    left, right = _limit("left", left), _limit("right", right)
    tests = [] if left is None else [n.index >= _plus(at, -left)]
    tests += [] if right is None else [n.index <= _plus(at, right)]
    if not tests:
        raise ExpressionError("window: got neither left nor right, wants at least one limit")
    visible: Expr = tests[0] & tests[1] if len(tests) > 1 else tests[0]
    return visible


def prefix(n: Axis, length: Value) -> Expr:
    """Whether key n is among the first `length`: a number, or an element such as `lengths[b]`.

    `causal(m, n) | prefix(n, 16)` lets every query see the first 16 keys; alone it masks padding.
    Raises ExpressionError for a negative length, one that is no integer, or one that varies
    along n.

    >>> (n,) = Axis.many(n=8)
    >>> prefix(n, 3)
    n < 3
    """
    _check_axis("prefix", n)
    if isinstance(length, int | float) and (length < 0 or length != int(length)):
        raise ExpressionError(f"prefix: got the length {length}, wants a whole number >= 0")
    end: Expr = lift(length)
    if n in end.axes:
        raise ExpressionError(f"prefix: the length {end} varies along {n}, wants one without it")
    return n.index < end


def same_document(documents: Tensor, m: Axis, n: Axis) -> Expr:
    """Whether query m and key n belong to one document: `documents[m] == documents[n]`.

    `documents` holds integers, [*batch, N]: a number for each position of the keys.
    Raises ExpressionError for another dtype, rank or extent, for batch axes that are m or n, for
    more queries than keys, and as `causal` does.

    >>> from egraph_flash import i32
    >>> b, m, n = Axis.many(b=2, m=8, n=8)
    >>> same_document(Tensor("doc", (b, n), i32), m, n)
    doc[b, m] == doc[b, n]
    """
    at = _position("same_document", m, n)
    if not isinstance(documents, Tensor) or not documents.dtype.is_integer:
        got = documents.dtype if isinstance(documents, Tensor) else type(documents).__name__
        raise ExpressionError(f"same_document: got {got}, wants a tensor of i32")
    *batch, last = documents.axes or (None,)
    if last is None or last.extent is not n.extent or m in batch or n in batch:
        raise ExpressionError(
            f"same_document: got {documents}, wants axes [*batch, {n.size}]: a number for each "
            f"position of {n}, and batch axes other than {m} and {n}"
        )
    if "Symbol" not in (m.extent.head, n.extent.head) and m.size > n.size:
        raise ExpressionError(
            f"same_document: got {m.size} queries and {n.size} keys; the first queries have no "
            "position among the keys. Compare elements of two tensors instead"
        )
    batch_indices = tuple(axis.index for axis in batch)
    same: Expr = documents[(*batch_indices, at)] == documents[(*batch_indices, n.index)]
    return same


def distance(m: Axis, n: Axis) -> Expr:
    """The position of key n relative to query m: 0 on the diagonal, negative before it.

    Raises ExpressionError as `causal` does.

    >>> m, n = Axis.many(m=4, n=6)
    >>> distance(m, n)
    n - (m + 2)
    """
    at = _position("distance", m, n)
    return n.index - at


def alibi(slopes: Value, m: Axis, n: Axis) -> Expr:
    """What ALiBi adds to a score: `slopes * distance`; slopes may vary, as `slopes[h]` does.

    Where keys after the query are seen too, `-slopes * abs(distance(m, n))` is usual.
    Raises ExpressionError for slopes that vary along m or n, and as `causal` does.
    Source: Press, Smith & Lewis 2022, section 3.
    """
    at, slopes = _position("alibi", m, n), lift(slopes)
    if m in slopes.axes or n in slopes.axes:
        raise ExpressionError(f"alibi: the slopes {slopes} vary along {m} or {n}")
    bias: Expr = slopes * (n.index - at)
    return bias


def softcap(x: Value, cap: float) -> Expr:
    """`cap * tanh(x / cap)`: x near 0, and never beyond ±cap.

    Raises ExpressionError for a cap that is no finite positive number.
    Source: Bello et al. 2016, section 5.1 (logit clipping); Gemma 2, 2024, section 2.

    >>> m, = Axis.many(m=4)
    >>> softcap(m.index, 30.0)
    30 * tanh(m / 30)
    """
    if not isinstance(cap, int | float) or not 0 < cap < math.inf:
        raise ExpressionError(f"softcap: got the cap {cap!r}, wants a finite number > 0")
    return float(cap) * tanh(lift(x) / float(cap))


# ---- checks --------------------------------------------------------------------------------------


def _check_axis(who: str, axis: object) -> None:
    if not isinstance(axis, Axis):
        raise ExpressionError(f"{who}: got {axis!r} ({type(axis).__name__}), wants an Axis")


def _position(who: str, m: Axis, n: Axis) -> Expr:
    """The position of query m among the keys n."""
    _check_axis(who, m)
    _check_axis(who, n)
    if m is n:
        raise ExpressionError(f"{who}: got the axis {m} twice, wants one of queries, one of keys")
    if m.extent is n.extent:
        return m.index
    if "Symbol" in (m.extent.head, n.extent.head):
        return m.index + (n.length - m.length)
    return _plus(m.index, n.size - m.size)


def _plus(index: Expr, offset: int) -> Expr:
    """index + offset, without a sum where it is the index itself."""
    if index.head == "Add" and index.args[1].head == "Num":
        index, offset = index.args[0], offset + int(index.args[1].args[0])
    if offset == 0:
        return index
    return index + offset if offset > 0 else index - (-offset)


def _limit(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ExpressionError(f"window: got {name}={value!r}, wants an int >= 0, or None")
    return value
