"""One trial: a case on a target under pins with the inputs of a seed, run and judged."""

from __future__ import annotations

import re
import shlex
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from egraph_flash import optimize
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError
from egraph_flash.kernel import Kernel
from egraph_flash.notices import SpillWarning
from tests.support.moving import plainly_moved, same_bits

from .cases import Built, Case, build, read_case
from .inputs import arrays
from .judging import VAGUE, Verdict, judge

PATIENCE_S = 120  # after which a trial is taken to hang
EXPLAINED = re.compile(r"\bwants\b|\blegal\b|\bwould\b|nearest|more than the")


@dataclass(frozen=True)
class Trial:
    case: Case
    target: str = "sm_120"
    pins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    seed: int = 0

    def __str__(self) -> str:
        """The command that repeats it."""
        words = ["egraph-flash", "run", f'tests/fuzz/case.py:case("{self.case}")']
        words += ["--target", self.target]
        for name, value in self.pins.items():
            words += ["--pin", f"{name}={value}"]
        return shlex.join([*words, "--seed", str(self.seed), "--backend", "sim"])

    def on(self, target: str) -> Trial:
        """The same for another target."""
        return replace(self, target=target)


def read_trial(line: str) -> Trial:
    """The trial that a command repeats.

    >>> line = str(Trial(Case(m=5), pins={"SKEW": "on"}, seed=7))
    >>> str(read_trial(line)) == line
    True
    """
    words = shlex.split(line)
    spelled = re.fullmatch(r'.*case\("(.*)"\)', words[2])
    if spelled is None:
        raise ValueError(f"trial: got {line!r}, wants a command of `egraph-flash run`")
    pairs = list(zip(words[3::2], words[4::2], strict=True))
    given = dict(pairs)
    pins = dict(value.split("=", 1) for name, value in pairs if name == "--pin")
    return Trial(read_case(spelled[1]), given["--target"], pins, int(given["--seed"]))


@dataclass(frozen=True)
class Outcome:
    """`kind` is right, refused, wrong, unexplained, or unjudged, where scores are too large to be
    told; `why` says more of all but the first."""

    kind: str
    why: str = ""
    seconds: float = 0.0

    @property
    def is_failure(self) -> bool:
        return self.kind in ("wrong", "unexplained")


def run(trial: Trial, backend: str = "sim") -> Outcome:
    """Compile, run and judge."""
    started = time.perf_counter()
    kind, why = _outcome(trial, backend)
    return Outcome(kind, why, time.perf_counter() - started)


def _outcome(trial: Trial, backend: str) -> tuple[str, str]:
    try:
        with impatience(), strictness():
            return _judged(trial, backend)
    except ScheduleError as error:
        if trial.pins and EXPLAINED.search(str(error)):
            return "refused", str(error)
        return "unexplained", f"ScheduleError: {error}"
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return "unexplained", f"{type(error).__name__} in {at.name}: {error}"


def _judged(trial: Trial, backend: str) -> tuple[str, str]:
    built, kernel, given = prepare(trial)
    result = kernel.run(backend=backend, **given)
    found = judge(built, kernel.schedule, kernel.outputs, given, result)
    if found is VAGUE:
        return "unjudged", found.why
    found = found or moved_bits(built, kernel, given, result, backend)
    return ("right", "") if found is None else ("wrong", str(found))


def moved_bits(
    built: Built, kernel: Kernel, given: Mapping[str, Array], result: Any, backend: str
) -> Verdict | None:
    """What differs from a twin that moves its data plainly, where the case asks for one."""
    if built.case.values == "wild" or built.case.twin == "no":
        return None
    copied = tuple(map(np.copy, result)) if isinstance(result, tuple) else np.copy(result)
    still = plainly_moved(built.expression, kernel)
    if still is None or same_bits(copied, still.run(backend=backend, **given)):
        return None
    return Verdict("all", f"other bits than under {dict(still.record.pins)}")


def prepare(trial: Trial) -> tuple[Built, Kernel, dict[str, Array]]:
    """The kernel and its inputs: what takes time before anything runs."""
    built = build(trial.case)
    kernel = optimize(built.expression, trial.target, trial.pins)
    return built, kernel, arrays(built, np.random.default_rng(trial.seed))


def prepare_all(trial: Trial) -> None:
    """Put all that a run of the trial compiles and assembles into the disk cache."""
    try:
        built, kernel, given = prepare(trial)
        still = None if trial.case.twin == "no" else plainly_moved(built.expression, kernel)
        for each in (kernel, still):
            if each is not None:
                _ = each.specialized(**given).assembly
    except Exception:
        return  # the run meets it again, and says so


@contextmanager
def strictness() -> Iterator[None]:
    """What warns is a failure; but registers may be spilled on a GPU, which moves no bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SpillWarning)
        yield


@contextmanager
def impatience() -> Iterator[None]:
    """Raises TimeoutError in what hangs, and what hangs is a failure."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no end after {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
