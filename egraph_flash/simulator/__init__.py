"""What a plan's PTX text does: the text itself is parsed and run with numpy, bit for bit.

`run` takes the text, the launches and the buffers, as the runtime does, and returns counters; it
raises SimulationError, with the PTX line and its term, for whatever a GPU would leave undefined.

How it works: each instruction becomes one closure over its row's meaning (decode.py); warps that
agree on control flow run it as one numpy call over `[warps, 32]` (scheduler.py); memory keeps
shadows of what is written (shared_memory.py, global_buffer.py) and who touched it under which
vector clock: within a block (races.py, clocks.py, solo.py) and between blocks (block_races.py,
grid_order.py), which run in lockstep as far as they agree, and meet at atomics (atomics.py).

What works beside the threads has clocks of its own (agents.py): cp.async (copies.py), bulk copies
(tensors.py), mbarriers (mbarriers.py, mbarrier_access.py), named barriers (barriers.py). A copy
writes, as far as races go, from the moment that it starts; its bytes land as late as they may
(landing.py): those of cp.async when their thread waits, or with its arrival at an mbarrier; those
of bulk copies, and such arrivals, when no warp can run but by them, in an order that the seed
picks. A lane that must wait is parked until its phase is complete (waits.py), and the other lanes
of its warp hold where they would meet it.

A kernel is accepted if, on every path of "happens before", not only in the order that was run:

- a thread reads what its cp.async copied after wait_group or wait_all, others after a barrier that
  follows that wait, or after the phase at which the thread's `cp.async.mbarrier.arrive.noinc`
  arrived; every copy is waited for before the kernel ends; a slot is copied into only after a
  barrier that follows its last reads, by all lanes (bar.sync, or arrivals and a wait);
- mbarriers: one thread initialises, then, if bulk copies name them, fence.mbarrier_init (or
  fence.proxy.async), then a block barrier, then everybody uses them. Where one lane arrives for its
  warp, bar.warp.sync stands before. try_wait stands in a loop that its own predicate decides.
  Waits follow the phases: parity 0, 1, 0, …, and 1 passes at once on a fresh barrier; no thread
  waits twice for a phase; a phase may end only after all who waited for the one before it have
  seen that. expect_tx names exactly the bytes that come in the phase, fill included;
- between plain accesses and a bulk copy that overwrites stand fence.proxy.async and a barrier;
- a bar.arrive follows, by way of other barriers, the meeting in which the warp counted before;
- a block touches what another one wrote in the same launch, or writes what another one read, only
  after it: a thread that knows of the accesses, by way of barriers, released them by an atomic,
  and one of the other block acquired that by an atomic on the same word, which none but atomics
  had written since. An atomic releases and acquires if it is acq_rel, or by a fence.acq_rel that
  its own thread executes before or after it. Bulk copies and ld.global.nc read nothing that the
  launch writes.

What only one lane of a warp did is known to others through that lane's arrivals if it is always
the same lane that arrives alone; of lanes that wait alone, one set a warp is remembered. Both may
object to a right program, never accept a wrong one. elect.sync takes the lowest lane. Not
modelled: clusters and multicast, bulk stores, raw cp.async.bulk, the register counts of
setmaxnreg, races of a bulk copy with plain data that lay where a barrier is initialised, races in
global memory between threads of one block, blocks that wait for others in a loop.
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

    `buffers`: arrays by name, of any dtype and any strides that are not negative; bytes between
    their elements may be neither read nor written, and addresses are as far from multiples of 16
    as in the caller's memory. Memory is touched where the kernels touch it. `uninitialised` names
    those whose contents may not be read before they are written, `complete` those whose elements
    must all end up written.
    `target` sets the limits (default: the PTX's own); `seed` the order of blocks (0: as numbered),
    which warps lag where they wait for each other, and in which order copies land; `trace` is
    called with a line for every instruction that a group of warps executes.
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
