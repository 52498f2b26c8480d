"""How a ladder is drawn: a bar for each rung, beside FlashAttention-2 and the roofline."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InputError
from .ladder import Ladder, Row
from .machines import machine
from .problem import Problem
from .rungs import SEED_SHAPE
from .scoreboard import difference

FORMATS = ("png", "pdf", "svg")
_INK, _MUTED, _GRID = "#1f2933", "#7b8794", "#e4e7eb"
_BAR, _ASIDE, _TOP = "#5b8db8", "#c5d3df", "#1f5f8b"
_WIDE, _LEFT, _RIGHT, _ABOVE, _BELOW, _ROW = 11.0, 2.75, 1.45, 1.05, 0.65, 0.44  # inches
_PEER, _ROOF, _SEED = "#c8553d", "#588157", "#e0a458"


def need_plot(path: Path) -> None:
    """InputError where a plot could not be drawn or written; asked before a long run starts."""
    if path.suffix.lower().lstrip(".") not in FORMATS:
        raise InputError(
            f"plot: got {str(path)!r}, wants a file that ends in .{', .'.join(FORMATS)}"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(
            "plot: needs matplotlib, which is missing; pip install 'egraph-flash[plot]'"
        )
    if path.is_dir():
        raise InputError(f"plot: got {str(path)!r}, which is a folder; wants a file")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".plot-")
    except OSError as error:
        raise InputError(f"plot: {str(path)!r} cannot be written: {error.strerror}") from error
    os.close(handle)
    os.unlink(temporary)
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"plot: {str(path)!r} cannot be written: Permission denied")


def plot(ladder: Ladder, path: Path) -> None:
    """Draw a ladder into a file, which is written whole or not at all."""
    figure = draw(ladder)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".plot-", suffix=path.suffix)
    os.close(handle)
    try:
        figure.savefig(temporary, dpi=160)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"plot: {str(path)!r} was not written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # gone where it took its place


def draw(ladder: Ladder) -> Any:
    """A matplotlib figure: the bottom rung stands at the bottom, time runs right on a log scale."""
    rows = [row for row in ladder.rows if row.time_us is not None]
    figures: Any = importlib.import_module("matplotlib.figure")
    tall = _ROW * max(len(rows), 3)  # inches, as all margins are
    high = _ABOVE + tall + _BELOW
    figure = figures.Figure(figsize=(_WIDE, high))
    across = (_WIDE - _LEFT - _RIGHT) / _WIDE
    axes = figure.add_axes((_LEFT / _WIDE, _BELOW / high, across, tall / high))
    _bars(axes, rows)
    _names(axes, ladder, rows)
    for line in _lines(ladder):
        axes.axvline(
            line.at_us, color=line.colour, linewidth=1.8, linestyle=(0, (5, 2)), label=line.label
        )
    seed = _seed(rows) if ladder.problem == Problem(SEED_SHAPE) else {}
    if seed:
        label = f"the seed, RTX 5090, {list(SEED_SHAPE)}"
        us, places = list(seed.values()), list(seed)
        look = {"marker": "D", "s": 34, "color": _SEED, "edgecolor": "white", "zorder": 4}
        axes.scatter(us, places, label=label, **look)
    _scale(axes, ladder, rows, [*seed.values()])
    measured = ladder.backend == "gpu"
    axes.set_xlabel(f"{'' if measured else 'predicted '}µs of one call, log scale", color=_MUTED)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="upper left", ncols=3, frameon=False,
        bbox_to_anchor=(0.012, 1 - 0.45 / high), borderaxespad=0, borderpad=0,
        fontsize=9.5, labelcolor=_INK, handlelength=2.4, columnspacing=2.2,
    )  # fmt: skip
    where = ladder.device if measured else f"{machine(ladder.target).name}, by the cost model"
    figure.suptitle(
        f"The ladder at {ladder.problem} on {where}",
        x=0.012, y=1 - 0.12 / high, ha="left", va="top", fontsize=13, fontweight="bold", color=_INK,
    )  # fmt: skip
    return figure


@dataclass(frozen=True)
class _Line:
    """A time that all bars are held against."""

    at_us: float
    colour: str
    label: str


def _lines(ladder: Ladder) -> list[_Line]:
    roof_us, peer_us = ladder.roofline_us, ladder.us_fa2
    found = [_Line(roof_us, _ROOF, f"mma.sync roofline, {roof_us:,.1f} µs")]
    if peer_us is not None:
        found.append(_Line(peer_us, _PEER, f"FlashAttention-2, {peer_us:,.1f} µs"))
    return found


def _seed(rows: list[Row]) -> dict[int, float]:
    """The seed's figures by their place."""
    figures = {at: row.rung.seed_us for at, row in enumerate(rows)}
    return {at: us for at, us in figures.items() if us is not None}


def _bars(axes: Any, rows: list[Row]) -> None:
    """Bars, and their figures in columns of their own at the right."""
    top = next((row for row in reversed(rows) if not row.rung.aside), None)
    places = {"transform": axes.get_yaxis_transform(), "va": "center", "ha": "right"}
    for at, row in enumerate(rows):
        assert row.time_us is not None
        colour = _ASIDE if row.rung.aside else _TOP if row is top else _BAR
        axes.barh(at, row.time_us, height=0.7, color=colour, zorder=2)
        weight = "bold" if row is top else "normal"
        time = f"{row.time_us:,.{0 if row.time_us >= 1000 else 1}f}"
        axes.text(1.085, at, time, fontsize=9.5, color=_INK, fontweight=weight, **places)
        if row.us and row.us_fa2:
            ratio = f"{row.us_fa2 / row.us:.2f}"  # how many times as fast
            axes.text(1.175, at, ratio, fontsize=9.5, color=_INK, fontweight=weight, **places)
    axes.text(1.085, len(rows) - 0.3, "µs", fontsize=9, color=_MUTED, **places)
    if any(row.us_fa2 for row in rows):
        axes.text(1.175, len(rows) - 0.3, "× FA-2", fontsize=9, color=_MUTED, **places)


def _names(axes: Any, ladder: Ladder, rows: list[Row]) -> None:
    """Each rung's name, with the knob that makes it under it where that is one."""
    axes.set_yticks(range(len(rows)), [""] * len(rows))
    for at, row in enumerate(rows):
        changed = difference(ladder, row)
        small = changed[0] if len(changed) == 1 else f"{len(changed)} knobs" if changed else ""
        place = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
        name = {"fontsize": 10, "color": _MUTED if row.rung.aside else _INK}
        lift = 1 if small else -4
        axes.annotate(row.rung.name, (0, at), (-8, lift), ha="right", va="bottom", **place, **name)
        axes.annotate(
            small, (0, at), (-8, 0), ha="right", va="top", fontsize=7, color=_MUTED, **place
        )


def _scale(axes: Any, ladder: Ladder, rows: list[Row], seed_us: Sequence[float]) -> None:
    times = [line.at_us for line in _lines(ladder)]
    times += [row.time_us for row in rows if row.time_us is not None]
    times += seed_us
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 1.6, max(times) * 1.4)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(axis="x", which="major", color=_GRID, linewidth=1, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
    axes.tick_params(axis="both", which="both", length=0, labelcolor=_INK, labelsize=9.5)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:,g}")
    axes.xaxis.set_minor_formatter(lambda value, position: "")
