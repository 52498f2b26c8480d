"""Which errors a user can meet: each says what, got, wanted, and where to look."""

from __future__ import annotations


class EgraphFlashError(Exception):
    """The base of every error that this package raises on purpose."""


class ExpressionError(EgraphFlashError, ValueError):
    """A term that is not well formed: axes that disagree, an index outside the language."""


class LawError(EgraphFlashError, ValueError):
    """A monoid or law of one's own whose claim fails; shows the values on which it does."""


class ScheduleError(EgraphFlashError, ValueError):
    """A knob, pin or target that is unknown or cannot be honoured; names the nearest legal one."""


class InputError(EgraphFlashError, ValueError):
    """An array that a kernel cannot take: missing, extra, wrong shape, dtype, strides or device."""


class LoweringError(EgraphFlashError, NotImplementedError):
    """A term that this version cannot lower yet; says which part and what would be accepted."""


class AssemblyError(EgraphFlashError, RuntimeError):
    """The assembler refused the PTX; shows the line and the term that it came from."""


class DeviceError(EgraphFlashError, RuntimeError):
    """The CUDA driver reported an error; names the kernel, its grid and its arguments."""


class SimulationError(EgraphFlashError, RuntimeError):
    """The simulator objects: a race, a bad access, a deadlock; shows the PTX line and its term."""
