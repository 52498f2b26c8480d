"""Which CUDA stream a kernel runs on: the one given, else its inputs' library's current one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ..errors import InputError
from .arrays import View


def handle(stream: Any) -> int:
    """The driver's handle of a stream: an int, a PyTorch, CuPy or cuda.core stream."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):  # cuda.core's protocol: (version, handle)
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):  # PyTorch, CuPy
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise InputError(
        f"stream: got {type(stream).__name__}, wants an int handle, or a stream of PyTorch, CuPy "
        "or cuda.core"
    )


def choose(stream: Any, views: Iterable[View]) -> int:
    """The handle of `stream`, or where it is None of the stream that the arrays were made on."""
    if stream is not None:
        return handle(stream)
    for view in views:
        if view.device is None:
            continue
        if view.library == "torch":
            return handle(sys.modules["torch"].cuda.current_stream(view.device))
        if view.library == "cupy":
            return handle(sys.modules["cupy"].cuda.get_current_stream())
    return 0
