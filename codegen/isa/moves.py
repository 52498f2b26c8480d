"""How values move between registers: mov, pack and unpack, selp, prmt, address conversion."""

from __future__ import annotations

import numpy as np

from .machine import Array
from .row import instr

MOV = "PTX ISA, Data Movement and Conversion: mov"
_B32_OF = "b16"

for _type in ("b16", "b32", "b64", "u32", "s32", "u64", "s64", "f32", "f64", "pred"):

    @instr(f"mov.{_type} $d, $a;", d=_type, a=_type, counter="move", source=MOV)
    def _mov(a: Array) -> Array:
        """d = a, the same bits."""
        return a


@instr("mov.u32 $d, $a;", name="mov_special", d="u32", a="special u32", counter="move", source=MOV)
def _mov_special(a: Array) -> Array:
    """d = a special register, such as %tid.x."""
    return a


@instr("mov.u32 $d, $a;", name="mov_symbol", d="u32", a="symbol", counter="move", source=MOV)
def _mov_symbol(a: Array) -> Array:
    """d = the address of a shared array, within shared memory."""
    return a


@instr("mov.b32 $d, {$a};", name="mov_pack_b32", d="b32", a="b16 x2", counter="alu", source=MOV)
def _pack_b32(a: Array) -> Array:
    """d = a[1]:a[0]; the first source is the lower half."""
    return np.ascontiguousarray(a).view(np.uint32)[..., 0]


@instr(
    "mov.b32 {$d}, $a;",
    name="mov_unpack_b32",
    d="b16 x2",
    a="b32 register",
    counter="alu",
    source=MOV,
)
def _unpack_b32(a: Array) -> Array:
    """d[0] = the lower half of a, d[1] the upper."""
    return np.ascontiguousarray(a)[..., None].view(np.uint16)


@instr("mov.b64 $d, {$a};", name="mov_pack_b64", d="b64", a="b32 x2", counter="alu", source=MOV)
def _pack_b64(a: Array) -> Array:
    """d = a[1]:a[0]."""
    return np.ascontiguousarray(a).view(np.uint64)[..., 0]


@instr(
    "mov.b64 {$d}, $a;",
    name="mov_unpack_b64",
    d="b32 x2",
    a="b64 register",
    counter="alu",
    source=MOV,
)
def _unpack_b64(a: Array) -> Array:
    """d[0] = the lower half of a, d[1] the upper."""
    return np.ascontiguousarray(a)[..., None].view(np.uint32)


for _type in ("b16", "b32", "b64", "u32", "s32", "u64", "s64", "f32"):

    @instr(
        f"selp.{_type} $d, $a, $b, $c;",
        d=_type,
        a=_type,
        b=_type,
        c="pred",
        counter="alu",
        source="PTX ISA, Comparison and Selection: selp",
    )
    def _selp(a: Array, b: Array, c: Array) -> Array:
        """d = c ? a : b."""
        return np.where(c, a, b)


@instr(
    "prmt.b32 $d, $a, $b, $c;",
    d="b32",
    a="b32",
    b="b32",
    c="b32",
    counter="alu",
    source="PTX ISA, Data Movement and Conversion: prmt (default mode)",
)
def _prmt(a: Array, b: Array, c: Array) -> Array:
    """Byte i of d is byte c[4i:4i+3] of b:a, or eight copies of its sign where c[4i+3] is set."""
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    result = np.zeros(np.broadcast_shapes(both.shape, c.shape), np.uint32)
    for byte in range(4):
        chosen = (c >> np.uint32(4 * byte)) & np.uint32(0xF)
        shift = ((chosen & np.uint32(7)) * np.uint32(8)).astype(np.uint64)
        value = ((both >> shift) & np.uint64(0xFF)).astype(np.uint32)
        sign = np.where(value & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        result |= np.where(chosen & np.uint32(8), sign, value) << np.uint32(8 * byte)
    return result


@instr(
    "cvta.to.global.u64 $d, $a;",
    d="u64",
    a="u64",
    counter="move",
    source="PTX ISA, Data Movement and Conversion: cvta",
)
def _cvta(a: Array) -> Array:
    """d = a generic address as one of global memory: the same number."""
    return a
