"""What the laws make of naive definitions: one pass each, and the carrier that it folds.

    python examples/carriers.py
    egraph-flash compile examples/carriers.py:entropy --emit derivation

Nobody named these reductions to the compiler. A channel `Scale[m] v` is a sum of v exp(s) kept
relative to the maximum m; `Affine[m, t]` one of s exp(s), `Shift[n, s]` one of squares about the
mean, `Spread[m, t, s]` one of such squares times exp(s), and `Center[n, s, r]` one of products with
what is centred. `SelectMax[m] v` is the maximum of v where s is m.
"""

from __future__ import annotations

from egraph_flash import (
    Axis,
    Expr,
    Tensor,
    argmax,
    exp,
    f16,
    f32,
    i32,
    log,
    optimize,
    softmax,
    sqrt,
    where,
)
from egraph_flash.carriers import channels_of
from egraph_flash.checking import compare, seeded_inputs
from egraph_flash.loading import load
from egraph_flash.notation import pretty
from egraph_flash.printing import table
from egraph_flash.terms import subterms

m, n, d, e = Axis.many(m=32, n=1000, d=64, e=64)
x, label = Tensor("x", (m, n), f32).expr, Tensor("label", (m,), i32)
p = softmax(x, n)
centred = x - x.sum(n) / n.size

log_sum_exp = log(exp(x).sum(n))
entropy = -(p * log(p)).sum(n)
collision = (p * p).sum(n)
cross_entropy = -(where(label.expr == n.index, 1.0, 0.0) * log(p)).sum(n)
largest = argmax(x, n)
value = Tensor("value", (m, n), f32)
apart = value - (p * value).sum(n)
softmax_variance = (p * (apart * apart)).sum(n)
variance = (centred * centred).sum(n) / n.size
layer_norm = centred / sqrt(variance + 1e-5)

row, column = Axis("row", 64), Axis("column", 64)
hidden, weight = Tensor("hidden", (row, n), f16).expr, Tensor("weight", (n, column), f16)
norm = sqrt((hidden * hidden).sum(n) / n.size + 1e-6)
rms_norm_product = (hidden / norm * weight).sum(n).cast(f32)
off = hidden - hidden.sum(n) / n.size
deviation = sqrt((off * off).sum(n) / n.size + 1e-5)
layer_norm_product = ((off / deviation * weight).sum(n) * n.size**-0.5).cast(f32)

INPUTS = {
    "cross_entropy": lambda rng: {
        "x": rng.standard_normal((32, 1000)).astype("float32"),
        "label": rng.integers(0, 1000, 32).astype("int32"),
    }
}
NAMES = (
    *("log_sum_exp", "entropy", "collision", "cross_entropy"),
    *("largest", "softmax_variance", "variance", "layer_norm"),
    *("rms_norm_product", "layer_norm_product"),
)


def channels(term: Expr) -> str:
    """The channels of the one fold of a term."""
    (state,) = {node.args[0] for node in subterms(term) if node.head == "Get"}
    return "; ".join(pretty(channel) for channel in channels_of(state))


def main() -> None:
    rows = []
    for name in NAMES:
        loaded = load(f"{__file__}:{name}")
        kernel = optimize(loaded.expression, "sm_120", name=name)
        arrays = seeded_inputs(loaded, kernel, seed=1)
        ((_, error),) = compare(loaded, kernel, arrays, kernel.run(backend="sim", **arrays))
        naive = kernel.derivation.steps[0].passes
        rows.append((name, channels(kernel.term), naive, kernel.passes, f"{error.max_abs:.0e}"))
    columns = ["expression", "carrier", "naive passes", "passes", "max |error|"]
    table("derived for sm_120, simulated", columns, rows, words=2)


if __name__ == "__main__":
    main()
