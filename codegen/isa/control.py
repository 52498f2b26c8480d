"""Where control goes and where threads wait: bra, ret, bar.sync, bar.arrive, bar.warp.sync.

Their meaning is the machine's: `flow` says which of its mechanisms a row is.
"""

from __future__ import annotations

from ..ptx_types import PtxError
from .machine import Array
from .row import instr

CONTROL = "PTX ISA, Control Flow Instructions: "
BARRIER = "PTX ISA, Parallel Synchronization: "


def _bra(target: Array) -> None:
    """Control goes to the label for the lanes that execute it, on to the next for the others."""


instr("bra $target;", target="label", counter="control", flow="branch", source=CONTROL + "bra")(
    _bra
)
instr(
    "bra.uni $target;",
    target="label",
    counter="control",
    flow="branch",
    collective=True,
    source=CONTROL + "bra (.uni: all lanes of the warp agree)",
)(_bra)


@instr("ret;", counter="control", flow="exit", source=CONTROL + "ret")
def _ret() -> None:
    """The lanes that execute it are done."""


@instr(
    "bar.sync $a;",
    a="u32",
    counter="barrier",
    flow="barrier",
    collective=True,
    source=BARRIER + "bar.sync (barrier.sync.aligned)",
)
def _bar_sync(a: Array) -> None:
    """All warps of the block meet at barrier a (0…15); memory before it is seen after it."""


@instr(
    "bar.sync $a, $b;",
    name="bar_sync_count",
    a="u32",
    b="u32",
    counter="barrier",
    flow="barrier",
    collective=True,
    source=BARRIER + "bar.sync with a thread count",
)
def _bar_sync_count(a: Array, b: Array) -> None:
    """b threads, a multiple of 32, meet at barrier a."""


@instr(
    "bar.arrive $a, $b;",
    a="u32",
    b="u32",
    counter="barrier",
    flow="arrive",
    collective=True,
    source=BARRIER + "bar.arrive (barrier.arrive.aligned)",
)
def _bar_arrive(a: Array, b: Array) -> None:
    """The warp counts towards the b threads of barrier a, and does not wait for the others."""


@instr(
    "bar.warp.sync $mask;",
    mask="u32",
    counter="warp",
    flow="warp_barrier",
    source=BARRIER + "bar.warp.sync",
)
def _bar_warp_sync(mask: Array) -> None:
    """The lanes of the mask meet; their memory accesses before it come before those after it."""


for _change in ("inc", "dec"):

    @instr(
        f"setmaxnreg.{_change}.sync.aligned.u32 $n;",
        name=f"setmaxnreg_{_change}",
        n="u32 immediate",
        counter="control",
        collective=True,
        sm=90,
        targets=frozenset({"sm_90a", "sm_100a", "sm_120a"}),
        source="PTX ISA, Miscellaneous Instructions: setmaxnreg",
    )
    def _setmaxnreg(n: Array) -> None:
        """The warp holds n registers a thread from now on: a multiple of 8 from 24 to 256."""
        if n % 8 or not 24 <= n <= 256:
            raise PtxError(f"setmaxnreg: got {n}, wants a multiple of 8 from 24 to 256")
