"""How a pointwise term is computed in a frame: element by element, each part as early as it can."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..absence import LOG, ZERO, absence_of, doubted, is_known
from ..dtypes import DTYPES
from ..errors import LoweringError
from ..indices import bounds
from ..operators import OPERATORS
from ..terms import subterms
from .context import Context
from .frames import Frame
from .infinities import may_be_infinite, spoils_zero
from .memory import load_values
from .pointwise import COMPARE, INTEGER, LOGIC, REAL
from .ptx import Register
from .values import Type, Value, constant, each

INF = float("inf")


def compute(ctx: Context, term: Any, frame: Frame) -> Value:
    """The term's value in the frame; what is known already is not computed again."""
    if term in ctx.bound:
        return ctx.bound[term]
    name = ctx.name_of(term, frame)
    if name not in ctx.memo:
        ctx.memo[name] = _compute(ctx, term, frame)
    return ctx.memo[name]


def _compute(ctx: Context, term: Any, frame: Frame) -> Value:
    head = term.head
    if head == "Num":
        return constant(term.args[0])
    if head == "Idx":
        return _index(ctx, term.args[0], frame)
    if head == "Len":
        length = ctx.length(term.args[0])
        return constant(length) if isinstance(length, int) else Value("scalar", "s32", (length,), 0)
    if head == "Load" and term in ctx.held and ctx.held[term].lanes is not None:
        from .drains import held_tile

        return held_tile(ctx, term, frame)
    if head == "Load":
        return load_values(ctx, term, frame)
    if head == "Cast":
        return _cast(ctx, term, frame)
    if head in ("Risk", "Mat"):
        return compute(ctx, term.args[0], frame)
    if head not in OPERATORS:
        raise LoweringError(f"lowering: got {head} inside a pointwise expression: {term}")
    if head in ("Add", "Sub"):
        fused = _fused(ctx, term, frame)
        if fused is not None:
            return fused
    if head == "Exp":
        from .exponential import exponential

        return exponential(ctx, term, frame)
    if head == "Tanh":
        from .hyperbolic import hyperbolic_tangent

        return hyperbolic_tangent(ctx, term, frame)
    if head == "Or" and is_known(term):
        return constant(1.0)
    operands = tuple(compute(ctx, child, frame) for child in term.args)
    if all(operand.is_constant for operand in operands):
        return constant(_fold(head, operands))
    if head == "Where":
        return _where(ctx, operands, frame)
    if head in COMPARE:
        return _compare(ctx, head, operands, frame)
    if head in LOGIC:
        if head == "And" and any(operand.is_constant and operand.words[0] for operand in operands):
            return next(operand for operand in operands if not operand.is_constant)
        tests = tuple(truth(ctx, operand, frame) for operand in operands)
        return emit_each(ctx, LOGIC[head], tests, frame, "pred")
    if head in INTEGER and all(_integral(operand) for operand in operands):
        given = tuple(whole(operand) for operand in operands)
        return emit_each(ctx, INTEGER[head], given, frame, "s32")
    if head not in REAL:
        raise LoweringError(f"lowering: got {head} of real numbers: {term}; wants integers")
    children = zip(term.args, operands, strict=True)
    return _real(ctx, term, tuple(_as_real(ctx, *child, frame) for child in children), frame)


# ---- sums ----------------------------------------------------------------------------------------

EXACT = 2**24  # whole numbers up to it are floats, and so are their sums and differences below it


def _fused(ctx: Context, term: Any, frame: Frame) -> Value | None:
    """x * y + z of reals in one rounding, where the product has a value for each of the sum's.

    None where the term is no such sum, or where conventions for absent elements may apply: which
    blocks need masks must not move a rounding.
    """
    whole_tile = ctx.uses(term, frame)
    for place in (0, 1):
        product, other = term.args[place], term.args[1 - place]
        if product.head != "Mul" or product in ctx.bound or ctx.uses(product, frame) != whole_tile:
            continue
        if whole_tile != (True, True) or _is_whole(ctx, term, frame):
            return None
        if absence_of(doubted(product), ctx.absent) or _reads_state(ctx, product, frame):
            continue
        x, y, z = (_real_of(ctx, part, frame) for part in (*product.args, other))
        if other in ctx.upper and term.head == "Sub":
            z = _finite_bound(ctx, other, z, frame)
        if term.head == "Sub" and place == 0:
            z = emit_each(ctx, REAL["Neg"], (z,), frame, "f32")
        elif term.head == "Sub":
            shorter = min(x, y, key=lambda value: len(value.words))
            negated = emit_each(ctx, REAL["Neg"], (shorter,), frame, "f32")
            x, y = (negated, y) if shorter is x else (x, negated)
        return emit_each(
            ctx,
            lambda b, p, q, r: b.op("fma_rn_f32", p, q, r),
            (x, y, z),
            frame,
            "f32",
        )
    return None


