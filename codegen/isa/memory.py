"""How memory is read and written: ld and st of one to four elements, ldmatrix, stmatrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..lanes import M8N8_B16
from ..ptx_types import VALUE_TYPES
from .machine import Array
from .machine import Memory as MemoryOf
from .row import instr

LD = "PTX ISA, Data Movement and Conversion: ld"
ST = "PTX ISA, Data Movement and Conversion: st"
WIDTHS = [("b16", 1), ("u32", 1), ("s32", 1), ("b32", 1), ("b64", 1), ("f32", 1)]
WIDTHS += [("b32", 2), ("b32", 4), ("f32", 2), ("f32", 4), ("b64", 2)]


def _loading(type: str, count: int) -> Callable[..., Array]:
    element = VALUE_TYPES[type].element

    def meaning(memory: MemoryOf, a: Array) -> Array:
        """d = the elements at address a, which is a multiple of their total size."""
        return memory.load(a, element, count)

    return meaning


def _storing(count: int) -> Callable[..., None]:
    def meaning(memory: MemoryOf, a: Array, b: Array) -> None:
        """The elements b go to address a, which is a multiple of their total size."""
        memory.store(a, b, count)

    return meaning


def _load_and_store(space: str, type: str, count: int) -> None:
    vector = f"v{count}." if count > 1 else ""
    braces = "{$%s}" if count > 1 else "$%s"
    spelling = f"{type} x{count}" if count > 1 else type
    size = VALUE_TYPES[type].bits // 8 * count
    load = _loading(type, count)
    for cached in ("", "nc.") if space == "global" else ("",):
        instr(
            f"ld.{space}.{cached}{vector}{type} {braces % 'd'}, [$a];",
            d=spelling,
            a=f"address {space}",
            counter=f"lsu_{space}",
            access_bytes=size,
            source=LD,
        )(load)
    instr(
        f"st.{space}.{vector}{type} [$a], {braces % 'b'};",
        a=f"address {space}",
        b=spelling,
        counter=f"lsu_{space}",
        access_bytes=size,
        source=ST,
    )(_storing(count))


for _space in ("global", "shared"):
    for _type, _count in WIDTHS:
        _load_and_store(_space, _type, _count)

for _type in ("u8", "u16"):  # into a wider register, zeros above

    def _narrow(memory: MemoryOf, a: Array, element: str = _type) -> Array:
        """d = the unsigned integer at address a."""
        return memory.load(a, np.dtype(element.replace("u", "uint")), 1).astype(np.uint32)

    instr(
        f"ld.global.nc.{_type} $d, [$a];",
        d="u32",
        a="address global",
        counter="lsu_global",
        access_bytes=int(_type[1:]) // 8,
        source=LD + " (operands wider than the instruction's type)",
    )(_narrow)

for _type in ("u32", "s32", "b32", "u64", "s64", "b64", "f32"):
    instr(
        f"ld.param.{_type} $d, [$a];",
        d=_type,
        a="address param",
        counter="constant",
        access_bytes=VALUE_TYPES[_type].bits // 8,
        source=LD,
    )(_loading(_type, 1))


def _ldmatrix(matrices: int, transposed: bool) -> None:
    def meaning(memory: MemoryOf, a: Array) -> Array:
        """Lane 8j + i gives row i of matrix j; register j of every lane holds two of its b16.

        Plain, lane l has row l/4 and columns 2·(l%4) + {0, 1}; `.trans`, the same of its
        transpose.
        """
        rows = memory.load_rows(a[:, : 8 * matrices])  # [warps, 8·matrices, 8]
        tiles = rows.reshape(len(rows), matrices, 8, 8)
        fragment = M8N8_B16.gather(tiles.swapaxes(2, 3) if transposed else tiles)
        words: Array = np.ascontiguousarray(fragment.swapaxes(1, 2)).view(np.uint32)[..., 0]
        return words if matrices > 1 else words[..., 0]

    trans = ".trans" if transposed else ""
    name = f"ldmatrix_x{matrices}{'_trans' if transposed else ''}"
    d = f"b32 x{matrices}" if matrices > 1 else "b32"
    instr(
        f"ldmatrix.sync.aligned.m8n8.x{matrices}{trans}.shared.b16 {{$d}}, [$a];",
        name=name,
        d=d,
        a="address shared",
        counter="lsu_shared",
        access_bytes=16,
        collective=True,
        source="PTX ISA, Warp-level Matrix Load: ldmatrix",
    )(meaning)


for _matrices in (1, 2, 4):
    _ldmatrix(_matrices, transposed=False)
    _ldmatrix(_matrices, transposed=True)


def _stmatrix(matrices: int, transposed: bool) -> None:
    def meaning(memory: MemoryOf, a: Array, b: Array) -> None:
        """Register j of every lane holds two b16 of matrix j, as ldmatrix gives them; its row i
        goes to the address of lane 8j + i."""
        words = b if matrices > 1 else b[..., None]  # [warps, 32, matrices]
        pairs = np.ascontiguousarray(words.swapaxes(1, 2))[..., None].view(np.uint16)
        tiles = M8N8_B16.scatter(pairs)  # [warps, matrices, 8, 8]
        rows = tiles.swapaxes(2, 3) if transposed else tiles
        memory.store_rows(a[:, : 8 * matrices], rows.reshape(len(b), 8 * matrices, 8))

    trans = ".trans" if transposed else ""
    instr(
        f"stmatrix.sync.aligned.m8n8.x{matrices}{trans}.shared.b16 [$a], {{$b}};",
        name=f"stmatrix_x{matrices}{'_trans' if transposed else ''}",
        a="address shared",
        b=f"b32 x{matrices}" if matrices > 1 else "b32 register",
        counter="lsu_shared",
        access_bytes=16,
        collective=True,
        sm=90,
        source="PTX ISA, Warp-level Matrix Store: stmatrix",
    )(meaning)


for _matrices in (1, 2, 4):
    _stmatrix(_matrices, transposed=False)
    _stmatrix(_matrices, transposed=True)
