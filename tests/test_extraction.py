"""The extracted term: few unsafe operations, few passes, equal to the naive one, pins honoured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Expr, Tensor, evaluate, exp, f16, f32, softmax
from egraph_flash.carriers import bases_of, channels_of, is_twisted, lift_of, tower_of
from egraph_flash.errors import ScheduleError
from egraph_flash.extraction import Extraction, bracket, extract
from egraph_flash.free import free
from egraph_flash.machines import MACHINES, machine
from egraph_flash.notation import text
from egraph_flash.shaping import flat_folds
from egraph_flash.terms import State, rewrite, subterms
from tests.support.members import inputs
from tests.support.renaming import renamed
from tests.support.workloads import WORKLOADS, attention

CHIP = machine("sm_120")
CUT = {"PLACE": "fold=cut"}
FUSE = {"PLACE": "fold=fuse"}

# (passes over n, unsafe operations) that each workload is known to need
EXPECTED = {
    "attention": (1, 0),
    "attention_causal": (1, 0),
    "attention_rows": (1, 0),
    "attention_grouped": (1, 0),
    "without_max": (1, 0),
    "divided_outside": (1, 0),
    "late_scale": (1, 0),
    "against_log_sum": (1, 0),
    "commuted": (1, 0),
    "sink": (1, 0),
    "gated": (1, 0),
    "gated_output": (1, 1),  # exp(-x) in the sigmoid is the user's own
    "gated_scores": (1, 1),
    "linear": (1, 0),
    "linear_features": (1, 0),
    "argmax_index": (1, 0),
    "best": (1, 0),
    "best_rows": (1, 0),
    "gated_attention": (1, 1),  # exp(-gate) in the sigmoid is the user's own
    "linear_attention": (1, 0),
    "decode_contiguous": (1, 0),
    "decode_paged": (1, 0),
    "sigmoid_scores": (1, 1),  # exp(-s) in the sigmoid is the user's own
    "masked_weights": (1, 0),
    "masked_then_scaled": (1, 0),
    "additive_mask": (1, 0),
    "kernel_regression": (1, 0),
    "row_softmax": (1, 0),
    "log_sum_exp": (1, 0),
    "log_sum_exp_plain": (1, 0),
    "log_sum_exp_masked": (1, 0),
    "cross_entropy_picked": (1, 0),
    "linear_cross_entropy_picked": (1, 0),
    "linear_cross_entropy": (1, 0),
    "cross_entropy": (1, 0),  # what one index picks cancels with nothing
    "entropy": (1, 0),  # its parts have one sign
    "collision": (1, 0),
    "variance": (1, 0),
    "weighted_variance": (1, 0),
    "softmax_variance": (1, 0),
    "weighted_spread": (1, 0),
    "mean_deviation": (2, 0),
    "squashed": (2, 0),
    "layer_norm": (1, 0),
    "layer_norm_gain": (1, 0),
    "covariance": (1, 0),
    "layer_norm_matmul": (1, 0),
    "rms_norm": (1, 0),
    "rms_norm_matmul": (1, 0),
    "mean_variance": (1, 0),
    "product": (1, 0),
    "paged": (1, 0),
    "two_outputs": (1, 0),
}


def _roots(name: str) -> tuple[Expr, ...]:
    made = WORKLOADS[name]()
    return made if isinstance(made, tuple) else (made,)


def _extract(name: str, pins: dict[str, str] | None = None) -> Extraction:
    return extract(_roots(name), CHIP, pins or {})


def _passes_over_n(found: Extraction) -> int:
    return sum(count for axis, count in found.passes_by_axis.items() if axis.name == "n")


@pytest.mark.parametrize("name", EXPECTED)
def test_passes_and_safety(name: str) -> None:
    found = _extract(name, FUSE)
    assert (_passes_over_n(found), found.unsafe) == EXPECTED[name]
    assert found.passes == sum(found.passes_by_axis.values())


FLASH = [
    "attention",
    "attention_causal",
    "without_max",
    "divided_outside",
    "commuted",
    "late_scale",
    "against_log_sum",
    "kernel_regression",
]


@pytest.mark.parametrize("name", FLASH)
def test_the_carrier_is_a_maximum_and_two_twisted_sums(name: str) -> None:
    """{max; Scale-twisted 1; Scale-twisted v}, in one fold with one base."""
    found = _extract(name)
    (state,) = flat_folds(found.roots)
    channels = channels_of(state)
    twisted = [channel for channel in channels if is_twisted(channel)]
    (base,) = [channel for channel in channels if not is_twisted(channel)]
    assert base.args[0].head == "Max"
    assert len(twisted) == 2
    assert all(bases_of(channel) == (base,) for channel in twisted)
    assert all(channel.args[0].args[0] == "Scale" for channel in twisted)
    assert {lift_of(channel).head for channel in twisted} == {"Num", "Load"}


def test_variance_is_one_pass_by_shift() -> None:
    found = _extract("variance")
    (state,) = flat_folds(found.roots)
    names = [c.args[0].args[0] for c in channels_of(state) if is_twisted(c)]
    assert names == ["Shift"]


def test_the_division_is_deferred_to_the_end() -> None:
    found = _extract("attention")
    lifts = [lift_of(c) for state in flat_folds(found.roots) for c in channels_of(state)]
    assert not any(node.head == "Div" for node in subterms(*lifts))


@pytest.mark.parametrize("pins", [FUSE, CUT], ids=["fuse", "cut"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_extracted_terms_are_equal(name: str, pins: dict[str, str], seed: int) -> None:
    """Numerically, element by element, and in the e-graph; towers of random blocks too."""
    found, random = _extract(name, pins), np.random.default_rng(seed)
    blocks = {axis: int(random.integers(1, 6)) for axis in found.passes_by_axis}
    shares = {axis: int(random.integers(1, 4)) for axis in blocks if random.integers(2)}
    arrays = inputs(found.naive, random)
    for terms in (found.roots, bracket(found, blocks, shares)):
        for root, term in zip(found.naive, terms, strict=True):
            _agree(term, root, arrays)


def _agree(term: Expr, root: Expr, arrays: Any) -> None:
    want, got = evaluate(root, arrays), evaluate(term, arrays)
    got = np.transpose(got, [term.axes.index(axis) for axis in root.axes])
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
    assert not np.isnan(want).any()


@pytest.mark.parametrize("target", MACHINES)
def test_grid_towers_are_members(target: str) -> None:
    """The law for the grid level exists; extraction does not choose it yet."""
    found = extract(_roots("attention"), machine(target), {})
    (axis,) = found.passes_by_axis
    (term,) = bracket(found, {axis: 2}, {axis: 3})
    levels = [tower_of(node) for node in subterms(term) if isinstance(node, State)]
    assert [name for _, name in max(levels, key=len)] == ["Grid", "Serial", "Tile"]


def test_a_tower_needs_a_positive_block() -> None:
    found = _extract("product")
    (axis,) = found.passes_by_axis
    with pytest.raises(ScheduleError, match="fold block of n: got 0, wants at least 1"):
        bracket(found, {axis: 0})


# ---- pins ----------------------------------------------------------------------------------------


def test_cut_stores_scores_and_statistics() -> None:
    """Form (a): a buffer of scores, then the maximum, the sum and the weighted sum read it."""
    found = _extract("attention", CUT)
    assert {axis.name: count for axis, count in found.passes_by_axis.items()} == {"d": 1, "n": 3}
    nodes = subterms(*found.roots)
    assert not any(node.head == "Tw" for node in nodes)
    assert all(len(channels_of(state)) == 1 for state in flat_folds(found.roots))
    stored = [node for node in nodes if node.head == "Mat"]
    assert sorted(len(free(node)) for node in stored) == [2, 2, 3]  # max, sum; scores


def test_cut_is_safe_without_a_maximum() -> None:
    found = _extract("without_max", CUT)
    assert found.unsafe == 0
    assert _passes_over_n(found) == 3


def test_fuse_stores_nothing() -> None:
    for name in ("attention", "linear_cross_entropy_picked", "block"):
        found = _extract(name, FUSE)
        assert not any(node.head == "Mat" for node in subterms(*found.roots))


@pytest.mark.parametrize(
    ("value", "near"), [("fold=both", "fold=fuse"), ("cut", "fold=cut"), ("x=cut", "fold=cut")]
)
def test_a_wrong_place_names_the_nearest(value: str, near: str) -> None:
    message = f"PLACE: got '{value}', wants fold=fuse or fold=cut; the nearest is '{near}'"
    with pytest.raises(ScheduleError, match=message):
        _extract("product", {"PLACE": value})


def test_an_unknown_target_names_the_known() -> None:
    with pytest.raises(
        ScheduleError, match="target: got 'sm_75', wants one of sm_120, sm_120a, sm_90, sm_90a"
    ):
        machine("sm_75")


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["attention_causal", "rms_norm_matmul", "entropy", "cross_entropy_picked"]
)
@pytest.mark.parametrize("letters", ["zz", "A", "softmax"])
def test_names_change_nothing(name: str, letters: str) -> None:
    """The same structure whatever axes and tensors are called."""
    (root,) = _roots(name)
    (other,), back = renamed((root,), (f"{letters}{999 - place}" for place in range(999)))
    for pins in ({}, CUT):
        mine = extract((root,), CHIP, pins)
        theirs = extract((other,), CHIP, pins)
        assert rewrite(theirs.term, back) is mine.term
        assert theirs.cost_us == mine.cost_us


# ---- choices -------------------------------------------------------------------------------------


def test_large_shapes_are_one_pass_on_both_machines() -> None:
    root = attention(h=8, m=4096, n=4096, d=64, e=64)
    for chip in MACHINES.values():
        found = extract((root,), chip, {})
        assert found.passes == 1
        assert found.unsafe == 0
        cut = extract((root,), chip, CUT)
        assert found.cost_us < cut.cost_us


def test_projections_go_through_memory_where_that_is_cheaper() -> None:
    """Keys that a fold would project again for each block of rows are stored."""
    found = extract((WORKLOADS["block"](h=8, q=2048, c=512, d=64),), machine("sm_90"), {})
    assert found.unsafe == 0
    assert any(node.head == "Mat" for node in subterms(*found.roots))


def test_a_symbolic_length() -> None:
    """One term serves every length."""
    n = Axis("n", "seq", hint=4096)
    m, d, e = Axis.many(m=64, d=16, e=16)
    q, k, v = (
        Tensor("q", (m, d), f16),
        Tensor("k", (n, d), f16),
        Tensor("v", (n, e), f16),
    )
    root = (softmax((q * k).sum(d) * 0.25, n) * v).sum(n)
    found = extract((root,), CHIP, {})
    assert (found.passes, found.unsafe) == (1, 0)
    (term,) = bracket(found, {n: 8})
    random = np.random.default_rng(0)
    for length in (1, 8, 13):
        arrays = {
            "q": random.standard_normal((64, 16)),
            "k": random.standard_normal((length, 16)),
            "v": random.standard_normal((length, 16)),
        }
        _agree(term, root, arrays)


def test_two_outputs_share_one_fold() -> None:
    found = _extract("two_outputs")
    assert len(flat_folds(found.roots)) == 1


def test_pointwise_terms_take_no_pass() -> None:
    (n,) = Axis.many(n=16)
    x = Tensor("x", (n,), f32)
    found = extract((exp(-abs(x)) * 2.0,), CHIP, {})
    assert (found.passes, found.unsafe) == (0, 0)


def test_extraction_prints_the_same_twice() -> None:
    assert text(_extract("sink").term) == text(_extract("sink").term)


def test_deep_terms_take_no_recursion() -> None:
    """A polynomial of degree 2^60, written with sixty squares."""
    m, n = Axis.many(m=2, n=5)
    term = Tensor("x", (m, n), f32).expr
    for _ in range(60):
        term = term * term + 0.5
    found = extract((term.sum(n),), CHIP, FUSE)
    assert found.passes == 1
