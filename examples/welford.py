"""Welford's variance, found: squares about a mean that moves, in one pass and without cancelling.

    python examples/welford.py
    egraph-flash compile examples/welford.py:variance --emit derivation

The definition takes two passes, one for the mean and one for the squares about it. The textbook's
single pass, E[x²] - E[x]², loses every digit where the mean is large; the one that the laws find
keeps the sum of squares relative to the mean so far, and moves it when that moves.
"""

from __future__ import annotations

import numpy as np

from egraph_flash import Axis, Expr, Tensor, evaluate, f32, optimize
from egraph_flash.carriers import channels_of, combine
from egraph_flash.notation import pretty
from egraph_flash.printing import table
from egraph_flash.terms import subterms, variable

m, n = Axis.many(m=32, n=1000)
x = Tensor("x", (m, n), f32)

centred = x - x.sum(n) / n.size
variance = (centred * centred).sum(n) / n.size


def main() -> None:
    kernel = optimize(variance, "sm_120")
    for step in kernel.derivation:
        print(step)

    (state,) = {node.args[0] for node in subterms(kernel.term) if node.head == "Get"}
    channels = channels_of(state)
    names = {channel: ["sum", "count", "squares"][place] for place, channel in enumerate(channels)}
    one, other = ({c: _named(f"{name}{i}") for c, name in names.items()} for i in (1, 2))
    print("\nderived too, the state of two parts of a row:")
    for channel, value in combine(channels, one, other).items():
        print(f"    {names[channel]} = {pretty(value)}")

    rows = []
    for mean in (0, 100, 10_000):
        given = (np.random.default_rng(1).standard_normal((32, 1000)) + mean).astype(np.float32)
        wanted = evaluate(variance, {"x": given})
        found = kernel.run(backend="sim", x=given)
        squares, means = (given * given).mean(axis=1), given.mean(axis=1)
        errors = (np.abs(each - wanted).max() for each in (found, squares - means * means))
        rows.append((f"{mean:,}", *(f"{error:.0e}" for error in errors)))
    table("largest error, of a variance of 1", ["mean", "derived", "E[x²] - E[x]² in f32"], rows)


def _named(name: str) -> Expr:
    named: Expr = variable("Expr", name)
    return named


if __name__ == "__main__":
    main()