def _reads_state(ctx: Context, term: Any, frame: Frame) -> bool:
    """Whether a term reads what has one value a row: it may be absent in one block and not in
    another."""
    return any(
        node.head == "Var" and ctx.uses(node, frame) != (True, True) for node in subterms(term)
    )


def _real_of(ctx: Context, term: Any, frame: Frame) -> Value:
    return _as_real(ctx, term, compute(ctx, term, frame), frame)


def _as_real(ctx: Context, term: Any, value: Value, frame: Frame) -> Value:
    """A value as f32. The sum of a row's index and a column's is taken of reals, one conversion
    for each row and column, where it is exact."""
    if term.head == "Idx" and len(value.words) > 1 and bounds(term)[1] < EXACT:
        return _places_as_real(ctx, value, frame)
    exact = term.head in ("Add", "Sub") and value.type == "s32" and value.kind == "tile"
    if exact and all(part.head in OPERATORS or part.head in ("Idx", "Num") for part in term.args):
        parts = tuple(compute(ctx, part, frame) for part in term.args)
        ends = [abs(end) for each_term in (term, *term.args) for end in bounds(each_term)]
        if max(ends) < EXACT and all(part.kind != "tile" for part in parts):
            reals = tuple(_real_of(ctx, part, frame) for part in term.args)
            return emit_each(ctx, REAL[term.head], reals, frame, "f32")
    return real(ctx, value, frame)


def _places_as_real(ctx: Context, value: Value, frame: Frame) -> Value:
    """The coordinates of a side: one conversion, and exact sums with what they are apart."""
    side = frame.row if value.kind == "rows" else frame.column
    first = side.offsets[0]
    name = ("real", *value.words)
    if name not in ctx.memo:
        with ctx.builder.at(value.depth):
            start = ctx.builder.op("cvt_rn_f32_s32", value.words[0])
            words = tuple(
                ctx.builder.op("add_rn_f32", start, float(offset - first)) if place else start
                for place, offset in enumerate(side.offsets)
            )
        ctx.memo[name] = Value(value.kind, "f32", words, value.depth)
    return ctx.memo[name]


def _is_whole(ctx: Context, term: Any, frame: Frame) -> bool:
    """Whether a term is index arithmetic, which stays in whole numbers."""
    return all(
        node.head in ("Idx", "Len", "Num")
        or (OPERATORS.get(node.head) is not None and OPERATORS[node.head].kind == "index")
        for node in subterms(term)
        if node.sort == "Expr"
    )


def _fold(head: str, operands: tuple[Value, ...]) -> float:
    with np.errstate(all="ignore"):
        return float(OPERATORS[head].meaning(*(np.float64(o.words[0]) for o in operands)))


def _index(ctx: Context, axis: Any, frame: Frame) -> Value:
    if axis is frame.row.axis:
        return ctx.coordinates(frame.row)
    if axis is frame.column.axis:
        at = ctx.coordinates(frame.column)
        return Value("columns", "s32", at.words, at.depth)
    if axis not in ctx.grid:
        raise LoweringError(f"lowering: the axis {axis} is neither of the grid nor of the tile")
    return ctx.grid[axis]


def emit_each(
    ctx: Context, emit: Any, operands: tuple[Value, ...], frame: Frame, type_: Type
) -> Value:
    """Emit word by word at the loop depth of the deepest operand."""
    depth = max(operand.depth for operand in operands)
    with ctx.builder.at(depth):
        return each(operands, frame, lambda *words: emit(ctx.builder, *words), type_, depth)


# ---- kinds of values -----------------------------------------------------------------------------


