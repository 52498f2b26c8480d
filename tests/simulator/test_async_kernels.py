"""Do kernels with asynchronous copies and barriers come out right, and not without any of these?"""

from __future__ import annotations

import pytest

from egraph_flash import runtime
from egraph_flash.errors import SimulationError
from tests.support.async_kernel import AsyncKernel
from tests.support.async_kernels import (
    KERNELS,
    copy_mbarrier,
    copy_ring,
    named_barriers,
    tma_producer,
    tma_ring,
    tma_rotating,
)

SEEDS = range(24)
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
DELETIONS = [
    pytest.param(without, id=f"{kernel.name}-{what}")
    for kernel in KERNELS
    for what, without in kernel.deletions()
]


@kernels
def test_results_do_not_depend_on_the_order_of_warps_and_copies(kernel: AsyncKernel) -> None:
    counts = []
    for seed in SEEDS:
        got, wanted, counters = kernel.simulate(seed)
        assert (got == wanted).all(), seed
        counted = counters.total.as_dict()
        counted.pop("steps")
        counts.append(counted)
    assert all(each == counts[0] for each in counts)


@pytest.mark.parametrize("without", DELETIONS)
def test_every_synchronisation_is_needed(without: AsyncKernel) -> None:
    for seed in (0, 1, 2):
        with pytest.raises(SimulationError):
            without.simulate(seed)


def test_there_are_deletions_of_every_kind() -> None:
    names = " ".join(str(each.id) for each in DELETIONS)
    for name in (
        *("commit_group", "wait_group", "bar.sync", "bar.arrive", "bar.warp.sync", "try_wait"),
        *("mbarrier.init", "expect_tx", "noinc", "fence.mbarrier_init", "fence.proxy.async"),
    ):
        assert name in names


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
def test_the_assembler_takes_them(target: str) -> None:
    for kernel in KERNELS:
        assert runtime.assemble(kernel.text(target), target).spill_bytes == 0


@pytest.mark.gpu
@kernels
def test_results_on_the_gpu(kernel: AsyncKernel) -> None:
    got, wanted = kernel.on_gpu()
    assert (got == wanted).all()


PARITY = "and.b32 %r18, %r18, 1;"
BULK = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r43], 256;"


@pytest.mark.parametrize(
    ("kernel", "old", "new", "message"),
    [
        (copy_ring(3, 8), "wait_group 1", "wait_group 2", "read without a wait"),
        (copy_ring(2, 5), "wait_group 0", "wait_group 1", "read without a wait"),
        (copy_ring(3, 8), "%r10, 2;\nsetp", "%r10, 3;\nsetp", "race|wait for"),
        (copy_mbarrier(), "[%r30+0], 64", "[%r30+0], 32", "64 arrivals in a phase that counts 32"),
        (copy_mbarrier(), "[%r30+0], 64", "[%r30+0], 65", "deadlock: warps 0, 1 wait for phase 0"),
        (tma_ring(), BULK, BULK.replace("256", "128"), "128 bytes|that no expect_tx counts"),
        (tma_ring(), BULK, BULK.replace("256", "512"), "0 of 1 arrivals and 256 bytes more"),
        (
            tma_ring(), BULK, "mbarrier.arrive.shared::cta.b64 _, [%r43];",
            "read without a wait for a bulk copy",
        ),
        (tma_ring(), PARITY, "and.b32 %r18, %r18, 0;", "passes again on phase 0"),
        (tma_ring(), PARITY, "xor.b32 %r18, %r18, 1;", "read without a wait for a bulk copy"),
        (tma_producer(), PARITY, "and.b32 %r18, %r18, 0;", "passes again on phase|race"),
        (tma_producer(), "[%r31+0], 2", "[%r31+0], 1", "2 arrivals in a phase|race|missed"),
        (tma_producer(), "[%r31+8], 2", "[%r31+8], 3", "2 of 3 arrivals|1 of 3 arrivals"),
        (tma_producer(3, 8, True), "[%r31+0], 64", "[%r31+0], 32", "race|64 arrivals|missed"),
        (tma_rotating(), "[%r31+0], 64", "[%r31+0], 32", "race|arrivals in a phase|missed"),
        (named_barriers(), "bar.arrive 4, 128;\n", "", "deadlock: barrier"),
        (named_barriers(), "bar.sync %r18, 128", "bar.sync %r18, 64", "thread count"),
        (named_barriers(), "add.u32 %r18, %r17, 3;\nbar.arrive", "mov.u32 %r18, 3;\nbar.arrive",
         "deadlock|count twice"),
    ],
)  # fmt: skip
def test_a_wrong_number_is_objected_to(
    kernel: AsyncKernel, old: str, new: str, message: str
) -> None:
    with pytest.raises(SimulationError, match=message):
        kernel.changed(old, new).simulate()


def test_an_objection_to_a_copy_names_both_lines() -> None:
    without = copy_ring(3, 8).changed("bar.sync 0;\n", "")
    with pytest.raises(SimulationError) as caught:
        without.simulate()
    said = str(caught.value)
    assert "read without a wait for an asynchronous copy of warp 1, lane 1 in line" in said
    assert "(cp.async.ca.shared.global [%r12], [%rd10], 4;)" in said
    assert "ld.shared.u32 %r21, [%r18];" in said


def test_copies_and_waits_are_counted() -> None:
    _, _, counters = copy_ring(3, 8).simulate()
    total = counters.total
    warps = 6
    assert total.copies == warps * 32 * 8
    assert total.copy_wavefronts == warps * 8
    assert total.copy_conflicts == 0
    assert total.classes["copy"] == warps * (2 + 8)  # guarded off in the last rounds
    assert total.classes["group"] == warps * (2 + 8 + 8)
    assert total.lsu == total.classes["copy"] + total.classes["lsu_shared"] + warps
    assert total.global_bytes_read == 3 * 8 * 256
    assert total.global_sectors_read == 3 * 8 * 256 // 32


def test_bulk_copies_are_counted() -> None:
    _, _, counters = tma_ring().simulate()
    total = counters.total
    assert (total.tma_copies, total.tma_bytes) == (3 * 7, 3 * 7 * 256)
    assert total.rows["cp_async_bulk_tensor_3d"] == 3 * 7
    assert total.mbarrier_waits == total.rows["mbarrier_try_wait_parity"] == 6 * 7
    assert total.classes["fence"] == 3 + 6 * 7  # of the barriers, and of each warp each round
    assert total.lsu == 6 * (7 + 1)  # bulk copies are none
