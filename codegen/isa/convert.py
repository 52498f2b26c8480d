"""How values change type: cvt between f32 and half precisions, floats and integers, widths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import arithmetic
from .machine import Array
from .row import instr

CVT = "PTX ISA, Data Movement and Conversion: cvt"


@instr("cvt.f32.f16 $d, $a;", d="f32", a="f16", counter="convert", source=CVT)
def _f16_to_f32(a: Array) -> Array:
    """d = a, exact."""
    return arithmetic.f16_to_f32(a)


@instr("cvt.f32.bf16 $d, $a;", d="f32", a="bf16", counter="convert", source=CVT, sm=90)
def _bf16_to_f32(a: Array) -> Array:
    """d = a, exact."""
    return arithmetic.bf16_to_f32(a)


@instr("cvt.rn.f16.f32 $d, $a;", d="f16", a="f32", counter="convert", source=CVT)
def _f32_to_f16(a: Array) -> Array:
    """d = a, to nearest even; overflow is infinite."""
    return arithmetic.f32_to_f16(a)


@instr("cvt.rn.bf16.f32 $d, $a;", d="bf16", a="f32", counter="convert", source=CVT)
def _f32_to_bf16(a: Array) -> Array:
    """d = a, to nearest even."""
    return arithmetic.f32_to_bf16(a)


@instr(
    "cvt.rn.f16x2.f32 $d, $a, $b;",
    d="f16x2",
    a="f32",
    b="f32",
    counter="convert",
    source=CVT + " (a goes to the upper half, b to the lower)",
)
def _f16x2(a: Array, b: Array) -> Array:
    """d = f16(a):f16(b)."""
    a, b = np.broadcast_arrays(a, b)
    return np.stack([arithmetic.f32_to_f16(b), arithmetic.f32_to_f16(a)], axis=-1)


@instr(
    "cvt.rn.bf16x2.f32 $d, $a, $b;",
    d="bf16x2",
    a="f32",
    b="f32",
    counter="convert",
    source=CVT + " (a goes to the upper half, b to the lower)",
)
def _bf16x2(a: Array, b: Array) -> Array:
    """d = bf16(a):bf16(b)."""
    a, b = np.broadcast_arrays(a, b)
    return np.stack([arithmetic.f32_to_bf16(b), arithmetic.f32_to_bf16(a)], axis=-1)


for _type in ("s32", "u32", "s64", "u64"):

    @instr(f"cvt.rn.f32.{_type} $d, $a;", d="f32", a=_type, counter="convert", source=CVT)
    def _to_f32(a: Array) -> Array:
        """d = a, to nearest even."""
        return np.asarray(a).astype(np.float32)


ROUND: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def _to_integer(name: str, type: str) -> None:
    storage = np.dtype(np.int32 if type == "s32" else np.uint32)
    low, high = np.iinfo(storage).min, np.iinfo(storage).max

    def meaning(a: Array) -> Array:
        """d = a rounded to an integer, clamped to the type's range; a NaN gives zero."""
        rounded = np.clip(ROUND[name](np.asarray(a).astype(np.float64)), low, high)
        integers: Array = np.nan_to_num(rounded, nan=0.0).astype(np.int64).astype(storage)
        return integers

    instr(
        f"cvt.{name}.{type}.f32 $d, $a;",
        d=type,
        a="f32",
        counter="convert",
        source=CVT + " (saturating; NaN gives 0)",
    )(meaning)


def _to_integral(name: str) -> None:
    def meaning(a: Array) -> Array:
        """d = a rounded to an integral value, still f32."""
        return arithmetic.canonical(ROUND[name](a))

    instr(f"cvt.{name}.f32.f32 $d, $a;", d="f32", a="f32", counter="convert", source=CVT)(meaning)


for _name in ROUND:
    _to_integral(_name)
    for _type in ("s32", "u32"):
        _to_integer(_name, _type)


def _resize(d: str, a: str, storage: type[np.integer]) -> None:
    def meaning(a: Array) -> Array:
        """d = a cut, or extended by its own sign or zeros."""
        return np.asarray(a).astype(storage)

    instr(f"cvt.{d}.{a} $d, $a;", d=d, a=a, counter="convert", source=CVT)(meaning)


_resize("u64", "u32", np.uint64)
_resize("s64", "s32", np.int64)
_resize("s64", "u32", np.int64)
_resize("u64", "s32", np.uint64)
_resize("u32", "u64", np.uint32)
_resize("s32", "s64", np.int32)
_resize("u32", "u16", np.uint32)
_resize("s32", "s16", np.int32)
_resize("u16", "u32", np.uint16)
