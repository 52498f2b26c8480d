"""How reals leave registers for global memory, rounded, in words as wide as alignment proves."""

from __future__ import annotations

from typing import Any

from ..dtypes import DTYPES, Dtype
from .context import Context
from .frames import Frame
from .memory import Element, access, grouped
from .ptx import Address, Register
from .values import Value


def store_values(
    ctx: Context, load: Any, value: Value, frame: Frame, only: Any, holds: Value | None
) -> None:
    """Write a value to where `load` would read it, rounded to its dtype, for places inside.

    `only` is a predicate that the storing threads satisfy besides, or None; `holds` one that the
    elements do.
    """
    dtype = DTYPES[load.args[0].args[1]]
    found = access(ctx, load, frame)
    columns = len(frame.column.offsets)
    runs = grouped(found, frame, dtype.size_bytes)
    if holds is not None and holds.kind in ("columns", "tile"):
        runs = [[element] for element in found.elements]  # neighbours need not agree
    for run in runs:
        words = [value.at(*element.place, columns) for element in run]
        guard = run[0].inside
        tests = [only, holds.at(*run[0].place, columns) if holds is not None else None]
        for test in tests:
            if test is not None:
                guard = test if guard is None else ctx.builder.op("and_pred", guard, test)
        _store_run(ctx, run, words, dtype, guard)


def _store_run(
    ctx: Context, run: list[Element], words: list[Any], dtype: Dtype, guard: Any
) -> None:
    b = ctx.builder
    if dtype.name == "f32":
        kind, packed = "f32", words
    elif len(words) == 1:
        kind, packed = "b16", [b.op(f"cvt_rn_{dtype.name}_f32", words[0])]
    else:
        kind, packed = (
            "b32",
            [pack(ctx, dtype.name, *words[i : i + 2]) for i in range(0, len(words), 2)],
        )
    vector = f"v{len(packed)}_" if len(packed) > 1 else ""
    b.put(
        f"st_global_{vector}{kind}",
        guard=guard,
        a=Address(run[0].base, run[0].offset_bytes),
        b=packed if len(packed) > 1 else packed[0],
    )


def pack(ctx: Context, dtype: str, low: Any, high: Any) -> Register:
    """Two reals rounded to 16 bits in one register, the first in the lower half."""
    return ctx.builder.op(f"cvt_rn_{dtype}x2_f32", high, low)
