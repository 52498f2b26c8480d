"""How bits and predicates combine, and what comparisons set: and, or, xor, not, shifts, setp."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from .machine import Array
from .row import instr

LOGIC = "PTX ISA, Logic and Shift Instructions: "
SETP = "PTX ISA, Comparison and Selection: setp"

for _type in ("pred", "b16", "b32", "b64"):
    for _name, _ufunc in (
        ("and", np.bitwise_and),
        ("or", np.bitwise_or),
        ("xor", np.bitwise_xor),
    ):

        @instr(
            f"{_name}.{_type} $d, $a, $b;",
            d=_type,
            a=_type,
            b=_type,
            counter="alu",
            source=LOGIC + _name,
        )
        def _both(a: Array, b: Array, _ufunc: np.ufunc = _ufunc) -> Array:
            """Bit by bit."""
            combined: Array = _ufunc(a, b)
            return combined

    @instr(f"not.{_type} $d, $a;", d=_type, a=_type, counter="alu", source=LOGIC + "not")
    def _not(a: Array) -> Array:
        """d = each bit of a flipped."""
        return np.bitwise_not(a)


for _type in ("b32", "b64"):

    @instr(
        f"shl.{_type} $d, $a, $b;",
        d=_type,
        a=_type,
        b="u32",
        counter="alu",
        source=LOGIC + "shl (amounts beyond the width are clamped to it)",
    )
    def _shl(a: Array, b: Array) -> Array:
        """d = a << b; zero from the width on."""
        bits = np.uint32(8 * a.dtype.itemsize)
        shifted: Array = np.left_shift(a, np.minimum(b, bits - 1).astype(a.dtype))
        return np.where(b < bits, shifted, np.zeros((), a.dtype))


for _type in ("b32", "u32", "s32", "b64", "u64", "s64"):

    @instr(
        f"shr.{_type} $d, $a, $b;",
        d=_type,
        a=_type,
        b="u32",
        counter="alu",
        source=LOGIC + "shr (amounts beyond the width are clamped to it)",
    )
    def _shr(a: Array, b: Array) -> Array:
        """d = a >> b, filled with a's sign if signed; only the fill from the width on."""
        bits = np.uint32(8 * a.dtype.itemsize)
        shifted: Array = np.right_shift(a, np.minimum(b, bits - 1).astype(a.dtype))
        if a.dtype.kind == "i":
            return shifted
        return np.where(b < bits, shifted, np.zeros((), a.dtype))


Compare = Callable[[Array, Array], Array]
COMPARE: dict[str, Compare] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def _setp(text: str, type: str, meaning: Callable[[Array, Array], Array]) -> None:
    instr(f"setp.{text}.{type} $d, $a, $b;", d="pred", a=type, b=type, counter="alu", source=SETP)(
        meaning
    )


def _comparing(compare: Compare) -> Compare:
    def meaning(a: Array, b: Array) -> Array:
        """d = whether a compares so to b; false for a NaN."""
        return compare(a, b)

    return meaning


def _ordered_ne(a: Array, b: Array) -> Array:
    """d = whether both are numbers and differ."""
    return (a < b) | (a > b)


def _unordered(compare: Compare) -> Compare:
    def meaning(a: Array, b: Array) -> Array:
        """d = whether a compares so to b, or one of them is a NaN."""
        return compare(a, b) | np.isnan(a) | np.isnan(b)

    return meaning


for _name, _compare in COMPARE.items():
    for _type in ("s32", "u32", "s64", "u64"):
        _setp(_name, _type, _comparing(_compare))
    if _name in ("eq", "ne"):
        for _type in ("b16", "b32", "b64"):
            _setp(_name, _type, _comparing(_compare))
    _setp(_name, "f32", _ordered_ne if _name == "ne" else _comparing(_compare))
    _setp(_name + "u", "f32", _unordered(_compare))


def _nan(a: Array, b: Array) -> Array:
    """d = whether one of them is a NaN."""
    return np.isnan(a) | np.isnan(b)


def _num(a: Array, b: Array) -> Array:
    """d = whether neither is a NaN."""
    return ~_nan(a, b)


_setp("num", "f32", _num)
_setp("nan", "f32", _nan)
