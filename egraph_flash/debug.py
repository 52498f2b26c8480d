"""What `EGRAPH_FLASH_DEBUG=1…6` prints: each level adds to the ones below it, all on stderr.

| level | what it adds |
|---|---|
| 1 | a line for each kernel run: grid, registers, shared bytes, predicted and measured µs |
| 2 | the e-graph's size and the hits per law |
| 3 | the chosen schedule and its cost by resource |
| 4 | the PTX, each block under the term that made it |
| 5 | every candidate |
| 6 | the simulator's trace |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from .errors import EgraphFlashError

KERNEL, EGRAPH, SCHEDULE, PTX, CANDIDATES, TRACE = range(1, 7)
VARIABLE = "EGRAPH_FLASH_DEBUG"


def level() -> int:
    """The level that is set now, 0 when none is; EgraphFlashError for anything but 0…6."""
    given = os.environ.get(VARIABLE, "").strip() or "0"
    if not given.isdecimal() or int(given) > TRACE:
        raise EgraphFlashError(f"{VARIABLE}: got {given!r}, wants a number from 0 to {TRACE}")
    return int(given)


def show(at: int, render: Callable[[], str]) -> None:
    """Print what `render` returns if level `at` is on; otherwise `render` is not called."""
    if level() >= at:
        say(render())


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
