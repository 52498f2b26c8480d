"""How an index moves along an axis, beside what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, i32
from egraph_flash.codegen.stepping import Stepping, stepping
from tests.support.fresh import fresh_rng

B, N = Axis.many(b=3, n=96)
TABLE = Tensor("table", (B, Axis("of", 96)), i32)

STEPS = {
    "itself": (N.index + 5, Stepping(1)),
    "another axis": (B.index * 7, Stepping(0)),
    "pages": (N // 16, Stepping(0, 16)),
    "slots": (N % 16, Stepping(1, 16)),
    "a share's": ((B.index * 32 + N.index) % 16, Stepping(1, 16)),
    "looked up": (TABLE[B, N // 8], Stepping(0, 8)),
    "flat": (TABLE[B, N // 8] * 8 + N % 8, Stepping(1, 8)),
    "two sizes": (N // 24 + N % 16, Stepping(1, 8)),
    "every other": (N * 2, Stepping(2)),
}


@pytest.mark.parametrize("name", STEPS)
def test_an_index_moves_as_it_says(name: str) -> None:
    """Inside of an aligned run each step is the same."""
    index, says = STEPS[name]
    assert stepping(index.expr, N) == says
    table = fresh_rng().integers(0, 1000, (B.size, 96)).astype(np.int32)
    given = {"table": table} if name in ("looked up", "flat") else {}
    found = evaluate(index, given)
    along = found if found.ndim == 2 else np.broadcast_to(found, (B.size, *found.shape[-1:]))
    if N in index.expr.axes:
        runs = along.reshape(B.size, -1, says.run or N.size)
        assert (np.diff(runs, axis=-1) == says.step).all()


@pytest.mark.parametrize(
    "index", [TABLE[B, N], (N * 3) // 16, (N.index + 1) // 16, (N // 16) * N.index]
)
def test_an_index_without_steps(index: Any) -> None:
    """Rows found one by one, runs that are not aligned, products of indices."""
    assert stepping(index.expr, N) is None
