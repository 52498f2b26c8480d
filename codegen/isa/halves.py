"""What arithmetic on pairs of 16-bit floats means."""

from __future__ import annotations

from ... import arithmetic
from .machine import Array
from .row import instr

HALF = "PTX ISA, Half Precision Floating Point Instructions: mul (subnormals kept)"


@instr("mul.rn.f16x2 $d, $a, $b;", d="f16x2", a="f16x2", b="f16x2", counter="fma", source=HALF)
def _f16x2(a: Array, b: Array) -> Array:
    """d = a · b in each half, to nearest even."""
    return arithmetic.mul_f16(a, b)


@instr(
    "mul.rn.bf16x2 $d, $a, $b;",
    d="bf16x2",
    a="bf16x2",
    b="bf16x2",
    counter="fma",
    sm=90,
    source=HALF,
)
def _bf16x2(a: Array, b: Array) -> Array:
    """d = a · b in each half, to nearest even."""
    return arithmetic.mul_bf16(a, b)