def _integral(value: Value) -> bool:
    if value.is_constant:
        return (
            value.type != "pred"
            and abs(value.words[0]) < 2**31
            and (value.words[0] == int(value.words[0]))
        )
    return value.type == "s32"


def _only_whole(value: Value) -> bool:
    """Whether an integral value is an index for sure: as f32 it would be another number."""
    return value.type == "s32" or float(np.float32(value.words[0])) != value.words[0]


def whole(value: Value) -> Value:
    """An index as s32."""
    if value.is_constant:
        return Value("scalar", "s32", (int(value.words[0]),), value.depth)
    return value


def real(ctx: Context, value: Value, frame: Frame) -> Value:
    """The value as f32: integers converted, truth as 0 and 1."""
    if value.type == "f32" or value.is_constant:
        return Value(value.kind, "f32", value.words, value.depth)
    if value.type == "s32":
        return emit_each(ctx, lambda b, x: b.op("cvt_rn_f32_s32", x), (value,), frame, "f32")
    return emit_each(ctx, lambda b, p: b.op("selp_f32", 1.0, 0.0, p), (value,), frame, "f32")


def truth(ctx: Context, value: Value, frame: Frame) -> Value:
    """The value as a predicate: whether it differs from 0."""
    if value.type == "pred":
        return value
    row = "setp_ne_s32" if value.type == "s32" else "setp_neu_f32"
    zero = 0 if value.type == "s32" else 0.0
    return emit_each(
        ctx, lambda b, x: b.op(row, register_of(ctx, x), zero), (value,), frame, "pred"
    )


def register_of(ctx: Context, word: Any) -> Register:
    """The word in a register, for instructions that take no constant in its place."""
    if isinstance(word, Register):
        return word
    register = ctx.builder.new("f32" if isinstance(word, float) else "b32")
    ctx.builder.move(register, word if isinstance(word, float) else word % 2**32)
    return register


# ---- operators that need more than one instruction -----------------------------------------------


def _where(ctx: Context, operands: tuple[Value, ...], frame: Frame) -> Value:
    condition, chosen, otherwise = operands
    if condition.is_constant:
        return chosen if condition.words[0] else otherwise
    test = truth(ctx, condition, frame)
    if all(map(_integral, (chosen, otherwise))) and any(map(_only_whole, (chosen, otherwise))):
        row, values, type_ = "selp_s32", (whole(chosen), whole(otherwise)), "s32"
    else:
        row, type_ = "selp_f32", "f32"
        values = (real(ctx, chosen, frame), real(ctx, otherwise, frame))
    return emit_each(
        ctx,
        lambda b, p, x, y: b.op(row, x, y, p),
        (test, *values),
        frame,
        type_,  # type: ignore[arg-type]
    )


def _compare(ctx: Context, head: str, operands: tuple[Value, ...], frame: Frame) -> Value:
    on_real, on_integer = COMPARE[head]
    if all(_integral(operand) for operand in operands):
        emit, pair = on_integer, tuple(whole(operand) for operand in operands)
    else:
        emit, pair = on_real, tuple(real(ctx, operand, frame) for operand in operands)
    return emit_each(ctx, lambda b, x, y: emit(b, register_of(ctx, x), y), pair, frame, "pred")


def _cast(ctx: Context, term: Any, frame: Frame) -> Value:
    dtype, child = DTYPES[term.args[0]], term.args[1]
    value = real(ctx, compute(ctx, child, frame), frame)
    if dtype.name == "f32":
        return value
    there, back = f"cvt_rn_{dtype.name}_f32", f"cvt_f32_{dtype.name}"
    return emit_each(
        ctx, lambda b, x: b.op(back, b.op(there, register_of(ctx, x))), (value,), frame, "f32"
    )


