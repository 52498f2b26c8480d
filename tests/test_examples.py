"""The example file, at the shapes it states: every spelling becomes one safe pass."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from egraph_flash import evaluate, f16, optimize
from egraph_flash.carriers import bases_of, channels_of, is_twisted, lift_of
from egraph_flash.checking import compare, seeded_inputs
from egraph_flash.loading import load, read_arrays
from egraph_flash.terms import subterms
from examples import carriers, cross_entropy, online_softmax, welford
from examples.workloads import WORKLOADS
from tests.support.fresh import fresh_rng

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
    kernel = optimize(load(f"{FOLDER / 'decode.py'}:contiguous").expression, "sm_90")
    assert kernel.schedule["PACK"] == "on"
    assert "bracketing/grid" in kernel.derivation.steps[-1].laws
    assert "REDUCE@n" in kernel.schedule


def test_pages_of_a_cache_are_found() -> None:
    loaded = load(f"{FOLDER / 'decode.py'}:paged")
    kernel = optimize(loaded.expression, "sm_120", {"REDUCE": "s64"})
    arrays = seeded_inputs(loaded, kernel, seed=None)
    ((_, error),) = compare(loaded, kernel, arrays, kernel.run(backend="sim", **arrays))
    assert error.max_abs < 2e-3


def cells(shown: str) -> list[list[str]]:
    """The rows of the tables that a script printed."""
    lines = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line] for line in lines]


def test_online_softmax_shows_how_states_combine(capsys: pytest.CaptureFixture[str]) -> None:
    online_softmax.main()
    shown = capsys.readouterr().out
    assert "F = fold n {m: max x[m, n]; t: Scale[m] 1}" in shown
    assert "t = exp(m1 - max(m1, m2)) * t1 + exp(m2 - max(m1, m2)) * t2" in shown
    assert re.search(r"as written, in f32, inf; as derived, 100[5-9]\.\d+", shown)
    assert float(re.findall(r"at most (\S+) off", shown)[-1]) < 2e-4


def test_welford_keeps_its_digits(capsys: pytest.CaptureFixture[str]) -> None:
    welford.main()
    shown = capsys.readouterr().out
    assert "count = count1 + count2" in shown
    assert "{s1: Σ x[m, n]; s2: Σ 1; t: Shift[s2, s1] 0}" in shown
    errors = {mean: (float(ours), float(theirs)) for mean, ours, theirs in cells(shown)}
    assert errors["10,000"][0] < 1e-3 < 1.0 < errors["10,000"][1]
    assert errors["0"][0] < 1e-6


def test_cross_entropy_writes_no_logits(capsys: pytest.CaptureFixture[str]) -> None:
    cross_entropy.main()
    fused, cut = cells(capsys.readouterr().out)
    assert (fused[0], fused[1], cut[0]) == ("fold=fuse", "1", "fold=cut")
    logits_bytes = 4 * 64 * 1000
    states_bytes, stored_bytes = (int(row[3].replace(",", "")) for row in (fused, cut))
    assert states_bytes < logits_bytes / 10
    assert stored_bytes >= logits_bytes
    assert all(float(row[-1]) < 1e-5 for row in (fused, cut))


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.py")])
def test_scripts_say_how_they_are_run(name: str) -> None:
    """The first sentence says what one shows, and the commands below it name files that exist."""
    text = (FOLDER / f"{name}.py").read_text()
    said = ast.get_docstring(ast.parse(text)) or ""
    assert said.partition("\n")[0].endswith((".", "`."))
    for script in re.findall(r"python (examples/\w+\.py)", said):
        assert (FOLDER.parent / script).exists()
        assert 'if __name__ == "__main__":' in text
    for spec in re.findall(r"(examples/\w+\.py:\w+)", said):
        assert load(f"{FOLDER.parent / spec}").expression is not None


@pytest.fixture(scope="module")
def rows() -> list[carriers.Row]:
    return list(carriers.derived())


def test_workloads_take_one_pass_each(rows: list[carriers.Row]) -> None:
    assert [row.name for row in rows] == list(WORKLOADS)
    assert {row.name: row.passes for row in rows if row.passes != 1} == {}
    assert all(row.error < 1e-3 for row in rows)


def test_the_table_is_the_one_in_the_readme(rows: list[carriers.Row]) -> None:
    """All but what a GPU measured; `python examples/carriers.py --readme` writes it."""
    readme = carriers.README.read_text()
    assert carriers.within(readme, carriers.markdown(rows, carriers.measurements())) == readme


def test_the_table_takes_what_was_measured(rows: list[carriers.Row]) -> None:
    """µs of ours and of others where there are some, in columns of their own."""
    measured = {"rows": {"entropy": {"at": "4x9", "us": 12.34, "peers": {"torch": 56.78}}}}
    lines = carriers.markdown(rows, measured).splitlines()
    assert all(line.replace("\\|", "").count("|") == len(carriers.COLUMNS) + 4 for line in lines)
    (found,) = (line for line in lines if line.startswith("| entropy"))
    assert found.endswith("| 4x9 | 12.3 | torch 56.8 |")
    assert lines[2].endswith("|  |  |  |")


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_right_at_the_table_s_extents(name: str) -> None:
    """On inputs that are new each time, element by element."""
    row = WORKLOADS[name]
    outputs = row.outputs()
    kernel = optimize(outputs if len(outputs) > 1 else outputs[0], "sm_120", name=name)
    arrays = row.inputs(fresh_rng())
    results = kernel.run(backend="sim", **arrays)
    for spec, result, wanted in zip(
        kernel.outputs,
        results if len(outputs) > 1 else (results,),
        evaluate(outputs, arrays),
        strict=True,
    ):
        assert np.isfinite(wanted).all()
        within = 4e-3 if spec.dtype is f16 else 2e-5
        off = np.abs(spec.dtype.decode(result) - wanted)
        assert (off <= within * max(1.0, np.abs(wanted).max())).all()


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
