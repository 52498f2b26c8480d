"""Which role each axis plays in a stage, and which sums in it are contractions of two operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .axes import Axis
from .carriers import bases_of, is_twisted, lift_of, monoid_of, representation_of
from .dtypes import DTYPES
from .expressions import Expr
from .free import free
from .terms import Chan, make, rewrite, subterms, variable


@dataclass(frozen=True)
class Contraction:
    """Σ over `depth` of `left[rows, depth] * right[depth, columns]`."""

    depth: Axis
    left: Expr
    right: Expr

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those of the arrays that are an operand as they are loaded; where none is, of all reals
        that operands are computed of."""
        sides: list[Any] = [self.left, self.right]
        direct = [side for side in sides if side.head == "Load"]
        loads = direct or [node for node in subterms(*sides) if node.head == "Load"]
        names = dict.fromkeys(load.args[0].args[1] for load in loads)
        return tuple(name for name in names if DTYPES[name].is_real)


@dataclass(frozen=True)
class Roles:
    """How the axes of a stage are laid out.

    `batch` axes are coordinates of the grid; `row` is tiled over row warps; `column` holds the
    columns of contractions over the fold; `fold` is streamed in blocks. A stage without a fold
    tiles its `row` and `column` axes alone.
    """

    batch: tuple[Axis, ...]
    row: Axis | None
    column: Axis | None
    fold: Axis | None

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All but the fold."""
        return (*self.batch, *(axis for axis in (self.row, self.column) if axis is not None))

    @property
    def inner_columns(self) -> Axis | None:
        """The column axis of tiles inside the loop: the fold's, or a map's own."""
        return self.fold if self.fold is not None else self.column


Values = Mapping[Chan, Any]
ONE: Any = make("Num", 1.0)


def placeholder(channel: Chan) -> Expr:
    """A variable that stands for a channel's value where only its place in a term matters."""
    from .notation import text

    return variable("Expr", f"value of {text(channel)}")  # type: ignore[no-any-return]


def summand(channel: Chan, new: Values) -> Expr:
    """What one element of the fold adds to a channel, once the bases are known.

    Plain channels add their lift. A twisted one adds its lift carried from the element's own
    bases to the state's new bases, whose values are `new`.
    """
    if not is_twisted(channel):
        return lift_of(channel)
    bases = bases_of(channel)
    own = tuple(lift_of(base) for base in bases)
    moved = representation_of(channel).transport(
        lift_of(channel), own, tuple(new[base] for base in bases)
    )
    return simplify(moved)  # type: ignore[no-any-return]


def transported(channel: Chan, old: Values, new: Values) -> Expr:
    """A twisted channel's old value as it reads at the new bases; a plain one's as it is."""
    if not is_twisted(channel):
        return old[channel]  # type: ignore[no-any-return]
    bases = bases_of(channel)
    moved = representation_of(channel).transport(
        old[channel], tuple(old[base] for base in bases), tuple(new[base] for base in bases)
    )
    return simplify(moved)  # type: ignore[no-any-return]


def simplify(expr: Any) -> Any:
    """Multiplication by one, addition of zero and division by one, removed."""
    change: dict[Any, Any] = {}
    for node in subterms(expr):
        args = tuple(change.get(arg, arg) for arg in node.args)
        units = {"Mul": 1.0, "Add": 0.0}
        if node.head in units:
            one = make("Num", units[node.head])
            change[node] = args[1] if args[0] is one else args[0] if args[1] is one else None
        elif node.head in ("Div", "Sub"):
            unit = make("Num", 1.0 if node.head == "Div" else 0.0)
            change[node] = args[0] if args[1] is unit else None
        if change.get(node) is None:
            change[node] = rewrite(node, {k: v for k, v in change.items() if v is not None})
    return change[expr]


# ---- contractions --------------------------------------------------------------------------------


def factors(expr: Any) -> list[Any]:
    """The factors of a product; a quotient's divisor stays with its dividend's first factor."""
    if expr.head == "Mul":
        return factors(expr.args[0]) + factors(expr.args[1])
    if expr.head == "Div":
        first, *rest = factors(expr.args[0])
        if len(rest) == 0 or not set(free(expr.args[1])) - set(free(first)):
            return [first / expr.args[1], *rest]
    if expr.head == "Neg":
        first, *rest = factors(expr.args[0])
        return [-first, *rest]
    return [expr]


