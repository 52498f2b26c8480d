"""So many different trials, drawn by hypothesis from a seed."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings

from .draws import cases, folds, trials
from .trials import Trial

AT_ONCE = 25  # examples that hypothesis draws in one run, in which it varies earlier ones


KINDS = {
    "all": trials(cases() | folds()),
    "scores": trials(cases()),
    "folds": trials(folds()),
}


def drawn(count: int, of: int, kind: str = "all") -> list[Trial]:
    """`count` trials of a kind, no two of the same command."""
    found: dict[str, Trial] = {}
    part = 0
    while len(found) < count:
        for trial in _some(AT_ONCE, of * 1_000_003 + part, kind):
            found.setdefault(str(trial), trial)
        part += 1
    return list(found.values())[:count]


def _some(count: int, of: int, kind: str) -> list[Trial]:
    made: list[Trial] = []

    @seed(of)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind])
    def draw(trial: Trial) -> None:
        made.append(trial)

    draw()
    return made
