"""The drawing: one bar a rung, lines for the peer and the roofline, and refusals before the run."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from egraph_flash import ladder_plot
from egraph_flash.errors import InputError
from tests.support.ladders import descent


@pytest.fixture
def figure() -> Any:
    pytest.importorskip("matplotlib")
    return ladder_plot.draw(descent())


def texts(figure: Any) -> list[str]:
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


def test_every_rung_that_has_a_time_has_a_bar(figure: Any) -> None:
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [2400, 480, 600, 96]
    assert axes.get_xscale() == "log"
    shown = texts(figure)
    for part in ("scalar", "2 knobs", "tried", "B=9", "ring", "2,400", "96.0", "1.25", "0.05"):
        assert part in shown
    assert "greedy" not in shown


def test_lines_and_seed_stand_in_the_legend(figure: Any) -> None:
    (axes,) = figure.axes
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["mma.sync roofline, 53.5 µs", "FlashAttention-2, 120.0 µs"]
    assert labels[2].startswith("the seed, RTX 5090")
    (points,) = axes.collections
    assert [tuple(point) for point in points.get_offsets()] == [(24943, 0), (612, 1), (206, 3)]


def test_predictions_have_no_peer_and_other_shapes_no_seed() -> None:
    pytest.importorskip("matplotlib")
    ladder = descent()
    rows = tuple(replace(row, us=None, us_fa2=None) for row in ladder.rows)
    small = replace(ladder.problem, shape=(1, 4, 128, 64))
    figure = ladder_plot.draw(replace(ladder, backend="model", problem=small, rows=rows))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(labels) == 1
    assert labels[0].startswith("mma.sync roofline")
    assert figure.axes[0].get_xlabel() == "predicted µs of one call, log scale"
    assert "× FA-2" not in texts(figure)


@pytest.mark.parametrize("suffix", ladder_plot.FORMATS)
def test_files_are_written_whole(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"ladder.{suffix}"
    ladder_plot.need_plot(path)
    assert not list(tmp_path.iterdir())
    ladder_plot.plot(descent(), path)
    assert path.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_drawing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def savefig(self, path: str, dpi: int) -> None:
            Path(path).write_text("half")
            raise OSError("disk full")

    path = tmp_path / "ladder.png"
    path.write_text("old")
    monkeypatch.setattr(ladder_plot, "draw", lambda ladder: Broken())
    with pytest.raises(InputError, match=r"ladder.png' was not written: disk full"):
        ladder_plot.plot(descent(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name == "matplotlib" or real(name)
    )
    with pytest.raises(InputError, match=r"got 'ladder.jpg', wants a file that ends in .png"):
        ladder_plot.need_plot(Path("ladder.jpg"))
    missing = tmp_path / "none" / "ladder.png"
    with pytest.raises(InputError, match=r"cannot be written: No such file or directory"):
        ladder_plot.need_plot(missing)
    folder = tmp_path / "folder.png"
    folder.mkdir()
    with pytest.raises(InputError, match="which is a folder"):
        ladder_plot.need_plot(folder)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    kept = tmp_path / "kept.png"
    kept.write_text("old")
    with pytest.raises(InputError, match=r"kept.png' cannot be written: Permission denied"):
        ladder_plot.need_plot(kept)


def test_matplotlib_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs matplotlib.*pip install 'egraph-flash\[plot\]'"):
        ladder_plot.need_plot(tmp_path / "ladder.png")
