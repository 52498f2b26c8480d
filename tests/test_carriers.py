"""Every carrier is a commutative monoid: exactly over fractions, and in floats within a bound."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egraph_flash import Axis, Tensor, evaluate, exp, f32
from egraph_flash.carriers import (
    base_channels,
    bases_of,
    channels_of,
    closure,
    combine,
    identity,
    is_twisted,
    lift_of,
    monoid_of,
)
from egraph_flash.combination import derive
from egraph_flash.evaluation import Merge, Value
from egraph_flash.expressions import lift
from egraph_flash.extraction import extract
from egraph_flash.machines import machine
from egraph_flash.representations import REPRESENTATIONS
from egraph_flash.shaping import flat_folds
from egraph_flash.terms import make, variable
from tests.support.rationals import ABSENT, Exact, exactly
from tests.support.sums import assert_same_sums
from tests.support.workloads import WORKLOADS

State = dict[Any, Any]


def _channel(monoid: str, name: str) -> Any:
    return make("Ch", make(monoid), variable("Expr", name))


def _twisted(name: str, bases: tuple[Any, ...], lift: str) -> Any:
    return make("Tw", make("Rep", name), bases, variable("Expr", lift))


_top, _other = _channel("Max", "u"), _channel("Max", "w")
_count, _sum, _other_sum = (_channel("Sum", name) for name in "nxr")
_last = _twisted("SelectMax", (_top,), "w")
_weights, _weighed = (_twisted("Scale", (_top,), name) for name in ("one", "x"))

CARRIERS: dict[str, tuple[Any, ...]] = {
    "max": (_top,),
    "sum": (_sum,),
    "weighted sums": (_top, _twisted("Scale", (_top,), "one"), _twisted("Scale", (_top,), "v")),
    "sums of u exp(u)": (_top, _weights, _twisted("Affine", (_top, _weights), "zero")),
    "products of what is centred": (
        *(_count, _sum, _other_sum),
        _twisted("Center", (_count, _sum, _other_sum), "zero"),
        _twisted("Comoment", (_count, _sum, _other_sum), "zero"),
    ),
    "weighted moments": (
        *(_top, _weights, _weighed),
        _twisted("Spread", (_top, _weights, _weighed), "zero"),
    ),
    "two bases": (_top, _other, _twisted("Scale", (_top,), "a"), _twisted("Scale", (_other,), "b")),
    "what the largest have": (_top, _twisted("Select", (_top,), "v"), _last),
    "moments": (_count, _sum, _twisted("Shift", (_count, _sum), "zero")),
    "both": (
        _top,
        _count,
        _sum,
        _twisted("Scale", (_top,), "v"),
        _twisted("Shift", (_count, _sum), "zero"),
    ),
}

_dyadic = st.builds(lambda n, k: Fraction(n, 2**k), st.integers(-99, 99), st.integers(0, 6))
_weight = st.builds(lambda n, k: Fraction(n, 2**k), st.integers(1, 99), st.integers(0, 6))


@st.composite
def _state(draw: st.DrawFn, carrier: tuple[Any, ...]) -> State:
    """A state that elements can reach: where a base is the identity, so is all that it twists."""
    values: State = {}
    gone = draw(st.booleans()) and draw(st.booleans())
    for channel in closure(carrier):
        if is_twisted(channel):
            base = bases_of(channel)[0]
            absent = values[base] == (ABSENT if monoid_of(base) == "Max" else 0)
            drawn = draw(_weight if channel is _weights else _dyadic)
            values[channel] = exactly(identity(channel)) if absent else drawn
        elif monoid_of(channel) == "Max":
            values[channel] = ABSENT if gone else Fraction(draw(st.integers(-40, 40)))
        elif channel is _count:
            values[channel] = Fraction(0) if gone else draw(_weight)
        else:
            values[channel] = Fraction(0) if gone else draw(_dyadic)
    return values


@pytest.mark.parametrize("name", CARRIERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_carrier_is_a_commutative_monoid(name: str, data: st.DataObject) -> None:
    """Associativity, identity and commutativity, to the last digit."""
    plus = Exact(CARRIERS[name])
    a, b, c = (data.draw(_state(CARRIERS[name])) for _ in range(3))
    assert plus(plus(a, b), c) == plus(a, plus(b, c))
    assert plus(a, plus.identity) == a
    assert plus(plus.identity, a) == a
    assert plus(a, b) == plus(b, a)


def test_the_exact_test_would_notice_a_forgotten_rescale() -> None:
    plus = Exact(CARRIERS["weighted sums"])
    top, one, _ = closure(CARRIERS["weighted sums"])
    plus.terms[one] = plus.left[one] + plus.right[one]
    a, b = ({c: Fraction(i + 1) for c in plus.identity} for i in (0, 3))
    gone = plus.identity
    assert plus(a, gone) == a  # the identity does not see it
    assert plus(a, b)[top] == 4
    honest = Exact(CARRIERS["weighted sums"])
    assert plus(a, b)[one] != honest(a, b)[one]


# ---- those that workloads come to ----------------------------------------------------------------


def found_by(name: str) -> list[tuple[Any, ...]]:
    """The carriers of a workload's folds, bases first."""
    made = WORKLOADS[name]()
    roots = made if isinstance(made, tuple) else (made,)
    found = extract(roots, machine("sm_90"), {"PLACE": "fold=fuse"})
    return [closure(channels_of(state)) for state in flat_folds(found.roots)]