def _real(ctx: Context, term: Any, operands: tuple[Value, ...], frame: Frame) -> Value:
    """An operator on reals, with the conventions for absent elements where both may be absent."""
    head, kinds = term.head, [absence_of(child, ctx.absent) for child in term.args]
    both = kinds[0] & kinds[-1]
    if head == "Sub" and (both & LOG or term.args[1] in ctx.upper):
        return _guarded_difference(ctx, term.args[1], operands, frame)
    if head == "Div" and both & ZERO:
        return _guarded_quotient(ctx, operands, frame)
    if head == "Add":
        for place, other in ((0, 1), (1, 0)):
            if kinds[place] & LOG and may_be_infinite(ctx, term.args[other]):
                total = emit_each(ctx, REAL["Add"], operands, frame, "f32")
                return _minus_infinity_of(ctx, operands[place], total, frame)
    if head == "Mul":
        for zero, other in ((0, 1), (1, 0)):
            if kinds[zero] & ZERO and spoils_zero(ctx, term.args[other]):
                return _guarded_product(ctx, operands, zero, frame)
        for lost, other in ((0, 1), (1, 0)):
            if kinds[lost] & LOG and not (operands[other].is_constant and operands[other].words[0]):
                return _annihilated(ctx, operands, lost, frame)
    return emit_each(ctx, REAL[head], operands, frame, "f32")


def _guarded_difference(
    ctx: Context, right: Any, operands: tuple[Value, ...], frame: Frame
) -> Value:
    """a - b with (-inf) - (-inf) = -inf. Where b bounds a from above, b = -inf implies a = -inf,
    so that taking 0 for b does it once a row; elsewhere the result is chosen element by element.

    A bound that a fold has found so far may be -inf although nothing is absent: inputs may be.
    """
    a, b = operands
    if right in ctx.upper:
        return emit_each(ctx, REAL["Sub"], (a, _finite_bound(ctx, right, b, frame)), frame, "f32")
    difference = emit_each(ctx, REAL["Sub"], operands, frame, "f32")
    return _minus_infinity_of(ctx, a, difference, frame)


def _finite_bound(ctx: Context, bound: Any, value: Value, frame: Frame) -> Value:
    """The value of a bound, or 0 where it is minus infinity."""
    guarded = ("guarded", *ctx.name_of(bound, frame))
    if guarded not in ctx.memo:
        ctx.memo[guarded] = emit_each(ctx, zero_for_minus_infinity, (value,), frame, "f32")
    return ctx.memo[guarded]


def _minus_infinity_of(ctx: Context, absent: Value, result: Value, frame: Frame) -> Value:
    """-inf where `absent` is, else the result."""
    return emit_each(
        ctx,
        lambda b, x, y: b.op("selp_f32", -INF, y, b.op("setp_eq_f32", register_of(ctx, x), -INF)),
        (absent, result),
        frame,
        "f32",
    )


def zero_for_minus_infinity(b: Any, x: Any) -> Any:
    return b.op("selp_f32", 0.0, x, b.op("setp_eq_f32", x, -INF))


def _guarded_product(ctx: Context, operands: tuple[Value, ...], zero: int, frame: Frame) -> Value:
    """a * b with 0 * inf = 0, where the operand numbered `zero` may be an absent 0."""
    product = emit_each(ctx, REAL["Mul"], operands, frame, "f32")
    return emit_each(
        ctx,
        lambda b, x, y: b.op("selp_f32", 0.0, y, b.op("setp_eq_f32", register_of(ctx, x), 0.0)),
        (operands[zero], product),
        frame,
        "f32",
    )


def _annihilated(ctx: Context, operands: tuple[Value, ...], lost: int, frame: Frame) -> Value:
    """a * b with -inf * 0 = 0, where the operand numbered `lost` may be an absent -inf."""

    def emit(b: Any, x: Any, y: Any) -> Any:
        gone = b.op("setp_eq_f32", register_of(ctx, x), -INF)
        both = b.op("and_pred", gone, b.op("setp_eq_f32", register_of(ctx, y), 0.0))
        return b.op("selp_f32", 0.0, REAL["Mul"](b, x, y), both)

    return emit_each(ctx, emit, (operands[lost], operands[1 - lost]), frame, "f32")


def _guarded_quotient(ctx: Context, operands: tuple[Value, ...], frame: Frame) -> Value:
    """a / b with 0 / 0 = 0."""
    quotient = emit_each(ctx, REAL["Div"], operands, frame, "f32")

    def emit(b: Any, x: Any, y: Any, q: Any) -> Any:
        none = b.op("setp_eq_f32", register_of(ctx, y), 0.0)
        both = b.op("and_pred", none, b.op("setp_eq_f32", register_of(ctx, x), 0.0))
        return b.op("selp_f32", 0.0, q, both)

    return emit_each(ctx, emit, (*operands, quotient), frame, "f32")
