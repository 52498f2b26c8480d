"""Which GPU runs which target."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from egraph_flash.errors import ScheduleError
from egraph_flash.runtime import device
from tests.support.fake_cuda import H200, RTX_5090


@pytest.mark.parametrize(
    ("target", "capability", "runs"),
    [
        ("sm_90", (9, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_90", (10, 0), False),
        ("sm_120", (12, 0), True),
        ("sm_120", (12, 1), True),
        ("sm_120a", (12, 0), True),
        ("sm_120a", (12, 1), False),
        ("sm_120", (9, 0), False),
        ("sm_90", (12, 0), False),
    ],
)
def test_fits(target: str, capability: tuple[int, int], runs: bool) -> None:
    assert device.fits(target, capability) is runs


def test_a_target_that_is_none_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="got 'hopper', wants sm_90"):
        device.fits("hopper", (9, 0))


def test_targets_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (H200.target, RTX_5090.target) == ("sm_90", "sm_120")
    assert device.Device(0, "A100", (8, 0), 108).target is None
    monkeypatch.setattr(device, "devices", lambda: (H200, RTX_5090))
    assert device.present_target() == "sm_90"
    assert device.fitting("sm_120") is RTX_5090
    monkeypatch.setattr(device, "devices", lambda: ())
    assert device.present_target() is None
    assert device.listed() == "none"


def test_no_driver_means_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert device.devices.__wrapped__() == ()
