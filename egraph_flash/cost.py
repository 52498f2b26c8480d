"""How long a stage takes: its work over a machine's rates, in microseconds by resource."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

from .balance import busiest_share
from .errors import ScheduleError
from .machines import Machine

SPILL_FACTOR = 1.25  # where registers are spilled, typically
COPYING = ("hbm", "l2")  # what copies into the slots of a ring take
MOST_STRANDS = 4.0  # to choose from; more of them hide no more of what is not the slowest


@dataclass(frozen=True)
class Work:
    """What one stage does, summed over its blocks, and the shape of a block.

    `hbm_bytes` cross the memory bus at least once, `again_bytes` once more unless the L2 still has
    them when each block has read `again_after_bytes`; `l2_bytes` go from the L2 into the SMs;
    `l1_bytes` are the cache lines that global loads touch, and `shared_bytes` move through shared
    memory. `loop_bytes` is the code of a loop of which warps fetch `code_bytes` in all. `weights`
    are how much the blocks have to do, in the order in which they start; empty where all have as
    much.
    `serial_steps` is the longest chain of dependent trips to memory in one block, `chain_clocks`
    what other chains take beside it, and `edge_clocks` what follows a block's last round. A block
    fills `slots` one after the other, each asked for `ahead` slots before its turn; 0 where nothing
    is. `overlap` is how many independent strands of work a warp has at a time, `spills` whether its
    registers do not suffice.
    """

    mma_flop: float = 0.0
    fma_flop: float = 0.0  # a fused multiply-add counts as 2
    mufu_ops: float = 0.0
    alu_ops: float = 0.0
    hbm_bytes: float = 0.0
    again_bytes: float = 0.0
    again_after_bytes: float = 0.0
    l2_bytes: float = 0.0
    l1_bytes: float = 0.0
    shared_bytes: float = 0.0
    code_bytes: float = 0.0
    loop_bytes: float = 0.0
    ctas: int = 1
    weights: tuple[int, ...] = ()
    warps_per_cta: int = 4
    producer_warps: int = 0  # of them
    registers_per_thread: int = 128
    shared_bytes_per_cta: int = 0
    serial_steps: float = 0.0
    chain_clocks: float = 0.0
    edge_clocks: float = 0.0
    slots: float = 0.0
    ahead: float = 0.0
    overlap: float = 1.0
    spills: bool = False

    def __post_init__(self) -> None:
        for name in _AMOUNTS:
            value = getattr(self, name)
            assert 0 <= value < math.inf, f"work: {name} is {value}"
        assert min(self.ctas, self.warps_per_cta) >= 1, self


_AMOUNTS = tuple(item.name for item in fields(Work) if item.name != "weights")


@dataclass(frozen=True)
class Cost:
    """A prediction: `total_us`, and the time each resource alone would take."""

    total_us: float
    resource_us: dict[str, float]
    launch_us: float
    ctas: int
    resident_ctas: int  # on one SM at a time
    waves: float  # of blocks over the SMs
    bound_by: str = field(default="")

    def __str__(self) -> str:
        rows = [("total", self.total_us), ("launch", self.launch_us), *self.resource_us.items()]
        lines = [f"{name:<8}{value:>12.2f} us" for name, value in rows]
        lines.append(
            f"{self.ctas} blocks, {self.resident_ctas} an SM at a time, {self.waves:.2f} waves; "
            f"bound by {self.bound_by}"
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a shape one SM holds, and what limits it."""

    work: Work
    machine: Machine

    @cached_property
    def limits(self) -> dict[str, int]:
        work, machine = self.work, self.machine
        consumers = work.warps_per_cta - work.producer_warps
        registers = machine.registers_of(consumers, work.registers_per_thread, work.producer_warps)
        shared = work.shared_bytes_per_cta + machine.shared_bytes_reserved
        return {
            "registers": machine.registers // max(registers, 1),
            "shared memory": machine.shared_bytes // shared,
            "warps": machine.warps // work.warps_per_cta,
            "blocks": machine.ctas,
        }

    @property
    def ctas(self) -> int:
        return min(self.limits.values())


def resident_ctas(work: Work, machine: Machine) -> int:
    """Blocks an SM holds at a time; ScheduleError with the numbers where not even one fits."""
    if work.registers_per_thread > machine.registers_per_thread:
        raise ScheduleError(
            f"{machine.name}: got {work.registers_per_thread} registers a thread, "
            f"wants at most {machine.registers_per_thread}"
        )
    if work.shared_bytes_per_cta > machine.shared_bytes_per_cta:
        raise ScheduleError(
            f"{machine.name}: got {work.shared_bytes_per_cta} bytes of shared memory a block, "
            f"wants at most {machine.shared_bytes_per_cta}"
        )
    limits = Occupancy(work, machine).limits
    scarce = min(limits, key=lambda name: (limits[name], name))
    if limits[scarce] < 1:
        raise ScheduleError(
            f"{machine.name}: a block of {work.warps_per_cta} warps with "
            f"{work.registers_per_thread} registers a thread and {work.shared_bytes_per_cta} bytes "
            f"of shared memory does not fit on an SM: too few {scarce}"
        )
    return limits[scarce]


