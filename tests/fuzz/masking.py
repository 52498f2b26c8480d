"""The masks that cases are made of: predicates of positions and of data, under and, or, not."""

from __future__ import annotations

from typing import Any

from egraph_flash import causal, maximum, minimum, prefix, same_document, window

from .operands import Operands
from .spelling import Part

DATA = ("length", "documents", "keep")
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": minimum,
    "max": maximum,
}
COMPARED = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
JOINED = {"and": lambda a, b: a & b, "or": lambda a, b: a | b}


def visible(part: Part, o: Operands) -> Any:
    """Whether query m sees key n."""
    m, n = o.axis("m"), o.axis("n")
    if part.head in JOINED:
        left, right = (visible(each, o) for each in part.below)
        return JOINED[part.head](left, right)
    if part.head == "not":
        return ~visible(part.below[0], o)
    if part.head in COMPARED:
        left, right = (index(each, o) for each in part.below)
        return COMPARED[part.head](left, right)
    if part.head == "causal":
        return causal(m, n)
    if part.head == "window":
        left, right = (None if a == "all" else int(a) for a in part.arguments)
        return window(m, n, left=left, right=right)
    if part.head == "prefix":
        return prefix(n, part.numbers[0])
    if part.head == "length":
        return prefix(n, o.integers("length", "b"))
    if part.head == "documents":
        return same_document(o.integers("doc", "bn"), m, n)
    if part.head == "keep":
        return o.truths("keep", part.arguments[0])
    raise ValueError(f"mask: got {part}, wants one that `visible` knows")


def index(part: Part, o: Operands) -> Any:
    """An index expression of the two positions, the head and the batch."""
    if part.head in BINARY:
        left, right = (index(each, o) for each in part.below)
        return BINARY[part.head](left, right)
    if part.head == "at":
        return o.axis(part.arguments[0]).index
    if part.head == "num":
        return float(part.arguments[0])
    below, (by,) = index(part.below[0], o), part.numbers
    if part.head == "div":
        return below // by
    if part.head == "mod":
        return below % by
    if part.head == "mul":
        return below * by
    raise ValueError(f"index: got {part}, wants one that `index` knows")


def bounds_keys(part: Part | None) -> bool:
    """Whether no row sees keys past the given length: what memory holds there is of no account."""
    if part is None or part.head == "not":
        return False
    if part.head in ("and", "or"):
        return (any if part.head == "and" else all)(map(bounds_keys, part.below))
    return part.head == "length"
