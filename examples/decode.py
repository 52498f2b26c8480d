"""Decoding: one new row a sequence on a long cache, in one piece or in pages, and what splits cost.

    python examples/decode.py
    egraph-flash compile examples/decode.py:contiguous --emit derivation
    egraph-flash run examples/decode.py:paged --seed 1 --backend sim

Nothing here asks for a special kernel. Blocks share the fold over the cache because one row gives
them nothing else to share, and heads that read the same keys are rows of one tile.
"""

from __future__ import annotations

import numpy as np

from egraph_flash import Axis, Expr, Tensor, bf16, f16, i32, inf, optimize, softmax, where
from egraph_flash.checking import compare, seeded_inputs
from egraph_flash.dtypes import Array
from egraph_flash.loading import load
from egraph_flash.printing import table

# A step of a model with 32 query heads on 8 heads of keys, 32,768 tokens of context each.
b, h, g, n, d, e = Axis.many(b=8, h=32, g=8, n=1 << 15, d=128, e=128)
q, k, v = (
    Tensor("q", (b, h, d), bf16),
    Tensor("k", (b, g, n, d), bf16),
    Tensor("v", (b, g, n, e), bf16),
)
scores = (q * k[b, h // 4, n, d]).sum(d) * 128**-0.5
contiguous = (softmax(scores, n) * v[b, h // 4, n, e]).sum(n)

# A small cache in pages of 16 rows that any sequence may own, and lengths that a call gives.
B, SIZE, PAGE, PAGES = 3, 200, 16, 64
sequence, head, row, column = Axis.many(sequence=B, head=8, row=SIZE, column=32)
group, depth, page, slot = Axis.many(group=2, depth=32, page=PAGES, slot=PAGE)
of = Axis("of", -(-SIZE // PAGE))
owned, count = Tensor("owned", (sequence, of), i32), Tensor("count", (sequence,), i32)


def cached(name: str, axis: Axis) -> Expr:
    """An element of the cache: which page, which row of it, which head."""
    pool = Tensor(name, (page, slot, group, axis), f16)
    return pool[owned[sequence.index, row // PAGE], row % PAGE, head // 4, axis]


close = (Tensor("q", (sequence, head, depth), f16) * cached("k", depth)).sum(depth) * 32**-0.5
close = where(row.index < count[sequence.index], close, -inf)
paged = (softmax(close, row) * cached("v", column)).sum(row)


def pages(rng: np.random.Generator) -> dict[str, Array]:
    """A pool whose pages belong to sequences in no order, of 1, 77 and all 200 rows."""
    pool = {name: rng.standard_normal((PAGES, PAGE, 2, 32)).astype(np.float16) for name in "kv"}
    return {
        **pool,
        "q": rng.standard_normal((B, 8, 32)).astype(np.float16),
        "owned": rng.permutation(PAGES)[: B * of.size].reshape(B, -1).astype(np.int32),
        "count": np.array([1, 77, SIZE], np.int32),
    }


INPUTS = {"paged": pages}


def main() -> None:
    kernel = optimize(contiguous)
    print(kernel.derivation.steps[-1], end="\n\n")
    for knob in ("PACK", "REDUCE@n"):
        print(f"{knob}={kernel.schedule[knob]}")
    rows = []
    for splits in (1, 2, 4, 8, 16):
        cost = optimize(contiguous, pins={"PACK": "on", "REDUCE": f"g{splits}"}).cost
        rows.append((splits, 64 * splits, f"{cost.total_us:.0f}"))
    table(f"splits on {kernel.cost.machine}", ["splits", "blocks", "predicted us"], rows)

    loaded = load(f"{__file__}:paged")
    small = optimize(paged, pins={"REDUCE": "s64"})
    arrays = seeded_inputs(loaded, small, seed=1)
    out = small.run(backend="sim", **arrays)
    ((_, error),) = compare(loaded, small, arrays, out)
    print(f"pages, simulated, against float64: at most {error.max_abs:.1e} off")


if __name__ == "__main__":
    main()
