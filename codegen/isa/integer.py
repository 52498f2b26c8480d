"""What integer arithmetic means: two's complement, results cut to their width."""

from __future__ import annotations

import numpy as np

from .machine import Array
from .row import instr

INTEGER = "PTX ISA, Integer Arithmetic Instructions: "
WIDER = {"s32": np.int64, "u32": np.uint64}

for _type in ("s32", "u32", "s64", "u64"):

    @instr(
        f"add.{_type} $d, $a, $b;", d=_type, a=_type, b=_type, counter="alu", source=INTEGER + "add"
    )
    def _add(a: Array, b: Array) -> Array:
        """d = a + b."""
        return np.add(a, b)

    @instr(
        f"sub.{_type} $d, $a, $b;", d=_type, a=_type, b=_type, counter="alu", source=INTEGER + "sub"
    )
    def _sub(a: Array, b: Array) -> Array:
        """d = a − b."""
        return np.subtract(a, b)

    @instr(
        f"mul.lo.{_type} $d, $a, $b;",
        d=_type,
        a=_type,
        b=_type,
        counter="alu",
        source=INTEGER + "mul",
    )
    def _mul_lo(a: Array, b: Array) -> Array:
        """d = the lower half of a · b."""
        return np.multiply(a, b)

    @instr(
        f"mad.lo.{_type} $d, $a, $b, $c;",
        d=_type,
        a=_type,
        b=_type,
        c=_type,
        counter="alu",
        source=INTEGER + "mad",
    )
    def _mad_lo(a: Array, b: Array, c: Array) -> Array:
        """d = the lower half of a · b, plus c."""
        return np.add(np.multiply(a, b), c)

    @instr(
        f"div.{_type} $d, $a, $b;",
        d=_type,
        a=_type,
        b=_type,
        counter="alu",
        source=INTEGER + "div (by zero: not defined; here all ones)",
    )
    def _div(a: Array, b: Array) -> Array:
        """d = a / b, towards zero."""
        divisor = np.where(b == 0, np.ones_like(b), b)
        quotient = (a - np.fmod(a, divisor)) // divisor
        return np.where(b == 0, np.zeros_like(quotient) - quotient.dtype.type(1), quotient)

    @instr(
        f"rem.{_type} $d, $a, $b;",
        d=_type,
        a=_type,
        b=_type,
        counter="alu",
        source=INTEGER + "rem (by zero: not defined; here a)",
    )
    def _rem(a: Array, b: Array) -> Array:
        """d = a − b · (a / b), of a's sign."""
        return np.where(b == 0, a, np.fmod(a, np.where(b == 0, np.ones_like(b), b)))

    @instr(
        f"min.{_type} $d, $a, $b;", d=_type, a=_type, b=_type, counter="alu", source=INTEGER + "min"
    )
    def _min(a: Array, b: Array) -> Array:
        """d = the smaller."""
        return np.minimum(a, b)

    @instr(
        f"max.{_type} $d, $a, $b;", d=_type, a=_type, b=_type, counter="alu", source=INTEGER + "max"
    )
    def _max(a: Array, b: Array) -> Array:
        """d = the larger."""
        return np.maximum(a, b)


for _type, _wide in (("s32", "s64"), ("u32", "u64")):

    @instr(
        f"mul.wide.{_type} $d, $a, $b;",
        d=_wide,
        a=_type,
        b=_type,
        counter="alu",
        source=INTEGER + "mul",
    )
    def _mul_wide(a: Array, b: Array) -> Array:
        """d = a · b, all 64 bits."""
        return np.multiply(a, b, dtype=_twice(a))

    @instr(
        f"mad.wide.{_type} $d, $a, $b, $c;",
        d=_wide,
        a=_type,
        b=_type,
        c=_wide,
        counter="alu",
        source=INTEGER + "mad",
    )
    def _mad_wide(a: Array, b: Array, c: Array) -> Array:
        """d = a · b + c in 64 bits."""
        return np.add(np.multiply(a, b, dtype=_twice(a)), c)

    @instr(
        f"mul.hi.{_type} $d, $a, $b;",
        d=_type,
        a=_type,
        b=_type,
        counter="alu",
        source=INTEGER + "mul",
    )
    def _mul_hi(a: Array, b: Array) -> Array:
        """d = the upper half of a · b."""
        return (np.multiply(a, b, dtype=_twice(a)) >> 32).astype(a.dtype)


for _type in ("s32", "s64"):

    @instr(f"neg.{_type} $d, $a;", d=_type, a=_type, counter="alu", source=INTEGER + "neg")
    def _neg(a: Array) -> Array:
        """d = −a."""
        return np.negative(a)

    @instr(f"abs.{_type} $d, $a;", d=_type, a=_type, counter="alu", source=INTEGER + "abs")
    def _abs(a: Array) -> Array:
        """d = |a|; of the smallest number, itself."""
        return np.abs(a)


def _twice(a: Array) -> np.dtype[np.int64] | np.dtype[np.uint64]:
    return np.dtype(np.int64) if a.dtype == np.int32 else np.dtype(np.uint64)
