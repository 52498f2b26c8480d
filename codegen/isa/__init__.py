"""Which instructions there are: every row as an attribute, `isa.fma_rn_f32.bind(d=…, a=…, …)`.

A row's name is its mnemonic with underscores, except where a mnemonic has several forms or a
shorter name is usual (`mma_m16n8k16_f16`, `ldmatrix_x4_trans`, `mov_special`).
"""

from __future__ import annotations

import difflib

from . import (  # noqa: F401
    atomics,
    bulk,
    control,
    convert,
    copies,
    float32,
    halves,
    integer,
    logic,
    mbarrier,
    memory,
    moves,
    tensor,
    warp,
)
from .row import COUNTERS, ROWS, Instr, instr, rows_of

__all__ = ["COUNTERS", "ROWS", "Instr", "instr", "rows_of"]


def __getattr__(name: str) -> Instr:
    if name in ROWS:
        return ROWS[name]
    near = difflib.get_close_matches(name, ROWS, n=3)
    raise AttributeError(
        f"isa: got instruction {name!r}, which the table lacks; near it: {', '.join(near)} "
        "(codegen/isa)"
    )
