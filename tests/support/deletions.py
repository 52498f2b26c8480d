"""What is left of a PTX text without each of its synchronisations in turn."""

from __future__ import annotations

import re
from collections.abc import Iterator

SYNCHRONISES = re.compile(
    r"^(@!?%p\d+\s+)?(bar\.|mbarrier\.|fence\.|cp\.async\.(commit|wait|mbarrier))"
)


def without_each(ptx: str) -> Iterator[tuple[str, str]]:
    """(the line that is gone, the text without it); a wait that loops goes with its branch."""
    lines = ptx.splitlines()
    for place, line in enumerate(lines):
        if SYNCHRONISES.match(line.strip()):
            end = place + (2 if "try_wait" in line or "test_wait" in line else 1)
            yield f"{place}: {line.strip()}", "\n".join([*lines[:place], *lines[end:], ""])
