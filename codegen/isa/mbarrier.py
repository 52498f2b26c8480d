"""How barriers in shared memory are used: mbarrier's phases, and the fences that they need."""

from __future__ import annotations

from .machine import Array, Mbarriers
from .row import instr

MBARRIER = "PTX ISA, Parallel Synchronization: mbarrier."
FENCE = "PTX ISA, Parallel Synchronization: membar/fence "
ADDRESS = "address shared"


@instr(
    "mbarrier.init.shared::cta.b64 [$a], $n;",
    name="mbarrier_init",
    a=ADDRESS,
    n="u32",
    counter="mbarrier",
    access_bytes=8,
    source=MBARRIER + "init",
)
def _init(mbarriers: Mbarriers, a: Array, n: Array) -> None:
    """The 8 bytes at a become a barrier, at phase 0, whose phases want n arrivals."""
    mbarriers.init(a, n)


@instr(
    "mbarrier.inval.shared::cta.b64 [$a];",
    name="mbarrier_inval",
    a=ADDRESS,
    counter="mbarrier",
    access_bytes=8,
    source=MBARRIER + "inval",
)
def _inval(mbarriers: Mbarriers, a: Array) -> None:
    """The 8 bytes at a are ordinary memory again."""
    mbarriers.inval(a)


@instr(
    "mbarrier.arrive.shared::cta.b64 _, [$a];",
    name="mbarrier_arrive",
    a=ADDRESS,
    counter="mbarrier",
    access_bytes=8,
    source=MBARRIER + "arrive",
)
def _arrive(mbarriers: Mbarriers, a: Array) -> None:
    """One arrival; what the thread did before comes before what waiters do after the phase."""
    mbarriers.arrive(a, 1, 0)


@instr(
    "mbarrier.arrive.shared::cta.b64 _, [$a], $n;",
    name="mbarrier_arrive_count",
    a=ADDRESS,
    n="u32",
    counter="mbarrier",
    access_bytes=8,
    source=MBARRIER + "arrive",
)
def _arrive_count(mbarriers: Mbarriers, a: Array, n: Array) -> None:
    """n arrivals at once."""
    mbarriers.arrive(a, n, 0)


@instr(
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$a], $n;",
    name="mbarrier_arrive_expect_tx",
    a=ADDRESS,
    n="u32",
    counter="mbarrier",
    access_bytes=8,
    sm=90,
    source=MBARRIER + "arrive (.expect_tx)",
)
def _arrive_expect_tx(mbarriers: Mbarriers, a: Array, n: Array) -> None:
    """The phase expects n more bytes; then one arrival."""
    mbarriers.arrive(a, 1, n)


@instr(
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$a], $n;",
    name="mbarrier_expect_tx",
    a=ADDRESS,
    n="u32",
    counter="mbarrier",
    access_bytes=8,
    sm=90,
    source=MBARRIER + "expect_tx",
)
def _expect_tx(mbarriers: Mbarriers, a: Array, n: Array) -> None:
    """The phase expects n more bytes."""
    mbarriers.expect(a, n)


@instr(
    "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$a];",
    name="cp_async_mbarrier_arrive_noinc",
    a=ADDRESS,
    counter="mbarrier",
    access_bytes=8,
    source="PTX ISA, Asynchronous Copy: cp.async.mbarrier.arrive (.noinc: the count includes it)",
)
def _arrive_after_copies(mbarriers: Mbarriers, a: Array) -> None:
    """One arrival when all cp.async that the thread has started are complete."""
    mbarriers.arrive_after_copies(a)


def _wait(kind: str, sm: int) -> None:
    def meaning(mbarriers: Mbarriers, a: Array, parity: Array) -> Array:
        """p = whether the phase of that parity is complete; if so, its bytes are seen."""
        return mbarriers.passed(a, parity)

    instr(
        f"mbarrier.{kind}.parity.shared::cta.b64 $p, [$a], $parity;",
        name=f"mbarrier_{kind}_parity",
        p="pred",
        a=ADDRESS,
        parity="u32",
        counter="mbarrier",
        access_bytes=8,
        flow="wait",
        sm=sm,
        source=f"{MBARRIER}test_wait/mbarrier.try_wait (try_wait may wait a while)",
    )(meaning)


_wait("test_wait", sm=80)
_wait("try_wait", sm=90)


@instr(
    "fence.mbarrier_init.release.cluster;",
    name="fence_mbarrier_init",
    counter="fence",
    sm=90,
    source=FENCE + "(fence.mbarrier_init)",
)
def _fence_init(mbarriers: Mbarriers) -> None:
    """Barriers that the thread has initialised may be named by copies after a block barrier."""
    mbarriers.fence_init()


@instr(
    "fence.proxy.async.shared::cta;",
    name="fence_proxy_async",
    counter="fence",
    sm=90,
    source=FENCE + "(fence.proxy.async)",
)
def _fence_proxy(mbarriers: Mbarriers) -> None:
    """What loads and stores did to shared memory comes before what bulk copies do to it after."""
    mbarriers.fence_proxy()
