"""The smallest trial that still fails: one simplification after another, as long as they fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from .cases import Case
from .spelling import Part
from .trials import Trial

Fails = Callable[[Trial], bool]


def shrunk(trial: Trial, fails: Fails, patience_s: float = 120.0) -> Trial:
    """The trial after every simplification under which it goes on failing."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        smaller = next((t for t in simpler(trial) if time.monotonic() < until and fails(t)), None)
        if smaller is None:
            return trial
        trial = smaller
    return trial


def simpler(trial: Trial) -> Iterator[Trial]:
    """Trials with one thing less, the boldest first."""
    if trial.pins:
        yield replace(trial, pins={})
    for name in trial.pins:
        yield replace(trial, pins={n: v for n, v in trial.pins.items() if n != name})
    for case in _simpler_cases(trial.case):
        yield replace(trial, case=case)


def _simpler_cases(case: Case) -> Iterator[Case]:
    usual = Case()
    for row in fields(Case):
        if row.name == "tower":
            continue  # what the output of that name is
        if len(row.name) > 1 and getattr(case, row.name) != getattr(usual, row.name):
            yield replace(case, **{row.name: getattr(usual, row.name)})
    for name in ("steps", "lay", "outputs"):
        held = getattr(case, name)
        for place in range(len(held) if len(held) > 1 else 0):
            yield replace(case, **{name: held[:place] + held[place + 1 :]})
    if case.mask is not None:
        for mask in _simpler_masks(case.mask):
            yield replace(case, mask=mask)
    if case.tower is not None:
        for tower in _simpler_towers(case.tower):
            yield replace(case, tower=tower)
    if case.group > 1 or case.h > 1:
        yield replace(case, h=1, g=1)
    for axis in "bmnde":
        size = getattr(case, axis)
        least = 8 if axis in "de" else 1
        for smaller in dict.fromkeys((least, size // 16 * 8, size - 8, size - 1)):
            if least <= smaller < size and (axis not in "de" or smaller % 8 == 0):
                yield replace(case, **{axis: smaller})


def _simpler_masks(mask: Part) -> Iterator[Part]:
    """A part in its place, or the same with a simpler part."""
    if mask.head in ("and", "or", "not"):
        yield from mask.below
        for place, below in enumerate(mask.below):
            for smaller in _simpler_masks(below):
                parts = (*mask.below[:place], smaller, *mask.below[place + 1 :])
                yield replace(mask, below=parts)


def _simpler_towers(tower: Part) -> Iterator[Part]:
    """A part in its place, or the same with a simpler part."""
    yield from tower.below
    for place, below in enumerate(tower.below):
        for smaller in _simpler_towers(below):
            parts = (*tower.below[:place], smaller, *tower.below[place + 1 :])
            yield replace(tower, below=parts)
