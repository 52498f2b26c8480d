"""Which expressions the laws name as examples: each law must fire while one of them saturates."""

from __future__ import annotations

from ..axes import Axis
from ..carriers import base_channels
from ..dtypes import f32, i32
from ..expressions import Expr, Tensor, exp, inf, lift, log, maximum, sqrt, tanh, where
from ..operators import OPERATORS
from ..representations import REPRESENTATIONS, Chart, Representation
from ..terms import Chan, State, make

m, n, d, e = Axis.many(m=6, n=12, d=4, e=3)
x = Tensor("x", (m, n), f32).expr
y = Tensor("y", (n,), f32).expr
g = Tensor("g", (m,), f32).expr
label = Tensor("label", (m,), i32).expr
v = Tensor("v", (n, e), f32).expr
w = Tensor("w", (n, m), f32).expr
a, b = Tensor("a", (m, d), f32).expr, Tensor("b", (n, d), f32).expr

scores = (a * b).sum(d) * lift(0.5)
masked = where(n.index <= m.index, scores, -inf)


def weights(s: Expr) -> Expr:
    """exp(s - max s) over n."""
    return exp(s - s.max(n))


# weighted sums, spelled in several ways
normalised = (weights(scores) / weights(scores).sum(n) * v).sum(n)
masked_normalised = (weights(masked) / weights(masked).sum(n) * v).sum(n)
unshifted = (exp(scores) * v).sum(n) / exp(scores).sum(n)
late_scale = (exp((x - x.max(n)) * lift(0.5)) * v).sum(n)
late_scale_left = (exp(lift(0.5) * (x - x.max(n))) * v).sum(n)
log_sum = log(exp(x).sum(n))
shifted_log_sum = x.max(n) + log(weights(x).sum(n))
against_log_sum = (v * exp(x - shifted_log_sum)).sum(n)
depth = x - x.max(n)
likely = weights(x) / weights(x).sum(n)
entropy_commuted = -(log(likely) * likely).sum(n)
entropy = -((weights(x) / weights(x).sum(n)) * log(weights(x) / weights(x).sum(n))).sum(n)

# sums over rows that may have no element left, where exp(-max) exp(max) does not cancel
peak = masked.max(n)
masked_weighted = (exp(masked) * v).sum(n)
masked_unshifted = masked_weighted / exp(masked).sum(n)
masked_log_sum = log(weights(masked).sum(n))
masked_against_left = (exp(masked - (peak + masked_log_sum)) * v).sum(n)
masked_against_right = (exp(masked - (masked_log_sum + peak)) * v).sum(n)
masked_returned = exp(peak) * (exp(-peak) * exp(masked).sum(n))
masked_gated = exp(-peak) * masked_weighted * g

top = maximum(x.max(n), g)
sink = (exp(x - top) * v).sum(n) / (exp(x - top).sum(n) + exp(g - top))
_tops = maximum(-g, maximum(maximum(x.max(n), g), -g))
two_sinks = (exp(x - _tops) * v).sum(n) / (exp(x - _tops).sum(n) + exp(g - _tops))

two_weights, two_more = weights(x) / weights(x).sum(n), g * weights(-x)

off = x - (weights(y) * x).sum(n) / weights(y).sum(n)
gain = x * x + 1.0
off_gain = x - (weights(y) * (gain * x)).sum(n) / (weights(y) * gain).sum(n)
at_peak = where(x == x.max(n), 1.0, 0.0)
mean = x.sum(n) / 12.0
centred = x - mean
variance = ((x - mean) * (x - mean)).sum(n) / 12.0
weighted_mean = (y * x).sum(n) / y.sum(n)
weighted_variance = (y * ((x - weighted_mean) * (x - weighted_mean))).sum(n)
scaled_product = ((x / sqrt((x * x).sum(n) / 12.0 + 1e-6)) * w).sum(n)
product = (x * w).sum(n)
squashed = tanh(x) * g
masked_weights = (where(n.index <= m.index, exp(x - g), 0.0) * v).sum(n)
masked_after = (where(n.index <= m.index, weights(x) / weights(x).sum(n), 0.0) * v).sum(n)
masked_exponent = exp(where(n.index <= m.index, x - g, -inf)).sum(n)
cooled = exp((x - g) / 2.0).sum(n)
total_of_constant = make("Red", make("Sum"), n, g)


def _by_head() -> dict[str, Expr]:
    """For each head of an expression, one that varies along n and has this head at the top."""
    found: dict[str, Expr] = {"Num": lift(2.0) + x, "Idx": n.index, "Load": x}
    found["Len"] = x + make("Len", n)
    for row in OPERATORS.values():
        operands = (n.index <= m.index, x, w) if row.name == "Where" else (x, w)[: row.arity]
        found[row.name] = make(row.name, *operands)
    found["Cast"] = x.cast(f32)
    found["Red"] = scores
    found["Mat"], found["Risk"] = make("Mat", x), make("Risk", x)
    found["Get"] = make("Get", *_fold_of(make("Ch", make("Sum"), a * b), d))
    return found


def _fold_of(channel: Chan, axis: Axis) -> tuple[State, Chan]:
    return make("Fold", axis, make("Flat"), make("Lift", (channel,))), channel


