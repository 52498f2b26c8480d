"""What a run of the fuzzer shows: progress, each failure's reproducer, and the table at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.progress import track
from rich.table import Table

from .trials import Outcome, Trial

console = Console(width=160)


def watched(found: Iterable[tuple[Trial, Outcome]], count: int) -> Iterator[tuple[Trial, Outcome]]:
    """The outcomes as they come, each failure told at once."""
    shown = track(found, "running", total=count, console=console, disable=not console.is_terminal)
    for trial, outcome in shown:
        if outcome.is_failure:
            tell(trial, outcome)
        yield trial, outcome


def counted(steps: Iterable[None], count: int) -> Iterable[None]:
    """The steps, with their progress shown."""
    return track(steps, "compiling", total=count, console=console, disable=not console.is_terminal)


def tell(trial: Trial, outcome: Outcome) -> None:
    console.print(f"{outcome.kind}: {outcome.why}", markup=False, soft_wrap=True)
    console.print(f"  {trial}", markup=False, soft_wrap=True)


def reason(outcome: Outcome) -> str:
    """What a refusal is about: the knob that it names."""
    named = re.search(r"\bpin ([A-Z]+)", outcome.why)
    return named[1] if named else outcome.why.partition(":")[0][:60]


def table(outcomes: Sequence[Outcome], seed: int, seconds: float) -> None:
    kinds = Counter(outcome.kind for outcome in outcomes)
    shown = Table("what", "cases", title=f"seed {seed}, {len(outcomes)} cases, {seconds:.0f} s")
    shown.add_row("right", str(kinds["right"]))
    refused = Counter(reason(outcome) for outcome in outcomes if outcome.kind == "refused")
    for name, count in refused.most_common():
        shown.add_row(f"refused: {name}", str(count))
    shown.add_row("unjudged", str(kinds["unjudged"]))
    shown.add_row("wrong", str(kinds["wrong"]))
    shown.add_row("unexplained", str(kinds["unexplained"]))
    console.print(shown)