def predict(work: Work, machine: Machine) -> Cost:
    """The time of one stage on a machine.

    Blocks spread over the SMs, so the busiest SM has ceil(blocks / SMs) of them and sets the time
    of every resource that an SM owns; the memory bus is shared by all. The slowest resource is
    always paid. How much of the others hides behind it depends on how many warps a scheduler can
    choose from: with one, a chain of dependent steps pays for all of them in turn;
    past four strands of work nothing more was seen to hide.

    Copies into the slots of a ring run beside all that, whatever there is to choose from: what
    takes longer counts, and of the other its share of one round, the first to come or the last to
    be worked on. Where blocks are alone on an SM, nothing fills the time between two of them: of
    what follows the last round of one, and until the first slot of the next one comes.
    """
    resident = resident_ctas(work, machine)
    on_busiest = -(-work.ctas // machine.sms)
    at_once = min(resident, on_busiest)
    of_sms = _of_sms(work, machine, at_once)
    in_flight_bytes = work.again_after_bytes * min(resident * machine.sms, work.ctas)
    again_bytes = work.again_bytes if in_flight_bytes > machine.l2_bytes else 0.0
    hbm_us = (work.hbm_bytes + again_bytes) / (machine.hbm_gbps * 1e3)

    def busy(share: float, blocks: int) -> tuple[float, dict[str, float]]:
        """The time of the busiest SM, with so many blocks on it, and of each resource alone."""
        alone = {name: time * share for name, time in of_sms.items()} | {"hbm": hbm_us}
        own = [time for name, time in alone.items() if not work.ahead or name not in COPYING]
        strands = max(1.0, blocks * work.warps_per_cta / 4) * work.overlap  # of a scheduler
        return max(own) + (sum(own) - max(own)) / min(strands, MOST_STRANDS), alone

    share = on_busiest / work.ctas  # of the whole work, on the busiest SM
    if work.weights:
        full = busy(1 / machine.sms, at_once)[0]
        rates = tuple(full / busy(1 / machine.sms, count + 1)[0] for count in range(at_once))
        share = busiest_share(work.weights, machine.sms, rates)
    busy_us, resource_us = busy(share, at_once)
    resource_us["ring"] = 0.0
    if work.ahead:
        rounds = max(work.slots * on_busiest / at_once, 1.0)
        resource_us["ring"] = _ring_us(work, machine, rounds, resource_us)
        copied_us = max(resource_us[name] for name in (*COPYING, "ring"))
        busy_us = max(busy_us, copied_us) + min(busy_us, copied_us) / rounds
        if at_once == 1:
            edge_us = machine.step_us + work.edge_clocks / (machine.clock_ghz * 1e3)
            busy_us += (on_busiest - 1) * edge_us
    slowest = max(resource_us, key=lambda name: (resource_us[name], name))
    return Cost(
        total_us=machine.launch_us + busy_us * (SPILL_FACTOR if work.spills else 1.0),
        resource_us=resource_us,
        launch_us=machine.launch_us,
        ctas=work.ctas,
        resident_ctas=resident,
        waves=work.ctas / (machine.sms * resident),
        bound_by=slowest,
    )


def _of_sms(work: Work, machine: Machine, at_once: int) -> dict[str, float]:
    """How long one SM would need for all the work, by what each has for itself."""
    clocks = machine.clock_ghz * 1e3  # in a microsecond
    streamed = work.code_bytes if work.loop_bytes > machine.code_bytes else 0.0
    alone_us = work.serial_steps * machine.step_us + work.chain_clocks / clocks
    return {
        "mma": work.mma_flop / (machine.mma_tflops * 1e6 / machine.sms),
        "fma": work.fma_flop / (2 * machine.fma_per_clock * clocks),
        "mufu": work.mufu_ops / (machine.mufu_per_clock * clocks),
        "alu": work.alu_ops / (machine.alu_per_clock * clocks),
        "l1": work.l1_bytes / (machine.l1_bytes_per_clock * clocks),
        "shared": work.shared_bytes / (machine.shared_bytes_per_clock * clocks),
        "code": streamed / (machine.code_bytes_per_clock * clocks),
        "start": work.ctas * machine.start_clocks / clocks,
        "l2": work.l2_bytes / (machine.l2_bytes_per_clock * clocks),
        "latency": alone_us * work.ctas / at_once,
    }


def _ring_us(work: Work, machine: Machine, rounds: float, alone_us: Mapping[str, float]) -> float:
    """How long slots take to come, one after the other: each a trip to memory, unless the L2 has
    it, and its transfer after it was asked for."""
    from_memory = min(1.0, work.hbm_bytes / work.l2_bytes) if work.l2_bytes else 0.0
    trips_us = rounds * machine.step_us * from_memory
    return (trips_us + max(alone_us[name] for name in COPYING)) / work.ahead
