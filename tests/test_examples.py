"""The example file, at the shapes it states: every spelling becomes one safe pass."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from egraph_flash import optimize
from egraph_flash.carriers import bases_of, channels_of, is_twisted, lift_of
from egraph_flash.checking import compare, seeded_inputs
from egraph_flash.loading import load, read_arrays
from egraph_flash.terms import subterms

FOLDER = Path(__file__).parent.parent / "examples"
FILE = FOLDER / "attention.py"
SPELLINGS = ("attention", "causal", "no_maximum", "divided_inside", "commuted")


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_has_the_same_carrier(name: str) -> None:
    """{max; exp-twisted 1; exp-twisted v}, in one pass, with nothing that can overflow."""
    loaded = load(f"{FILE}:{name}")
    kernel = optimize(loaded.expression, "sm_120", name=name)
    assert kernel.passes == len(kernel.plan.launches) == 1
    assert kernel.derivation.steps[-1].unsafe == 0
    (state,) = {node.args[0] for node in subterms(*kernel.terms) if node.head == "Get"}
    channels = channels_of(state)
    (peak,) = (channel for channel in channels if not is_twisted(channel))
    assert peak.args[0].head == "Max"
    twisted = [channel for channel in channels if is_twisted(channel)]
    assert all(channel.args[0].args == ("Scale",) for channel in twisted)
    assert all(bases_of(channel) == (peak,) for channel in twisted)
    assert sorted(repr(lift_of(channel)) for channel in twisted) == ["1", "v[b, h, n, e]"]


@pytest.mark.parametrize("name", [*SPELLINGS, "minilm"])
def test_the_first_choice_assembles_without_spills(name: str) -> None:
    kernel = optimize(load(f"{FILE}:{name}").expression, "sm_120", name=name)
    assert [entry.spill_bytes for entry in kernel.assembly.entries] == [0]


def test_the_real_file_beats_plain_f16() -> None:
    loaded = load(f"{FILE}:minilm")
    kernel = optimize(loaded.expression, "sm_120", name="minilm")
    arrays = read_arrays(FOLDER / "data" / "minilm_layer3_qkv.npz")
    found = compare(loaded, kernel, arrays, kernel.run(backend="sim", **arrays))
    (_, ours), (who, plain) = found
    assert who == "plain f16"
    assert ours.max_abs <= plain.max_abs
    assert ours.mean_abs <= plain.mean_abs
    assert np.isfinite(ours.max_abs)


def test_decoding_is_packed_and_shared_unasked() -> None:
    kernel = optimize(load(f"{FOLDER / 'decode.py'}:contiguous").expression, "sm_120")
    assert kernel.schedule["PACK"] == "on"
    assert "bracketing/grid" in kernel.derivation.steps[-1].laws
    assert "REDUCE@n" in kernel.schedule


def test_pages_of_a_cache_are_found() -> None:
    loaded = load(f"{FOLDER / 'decode.py'}:paged")
    kernel = optimize(loaded.expression, "sm_120", {"REDUCE": "s64"})
    arrays = seeded_inputs(loaded, kernel, seed=None)
    ((_, error),) = compare(loaded, kernel, arrays, kernel.run(backend="sim", **arrays))
    assert error.max_abs < 2e-3


def test_carriers_are_those_of_one_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """As printed: each expression, its passes as written and as derived, and its error."""
    from examples import carriers

    carriers.main()
    shown = capsys.readouterr().out
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    found = {cells[0].strip(): cells[2:] for cells in rows if cells[0].strip()}
    assert set(found) == set(carriers.NAMES)
    assert all(int(passes) == 1 for _, passes, _ in found.values())
    assert all(float(error) < 2e-3 for *_, error in found.values())


def test_a_law_of_ones_own_saves_a_pass(capsys: pytest.CaptureFixture[str]) -> None:
    from examples import own_law

    try:
        own_law.main()
        kernel = optimize(load(f"{FOLDER / 'own_law.py'}:weighted").expression, "sm_120")
        assert kernel.passes == 2  # the law was there for a block
    finally:
        own_law.OWN.remove()
    alone, with_law, *derivation, refused = capsys.readouterr().out.splitlines()
    for line, passes in ((alone, 2), (with_law, 1)):
        found = re.search(r"passes (\d), max \|error\| (\S+)$", line)
        assert found is not None
        assert (int(found[1]), float(found[2]) < 1e-3) == (passes, True)
    assert any("own/exp-of-log-sum" in line for line in derivation)
    assert derivation[-1].strip() == "1 / F.t2 * F.t1"
    assert refused.startswith("refused: monoid Mean: it is not associative")


def test_factorizations_are_counted_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of a softmax with its product: the chosen term is the best of those in a sample."""
    pytest.importorskip("matplotlib")
    from examples import explore

    picture = tmp_path / "members.svg"
    explore.main([f"{FILE}:causal", "--members", "60", "--plot", str(picture)])
    shown = capsys.readouterr().out
    terms = [int(number.replace(",", "")) for number in re.findall(r"high │ +([\d,]+) │", shown)]
    assert terms == sorted(terms)
    assert terms[-1] > 100
    for family in ("naive: passes 3", "twist: passes 2", "absorption: passes 1, unsafe 0"):
        assert family in shown
    chosen = re.search(r"60 terms at random; chosen: 1 passes, ([\d.]+) µs", shown)
    assert chosen is not None
    least = re.findall(r"│ \d+ passe?s? +│ (?:yes|no) +│ +\d+ │ +([\d.]+) │", shown)
    assert least
    assert float(chosen[1]) <= min(map(float, least))
    assert picture.read_text().lstrip().startswith("<?xml")
