"""Whether results are right: each element against float64, all of them against plain code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from egraph_flash import evaluate, where
from egraph_flash.dtypes import DTYPES, Array, Dtype
from egraph_flash.record import Spec
from tests.support.bounds import Rounding, bound

from .cases import Built, fold_of, order_of
from .plain import plain
from .steps import STEP, STEPS, Given, Size, dots, name_of

LSE = 1e-5  # relative, as the field asks of log-sum-exps
ENOUGH = 256  # different values, whose largest and mean error say something about a computation

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Verdict:
    """What is wrong with an output, in words."""

    output: str
    why: str

    def __str__(self) -> str:
        return f"{self.output}: {self.why}"


VAGUE = Verdict("all", "scores are so large that their own rounding changes weights by factors")
VAGUE_PART = 0.2  # of the largest element
VAGUE_FROM = 5.0  # of an exponent's error: past it weights leave the range of f16


def judge(
    built: Built, schedule: Mapping[str, str], specs: tuple[Spec, ...], given: Arrays, result: Any
) -> Verdict | None:
    """The first output that is wrong, or None. `given` and `result` as a kernel has them."""
    results = result if isinstance(result, tuple) else (result,)
    references = evaluate(tuple(built.meanings[name] for name in built.case.outputs), given,
                          lengths=_lengths(built))  # fmt: skip
    bounds = Bounds(built, schedule, given)
    if bounds.exponents > VAGUE_FROM:
        return VAGUE
    if any(
        bounds.is_vague(name, w) for name, w in zip(built.case.outputs, references, strict=True)
    ):
        return VAGUE
    for name, spec, got, wanted in zip(built.case.outputs, specs, results, references, strict=True):
        why = _wrong(bounds, name, spec.dtype, spec.dtype.decode(np.asarray(got)), wanted)
        if why:
            return Verdict(name, why)
    return None


def _lengths(built: Built) -> dict[str, int]:
    return {f"len_{axis}": getattr(built.case, axis) for axis in "bhgmnde"}


def _wrong(bounds: Bounds, name: str, dtype: Dtype, got: Array, wanted: Array) -> str | None:
    wanted = np.broadcast_to(wanted, got.shape)
    told = np.broadcast_to(bounds.told(name), got.shape)
    if (np.isnan(got) != np.isnan(wanted))[told].any():
        place = _first((np.isnan(got) != np.isnan(wanted)) & told)
        return f"got {got[place]} at {place}, wants {wanted[place]}"
    sure = told & ~np.isnan(wanted)
    with np.errstate(invalid="ignore"):
        off = np.where(got == wanted, 0.0, np.abs(got - wanted))
        bound = np.broadcast_to(bounds.of(name, dtype, wanted), got.shape)
        beyond = sure & ~(off <= bound)
    if beyond.any():
        place = _first(beyond)
        return (
            f"got {got[place]:.6g} at {place}, wants {wanted[place]:.6g}, "
            f"off by {off[place]:.3g}, at most {bound[place]:.3g}"
        )
    if name != "o" or np.unique(wanted).size < ENOUGH or not sure.all():
        return None
    return _against_plain(bounds.built, dtype, bounds.given, off, wanted, bounds.slack)


def _first(places: Array) -> tuple[int, ...]:
    return tuple(int(each[0]) for each in np.nonzero(places))


def _against_plain(
    built: Built, dtype: Dtype, given: Arrays, off: Array, wanted: Array, slack: float
) -> str | None:
    """FlashAttention's rule: no worse than the same computation in the inputs' own dtype, and
    what storing the result costs."""
    rounded = plain(built.meanings["o"], given, DTYPES[built.case.dtype], _lengths(built))
    with np.errstate(invalid="ignore"):
        theirs = np.abs(dtype.decode(dtype.encode(rounded)) - wanted)
    floor = np.abs(dtype.decode(dtype.encode(wanted + 0.3)) - 0.3 - wanted)
    times = 1.0
    rough = {step.head for step in built.case.steps} & {"cap", "tanh", "sigmoid", "log"}
    if built.case.dtype == "f32" and not rough:  # exp and sums may add to its own rounding
        times, slack = 8.0, 8 * STEP * float(np.abs(np.nan_to_num(wanted)).max())
    for what, ours, most in (
        ("largest", off.max(), times * theirs.max() + floor.max() + slack),
        ("mean", off.mean(), times * theirs.mean() + floor.mean() + slack),
    ):
        if ours > most:
            return f"the {what} error is {ours:.3g}, plain {built.case.dtype} has {most:.3g}"
    return None


class Bounds:
    """By how much each element may be off, from how its scores and weights are rounded."""

    def __init__(self, built: Built, schedule: Mapping[str, str], given: Arrays) -> None:
        self.built, self.given, case = built, given, built.case
        self.rounding = Rounding.of(schedule)
        reach = max(case.m, case.n)
        self.size = _size_of_scores(built, Given(given, schedule.get("TANH", "exp"), reach))
        rounds = [t for name, t in schedule.items() if name.startswith("TILE") and "mma" in t]
        narrow = DTYPES[case.dtype].unit_roundoff if rounds else 0.0
        ones = any(v == "ones" for k, v in schedule.items() if k.partition("@")[0] == "SUM")
        self.exponents = exponents = (
            4 * self.size.error + (4 * self.size.largest + case.n + 8) * STEP
        )
        self.of_weights = exponents + narrow
        self.of_totals = exponents + (narrow if ones else 0.0)
        values = _real(built, given, "v") if "v" in given else np.zeros(())
        self.slack = exponents * float(np.nan_to_num(np.abs(values)).max(initial=0.0))

    def of(self, name: str, dtype: Dtype, wanted: Array) -> Array:
        stored = 1.1 * dtype.unit_roundoff * np.abs(wanted)
        if fold_of(self.built.case, name) is not None:
            return np.asarray(np.where(np.isinf(wanted), 0.0, self._carried(name) + stored))
        if name in ("top", "lse"):
            within = LSE * np.maximum(np.abs(wanted), 1.0) + 4 * self.size.error
            within = within + (self.of_totals if name == "lse" else 0.0)
            return np.asarray(np.where(np.isinf(wanted), 0.0, within + stored))
        if name == "total":
            return np.asarray(self.of_totals * np.abs(wanted) + stored)
        spread, smallest = self._spread(name)
        within = (self.of_weights + self.of_totals) * spread + stored
        return np.asarray(within + np.where(spread == 0, 0.0, smallest))

    def is_vague(self, name: str, wanted: Array) -> bool:
        """Whether most elements of a fold may be off by a good part of the largest."""
        if fold_of(self.built.case, name) is None or not wanted.size:
            return False
        held = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
        return bool(np.median(self._carried(name)) > VAGUE_PART * max(held, 1e-30))

    def _carried(self, name: str) -> Array:
        """By how much a fold may be off, as errors are carried along its steps."""
        meaning = self.built.meanings[name]
        return bound(meaning, self.given, self.rounding, _lengths(self.built))

    def _spread(self, name: str) -> tuple[Array, float]:
        """Σ w |v|, and what weights and results lose where they are too small for their dtype."""
        values = np.abs(np.nan_to_num(_real(self.built, self.given, "v")))
        tensors = self.built.operands.tensors
        reals = {key: tensors[key].dtype.decode(array) for key, array in self.given.items()
                 if key in tensors}  # fmt: skip
        spread = evaluate(self.built.meanings[name], {**reals, "v": values},
                          lengths=_lengths(self.built))  # fmt: skip
        smallest = 2.0**-24 * (1 + self.built.case.n * float(values.max(initial=0.0)))
        return spread, smallest

    def told(self, name: str) -> Array:
        """Rows about which the meaning is told.

        Not those from which a mask, or a `where` of an operand, hides what is no number, and not
        those all of whose seen scores are -inf by the arithmetic of inputs, where a mask may hide
        everything, or where something is kept relative to their maximum alone: a kernel takes them
        for rows that see nothing.
        """
        case, o = self.built.case, self.built.operands
        if case.values != "wild":
            return np.asarray(True)
        if case.see_q is not None or case.see_v is not None:
            return np.asarray(False)
        key = np.isnan(_real(self.built, self.given, "k")).any(-1)  # [b, g, n]
        key = np.repeat(key, case.group, axis=1)[:, :, None, :]
        seen = np.ones((1, 1, 1, 1))
        if self.built.seen is not None:
            axes = tuple(o.axis(a) for a in "bhmn")
            zero = sum(axis.index * 0 for axis in axes)
            seen = self._meaning((where(self.built.seen, 1.0, 0.0) + zero).order(*axes))
        rows = ~(key & (seen == 0)).any(-1)  # [b, h, m]
        peak = self._meaning(self.built.peak)
        if self.built.seen is not None or (case.sink == "none" and name not in ("o", "top")):
            rows = rows & ~(np.isneginf(peak) & (seen != 0).any(-1) & (case.n > 0))
        if name in ("o", "sums"):
            places = ["bhme".index(axis) for axis in order_of(case, name)]
            return np.asarray(rows[..., None].transpose(places))
        return np.asarray(rows)

    def _meaning(self, expression: Any) -> Array:
        return np.asarray(evaluate(expression, self.given, lengths=_lengths(self.built)))


def _real(built: Built, given: Arrays, name: str) -> Array:
    return built.operands.tensors[name].dtype.decode(given[name])


def _size_of_scores(built: Built, given: Given) -> Size:
    reals = {name: built.operands.tensors[name].dtype.decode(array)
             for name, array in given.arrays.items() if name in built.operands.tensors}  # fmt: skip
    held = replace(given, arrays={name: np.nan_to_num(a, posinf=0.0, neginf=0.0)
                                  for name, a in reals.items()})  # fmt: skip
    x = held.arrays.get("x")
    size = dots(held.arrays) if x is None else Size(float(np.abs(x).max(initial=0.0)), 0.0)
    for place, step in enumerate(built.case.steps):
        size = STEPS[step.head].grow(size, step, held, name_of(step, place))
    if built.case.sink in ("heads", "rows"):
        size = size.plus(held.largest("sink"))
    return size
