"""What single-precision arithmetic means: IEEE with explicit rounding, and the MUFU functions."""

from __future__ import annotations

import numpy as np

from ... import arithmetic
from ...arithmetic import canonical
from .machine import Array
from .row import instr

FLOAT = "PTX ISA, Floating Point Instructions: "


@instr("add.rn.f32 $d, $a, $b;", d="f32", a="f32", b="f32", counter="fma", source=FLOAT + "add")
def _add(a: Array, b: Array) -> Array:
    """d = a + b, to nearest even; subnormals kept."""
    return arithmetic.add_f32(a, b)


@instr("sub.rn.f32 $d, $a, $b;", d="f32", a="f32", b="f32", counter="fma", source=FLOAT + "sub")
def _sub(a: Array, b: Array) -> Array:
    """d = a − b, to nearest even."""
    return arithmetic.sub_f32(a, b)


@instr("mul.rn.f32 $d, $a, $b;", d="f32", a="f32", b="f32", counter="fma", source=FLOAT + "mul")
def _mul(a: Array, b: Array) -> Array:
    """d = a · b, to nearest even."""
    return arithmetic.mul_f32(a, b)


@instr(
    "fma.rn.f32 $d, $a, $b, $c;",
    d="f32",
    a="f32",
    b="f32",
    c="f32",
    counter="fma",
    source=FLOAT + "fma",
)
def _fma(a: Array, b: Array, c: Array) -> Array:
    """d = a · b + c, rounded once."""
    return arithmetic.fma_f32(a, b, c)


@instr("neg.f32 $d, $a;", d="f32", a="f32", counter="alu", source=FLOAT + "neg")
def _neg(a: Array) -> Array:
    """d = −a; of a NaN the bits are not defined."""
    return canonical(np.negative(a))


@instr("abs.f32 $d, $a;", d="f32", a="f32", counter="alu", source=FLOAT + "abs")
def _abs(a: Array) -> Array:
    """d = |a|; of a NaN the bits are not defined."""
    return canonical(np.abs(a))


for _text, _binary in (
    ("max.f32", arithmetic.max_f32),
    ("min.f32", arithmetic.min_f32),
    ("max.NaN.f32", arithmetic.max_nan_f32),
    ("min.NaN.f32", arithmetic.min_nan_f32),
):
    instr(
        f"{_text} $d, $a, $b;",
        d="f32",
        a="f32",
        b="f32",
        counter="alu",
        source=FLOAT + _text[:3] + " (+0 > −0)",
    )(_binary)


@instr("div.rn.f32 $d, $a, $b;", d="f32", a="f32", b="f32", counter="fma", source=FLOAT + "div")
def _div(a: Array, b: Array) -> Array:
    """d = a / b, IEEE; several machine instructions."""
    return arithmetic.div_f32(a, b)


@instr("sqrt.rn.f32 $d, $a;", d="f32", a="f32", counter="fma", source=FLOAT + "sqrt")
def _sqrt(a: Array) -> Array:
    """d = √a, IEEE; several machine instructions."""
    return arithmetic.sqrt_f32(a)


@instr("rcp.rn.f32 $d, $a;", d="f32", a="f32", counter="fma", source=FLOAT + "rcp")
def _rcp(a: Array) -> Array:
    """d = 1 / a, IEEE; several machine instructions."""
    return arithmetic.div_f32(np.ones_like(a), a)


for _name, _unary in (
    ("rcp", arithmetic.rcp_approx_ftz),
    ("ex2", arithmetic.ex2_approx_ftz),
    ("rsqrt", arithmetic.rsqrt_approx_ftz),
):
    instr(
        f"{_name}.approx.ftz.f32 $d, $a;",
        d="f32",
        a="f32",
        counter="mufu",
        source=f"{FLOAT}{_name}; bits from tables read off an H200",
    )(_unary)


@instr(
    "lg2.approx.ftz.f32 $d, $a;",
    d="f32",
    a="f32",
    counter="mufu",
    exact=False,
    source=FLOAT + "lg2 (abs error 2^-22 in (0.5, 2), else relative)",
)
def _lg2(a: Array) -> Array:
    """d ≈ log2 a; the correctly rounded value, not the hardware's bits."""
    flushed = arithmetic.flush_subnormals(a).astype(np.float64)
    return canonical(arithmetic.flush_subnormals(np.log2(flushed).astype(np.float32)))


@instr(
    "tanh.approx.f32 $d, $a;",
    d="f32",
    a="f32",
    counter="mufu",
    exact=False,
    source=FLOAT + "tanh (relative error 2^-11)",
)
def _tanh(a: Array) -> Array:
    """d ≈ tanh a; the correctly rounded value, not the hardware's bits."""
    return canonical(np.tanh(a.astype(np.float64)).astype(np.float32))
