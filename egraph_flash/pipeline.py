"""How an expression becomes a kernel: laws, extraction, schedule, lowering, in that order."""

from __future__ import annotations

from typing import Any


def optimize(expr: Any, target: str | None = None, pins: dict[str, str] | None = None) -> Any:
    raise NotImplementedError
