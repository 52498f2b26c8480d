"""What an axis is: a name and an extent, or one level of a tower that splits another axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import ExpressionError
from .terms import Extent, Term, make

if TYPE_CHECKING:
    from .expressions import Expr


class Axis(Term):
    """A named axis: `Axis("n", 4096)`, or `Axis("n", "seq", hint=4096)` with a symbolic extent.

    Broadcasting is by axis, not by position. `axis.index` is the running index as an expression;
    `axis // 4`, `axis % 4`, `axis + 1` are index expressions too.
    """

    sort = "Axis"
    __slots__ = ()

    def __new__(cls, name: str, extent: int | str, *, hint: int | None = None) -> Axis:
        if not name.isidentifier():
            raise ExpressionError(f"axis: got the name {name!r}, wants an identifier such as 'n'")
        if isinstance(extent, str):
            if not extent.isidentifier():
                raise ExpressionError(
                    f"axis {name!r}: got the symbolic extent {extent!r}, wants an identifier"
                )
            if hint is None or hint < 0:
                raise ExpressionError(
                    f"axis {name!r}: the symbolic extent {extent!r} wants hint=<a typical length>, "
                    f"got {hint!r}"
                )
            return make("Ax", name, make("Symbol", extent, hint))  # type: ignore[no-any-return]
        if isinstance(extent, bool) or extent != int(extent) or extent < 0:
            raise ExpressionError(f"axis {name!r}: got the extent {extent!r}, wants an int >= 0")
        return make("Ax", name, make("Known", int(extent)))  # type: ignore[no-any-return]

    @staticmethod
    def many(**extents: int) -> tuple[Axis, ...]:
        """One axis for each keyword, in order.

        >>> Axis.many(m=4, n=8)
        (m, n)
        """
        return tuple(Axis(name, extent) for name, extent in extents.items())

    @property
    def root(self) -> Axis:
        """The user's axis that this level of a tower belongs to."""
        return self if self.head in ("Ax", "Var") else self.args[0].root

    @property
    def name(self) -> str:
        return self.root.args[0]  # type: ignore[no-any-return]

    @property
    def extent(self) -> Extent:
        return self.root.args[1]  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """The number of values of this axis (a symbolic extent counts as its hint)."""
        if self.head == "Ax":
            return size_of(self.args[1])
        if self.head == "Outer":
            return -(-self.args[0].size // self.args[1])  # type: ignore[no-any-return]
        return self.args[1]  # type: ignore[no-any-return]

    @property
    def index(self) -> Expr:
        index: Expr = make("Idx", self)
        return index

    @property
    def length(self) -> Expr:
        """How many values the axis has, as an expression: a number where it is known."""
        known = self.extent.head == "Known"
        length: Expr = make("Num", float(self.size)) if known else make("Len", self)
        return length

    def __add__(self, other: Any) -> Expr:
        made: Expr = self.index + other
        return made

    def __sub__(self, other: Any) -> Expr:
        made: Expr = self.index - other
        return made

    def __mul__(self, other: Any) -> Expr:
        made: Expr = self.index * other
        return made

    def __floordiv__(self, other: Any) -> Expr:
        made: Expr = self.index // other
        return made

    def __mod__(self, other: Any) -> Expr:
        made: Expr = self.index % other
        return made

    __radd__, __rmul__ = __add__, __mul__


def size_of(extent: Extent) -> int:
    """A known extent's value, a symbolic one's hint."""
    return int(extent.args[0] if extent.head == "Known" else extent.args[1])


def extent_of(extent: Extent) -> int | str:
    """A known extent's value, a symbolic one's name."""
    return extent.args[0]  # type: ignore[no-any-return]
