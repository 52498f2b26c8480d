"""Where an objection comes from: the PTX line, its text, its term, and the thread that ran it."""

from __future__ import annotations

from dataclasses import dataclass

from ..codegen.ptx import Entry, Instruction
from ..errors import SimulationError


@dataclass(frozen=True)
class Where:
    """One instruction of one entry, as an objection names it."""

    entry: str
    line: int
    text: str
    term: str

    def __str__(self) -> str:
        term = f", of term: {self.term}" if self.term else ""
        return f"{self.entry}, line {self.line}: {self.text}{term}"


def where_of(entry: Entry, instruction: Instruction, term: str) -> Where:
    return Where(entry.name, instruction.line, str(instruction), term)


def objection(where: Where | None, problem: str, thread: str = "") -> SimulationError:
    """The error to raise: what is wrong, which thread met it, and the line and term it met."""
    by = f" ({thread})" if thread else ""
    at = f" at {where}" if where else ""
    return SimulationError(f"{problem}{by}{at}")
