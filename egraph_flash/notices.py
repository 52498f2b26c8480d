"""Which warnings a user can meet, so that each can be filtered by its class."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


class EgraphFlashWarning(UserWarning):
    """The base of every warning that this package gives."""


class SimulationWarning(EgraphFlashWarning):
    """No GPU fits the kernel's target, so the simulator runs it; says how long that may take."""


class SpillWarning(EgraphFlashWarning):
    """The assembler ran out of registers where the plan had not, and put values into memory."""


class RemarkWarning(EgraphFlashWarning):
    """The assembler left undone what the PTX asks for; the kernel is right all the same."""


class CopyWarning(EgraphFlashWarning):
    """An array has no contiguous rows, and was copied before the kernel ran."""


def tell(message: str, category: type[EgraphFlashWarning]) -> None:
    """Warn at the place outside of this package from which it was called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
