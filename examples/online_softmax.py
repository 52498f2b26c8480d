"""Online softmax, found: two passes over a row become one, and nobody wrote how states combine.

    python examples/online_softmax.py
    egraph-flash compile examples/online_softmax.py:log_sum_exp --emit derivation

The definition even leaves out the maximum, so that it overflows. A twist puts it back: the sum is
kept relative to the largest element so far, and rescaled when that moves.
"""

from __future__ import annotations

import numpy as np

from egraph_flash import Axis, Expr, Tensor, evaluate, exp, f32, log, optimize
from egraph_flash.carriers import channels_of, combine
from egraph_flash.notation import pretty
from egraph_flash.terms import subterms, variable

m, n = Axis.many(m=64, n=1000)
x = Tensor("x", (m, n), f32)

log_sum_exp = log(exp(x).sum(n))


def main() -> None:
    kernel = optimize(log_sum_exp, "sm_120")
    for step in kernel.derivation:
        print(step)

    (state,) = {node.args[0] for node in subterms(kernel.term) if node.head == "Get"}
    top, total = channels_of(state)
    one, other = ({top: _named(f"m{i}"), total: _named(f"t{i}")} for i in (1, 2))
    both = combine((top, total), one, other)
    print("\nderived too, the state of two parts of a row:")
    print(f"    m = {pretty(both[top])}\n    t = {pretty(both[total])}")

    x1000 = (np.random.default_rng(1).standard_normal((64, 1000)) + 1000).astype(np.float32)
    with np.errstate(over="ignore"):
        written = np.log(np.exp(x1000).sum(axis=1))
    found = kernel.run(backend="sim", x=x1000)
    wanted = evaluate(log_sum_exp, {"x": x1000.astype(np.float64) - 1000}) + 1000
    print(f"\nof numbers about 1000: as written, in f32, {written[0]}; as derived, {found[0]:.4f}")
    print(f"simulated, against float64: at most {np.abs(found - wanted).max():.0e} off")


def _named(name: str) -> Expr:
    named: Expr = variable("Expr", name)
    return named


if __name__ == "__main__":
    main()
