"""The fuzzer: what it spells reads back, what it judges is judged well, and a few cases are run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from egraph_flash import optimize
from egraph_flash.cli import main
from egraph_flash.dtypes import Dtype, bf16, boolean, f16, f32, i32
from egraph_flash.errors import ScheduleError
from egraph_flash.notation import text
from tests.fuzz import __main__ as fuzzer
from tests.fuzz import report, trials
from tests.fuzz.cases import Case, build, read_case
from tests.fuzz.drawing import KINDS, drawn
from tests.fuzz.folds import FOLDS
from tests.fuzz.inputs import arrays
from tests.fuzz.judging import judge
from tests.fuzz.laying import AROUND, LAYS, fits, lay
from tests.fuzz.shrinking import shrunk
from tests.fuzz.trials import Outcome, Trial, read_trial, run

PARTS, EACH = 8, 3
FILE = "tests/fuzz/case.py"
USUAL = "m=20 n=24 d=16 e=16 steps=scale:0.25 mask=causal outputs=o+lse+total"


@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_cases_are_right_or_refused(part: int, seed: int) -> None:
    for trial in drawn(EACH, seed):
        outcome = run(trial)
        assert not outcome.is_failure, f"{outcome.kind}: {outcome.why}\n{trial}"


# cases that were wrong once, as small as they got; each repair has a test of its own besides
FOUND = (
    Trial(read_case("n=0 h=4 g=2")),
    Trial(
        read_case("g=1 m=38 n=32 mask=or(and(lt(max(at:n,num:36),div:8(at:m)),window:5:1),causal)")
    ),
    Trial(read_case("m=8 n=14 mask=not(and(keep:hmn,le(at:b,at:m))) outputs=total open=bmn")),
    Trial(read_case("m=8 n=9 mask=documents open=n")),
    Trial(read_case("m=59 n=1 d=32 e=96 lay=v:sliced:1:6")),
    Trial(
        read_case("h=4 m=1 n=1 d=256 mask=window:12:all outputs=lse open=m lay=k:sliced:1:6"),
        pins={"TILE@d": "a:mma_m16n8k16_f16/w2x1/f1x4/k4", "STAGE": "d0", "SKEW": "off"},
    ),
    Trial(read_case("h=1 g=1 m=1 n=0 d=80 e=32 steps=add:0.5 outputs=lse open=n")),
    Trial(read_case("h=1 g=1 m=130 e=64 steps=alibi mask=causal outputs=lse")),
    Trial(read_case("h=16 g=8 m=5 n=3 mask=and(causal,length) outputs=lse")),
    Trial(read_case("m=37 n=64 d=64 steps=scale:0.125+alibi mask=causal outputs=lse open=n")),
    Trial(
        read_case(
            "n=32 d=32 e=32 steps=cap:5.0 mask=le(at:n,add(at:m,num:40)) outputs=o+lse twin=yes"
        ),
        pins={"TILE@d": "a:mma_m16n8k16_f16/w1x1/f1x4/k2", "EXP": "fold"},
    ),
    Trial(
        read_case("h=1 g=1 m=1 n=1 mask=le(sub(num:18,div:5(sub(at:m,at:n))),div:9(mod:3(at:b)))"),
        pins={"SKEW": "on"},
    ),
    Trial(
        read_case("b=3 m=9 n=64 d=40 e=16 steps=bias:bmn:bf16 mask=prefix:60 lay=k:sliced:1:6"),
        pins={"PLACE": "fold=cut"},
    ),
    Trial(
        read_case("d=48 e=48 sink=heads values=wild"),
        pins={"TILE@d": "a:fma_f32/w4x1/f1x16/k8", "EXP": "poly4"},
    ),
    Trial(
        read_case("m=15 n=70 d=96 e=16 steps=bias:mn:f16"),
        pins={
            "TILE@d": "a:mma_m16n8k16_f16/w2x1/f2x8/k4",
            "HOIST": "shared",
            "STAGE@k": "d0",
            "STAGE@v": "d2/cp/ring",
            "SKEW": "on",
        },
    ),
    Trial(read_case("h=5 g=1 m=12 n=24 d=32 e=32 mask=length"), pins={"ROLES": "producer"}),
    Trial(
        read_case("h=5 g=1 m=9 n=17 d=48 e=80 steps=cap:50.0 mask=documents cast=f32 values=alike"),
        pins={"PLACE": "fold=cut"},
    ),
    Trial(
        read_case("m=11 n=57 d=48 mask=not(lt(at:n,num:24)) outputs=surprise values=peaked"),
        pins={"TILE": "a:mma_m16n8k16_f16/w1x1/f1x4/k2"},
    ),
    Trial(read_case("dtype=f32 m=11 n=39 d=48 outputs=scaled open=n"), pins={"REDUCE": "g2"}),
    Trial(read_case("dtype=bf16 m=5 n=30 d=40 outputs=probs+normed values=peaked")),
)


@pytest.mark.parametrize("trial", FOUND, ids=lambda trial: str(trial.case).replace(" ", ","))
def test_what_was_wrong_once_is_right(trial: Trial, seed: int) -> None:
    outcome = run(replace(trial, seed=seed))
    assert outcome.kind == "right", outcome.why


@pytest.mark.gpu
def test_drawn_cases_are_right_on_a_gpu(seed: int) -> None:
    assert fuzzer.main(["-n", str(PARTS * EACH), "--backend", "gpu", "--seed", str(seed)]) == 0


# ---- spelling ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(trial=KINDS["all"])
def test_what_repeats_a_case_reads_back_as_it(trial: Trial) -> None:
    """The same case, so the same expression to the last term; the same pins and inputs."""
    again = read_trial(str(trial))
    assert (again.case, again.target, dict(again.pins), again.seed) == (
        trial.case, trial.target, dict(trial.pins), trial.seed,
    )  # fmt: skip
    made, other = build(trial.case), build(again.case)
    assert text(made.meanings["o"].expr) == text(other.meanings["o"].expr)
    for name, array in arrays(made, np.random.default_rng(again.seed)).items():
        found = arrays(other, np.random.default_rng(again.seed))[name]
        assert array.tobytes() == found.tobytes()
        assert array.strides == found.strides


@pytest.mark.parametrize(
    "wrong", ["m", "m=", "size=3", "mask=(causal)", "mask=and(causal", "mask=not(causal)x", "m=a"]
)
def test_what_spells_no_case(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"got|invalid literal"):
        read_case(wrong)


def test_commands_that_repeat_no_case() -> None:
    with pytest.raises(ValueError, match="wants a command of `egraph-flash run`"):
        read_trial("egraph-flash run examples/attention.py:causal --target sm_90")


# ---- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYS)
@pytest.mark.parametrize("dtype", [f16, bf16, f32, i32, boolean], ids=str)
def test_arrays_lie_in_poison(kind: str, dtype: Dtype) -> None:
    shape = (2, 3, 5, 8)
    view = lay(kind, shape, dtype)
    assert view.shape == shape
    assert fits(kind, view.ndim)
    assert view.strides[-1] == view.itemsize
    whole: Any = view
    while getattr(whole, "base", None) is not None:  # as_strided has an object in between
        whole = whole.base
    poisoned = dtype.storage.type(0) != whole
    assert poisoned[AROUND:-AROUND].any()
    view[...] = 0
    touched = 2 * 5 * 8 if kind == "expanded" else view.size
    assert np.count_nonzero(poisoned) - np.count_nonzero(whole) == touched
    assert poison_is(dtype, whole[whole != 0])


def poison_is(dtype: Dtype, values: Any) -> bool:
    """Whether all of these are what no result survives."""
    if dtype.is_real:
        return bool(np.isnan(dtype.decode(values)).all())
    return bool((values > 2**29).all()) if dtype.is_integer else bool(values.all())


def test_past_given_lengths_there_is_nothing_but_nan() -> None:
    made = build(read_case("b=3 n=40 steps=scale:0.5+bias:bn:f32 mask=and(causal,length)"))
    found = arrays(made, np.random.default_rng(0))
    for batch, length in enumerate(found["length"]):
        for name, along in (("k", found["k"][batch]), ("v", found["v"][batch])):
            assert np.isnan(along[:, length:]).all(), name
            assert np.isfinite(along[:, :length]).all(), name
        assert np.isnan(found["bias1"][batch, length:]).all()


# ---- judging -------------------------------------------------------------------------------------


Spoil = Callable[..., None]


def judged(spelled: str, spoil: Spoil | None = None) -> str:
    """What the judge says of a right result, and of one that something was done to."""
    made = build(read_case(spelled))
    kernel = optimize(made.expression, "sm_120")
    given = arrays(made, np.random.default_rng(3))
    result = kernel.run(backend="sim", **given)
    assert judge(made, kernel.schedule, kernel.outputs, given, result) is None
    if spoil is not None:
        spoil(*(result if isinstance(result, tuple) else (result,)))
    return str(judge(made, kernel.schedule, kernel.outputs, given, result))


def nudge(array: Any, by: float) -> None:
    array[0, 1, 7] += np.asarray(by, array.dtype)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda o, lse, total: nudge(o, 0.01), r"o: got .* at \(0, 1, 7, 0\), wants"),
        (lambda o, lse, total: o.fill(np.nan), "o: got nan at"),
        (lambda o, lse, total: o.fill(0), "o: got 0 at"),
        (lambda o, lse, total: nudge(lse, 5e-4), r"lse: got .* at \(0, 1, 7\), wants"),
        (lambda o, lse, total: nudge(lse, np.inf), r"lse: got inf"),
        (lambda o, lse, total: nudge(total, 0.01), r"total: got .* at \(0, 1, 7\), wants"),
    ],
    ids=["o", "nan", "zero", "lse", "infinite", "total"],
)
def test_the_judge_notices(spoil: Spoil, says: str) -> None:
    found = judged(USUAL, spoil)
    assert re.match(says, found), found


@pytest.mark.parametrize("fold", sorted(FOLDS))
def test_the_judge_notices_what_a_fold_leaves_out(fold: str) -> None:
    """A right result, and one without what the last of 24 elements holds."""

    case = f"dtype=f32 h=1 g=1 m=5 n=24 source=x outputs={fold}"

    def forget(result: Any) -> None:
        made = build(read_case(case))
        given = arrays(made, np.random.default_rng(3))
        given["x"][..., -1] = 0.0
        result[...] = optimize(made.expression, "sm_120").run(backend="sim", **given)

    assert judged(case) == "None"
    assert re.match(rf"{fold}: got .* at \(0, 0, ", judged(case, forget))


def test_scores_too_large_to_be_told_are_not_judged() -> None:
    outcome = run(Trial(read_case("h=4 m=1 n=15 e=128 steps=square values=large"), seed=256))
    assert outcome.kind == "unjudged"
    assert not outcome.is_failure


def test_f32_is_judged_as_f32() -> None:
    """Weights of 11 bits are no f32, though each element is within what its scores allow."""

    made = build(read_case("dtype=f32 m=64 n=64 steps=scale:0.25"))
    kernel = optimize(made.expression, "sm_120")
    given = arrays(made, np.random.default_rng(3))
    result = kernel.run(backend="sim", **given)
    assert judge(made, kernel.schedule, kernel.outputs, given, result) is None
    result[...] = result.astype(np.float16)
    found = str(judge(made, kernel.schedule, kernel.outputs, given, result))
    assert re.match(r"o: (the (largest|mean) error|got)", found), found


def test_without_pins_nothing_may_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ScheduleError("it needs 123456 bytes, more than the 101376 there are")

    monkeypatch.setattr(trials, "optimize", refuse)
    assert run(Trial(Case())).kind == "unexplained"
    assert run(Trial(Case(), pins={"SKEW": "on"})).kind == "refused"


def test_rows_that_see_nothing_are_exactly_nothing() -> None:
    def spoil(o: Any, lse: Any) -> None:
        assert (lse[:, :, :4] == -np.inf).all()
        o[0, 0, 2, 3] = 1e-7

    found = judged("m=20 n=16 mask=causal outputs=o+lse", spoil)
    assert found.startswith("o: got 1.19209e-07 at (0, 0, 2, 3), wants 0")


def test_many_small_errors_are_worse_than_plain_arithmetic() -> None:
    """Each within its bound, but as far as that goes: the largest and the mean error tell."""

    def spoil(o: Any) -> None:
        o += 3e-4

    found = judged("m=64 n=256 steps=scale:0.1", spoil)
    assert re.match(r"o: the (largest|mean) error is .*, plain f16 has", found), found


def test_what_no_mask_hides_spreads() -> None:
    """A query and a key of NaN give NaN where they are seen, and only there."""
    made = build(read_case("h=1 g=1 m=30 n=30 mask=causal values=wild"))
    kernel = optimize(made.expression, "sm_120")
    given = arrays(made, np.random.default_rng(3))
    result = kernel.run(backend="sim", **given)
    assert judge(made, kernel.schedule, kernel.outputs, given, result) is None
    assert np.isnan(result).any()
    clean = np.nan_to_num(result)
    assert "got 0" in str(judge(made, kernel.schedule, kernel.outputs, given, clean))


# ---- outcomes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pins", "kind", "why"),
    [
        ({}, "right", ""),
        ({"STAGE": "d9/cp"}, "refused", "STAGE: got 'd9/cp', wants"),
        ({"SPEED": "high"}, "refused", "pin SPEED: no such knob; wants"),
    ],
)
def test_outcomes(pins: dict[str, str], kind: str, why: str) -> None:
    outcome = run(Trial(Case(twin="yes"), pins=pins))
    assert outcome.kind == kind
    assert why in outcome.why


def test_what_hangs_or_breaks_is_unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(trial: Trial) -> None:
        while True:
            pass

    monkeypatch.setattr(trials, "PATIENCE_S", 1)
    monkeypatch.setattr(trials, "prepare", hang)
    assert "TimeoutError" in run(Trial(Case())).why
    monkeypatch.setattr(trials, "prepare", lambda trial: 1 / 0)
    outcome = run(Trial(Case()))
    assert (outcome.kind, outcome.is_failure) == ("unexplained", True)
    assert "ZeroDivisionError" in outcome.why


def test_failures_shrink_to_what_makes_them() -> None:
    """Here whatever has a window in its mask and more than 9 keys fails."""
    case = read_case(
        "dtype=bf16 b=2 h=4 m=30 n=100 d=64 steps=scale:0.5+cap:30.0 open=m values=peaked "
        "mask=and(causal,or(not(window:3:0),keep:mn)) outputs=o+lse lay=q:turned twin=yes"
    )

    def fails(trial: Trial) -> bool:
        heads = {part.head for part in trial.case.mask.walk()} if trial.case.mask else set()
        return "window" in heads and trial.case.n > 9

    found = shrunk(Trial(case, pins={"SKEW": "on", "EXP": "fold"}), fails)
    assert found == Trial(read_case("h=1 g=1 m=1 n=10 d=8 e=8 mask=window:3:0"))


def test_the_table_counts_what_was_refused(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [Outcome("right"), Outcome("refused", "pin STAGE@k=d1/cp: no"), Outcome("wrong")]
    report.console.file = None  # type: ignore[assignment]
    report.table(outcomes, 7, 1.0)
    shown = capsys.readouterr().out
    assert "seed 7, 3 cases" in shown
    assert re.search(r"refused: STAGE\s*│ 1", shown)


# ---- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lay=q:turned", "open=mn mask=not(documents)"])
def test_a_reproducer_runs(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At its own lengths, which are not those that it hints at."""
    line = f'{FILE}:case("{USUAL} {how}")'
    with pytest.raises(SystemExit) as left:
        main(["run", line, "--seed", "7", "--backend", "sim", "--target", "sm_120"])
    assert not left.value.code
    assert "against float64" in capsys.readouterr().out


def test_a_reproducer_of_something_wrong_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = Path(FILE).read_text().replace("parents[2]", "parents[0]")
    head = f"import sys\nsys.path.append({str(Path.cwd())!r})\n"
    path = tmp_path / "case.py"
    path.write_text(source.replace("import sys\n", head, 1) + '\nCHECKS = {"case": spoilt}\n')
    path.write_text(path.read_text().replace("INPUTS =", SPOILT + "INPUTS ="))
    with pytest.raises(SystemExit) as left:
        main(["run", f'{path}:case("{USUAL}")', "--seed", "7", "--backend", "sim"])
    assert left.value.code == 1
    assert "wrong: as ever: m=20" in capsys.readouterr().err


SPOILT = """
def spoilt(kernel: Any, given: Any, result: Any, text: str) -> str:
    return f"as ever: {text}"


"""
