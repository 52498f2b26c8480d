"""What of a machine shows in a kernel: how many blocks it holds at a time, and its registers."""

from __future__ import annotations

from dataclasses import dataclass

PRODUCER_THREADS = 128  # a warp group: what changes its number of registers together
PRODUCER_REGISTERS = 24  # the fewest that setmaxnreg gives
MOST_REGISTERS = 240  # beyond which a thread gains nothing; a multiple of 8
_STEP = 8  # registers are given in multiples of it


@dataclass(frozen=True)
class Residency:
    """Blocks that the whole chip holds at a time, and the registers of one SM.

    `reassigns` says whether warps may change how many registers they have.
    """

    resident_blocks: int
    registers: int
    reassigns: bool

    def reassigned(self, consumers: int) -> int | None:
        """The registers of each of so many threads once a producer has given up its own.

        >>> Residency(132, 65536, True).reassigned(256)
        240
        """
        if not self.reassigns or consumers % PRODUCER_THREADS:
            return None
        threads = consumers + PRODUCER_THREADS
        each = self.registers // threads // _STEP * _STEP
        left = each * threads - PRODUCER_REGISTERS * PRODUCER_THREADS
        return min(left // consumers // _STEP * _STEP, MOST_REGISTERS)
