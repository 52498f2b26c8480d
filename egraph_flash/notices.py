"""Which warnings a user can meet, so that each can be filtered by its class."""

from __future__ import annotations


class EgraphFlashWarning(UserWarning):
    """The base of every warning that this package gives."""


class SimulationWarning(EgraphFlashWarning):
    """No GPU fits the kernel's target, so the simulator runs it; says how long that may take."""


class SpillWarning(EgraphFlashWarning):
    """The assembler ran out of registers where the plan had not, and put values into memory."""


class RemarkWarning(EgraphFlashWarning):
    """The assembler left undone what the PTX asks for; the kernel is right all the same."""


class CopyWarning(EgraphFlashWarning):
    """An array is not dense row-major and was copied before the kernel ran."""
