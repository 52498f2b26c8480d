"""How an expression becomes a kernel: checked, looked up in the cache, else compiled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from . import cache, debug
from .kernel import Kernel
from .record import Derivation, Record
from .registration import definitions
from .request import Request, request_for


def optimize(
    expr: Any,
    target: str | None = None,
    pins: Mapping[str, str] | None = None,
    name: str = "kernel",
) -> Kernel:
    """Derive, schedule and emit a kernel for an expression, or for a tuple of expressions.

    `target` is an architecture such as "sm_120"; None means the GPU that is present, else sm_120.
    `pins` force knobs, spelled as `kernel.schedule` prints them: `{"TILE": "a:fma_f32/…"}`.
    `name` stands in messages. The kernel comes from the disk cache where it was made before.

    Raises ExpressionError for an expression that is not well formed, ScheduleError for a target
    or pin that is unknown or cannot be honoured, LoweringError for what is not lowered yet.
    """
    started = time.perf_counter()
    timings: dict[str, float] = {}
    chosen = _default_target() if target is None else target
    record = compiled(request_for(expr, chosen, dict(pins or {}), name), timings)
    kernel = Kernel(record)
    kernel.timings.update(timings, total=time.perf_counter() - started)
    debug.show(debug.EGRAPH, lambda: f"hits per law: {dict(record.derivation.hits)}")
    debug.show(debug.SCHEDULE, lambda: f"{record.schedule}\n{record.cost}")
    debug.show(debug.PTX, lambda: record.plan.ptx)
    return kernel


def compiled(
    request: Request, timings: dict[str, float], derivation: Derivation | None = None
) -> Record:
    """The record from the disk cache, else compiled and kept; `timings` gets seconds by step.

    `derivation` is the kernel's where it is known, of another kernel of the same brackets.
    """
    own = definitions(request.text)
    entry = cache.kernel_key(request.text, request.target, request.pins, own)
    record = cache.load_record(entry)
    if record is None:
        from .compilation import compile_request

        record = compile_request(request, timings, derivation)
        cache.store_record(entry, record)
    return record


def _default_target() -> str:
    """The target of the GPU that is present, else sm_120."""
    from .runtime import present_target

    return present_target() or "sm_120"
