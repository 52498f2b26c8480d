"""What a launch may ask of each target: block size, grid, shared memory, registers."""

from __future__ import annotations

from dataclasses import dataclass

from .ptx_types import PtxError


@dataclass(frozen=True)
class Limits:
    """The limits of one launch on a target; `shared_bytes` is static and dynamic together."""

    target: str
    shared_bytes: int
    source: str
    threads: int = 1024
    registers: int = 255
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    barriers: int = 16


_GUIDE = "CUDA C++ Programming Guide, Compute Capabilities: technical specifications"

LIMITS: dict[str, Limits] = {
    row.target: row
    for row in (
        Limits("sm_80", 163 * 1024, _GUIDE),
        Limits("sm_89", 99 * 1024, _GUIDE),
        Limits("sm_90", 227 * 1024, _GUIDE),
        Limits("sm_100", 227 * 1024, _GUIDE),
        Limits("sm_120", 99 * 1024, _GUIDE),
    )
}


def limits_of(target: str) -> Limits:
    """The limits of `sm_90`, `sm_90a`, …; an unknown target raises."""
    row = LIMITS.get(target.rstrip("af"))
    if row is None:
        known = ", ".join(LIMITS)
        raise PtxError(f"target: got {target!r}, wants one of {known} (codegen/targets.py)")
    return row
