"""The cost model: work over rates, with occupancy and the busiest SM, and no fitted numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egraph_flash.cost import Work, predict, resident_ctas
from egraph_flash.errors import ScheduleError
from egraph_flash.machines import MACHINES, machine

CHIPS = list(MACHINES.values())
SM_120 = machine("sm_120")
FULL = Work(mma_flop=34.4e9, mufu_ops=134e6, hbm_bytes=12e6, ctas=256, registers_per_thread=200)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.target)
def test_a_resource_alone_takes_work_over_rate(chip: object) -> None:
    """On a grid that fills the chip evenly, a resource is used at its full rate."""
    from egraph_flash.machines import Machine

    assert isinstance(chip, Machine)
    grid = chip.sms * 8
    mma = predict(Work(mma_flop=1e12, ctas=grid), chip)
    assert mma.resource_us["mma"] == pytest.approx(1e12 / (chip.mma_tflops * 1e6))
    assert mma.bound_by == "mma"
    beside_us = chip.launch_us + mma.resource_us["start"]
    assert mma.resource_us["mma"] < mma.total_us <= mma.resource_us["mma"] + beside_us
    hbm = predict(Work(hbm_bytes=1e9, ctas=grid), chip)
    assert hbm.resource_us["hbm"] == pytest.approx(1e9 / (chip.hbm_gbps * 1e3))
    mufu = predict(Work(mufu_ops=1e9, ctas=grid), chip)
    per_us = chip.mufu_per_clock * chip.sms * chip.clock_ghz * 1e3
    assert mufu.resource_us["mufu"] == pytest.approx(1e9 / per_us)


def test_one_block_more_than_a_wave_costs_a_wave() -> None:
    full = predict(Work(mma_flop=1e10 * SM_120.sms, ctas=SM_120.sms), SM_120)
    more = predict(Work(mma_flop=1e10 * (SM_120.sms + 1), ctas=SM_120.sms + 1), SM_120)
    assert more.resource_us["mma"] == pytest.approx(2 * full.resource_us["mma"])


def test_more_warps_hide_more() -> None:
    few = predict(replace(FULL, warps_per_cta=4, registers_per_thread=255, ctas=170), SM_120)
    many = predict(replace(FULL, warps_per_cta=8, registers_per_thread=128, ctas=170), SM_120)
    assert many.total_us < few.total_us
    assert many.total_us >= max(many.resource_us.values())


def test_costs_grow_with_work() -> None:
    base = predict(FULL, SM_120).total_us
    for name in ("mma_flop", "mufu_ops", "hbm_bytes"):
        more = replace(FULL, **{name: 2 * getattr(FULL, name)})
        assert predict(more, SM_120).total_us > base


STREAM = Work(hbm_bytes=1e9, l2_bytes=1e9, ctas=132, warps_per_cta=1, slots=256, ahead=3)
H200 = machine("sm_90")


def test_copies_run_beside_what_warps_do() -> None:
    """One warp has nothing else to choose from; yet copies that were asked for go on."""
    both = predict(replace(STREAM, alu_ops=1e9), H200)
    copied, own = (both.resource_us[name] for name in ("hbm", "alu"))
    assert max(copied, own) <= both.total_us - both.launch_us < 1.05 * max(copied, own)
    apart = predict(replace(STREAM, alu_ops=1e9, ahead=0), H200)
    assert apart.total_us > copied + own


def test_slots_asked_for_late_come_late() -> None:
    late, early = (predict(replace(STREAM, ahead=ahead), H200) for ahead in (1, 3))
    assert late.resource_us["ring"] == pytest.approx(3 * early.resource_us["ring"])
    assert (late.bound_by, early.bound_by) == ("ring", "hbm")
    assert late.total_us > early.total_us


def test_blocks_that_are_alone_wait_between_them() -> None:
    """Two blocks an SM of half the work each: one works while the other begins or ends."""
    work = Work(mma_flop=1e12, edge_clocks=2000, ctas=132 * 64, slots=16, ahead=1)
    alone = replace(work, registers_per_thread=255, warps_per_cta=8)
    double = replace(work, registers_per_thread=255, warps_per_cta=4, ctas=132 * 128)
    assert (resident_ctas(alone, H200), resident_ctas(double, H200)) == (1, 2)
    edges_us = predict(alone, H200).total_us - predict(double, H200).total_us
    assert edges_us == pytest.approx(63 * (H200.step_us + 2000 / (H200.clock_ghz * 1e3)), rel=0.2)


@pytest.mark.parametrize(
    ("work", "ctas"),
    [
        (Work(warps_per_cta=4, registers_per_thread=128), 4),
        (Work(warps_per_cta=4, registers_per_thread=255), 2),
        (Work(warps_per_cta=1, registers_per_thread=32), 24),
        (Work(warps_per_cta=16, registers_per_thread=32), 3),
        (Work(warps_per_cta=4, registers_per_thread=64, shared_bytes_per_cta=49_152), 2),
        (Work(warps_per_cta=4, registers_per_thread=64, shared_bytes_per_cta=101_376), 1),
    ],
)
def test_occupancy(work: Work, ctas: int) -> None:
    """Registers in units of 256 a warp, 1 KB of shared memory a block, warps, blocks (sm_120)."""
    assert resident_ctas(work, SM_120) == ctas


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (Work(registers_per_thread=256), "got 256 registers a thread, wants at most 255"),
        (
            Work(shared_bytes_per_cta=101_377),
            "got 101377 bytes of shared memory a block, wants at most 101376",
        ),
        (
            Work(warps_per_cta=16, registers_per_thread=255),
            "does not fit on an SM: too few registers",
        ),
        (Work(warps_per_cta=64, registers_per_thread=16), "too few warps"),
    ],
)
def test_what_does_not_fit_is_refused(work: Work, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        predict(work, SM_120)


def test_work_is_checked() -> None:
    with pytest.raises(AssertionError, match="work: mma_flop is -1"):
        Work(mma_flop=-1)
    with pytest.raises(AssertionError):
        Work(ctas=0)


def test_the_printed_table() -> None:
    lines = str(predict(FULL, SM_120)).splitlines()
    assert lines[0].startswith("total ")
    assert lines[-1].endswith("bound by mma")
    assert {line.split()[0] for line in lines[1:-1]} >= {"launch", "mma", "mufu", "hbm", "latency"}


def test_the_bounds_of_the_facts() -> None:
    """Vendor rates: at the perf shape mma and the exponentials take at least this long."""
    flop, exponentials = 4.0 * 8 * 4096 * 4096 * 64, 8.0 * 4096 * 4096
    for target, mma_us, mufu_us in (("sm_90", 53.5, 32), ("sm_120", 164, 21)):
        chip = machine(target)
        found = predict(Work(mma_flop=flop, mufu_ops=exponentials, ctas=chip.sms * 16), chip)
        assert found.resource_us["mma"] == pytest.approx(mma_us, rel=0.01)
        assert found.resource_us["mufu"] == pytest.approx(mufu_us, rel=0.03)


def test_every_machine_names_its_source() -> None:
    for chip in CHIPS:
        assert chip.source
        assert chip.target == f"sm_{chip.compute}"