OF_HEAD = _by_head()


def _twisted(name: str, bases: tuple[Expr, ...], value: Expr) -> tuple[State, Chan]:
    """The flat fold over n of a twisted channel with its bases, and the channel."""
    below = base_channels(REPRESENTATIONS[name], bases)
    channel = make("Tw", make("Rep", name), below, value)
    return make("Fold", n, make("Flat"), make("Lift", (*below, channel))), channel


def _beside(name: str, bases: tuple[Expr, ...], value: Expr) -> Expr:
    """A plain sum over n in one fold with the folds of some bases."""
    below = base_channels(REPRESENTATIONS[name], bases)
    channel = make("Ch", make("Sum"), value)
    state = make("Fold", n, make("Flat"), make("Lift", (*below, channel)))
    found: Expr = make("Get", state, channel)
    return found


_positive = exp(y)
_one = lift(1.0)
_weighted = (_positive, _positive * x)
_weighted_centre = (_positive * x).sum(n) / _positive.sum(n)

# for each representation and chart, an expression on which its laws fire
_ORBITS = {
    ("Scale", "weighted"): (weights(x) * v).sum(n),
    ("Scale", "plain"): weights(x).sum(n),
    ("Affine", "plain"): (weights(x) * depth).sum(n),
    ("Affine", "weighted"): (weights(x) * (depth * v)).sum(n),
    ("Shift", "plain"): variance,
    ("Shift", "weighted"): (_positive * ((x - _weighted_centre) * (x - _weighted_centre))).sum(n),
    ("Shift", "plain-spread"): (w + (x - mean) * (x - mean)).sum(n),
    ("Center", "plain"): ((x - mean) * w).sum(n),
    ("Comoment", "plain"): ((x - mean) * (w - w.sum(n) / 12.0)).sum(n),
    ("Spread", "plain"): (weights(y) * (off * off)).sum(n),
    ("Spread", "weighted"): (weights(y) * (gain * (off_gain * off_gain))).sum(n),
    ("Select", "weighted"): (at_peak * v).sum(n),
    ("Select", "plain"): at_peak.sum(n),
}
_UNFOLDED = {
    ("Scale", "weighted"): make("Get", *_twisted("Scale", (x,), w)),
    ("Scale", "plain"): make("Get", *_twisted("Scale", (x,), _one)),
    ("Affine", "plain"): make("Get", *_twisted("Affine", (x, _one), lift(0.0))),
    ("Affine", "weighted"): make("Get", *_twisted("Affine", (x, w), lift(0.0))),
    ("Shift", "plain"): make("Get", *_twisted("Shift", (_one, x), lift(0.0))),
    ("Shift", "weighted"): make("Get", *_twisted("Shift", _weighted, lift(0.0))),
    ("Shift", "plain-spread"): make("Get", *_twisted("Shift", (_one, x), w)),
    ("Center", "plain"): make("Get", *_twisted("Center", (_one, x, w), lift(0.0))),
    ("Comoment", "plain"): make("Get", *_twisted("Comoment", (_one, x, w), lift(0.0))),
    ("Spread", "plain"): make("Get", *_twisted("Spread", (y, _one, x), lift(0.0))),
    ("Spread", "weighted"): make("Get", *_twisted("Spread", (y, gain, gain * x), lift(0.0))),
    ("Select", "weighted"): make("Get", *_twisted("Select", (x,), w)),
    ("Select", "plain"): make("Get", *_twisted("Select", (x,), _one)),
}
TRANSPORTED = {
    ("Scale", "weighted"): (exp(x) * v).sum(n),
    ("Scale", "plain"): exp(x).sum(n),
    ("Affine", "plain"): _beside("Affine", (x, _one), exp(x) * x),
    ("Affine", "weighted"): _beside("Affine", (x, w), exp(x) * (x * w)),
    ("Shift", "plain"): _beside("Shift", (_one, x), x * x),
    ("Shift", "weighted"): _beside("Shift", _weighted, _positive * (x * x)),
    ("Shift", "plain-spread"): _beside("Shift", (_one, x), w + x * x),
    ("Center", "plain"): _beside("Center", (_one, x, w), x * w),
    ("Comoment", "plain"): _beside("Comoment", (_one, x, w), x * w),
    ("Spread", "plain"): _beside("Spread", (y, _one, x), exp(y) * (x * x)),
    ("Spread", "weighted"): _beside("Spread", (y, gain, gain * x), exp(y) * (gain * (x * x))),
}


def orbit(rep: Representation, chart: Chart) -> Expr:
    """An expression on which the laws of a chart fire."""
    found = _ORBITS.get((rep.name, chart.name))
    if found is not None:
        return found
    selected: Expr = make("Red", make(rep.monoid), n, rep.act((x,), (x,), (x.max(n),), w))
    return selected


def unfolded(rep: Representation, chart: Chart) -> Expr:
    """A projection of the channel of a chart."""
    found: Expr | None = _UNFOLDED.get((rep.name, chart.name))
    if found is not None:
        return found
    projected: Expr = make("Get", *_twisted(rep.name, (x,), w))
    return projected


NARROWED = TILED = SHARED = normalised
