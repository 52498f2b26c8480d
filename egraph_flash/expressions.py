"""What a user writes: index-notation expressions over named axes, built by Python operators."""

from __future__ import annotations

from typing import Any

from . import dtypes
from .axes import Axis
from .dtypes import Dtype
from .errors import ExpressionError
from .free import free
from .layouts import ALIGNMENT_BYTES, Strides, array_term, check_strides
from .monoids import MONOIDS, Monoid
from .operators import OPERATORS
from .terms import Term, make

inf = float("inf")
Value = Any  # an Expr, a Tensor, or a Python number


class Operand:
    """Whatever arithmetic applies to: expressions, and tensors, which stand for their elements."""

    __slots__ = ()

    @property
    def expr(self) -> Expr:
        raise NotImplementedError

    def __add__(self, other: Value) -> Expr:
        return _apply("Add", self, other)

    def __radd__(self, other: Value) -> Expr:
        return _apply("Add", other, self)

    def __sub__(self, other: Value) -> Expr:
        return _apply("Sub", self, other)

    def __rsub__(self, other: Value) -> Expr:
        return _apply("Sub", other, self)

    def __mul__(self, other: Value) -> Expr:
        return _apply("Mul", self, other)

    def __rmul__(self, other: Value) -> Expr:
        return _apply("Mul", other, self)

    def __truediv__(self, other: Value) -> Expr:
        return _apply("Div", self, other)

    def __rtruediv__(self, other: Value) -> Expr:
        return _apply("Div", other, self)

    def __floordiv__(self, other: Value) -> Expr:
        return _divided("FloorDiv", self, other)

    def __mod__(self, other: Value) -> Expr:
        return _divided("Mod", self, other)

    def __neg__(self) -> Expr:
        return _apply("Neg", self)

    def __abs__(self) -> Expr:
        return _apply("Abs", self)

    def __lt__(self, other: Value) -> Expr:
        return _apply("Lt", self, other)

    def __le__(self, other: Value) -> Expr:
        return _apply("Le", self, other)

    def __gt__(self, other: Value) -> Expr:
        return _apply("Lt", other, self)

    def __ge__(self, other: Value) -> Expr:
        return _apply("Le", other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return NotImplemented if _is_no_value(other) else _apply("Eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return NotImplemented if _is_no_value(other) else _apply("Ne", self, other)

    def __and__(self, other: Value) -> Expr:
        return _apply("And", self, other)

    def __or__(self, other: Value) -> Expr:
        return _apply("Or", self, other)

    def __invert__(self) -> Expr:
        return _apply("Not", self)

    def __hash__(self) -> int:
        return id(self)

    def sum(self, *axes: Axis) -> Expr:
        """Σ over `axes`, the first one innermost. An axis without elements gives 0."""
        return _reduce("Sum", self.expr, axes)

    def max(self, *axes: Axis) -> Expr:
        """The maximum over `axes`. An axis without elements gives -inf."""
        return _reduce("Max", self.expr, axes)

    def fold(self, monoid: Monoid | str, *axes: Axis) -> Expr:
        """The elements along `axes` combined in a registered monoid, which may be given by name.

        Raises ExpressionError for one that is not registered.
        """
        return _reduce(registered(monoid), self.expr, axes)

    def cast(self, dtype: Dtype) -> Expr:
        """The value rounded to `dtype`; on an output, the dtype in which it is stored."""
        if not dtype.is_real:
            raise ExpressionError(f"cast: got {dtype}, wants one of f16, bf16, f32")
        _check_real("cast", self.expr)
        return make("Cast", dtype.name, self.expr)  # type: ignore[no-any-return]


class Expr(Operand, Term):
    """A real-valued term over named axes; see `evaluate` for what it means.

    `==` builds a comparison; two expressions are the same term exactly when they are one object.
    """

    sort = "Expr"
    __slots__ = ()

    __hash__ = Term.__hash__  # `==` is redefined, which would leave it without one

    @property
    def expr(self) -> Expr:
        return self

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes it depends on, in order of first appearance in its inputs, then elsewhere."""
        return free(self)

    def order(self, *axes: Axis) -> Output:
        """This expression as an output whose array has its axes in the given order."""
        if sorted(map(repr, axes)) != sorted(map(repr, self.axes)):
            raise ExpressionError(
                f"order: got axes {axes}, wants {self.axes} in some order, each exactly once"
            )
        return Output(self, axes)

    def placed(
        self, axes: tuple[Axis, ...], at: tuple[Value | Axis, ...], where: Value | None = None
    ) -> Output:
        """This expression as an output that is an array over `axes`, each value put at an index.

        `at` has an index for each axis of the array, in this expression's axes and integer
        tensors: `o.placed((t, h, e), (start[b] + m.index, h, e), where=m.index < count[b])` packs
        rows end to end. Values where `where` fails go nowhere; elements that get no value are 0 in
        an array that a call makes, and keep what they held in one that it is given. No element may
        get two values. Raises ExpressionError for indices that leave an axis of the values out.
        """
        return Output.at(self, axes, at, where)

    def __bool__(self) -> bool:
        if self.head in ("Eq", "Ne"):  # so that terms can stand in lists and dictionaries
            return (self.args[0] is self.args[1]) == (self.head == "Eq")
        raise TypeError(
            f"the truth of an expression is not known before it runs: {self!r}; "
            "write where(condition, a, b), and & | ~ for and, or, not"
        )


class Output:
    """An expression and the array that it becomes: over `axes`, each value at the indices `at`,
    where `where` holds (None: everywhere)."""

    __slots__ = ("axes", "expr", "indices", "where")

    def __init__(
        self,
        expr: Expr,
        axes: tuple[Axis, ...],
        indices: tuple[Expr, ...] | None = None,
        where: Expr | None = None,
    ) -> None:
        self.expr, self.axes, self.where = expr, tuple(axes), where
        self.indices = tuple(axis.index for axis in axes) if indices is None else indices

    @staticmethod
    def at(
        expr: Expr, axes: tuple[Axis, ...], at: tuple[Value | Axis, ...], where: Value | None
    ) -> Output:
        from .indices import check_index

        indices = tuple(index.index if isinstance(index, Axis) else lift(index) for index in at)
        if len(indices) != len(axes):
            raise ExpressionError(
                f"placed: got {len(indices)} indices for the axes {axes}, wants {len(axes)}"
            )
        for axis, index in zip(axes, indices, strict=True):
            check_index("placed", axis, index)
        condition = None if where is None else lift(where)
        written = {axis for index in indices for axis in index.axes}
        for what, term in (("values", expr), ("where", condition)):
            missing = [
                axis for axis in (term.axes if term is not None else ()) if axis not in written
            ]
            if missing:
                raise ExpressionError(
                    f"placed: the {what} vary along {missing}, which no index has; wants every axis"
                )
        return Output(expr, axes, indices, condition)

    @property
    def is_placed(self) -> bool:
        return self.where is not None or self.indices != tuple(a.index for a in self.axes)

    def __repr__(self) -> str:
        return f"{self.expr!r} ordered {self.axes}"


class Tensor(Operand):
    """An input array: `Tensor("q", (b, h, m, d), f16)`; used as an operand, its elements.

    `k[b, h // 4, n, d]` reads at other indices: any quasi-affine expression of axes (+, -, *, //
    and % by constants, min, max) or an element of an integer tensor at such an index.

    Without `strides` its elements lie row-major without gaps; `strides` gives one for each axis,
    in elements, None being one that is read off the array at each call. `alignment_bytes` divides
    the address of its first element and every stride but those of 1.
    """

    __slots__ = ("_expr", "axes", "dtype", "name", "term")

    def __init__(
        self,
        name: str,
        axes: tuple[Axis, ...],
        dtype: Dtype,
        *,
        strides: Strides | None = None,
        alignment_bytes: int = ALIGNMENT_BYTES,
    ) -> None:
        if not name.isidentifier():
            raise ExpressionError(f"tensor: got the name {name!r}, wants an identifier")
        if dtype.name not in dtypes.DTYPES:
            raise ExpressionError(
                f"tensor {name!r}: got dtype {dtype}, wants f16, bf16, f32, i32, boolean"
            )
        if len(dict.fromkeys(axes)) != len(axes):
            raise ExpressionError(f"tensor {name!r}: got axes {axes}, wants each axis once")
        _check_names(f"tensor {name!r}", axes)
        self.name, self.axes, self.dtype = name, tuple(axes), dtype
        check_strides(f"tensor {name!r}", len(axes), strides, alignment_bytes, dtype.size_bytes)
        extents = [axis.extent for axis in axes]
        self.term = array_term(name, dtype.name, extents, strides, alignment_bytes)
        self._expr: Expr = make("Load", self.term, tuple(axis.index for axis in axes))

    @property
    def expr(self) -> Expr:
        return self._expr

    def __repr__(self) -> str:
        return f"{self.name}[{', '.join(map(repr, self.axes))}]"

    def __getitem__(self, indices: Any) -> Expr:
        from .indices import check_index

        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.axes):
            raise ExpressionError(
                f"{self.name}: got {len(given)} indices, wants {len(self.axes)}, one for each of "
                f"its axes {self.axes}"
            )
        terms = tuple(index.index if isinstance(index, Axis) else lift(index) for index in given)
        for axis, index in zip(self.axes, terms, strict=True):
            check_index(self.name, axis, index)
        return make("Load", self.term, terms)  # type: ignore[no-any-return]


def lift(value: Value) -> Expr:
    """A Python number, tensor, axis index or expression as an expression."""
    if isinstance(value, Operand):
        return value.expr
    if isinstance(value, bool | int | float):
        if value != value:
            raise ExpressionError("constant: got nan, wants a number")
        return make("Num", float(value))  # type: ignore[no-any-return]
    if isinstance(value, Axis):
        raise ExpressionError(f"axis {value} is not a value: write {value}.index")
    if isinstance(value, Output):
        raise ExpressionError("an ordered output is no operand: call order(...) last")
    raise ExpressionError(f"operand: got {type(value).__name__}, wants a tensor or a number")


def _is_no_value(other: object) -> bool:
    """Terms of other sorts are just unequal, in lists and the like; an axis is a user's slip."""
    return isinstance(other, Term) and not isinstance(other, Expr | Axis)


def _apply(head: str, *values: Value) -> Expr:
    operands = tuple(lift(value) for value in values)
    if OPERATORS[head].kind != "predicate":
        for operand in operands[1:] if head == "Where" else operands:
            _check_real(OPERATORS[head].symbol, operand)
    axes = [axis for operand in operands for axis in operand.axes]
    _check_names(head.lower(), tuple(axes))
    return make(head, *operands)  # type: ignore[no-any-return]


def _divided(head: str, value: Value, divisor: Value) -> Expr:
    """// or %, which round toward minus infinity, by a positive whole constant."""
    by = lift(divisor)
    if by.head != "Num" or by.args[0] <= 0 or by.args[0] != int(by.args[0]):
        raise ExpressionError(
            f"{OPERATORS[head].symbol}: got the divisor {by}, wants a positive whole constant"
        )
    return _apply(head, value, by)


def _check_real(where: str, operand: Expr) -> None:
    """A truth is no number: elements of a boolean tensor may only decide."""
    if operand.head == "Load" and dtypes.DTYPES[operand.args[0].args[1]].is_boolean:
        name = operand.args[0].args[0]
        raise ExpressionError(
            f"{where}: got {name}, a tensor of bool, wants numbers; a truth may stand in "
            f"where(...), & | ~ and comparisons: write where({name}, 1.0, 0.0) for a number"
        )


def _check_names(where: str, axes: tuple[Axis, ...]) -> None:
    """Two axes of one name must be one axis."""
    seen: dict[str, Axis] = {}
    for axis in axes:
        other = seen.setdefault(axis.name, axis)
        if other is not axis:
            raise ExpressionError(
                f"{where}: axis {axis.name!r} has extent {other.extent} in one operand and "
                f"{axis.extent} in another; axes agree by name, so give one of them another name"
            )


def registered(monoid: Monoid | str) -> str:
    """The name of a monoid that is a row of the table. Raises ExpressionError for any other."""
    name = monoid.name if isinstance(monoid, Monoid) else monoid
    known = MONOIDS.get(name)
    other = isinstance(monoid, Monoid) and known and known.definition != monoid.definition
    if known is None or other:
        raise ExpressionError(
            f"fold: got the monoid {name!r}, wants one of {', '.join(MONOIDS)}, or another after "
            "egraph_flash.register(Monoid(...))"
        )
    return name


def _reduce(monoid: str, body: Expr, axes: tuple[Axis, ...]) -> Expr:
    if not axes:
        raise ExpressionError(f"{monoid.lower()}: got no axis, wants one of {body.axes}")
    _check_real(monoid.lower(), body)
    for axis in axes:
        if not isinstance(axis, Axis) or axis not in body.axes:
            raise ExpressionError(
                f"{monoid.lower()}: got axis {axis!r}, wants one of {body.axes}, the axes of {body}"
            )
        body = make("Red", make(monoid), axis, body)
    return body


def exp(x: Value) -> Expr:
    return _apply("Exp", x)


def log(x: Value) -> Expr:
    return _apply("Log", x)


def tanh(x: Value) -> Expr:
    return _apply("Tanh", x)


def sqrt(x: Value) -> Expr:
    return _apply("Sqrt", x)


def maximum(a: Value, b: Value) -> Expr:
    return _apply("Max2", a, b)


def minimum(a: Value, b: Value) -> Expr:
    return _apply("Min2", a, b)


def where(condition: Value, chosen: Value, otherwise: Value) -> Expr:
    """`chosen` where `condition` holds, else `otherwise`; an `otherwise` of -inf masks."""
    return _apply("Where", condition, chosen, otherwise)
