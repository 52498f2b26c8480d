"""A monoid and a law of one's own, and the kernels that come out.

    python examples/own_law.py

The package has no log-sum-exp. Registered as a monoid it is a fold like any other, and weights
taken against it need the fold first: two passes. The law says that exp carries it to sums. Nothing
more is needed for one pass: the laws that are there do the rest, without a word of it in them.
"""

from __future__ import annotations

from egraph_flash import Axis, Expr, Monoid, Tensor, exp, f16, inf, log, maximum, optimize, register
from egraph_flash.checking import compare, seeded_inputs
from egraph_flash.errors import LawError
from egraph_flash.kernel import Kernel
from egraph_flash.loading import load
from egraph_flash.rules import rewrite
from egraph_flash.rules.patterns import E, k, reduce, total


def combine(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)), from values that may be far apart."""
    top = maximum(a, b)
    return top + log(exp(a - top) + exp(b - top))


LOG_ADD_EXP = Monoid("LogAddExp", "logsumexp", combine, identity=-inf)
OWN = register(LOG_ADD_EXP)  # until OWN.remove()

m, n, d, e = Axis.many(m=64, n=200, d=32, e=32)
q, keys, v = Tensor("q", (m, d), f16), Tensor("k", (n, d), f16), Tensor("v", (n, e), f16)
s = (q * keys).sum(d) * 32**-0.5
weighted = (exp(s - s.fold(LOG_ADD_EXP, n)) * v).sum(n)

x = E("x")
LAW = rewrite(
    "own/exp-of-log-sum",
    reduce(LOG_ADD_EXP, k, x),
    log(total(k, exp(x))),
    phase="homomorphism",
    source="exp(logsumexp(x)) = Σ exp(x)",
    example=s.fold(LOG_ADD_EXP, n),
)
WRONG = Monoid("Mean", "mean", lambda a, b: (a + b) / 2, identity=0.0)


def run(title: str) -> Kernel:
    """Compile, run on the simulator and compare with float64."""
    loaded = load(f"{__file__}:weighted")
    kernel = optimize(weighted, "sm_120", name=title)
    arrays = seeded_inputs(loaded, kernel, seed=1)
    ((_, error),) = compare(loaded, kernel, arrays, kernel.run(backend="sim", **arrays))
    print(f"{title}: passes {kernel.passes}, max |error| {error.max_abs:.0e}")
    return kernel


def main() -> None:
    run("the monoid alone")
    with register(LAW):
        kernel = run("with the law")
    print(*str(kernel.derivation).splitlines()[:-1], sep="\n")
    try:
        register(WRONG)
    except LawError as refused:
        print(f"refused: {refused}")


if __name__ == "__main__":
    main()
