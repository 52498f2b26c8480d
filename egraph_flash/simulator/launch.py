"""How a launch runs: its limits are checked, its grid cut into batches, its entry decoded."""

from __future__ import annotations

import math

import numpy as np

from ..codegen.ptx import Entry, Module
from ..codegen.targets import Limits
from ..errors import SimulationError
from ..plan import Launch
from .agents import Agents
from .batch import LANES, Batch
from .copies import deepest_wait
from .counters import LaunchCounts
from .decode import Decoder
from .flow import blocks_of
from .global_memory import GlobalMemory
from .grid_order import GridOrder
from .params import Params
from .scheduler import Scheduler, Trace
from .shared_memory import SharedLayout, SharedMemory, cell_bytes_of
from .speed import WARPS_AT_ONCE
from .waits import Waits

BATCH_BYTES = 256 << 20  # registers and shared memory, with their logs


def run_launch(
    module: Module, launch: Launch, memory: GlobalMemory, limits: Limits,
    rng: np.random.Generator | None, *, instruction_limit: int, check_races: bool,
    trace: Trace | None,
) -> LaunchCounts:  # fmt: skip
    """Run one launch on the buffers; returns what it counted."""
    entry = module.entry(launch.entry)
    layout = SharedLayout(module, launch.shared_bytes)
    _check_launch(entry, launch, limits, layout)
    counts = LaunchCounts(launch=str(launch))
    params = Params(entry, launch, memory)
    grid = math.prod(launch.grid)
    cell_bytes = cell_bytes_of([entry])
    registers = entry.registers()
    at_once = min(grid, _blocks_at_once(launch, layout, cell_bytes, sum(registers.values())))
    batch = Batch(launch, at_once, registers)
    agents = Agents(batch.warps_per_block, entry, limits.barriers)
    shared = SharedMemory(batch, layout, cell_bytes, counts, check_races, agents)
    order = GridOrder(batch, shared.clocks_of, rng)
    memory.begin_launch(entry, params.may_be_written(), order)
    waits = Waits(batch, shared, deepest_wait(entry), rng)
    decoder = Decoder(batch, params, layout, shared, memory, counts, waits)
    scheduler = Scheduler(
        batch, blocks_of(entry), decoder, limits, counts, instruction_limit, trace, rng
    )
    blocks = np.arange(grid) if rng is None else rng.permutation(grid)
    with np.errstate(all="ignore"):
        for start in range(0, grid, at_once):
            batch.start(blocks[start : start + at_once])
            shared.reset()
            order.reset()
            waits.reset()
            scheduler.run()
    scheduler.count()
    return counts


def _blocks_at_once(launch: Launch, layout: SharedLayout, cell_bytes: int, registers: int) -> int:
    warps = -(-launch.threads // LANES)
    per_cell = (20 + 4 * warps) / cell_bytes + 2
    block_bytes = registers * warps * LANES * 8 + layout.size_bytes * per_cell
    return max(1, min(WARPS_AT_ONCE // warps, int(BATCH_BYTES / max(block_bytes, 1))))


def _check_launch(entry: Entry, launch: Launch, limits: Limits, layout: SharedLayout) -> None:
    wrong = []
    if not 0 < launch.threads <= limits.threads or min(launch.block) < 1:
        wrong.append(f"{launch.threads} threads a block, wants 1 to {limits.threads}")
    if entry.reqntid and tuple(launch.block) != entry.reqntid:
        wrong.append(f"block {launch.block}, wants .reqntid {entry.reqntid}")
    if entry.max_threads and launch.threads > entry.max_threads:
        wrong.append(
            f"{launch.threads} threads a block, wants at most .maxntid {entry.max_threads}"
        )
    if layout.size_bytes > limits.shared_bytes:
        wrong.append(
            f"{layout.size_bytes} shared bytes a block, {limits.target} has {limits.shared_bytes}"
        )
    if any(not 0 < size <= most for size, most in zip(launch.grid, limits.grid, strict=True)):
        wrong.append(f"grid {launch.grid}, wants 1 to {limits.grid}")
    if wrong:
        raise SimulationError(f"launch {launch}: got {'; '.join(wrong)} ({limits.source})")