@st.composite
def _reached(draw: st.DrawFn, plus: Exact) -> State:
    """What up to three elements fold to; a lift that is no number may be any."""
    state = plus.identity
    for _ in range(draw(st.integers(0, 3))):
        lifts = {channel: lift_of(channel) for channel in plus.identity}
        element = {
            channel: Fraction(lift.args[0])
            if lift.head == "Num"
            else draw(st.integers(-9, 9).map(Fraction) if monoid_of(channel) == "Max" else _dyadic)
            for channel, lift in lifts.items()
        }
        state = plus(state, {c: _positive(c, v, plus.identity) for c, v in element.items()})
    return state


def _positive(channel: Any, value: Fraction, carrier: State) -> Fraction:
    """The value, larger than 0 where the mean of another channel is taken by it."""
    divides = any(
        each.args[0].args == ("Shift",) and bases_of(each)[0] is channel
        for each in carrier
        if is_twisted(each)
    )
    return abs(value) + Fraction(1, 2) if divides and value <= 0 else value


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_a_workload_folds_is_a_commutative_monoid(name: str) -> None:
    """Associativity, identity and commutativity, to the last digit, of every fold's state."""
    carriers = found_by(name)
    assert carriers

    @given(data=st.data())
    @settings(max_examples=20, deadline=None)
    def check(data: st.DataObject) -> None:
        for carrier in carriers:
            plus = Exact(carrier)
            a, b, c = (data.draw(_reached(plus)) for _ in range(3))
            assert plus(plus(a, b), c) == plus(a, plus(b, c))
            assert plus(a, plus.identity) == a == plus(plus.identity, a)
            assert plus(a, b) == plus(b, a)

    check()


def test_workloads_come_to_every_representation() -> None:
    names = ("attention", "entropy", "mean_variance")
    channels = [c for name in names for carrier in found_by(name) for c in carrier]
    assert {c.args[0].args[0] for c in channels if is_twisted(c)} == {"Scale", "Affine", "Shift"}


# ---- floats --------------------------------------------------------------------------------------

# A weight exp(m - M) carries the rounding of m - M, at most 745 before it underflows to 0; a state
# goes through two of them, and a sum of three has two additions. A weight below the normal numbers
# is off by as much as a subnormal step, whatever it weighs.
BOUND = 2 * 745 * 2.0**-53 + 8 * 2.0**-53
SMALLEST, STEP = 1e-300, 2 * 2.0**-1074

_magnitudes = st.one_of(
    st.floats(-1e3, 1e3),
    st.floats(-1e290, 1e290),
    st.floats(-1e-290, 1e-290),
    st.just(0.0),
)


@st.composite
def _floats(draw: st.DrawFn, carrier: tuple[Any, ...]) -> dict[Any, Value]:
    values: dict[Any, Value] = {}
    gone = draw(st.booleans()) and draw(st.booleans())
    for channel in closure(carrier):
        lost = gone
        if is_twisted(channel):
            lost = bool(values[bases_of(channel)[0]].absent)
        number = identity(channel) if lost else draw(_magnitudes)
        values[channel] = Value(np.asarray(number), (), np.asarray(lost))
    return values


