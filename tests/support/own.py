"""Monoids of one's own: some that are, and some of which a claim fails."""

from __future__ import annotations

from typing import Any

from egraph_flash import Monoid, exp, inf, log, maximum, minimum, sqrt, where


def _log_add_exp(a: Any, b: Any) -> Any:
    top = maximum(a, b)
    return top + log(exp(a - top) + exp(b - top))


def _any(a: Any, b: Any) -> Any:
    return where((a != 0.0) | (b != 0.0), 1.0, 0.0)


def _truth(x: Any) -> Any:
    return (x == 0.0) | (x == 1.0)


MIN = Monoid("Min", "min", minimum, inf)
PROD = Monoid("Prod", "Π", lambda a, b: a * b, 1.0)
LOG_ADD_EXP = Monoid("LogAddExp", "logsumexp", _log_add_exp, -inf)
ANY = Monoid("Any", "any", _any, 0.0, domain=_truth)
PARITY = Monoid("Parity", "parity", lambda a, b: a + b - 2.0 * a * b, 0.0)
NORM = Monoid("Norm", "norm", lambda a, b: sqrt(a * a + b * b), 0.0, domain=lambda x: x >= 0.0)
OWN = (MIN, PROD, LOG_ADD_EXP, ANY, PARITY, NORM)

# what is wrong, and what the refusal says of it
WRONG: dict[str, tuple[Monoid, str]] = {
    "mean": (
        Monoid("Mean", "mean", lambda a, b: (a + b) / 2.0, 0.0),
        r"monoid Mean: it is not associative: combine\(combine\(a, b\), c\) = 0.5, but "
        r"combine\(a, combine\(b, c\)\) = 0.25 at a = 0, b = 0, c = 1",
    ),
    "first": (
        Monoid("First", "first", lambda a, b: where(a == 7.5, b, a), 7.5),
        r"it is not commutative: combine\(a, b\) = 0, but combine\(b, a\) = 1 at a = 0, b = 1",
    ),
    "wrong identity": (
        Monoid("Least", "min", minimum, 1e5),
        r"100000 is not its identity: combine\(100000, a\) = 100000, but a = 1e\+30 at a = 1e\+30",
    ),
    "no domain": (
        Monoid("Either", "any", _any, 0.0),
        r"0 is not its identity: combine\(0, a\) = 1, but a = -1 at a = -1",
    ),
    "only on a part": (
        Monoid("Apart", "apart", lambda a, b: abs(a - b), 0.0, domain=lambda x: x >= 0.0),
        r"it is not associative: .* at a = 1, b = 1, c = 2",
    ),
    "leaves its domain": (
        Monoid("Small", "small", lambda a, b: a + b, 0.0, domain=lambda x: x <= 2.0),
        r"it leaves its domain: domain\(combine\(a, b\)\) = 0, but true = 1 at a = 1, b = 2",
    ),
    "empty domain": (
        Monoid("Empty", "empty", lambda a, b: a + b, 0.0, domain=lambda x: x == 7.0),
        r"its domain holds for 0 of \d+ sampled values, wants two or more",
    ),
    "identity outside": (
        Monoid("Upper", "max", maximum, -inf, domain=lambda x: x >= 0.0),
        "its identity -inf lies outside of its domain",
    ),
    "taken by a monoid": (Monoid("Sum", "Σ", lambda a, b: a + b, 0.0), "Sum: the name is taken"),
    "taken by an operator": (Monoid("Or", "any", _any, 0.0), "monoid Or: the name is taken"),
    "taken by the engine": (Monoid("Unit", "min", minimum, inf), "Unit: the name is taken"),
}
