"""Reductions of scores that cases may ask for: those that libraries have, and any towers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from egraph_flash import exp, log, maximum, softmax, sqrt, tanh, where

from .operands import Operands
from .spelling import Part


@dataclass(frozen=True)
class Row:
    """What a fold reduces, [b, h, m, n]: `s` is -inf where a mask hides, `z` 0; `count` is how many
    elements there are along n."""

    o: Operands
    s: Any
    z: Any
    count: Any

    def total(self, x: Any) -> Any:
        return x.sum(self.o.axis("n"))

    def mean(self, x: Any) -> Any:
        return self.total(x) / self.count

    @property
    def probabilities(self) -> Any:
        return softmax(self.s, self.o.axis("n"))

    @property
    def centred(self) -> Any:
        return self.z - self.mean(self.z)

    @property
    def normed(self) -> Any:
        return self.centred / sqrt(self.mean(self.centred * self.centred) + 1e-5)

    @property
    def scaled(self) -> Any:
        return self.z / sqrt(self.mean(self.z * self.z) + 1e-6)

    @property
    def log_sum(self) -> Any:
        return log(self.total(exp(self.s)))

    def picked(self, x: Any) -> Any:
        """Where the row's label stands."""
        label = self.o.integers("label", "bhm")
        return where(label.expr == self.o.axis("n").index, x, 0.0)


@dataclass(frozen=True)
class Fold:
    """An output of a case by name: its axes, and how it is made of a row."""

    name: str
    axes: str
    make: Callable[[Row], Any]


def _surprise(row: Row) -> Any:
    """Cross-entropy, spelled by a logarithm of probabilities."""
    return -row.total(row.picked(1.0) * log(row.probabilities))


def _weighted_spread(row: Row) -> Any:
    weight = row.o.tensor("weight", "bn").expr
    weight = weight * weight + 0.5
    apart = row.z - row.total(weight * row.z) / row.total(weight + row.z * 0.0)
    return row.total(weight * apart * apart) / row.total(weight + row.z * 0.0)


def _gated(row: Row) -> Any:
    gate = 1.0 / (1.0 + exp(-row.o.tensor("gate", "bhn").expr))
    return row.total(row.probabilities * gate * row.o.values)


def _linear(row: Row) -> Any:
    weight = maximum(row.z, 0.0) + exp(-maximum(-row.z, 0.0))
    return row.total(weight * row.o.values) / row.total(weight)


def _activated(row: Row) -> Any:
    y = row.total(row.z * row.o.values) * 0.25 + row.o.tensor("shift", "e")
    return 0.5 * y * (1.0 + tanh(0.8 * y))


FOLDS: dict[str, Fold] = {
    row.name: row
    for row in (
        Fold("probs", "bhmn", lambda row: row.probabilities),
        Fold("logsum", "bhm", lambda row: row.log_sum),
        Fold("surprise", "bhm", _surprise),
        Fold("picked", "bhm", lambda row: row.log_sum - row.total(row.picked(row.z))),
        Fold("entropy", "bhm",
             lambda row: -row.total(row.probabilities * log(row.probabilities))),
        Fold("collision", "bhm", lambda row: row.total(row.probabilities * row.probabilities)),
        Fold("mean", "bhm", lambda row: row.mean(row.z)),
        Fold("variance", "bhm", lambda row: row.mean(row.centred * row.centred)),
        Fold("spread", "bhm", _weighted_spread),
        Fold("deviation", "bhm", lambda row: row.mean(abs(row.centred))),
        Fold("normed", "bhmn", lambda row: row.normed),
        Fold("scaled", "bhmn", lambda row: row.scaled),
        Fold("normedsum", "bhme", lambda row: row.total(row.normed * row.o.values)),
        Fold("scaledsum", "bhme", lambda row: row.total(row.scaled * row.o.values)),
        Fold("gatedsum", "bhme", _gated),
        Fold("linear", "bhme", _linear),
        Fold("product", "bhme", lambda row: row.total(row.z * row.o.values)),
        Fold("activated", "bhme", _activated),
    )
}  # fmt: skip

# ---- towers --------------------------------------------------------------------------------------

FOLDING = ("mean", "top")
UNARY: dict[str, Callable[[Any], Any]] = {
    "soft": lambda x: exp(-abs(x)),
    "tanh": tanh,
    "square": lambda x: x * x * 0.1,
    "half": lambda x: x * 0.5,
    "neg": lambda x: -x,
    "root": lambda x: sqrt(abs(x) + 1.0),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": maximum,
    "over": lambda a, b: a / (1.0 + abs(b)),
    "exp": lambda a, b: a * exp(-abs(b)),
}


def tower_of(part: Part, row: Row) -> Any:
    """Pointwise arithmetic over means and maxima of such arithmetic; `z` is the row itself."""
    if part.head == "z":
        return row.z
    below = [tower_of(each, row) for each in part.below]
    if part.head in FOLDING:
        return row.mean(below[0]) if part.head == "mean" else below[0].max(row.o.axis("n"))
    return (UNARY if len(below) == 1 else BINARY)[part.head](*below)


def is_folded(part: Part) -> bool:
    """Whether no element stands outside of every fold."""
    return part.head in FOLDING or (part.head != "z" and all(map(is_folded, part.below)))


def folds_rows(part: Part) -> bool:
    """Whether every fold goes over elements of the row, and not over what is folded already."""
    folded = part.head in FOLDING and is_folded(part.below[0])
    return not folded and all(map(folds_rows, part.below))