def product(parts: Sequence[Any]) -> Any:
    result = parts[0] if parts else make("Num", 1.0)
    for part in parts[1:]:
        result = result * part
    return result


def contraction(body: Any, depth: Axis, rows: set[Axis], columns: set[Axis]) -> Contraction | None:
    """`body` as left * right with the rows on the left and the columns on the right, or None.

    Factors without either go to the left. None as well where an operand lacks the depth axis, or
    the left has no rows or the right no columns: such a sum is no matrix product.
    """
    left, right = [], []
    for factor in factors(body):
        axes = set(free(factor))
        if axes & columns:
            if axes & rows:
                return None
            right.append(factor)
        else:
            left.append(factor)
    found = Contraction(depth, product(left), product(right))
    on_left, on_right = set(free(found.left)), set(free(found.right))
    if not (depth in on_left and depth in on_right and on_left & rows and on_right & columns):
        return None
    return found


def beside(body: Any, depth: Axis, rows: set[Axis], columns: set[Axis]) -> Contraction | None:
    """The same, for a sum that goes with matrix products; one that has no rows is a product with
    ones, so that each row has it where a product of the row needs it."""
    found = contraction(body, depth, rows, columns)
    axes = set(free(body))
    if found is None and depth in axes and axes & columns and not axes & rows:
        return Contraction(depth, ONE, body)
    return found


def assign_roles(channels: Sequence[Chan], fold: Axis | None, axes: tuple[Axis, ...]) -> Roles:
    """Roles for a fold over `fold` with these channels, whose targets have these axes.

    A column axis is one that every channel that has it reads through a contraction over the
    fold; where there is none, sums that have no rows may stand beside contractions. Among several
    choices the last axis wins, and the longest row axis.
    """
    if fold is None:
        columns = axes[-1:]
        rows = [axis for axis in axes if axis not in columns][-1:]
        batch = tuple(axis for axis in axes if axis not in (*columns, *rows))
        return Roles(batch, rows[0] if rows else None, columns[0] if columns else None, None)
    own = tuple(dict.fromkeys([*axes, *(a for c in channels for a in free(c) if a is not fold)]))
    for product_of in (contraction, beside):
        for column in reversed(own):
            rows = _rows(channels, fold, own, column, product_of)
            if rows:
                row = max(rows, key=lambda axis: axis.size)
                return Roles(tuple(a for a in own if a not in (row, column)), row, column, fold)
    parts = _parts(channels, fold)
    whole = (axis for axis in reversed(own) if axis not in parts)
    longest = max(whole, key=lambda axis: axis.size, default=None)
    return Roles(tuple(a for a in own if a is not longest), longest, None, fold)


def _reads_state(operand: Any) -> bool:
    """Whether an operand reads the value of a base, which rows have and columns have not."""
    return any(node.head == "Var" for node in subterms(operand))


def _parts(channels: Sequence[Chan], fold: Axis) -> set[Axis]:
    """The axes that say which part of a longer axis the fold goes over: each block has one part."""
    found = set()
    for node in subterms(*channels):
        if node.head == "Add" and node.args[1] is fold.index and node.args[0].head == "Mul":
            index, size = node.args[0].args
            whole = make("Num", float(fold.size)), make("Len", fold)
            if index.head == "Idx" and any(node is w for node in subterms(size) for w in whole):
                found.add(index.args[0])
    return found


def _rows(
    channels: Sequence[Chan],
    fold: Axis,
    own: tuple[Axis, ...],
    column: Axis,
    product_of: Callable[..., Contraction | None],
) -> list[Axis]:
    """The axes that may be rows where `column` is the column axis, or none."""
    rows = [axis for axis in own if axis is not column]
    multiplied = False
    for channel in channels:
        if column not in free(channel):
            continue
        if monoid_of(channel) != "Sum":
            return []
        parts = factors(summand(channel, {base: placeholder(base) for base in bases_of(channel)}))
        right = [part for part in parts if column in free(part)]
        shared = {axis for part in right for axis in free(part)}
        rows = [axis for axis in rows if axis not in shared]
        found = product_of(product(parts), fold, set(rows), {column}) if rows else None
        if found is None or _reads_state(found.right):
            return []
        multiplied |= found.left is not ONE
    return rows if multiplied else []