@pytest.mark.parametrize("name", ["max", "sum", "weighted sums", "two bases"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_carrier_of_floats_is_one_within_a_bound(name: str, data: st.DataObject) -> None:
    """With huge and tiny magnitudes and absent states; the bound is relative to what was added."""
    carrier = CARRIERS[name]
    plus = Merge(closure(carrier), ())
    a, b, c = (data.draw(_floats(carrier)) for _ in range(3))
    one, other = plus(plus(a, b), c), plus(a, plus(b, c))
    for channel in closure(carrier):
        scale = sum(_contribution(channel, state, one) for state in (a, b, c))
        size = sum(abs(float(np.squeeze(s[channel].array))) for s in (a, b, c))
        bound = BOUND * scale + SMALLEST + (STEP * size if np.isfinite(size) else 0.0)
        error = _difference(one[channel], other[channel])
        assert error <= bound, (channel, error, bound)
        assert _difference(plus(a, b)[channel], plus(b, a)[channel]) <= bound
        assert _difference(plus(a, plus.identity)[channel], a[channel]) == 0
        assert _difference(plus(plus.identity, a)[channel], a[channel]) == 0


def _difference(x: Value, y: Value) -> float:
    """0 where both are the same, infinities included."""
    p, q = float(np.squeeze(x.array)), float(np.squeeze(y.array))
    return 0.0 if p == q else abs(p - q)


def _contribution(channel: Any, state: dict[Any, Value], whole: dict[Any, Value]) -> float:
    value = abs(float(np.squeeze(state[channel].array)))
    if not np.isfinite(value):
        return 0.0
    if not is_twisted(channel):
        return value
    base = bases_of(channel)[0]
    own, top = (float(np.squeeze(v[base].array)) for v in (state, whole))
    return 0.0 if own == -np.inf else value * float(np.exp(own - top))


@pytest.mark.parametrize("special", [np.inf, -np.inf])
def test_infinities_of_plain_channels(special: float) -> None:
    """Maxima and sums of infinities are what IEEE says, in any order."""
    for carrier in (CARRIERS["max"], CARRIERS["sum"]):
        plus = Merge(closure(carrier), ())
        (channel,) = carrier
        values = [special, 1.0, -2.0]
        states = [{channel: Value(np.asarray(v), (), np.asarray(False))} for v in values]
        a, b, c = states
        assert _difference(plus(plus(a, b), c)[channel], plus(a, plus(b, c))[channel]) == 0


# ---- the combine is derived ----------------------------------------------------------------------


@pytest.mark.parametrize("row", REPRESENTATIONS.values(), ids=lambda row: row.name)
def test_the_combine_is_derived(row: Any, seed: int) -> None:
    """Saturating the definition gives the combine that `carriers.combine` builds: as an equality
    of the e-graph, without unsafe exponentials, and numerically."""
    found = derive(row)
    lifts = [variable("Expr", f"base{place}") for place in range(len(row.monoids))]
    bases = base_channels(row, lifts)
    channel = make("Tw", make("Rep", row.name), bases, variable("Expr", "r"))
    left = {**dict(zip(bases, found.left, strict=True)), channel: found.x}
    right = {**dict(zip(bases, found.right, strict=True)), channel: found.y}
    built = combine([channel], left, right)[channel]
    assert found.equals(built)
    assert found.unsafe == 0
    random = np.random.default_rng(seed)
    loads = [*found.left, *found.right, found.x, found.y]
    for _ in range(20):
        draw = random.uniform if random.random() < 0.5 else random.integers  # which often tie
        arrays = {load.args[0].args[0]: np.asarray(float(draw(1, 4))) for load in loads}
        a, b = evaluate(built, arrays), evaluate(found.derived, arrays)
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_wrong_combine_is_not_derived() -> None:
    found = derive(REPRESENTATIONS["Scale"])
    assert not found.equals(found.x + found.y)


# ---- folds mean what they say --------------------------------------------------------------------


def test_folds_agree_with_their_closed_forms(seed: int) -> None:
    """A twisted sum is the weighted sum over the weight of its base; a shifted one the spread."""
    (n,) = Axis.many(n=9)
    u, v = Tensor("u", (n,), f32).expr, Tensor("v", (n,), f32).expr
    random = np.random.default_rng(seed)
    arrays = {"u": 30 * random.standard_normal(9), "v": random.standard_normal(9)}
    top = make("Ch", make("Max"), u)
    weighted = make("Tw", make("Rep", "Scale"), (top,), v)
    ones, total = make("Ch", make("Sum"), make("Num", 1.0)), make("Ch", make("Sum"), v)
    spread = make("Tw", make("Rep", "Shift"), (ones, total), make("Num", 0.0))
    deep = make("Tw", make("Rep", "Affine"), (top, weighted), make("Num", 0.0))
    weight, squares = exp(u - u.max(n)), (v - v.sum(n) / 9.0) * (v - v.sum(n) / 9.0)
    depths = weight * (u - u.max(n)) * v
    ones_at, sum_at = (make("Tw", make("Rep", "Scale"), (top,), r) for r in (lift(1.0), v))
    apart = make("Tw", make("Rep", "Spread"), (top, ones_at, sum_at), make("Num", 0.0))
    centred = v - (weight * v).sum(n) / weight.sum(n)
    for channel, summand in (
        (weighted, weight * v),
        (spread, squares),
        (deep, depths),
        (apart, weight * (centred * centred)),
    ):
        state = make("Fold", n, make("Flat"), make("Lift", closure((channel,))))
        got = evaluate(make("Get", state, channel), arrays)
        want, magnitude = (evaluate(each.sum(n), arrays) for each in (summand, abs(summand)))
        assert_same_sums(got, want, magnitude, relative=1e-12)


def test_closure_puts_bases_first() -> None:
    twisted = CARRIERS["weighted sums"][2]
    assert closure((twisted,)) == (_top, twisted)
    assert lift_of(twisted).args == ("v",)
    assert channels_of(make("Lift", (twisted, _top))) == make("Lift", (_top, twisted)).args[0]
