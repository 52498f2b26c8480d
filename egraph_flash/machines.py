"""Which machines kernels are made for: their rates, sizes and latencies, with units and sources."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .codegen.residency import PRODUCER_REGISTERS
from .codegen.targets import limits_of
from .errors import ScheduleError
from .once import hashed_once

WARP_THREADS = 32


@hashed_once
@dataclass(frozen=True)
class Machine:
    """One GPU. Rates are for the whole chip where the name says so, else for one SM and clock.

    `target` is what PTX is printed for; `compute` its number (90, 120).
    """

    name: str
    target: str
    compute: int
    sms: int
    clock_ghz: float
    mma_tflops: float  # mma.sync, f16 or bf16 in, f32 accumulate, dense, whole chip
    mufu_per_clock: int  # ex2, rcp, rsqrt, lg2, tanh of one SM
    fma_per_clock: int  # f32 fma, add, mul of one SM
    alu_per_clock: int  # max, compare, select, integer, conversion of one SM
    hbm_gbps: float  # device memory, whole chip
    l2_bytes: int
    l2_bytes_per_clock: int  # from the L2 into one SM
    l1_bytes_per_clock: int  # of global loads that hit, from whole lines, of one SM
    shared_bytes_per_clock: int  # of one SM
    code_bytes: int  # of a loop that is fetched once; the code of a longer one streams in again
    code_bytes_per_clock: int  # at which it does, into one SM
    shared_bytes: int  # of one SM
    shared_bytes_reserved: int  # by the system for each block
    registers: int  # of one SM
    warps: int  # of one SM, the most
    ctas: int  # of one SM, the most
    launch_us: float
    start_clocks: float  # of a block, while no other one starts on its SM
    step_us: float  # latency of a dependent trip to memory, which a loop without prefetch pays
    source: str

    def __post_init__(self) -> None:
        assert min(self.sms, self.clock_ghz) > 0, self.name
        assert self.source, f"{self.name}: wants a source"

    @property
    def shared_bytes_per_cta(self) -> int:
        """Dynamic shared memory, the most that one block may ask for."""
        return limits_of(self.target).shared_bytes

    @property
    def registers_per_thread(self) -> int:
        """The most that a thread may have."""
        return limits_of(self.target).registers

    @property
    def reassigns(self) -> bool:
        """Whether warps may change how many registers they have."""
        return self.target.endswith("a")

    def resident(self, warps: int, registers: int) -> int:
        """Blocks of so many warps, with so many registers a thread, that an SM holds at a time."""
        by_registers = self.registers // self.registers_of(warps, registers)
        return min(by_registers, self.warps // warps, self.ctas)

    def registers_of(self, warps: int, each: int, producers: int = 0) -> int:
        """What a block takes of an SM whose threads have `each` registers; warps that produce have
        as many, or, where warps may change how many they have, the few that they need."""
        few = PRODUCER_REGISTERS if self.reassigns else each
        return warps * _allocated(each) + producers * _allocated(few)

    @property
    def chip_clock_per_us(self) -> float:
        """Clocks of all SMs together in a microsecond."""
        return self.sms * self.clock_ghz * 1e3


_UNIT = 256  # registers are given to a warp in units of this many


def _allocated(registers: int) -> int:
    """What a warp takes whose threads have so many registers."""
    return -(-registers * WARP_THREADS // _UNIT) * _UNIT


_GUIDE = (
    "CUDA C++ programming guide, throughput of arithmetic instructions and compute capabilities"
)

MACHINES: dict[str, Machine] = {
    row.target: row
    for row in (
        Machine(
            name="RTX 5090",
            target="sm_120",
            compute=120,
            sms=170,
            clock_ghz=2.41,
            mma_tflops=209.5,
            mufu_per_clock=16,
            fma_per_clock=128,
            alu_per_clock=64,
            hbm_gbps=1790.0,
            l2_bytes=96 << 20,
            l2_bytes_per_clock=32,
            l1_bytes_per_clock=64,
            shared_bytes_per_clock=128,
            code_bytes=32 << 10,
            code_bytes_per_clock=128,
            shared_bytes=100 << 10,
            shared_bytes_reserved=1024,
            registers=65_536,
            warps=48,
            ctas=24,
            launch_us=2.5,
            start_clocks=150.0,
            step_us=0.8,
            source=f"vendor sheet; {_GUIDE}; caches, code, launch, starts, latency as on the H200",
        ),
        Machine(
            name="H200",
            target="sm_90",
            compute=90,
            sms=132,
            clock_ghz=1.98,
            mma_tflops=642.0,
            mufu_per_clock=16,
            fma_per_clock=128,
            alu_per_clock=64,
            hbm_gbps=4300.0,
            l2_bytes=60 << 20,
            l2_bytes_per_clock=32,
            l1_bytes_per_clock=64,
            shared_bytes_per_clock=128,
            code_bytes=32 << 10,
            code_bytes_per_clock=128,
            shared_bytes=228 << 10,
            shared_bytes_reserved=1024,
            registers=65_536,
            warps=64,
            ctas=32,
            launch_us=2.5,
            start_clocks=150.0,
            step_us=0.8,
            source=f"vendor sheet; mma.sync, copy measured, and L2: 8.1 to 8.8 TB/s; {_GUIDE}; "
            "L1 inferred from a profile (docs/forms.md), code from long loops (docs/scores.md); "
            "launch, latency typical; starts: 2,097,152 blocks of one warp took 1267 us",
        ),
    )
}


def machine(target: str) -> Machine:
    """The machine of a target; ScheduleError names the known ones.

    `sm_90a` is `sm_90` with the instructions that later chips do not have.
    """
    row = MACHINES.get(target.removesuffix("a"))
    if row is None:
        known = ", ".join(f"{name}, {name}a" for name in MACHINES)
        raise ScheduleError(f"target: got {target!r}, wants one of {known}")
    return replace(row, target=target)
