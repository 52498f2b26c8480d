"""One case: an expression with its shapes, dtypes, layouts and inputs, spelled in one line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from egraph_flash import exp, f32, inf, log, maximum, softmax, where
from egraph_flash.dtypes import DTYPES
from egraph_flash.terms import subterms

from . import masking
from .folds import FOLDS, Fold, Row, is_folded, tower_of
from .operands import Operands, axis_of
from .spelling import Part, read
from .steps import STEPS, name_of

OUTPUTS = ("o", "lse", "top", "total", "sums")
SOURCES = ("dots", "x")
SINKS = ("none", "zero", "heads", "rows")
VALUES = ("normal", "peaked", "large", "wild", "alike")


@dataclass(frozen=True)
class Case:
    """softmax over n of bent, masked scores, times v; fields are the keys of its spelling.

    `g` heads of keys serve `h` of queries. `outputs`: o, the log-sum-exp, the maximum, the sum of
    weights and the unnormalised o, all but the first in f32; or a fold of `folds.FOLDS`, or the
    `tower` that is spelled. Scores are products of q and k, or an input x as it is, as `source`
    says. `cast` is the dtype of o, `order` that of its axes; `lay` says how tensors lie, by name,
    `open` which axes have lengths of a call.
    `see_q` and `see_v` are predicates where these operands are not 0. With a `twin` its bits are
    compared with those of a kernel that moves its data in the plainest way.
    """

    dtype: str = "f16"
    b: int = 1
    h: int = 2
    g: int = 2
    m: int = 16
    n: int = 16
    d: int = 16
    e: int = 16
    source: str = "dots"
    steps: tuple[Part, ...] = ()
    mask: Part | None = None
    sink: str = "none"
    tower: Part | None = None
    outputs: tuple[str, ...] = ("o",)
    cast: str = "same"
    order: str = "bhme"
    open: str = "none"
    lay: tuple[tuple[str, str], ...] = ()
    values: str = "normal"
    see_q: Part | None = None
    see_v: Part | None = None
    twin: str = "no"

    def __str__(self) -> str:
        """What `read_case` reads back as this case: all that is not as usual."""
        given = [(row.name, getattr(self, row.name)) for row in fields(self)]
        usual = Case()
        words = [f"{n}={_spell(v)}" for n, v in given if v != getattr(usual, n)]
        return " ".join(words) or "dtype=f16"

    @property
    def group(self) -> int:
        return self.h // self.g

    def is_open(self, axis: str) -> bool:
        return self.open != "none" and axis in self.open


def _spell(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(f"{a[0]}:{a[1]}" if isinstance(a, tuple) else str(a) for a in value)
    return str(value)


def _pair(text: str) -> tuple[str, str]:
    name, _, lay = text.partition(":")
    return name, lay


_READ: dict[str, Any] = {
    "steps": lambda text: tuple(map(read, text.split("+"))),
    **dict.fromkeys(("mask", "see_q", "see_v", "tower"), read),
    "outputs": lambda text: tuple(text.split("+")),
    "lay": lambda text: tuple(map(_pair, text.split("+"))),
    **dict.fromkeys("bhgmnde", int),
}


def read_case(text: str) -> Case:
    """The case that a text spells; ValueError for a key that there is none of.

    >>> str(read_case("m=5 steps=scale:0.5+cap:30 mask=not(causal) lay=q:turned"))
    'm=5 steps=scale:0.5+cap:30 mask=not(causal) lay=q:turned'
    """
    known = {row.name for row in fields(Case)}
    given = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name not in known or not value:
            raise ValueError(f"case: got {word!r}, wants one of {', '.join(sorted(known))} =value")
        given[name] = _READ.get(name, str)(value)
    return Case(**given)


# ---- what it computes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """The expressions of a case: all outputs by name, each before it is stored in some dtype, and
    the mask (None where all is seen)."""

    case: Case
    operands: Operands
    meanings: dict[str, Any]
    seen: Any | None
    peak: Any  # the largest score of a row, [b, h, m]

    @property
    def expression(self) -> Any:
        """What is compiled: the case's outputs, in their dtypes."""
        made = tuple(self._stored(name) for name in self.case.outputs)
        return made[0] if len(made) == 1 else made

    def _stored(self, name: str) -> Any:
        meaning, cast = self.meanings[name], self.case.cast
        if name == "o" and cast == "same":
            return meaning
        dtype = DTYPES[cast] if name == "o" else f32
        return meaning.expr.cast(dtype).order(*meaning.axes)

    def tensors(self) -> set[str]:
        """The names of those that the outputs read."""
        nodes = subterms(*(self.meanings[name].expr for name in self.case.outputs))
        return {str(node.args[0]) for node in nodes if node.head == "Array"}


def build(case: Case) -> Built:
    sizes = {axis: getattr(case, axis) for axis in "bhgmnde"}
    axes = {name: axis_of(name, size, case.is_open(name)) for name, size in sizes.items()}
    dtype = DTYPES[case.dtype]
    o = Operands(axes, case.group, dtype)
    for name, part in (("q", case.see_q), ("v", case.see_v)):
        if part is not None:
            o.seen[name] = masking.visible(part, o)
    s = o.scores() if case.source == "dots" else o.tensor("x", "bhmn", dtype).expr
    for place, step in enumerate(case.steps):
        s = STEPS[step.head].build(s, step, o, name_of(step, place))
    seen = None if case.mask is None else masking.visible(case.mask, o)
    z = s if seen is None else where(seen, s, 0.0)
    s = s if seen is None else where(seen, s, -inf)
    peak = s.max(o.axis("n")).order(*(o.axis(a) for a in "bhm"))
    n = o.axis("n")
    count = n.length if case.is_open("n") else float(case.n)
    return Built(case, o, _meanings(case, o, Row(o, s, z, count)), seen, peak)


def _sink(case: Case, o: Operands) -> Any:
    if case.sink == "none":
        return None
    return 0.0 if case.sink == "zero" else o.tensor("sink", {"heads": "h", "rows": "hm"}[case.sink])


def fold_of(case: Case, name: str) -> Fold | None:
    """The fold that an output is, where it is none of those of weighted sums."""
    if name == "tower" and case.tower is not None:
        part = case.tower
        return Fold(name, "bhm" if is_folded(part) else "bhmn", lambda row: tower_of(part, row))
    return FOLDS.get(name)


def _meanings(case: Case, o: Operands, row: Row) -> dict[str, Any]:
    s, n, extra = row.s, o.axis("n"), _sink(case, o)
    values = (softmax(s, n, extra=extra) * o.values).sum(n)
    top = s.max(n) if extra is None else maximum(s.max(n), extra)
    weights = exp(s - top)
    total = weights.sum(n) if extra is None else weights.sum(n) + exp(extra - top)
    found = {"o": values, "lse": top + log(total), "top": top, "total": total}
    found["sums"] = (weights * o.values).sum(n)
    folds = [fold for fold in (fold_of(case, name) for name in case.outputs) if fold is not None]
    found |= {fold.name: fold.make(row) for fold in folds}
    return {
        name: value.order(*(o.axis(a) for a in order_of(case, name)))
        for name, value in found.items()
    }


def order_of(case: Case, output: str) -> str:
    """The axes of an output as its array has them."""
    fold = fold_of(case, output)
    if fold is not None:
        return fold.axes
    return case.order if output == "o" else "bhme" if output == "sums" else "bhm"
