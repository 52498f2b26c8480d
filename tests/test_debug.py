"""What EGRAPH_FLASH_DEBUG turns on."""

from __future__ import annotations

import pytest

from egraph_flash import debug
from egraph_flash.errors import EgraphFlashError


def test_levels_are_cumulative(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(debug.VARIABLE, "3")
    for level in range(1, 7):
        debug.show(level, lambda level=level: f"level {level}")  # type: ignore[misc]
    printed = capsys.readouterr()
    assert printed.err.split("\n") == ["level 1", "level 2", "level 3", ""]
    assert printed.out == ""


@pytest.mark.parametrize("off", ["", "0", " "])
def test_off_renders_nothing(monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    monkeypatch.setenv(debug.VARIABLE, off)

    def render() -> str:
        raise AssertionError("rendered")

    debug.show(1, render)


@pytest.mark.parametrize("given", ["7", "-1", "all"])
def test_other_values_are_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(debug.VARIABLE, given)
    with pytest.raises(EgraphFlashError, match=f"got '{given}', wants a number from 0 to 6"):
        debug.level()
