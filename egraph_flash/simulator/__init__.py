"""What a plan's PTX text does: the text itself is parsed and run with numpy, bit for bit.

`run` takes the text, the launches and the buffers, as the runtime does, and returns counters; it
raises SimulationError, with the PTX line and its term, for whatever a GPU would leave undefined.

How it works: each instruction becomes one closure over its row's meaning (decode.py); warps that
agree on control flow run it as one numpy call over `[warps, 32]` (scheduler.py); memory keeps
shadows of what is written (shared_memory.py, global_memory.py) and who touched it under which
vector clock (races.py, clocks.py).

Where what is to come fits in: asynchronous copies and mbarriers are new names in
codegen/isa/machine.py, offered by `Decoder._offer`; a pending copy is one more agent of
`clocks.Clocks`, and lands, as late as the program permits, when a wait is decoded; an mbarrier
stands beside `barriers.Barriers`, with its full phase number and pending bytes; a tensor map is a
new argument kind of `params.Params`; an atomic is a method of `GlobalAccess` that orders blocks
instead of objecting; waiting is a new `flow` of a row, handled beside `Scheduler._barrier`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from ..codegen.ptx import sm_number
from ..codegen.ptx_parse import parse
from ..codegen.ptx_types import PtxError
from ..codegen.targets import limits_of
from ..dtypes import Array
from ..errors import SimulationError
from ..plan import Launch
from .counters import Counters, Counts, LaunchCounts
from .global_memory import GlobalMemory
from .launch import run_launch
from .scheduler import Trace
from .speed import predicted_seconds

__all__ = ["Counters", "Counts", "LaunchCounts", "predicted_seconds", "run"]

INSTRUCTION_LIMIT = 200_000_000


def run(
    ptx: str,
    launches: Iterable[Launch],
    buffers: Mapping[str, Array],
    *,
    target: str | None = None,
    seed: int = 0,
    uninitialised: Collection[str] = (),
    complete: Collection[str] = (),
    check_races: bool = True,
    instruction_limit: int = INSTRUCTION_LIMIT,
    trace: Trace | None = None,
) -> Counters:
    """Run the launches in order on the buffers, in place.

    `buffers`: dense arrays by name, of any dtype; `uninitialised` names those whose contents may
    not be read before they are written, `complete` those that must end up written throughout.
    `target` sets the limits (default: the PTX's own); `seed` the order of blocks (0: as numbered);
    `trace` is called with a line for every instruction that a group of warps executes.
    Raises SimulationError.
    """
    try:
        module = parse(ptx)
        limits = limits_of(target or module.target)
        if sm_number(module.target) > sm_number(target or module.target):
            raise PtxError(f"run: got PTX for {module.target}, which {target} cannot run")
        memory = GlobalMemory(buffers, uninitialised)
        counters = Counters()
        rng = np.random.default_rng(seed) if seed else None
        for launch in launches:
            counters.launches.append(
                run_launch(
                    module,
                    launch,
                    memory,
                    limits,
                    rng,
                    instruction_limit=instruction_limit,
                    check_races=check_races,
                    trace=trace,
                )
            )
    except PtxError as error:
        raise SimulationError(str(error)) from error
    memory.check_complete(complete)
    return counters
