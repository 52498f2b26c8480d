"""Do blocks that meet at atomics come out right in any order, and only with all their fences?"""

from __future__ import annotations

import pytest

from egraph_flash import runtime
from egraph_flash.errors import SimulationError
from egraph_flash.simulator import launch
from tests.support.last_block import (
    ACQ_REL,
    BLOCKS,
    FENCES,
    KERNELS,
    LEVELS,
    RESETS,
    ROWS,
    LastBlock,
)

SEEDS = range(24)
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
DELETIONS = [
    pytest.param(without, id=f"{kernel.name}-{what}")
    for kernel in KERNELS
    for what, without in kernel.deletions()
]


@kernels
@pytest.mark.parametrize("warps", [128, 6, 2])
def test_no_order_of_blocks_shows(
    kernel: LastBlock, warps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks all at once, some at a time and one by one; the counters are left as they were."""
    monkeypatch.setattr(launch, "WARPS_AT_ONCE", warps)
    for seed in SEEDS:
        buffers, counters = kernel.simulate(seed)
        assert buffers["y"].tobytes() == kernel.wanted().tobytes(), seed
        assert not buffers["counter"].any()
        turns = ROWS * BLOCKS + (ROWS if kernel is LEVELS else 0)
        assert counters.total.atomics == counters.total.classes["atomic"] == 2 * turns


@pytest.mark.parametrize("without", DELETIONS)
def test_every_synchronisation_is_needed(without: LastBlock) -> None:
    for seed in range(4):
        with pytest.raises(SimulationError):
            without.simulate(seed)


def test_there_are_deletions_of_every_kind() -> None:
    names = [str(each.id) for each in DELETIONS]
    assert sum("fence.acq_rel.gpu" in name for name in names) == 2 + 3
    assert sum("bar.sync" in name for name in names) == 3 * 2 + 3


PART = "race between blocks in buffer 'part'.* read of bytes that block .* writes"
COUNTER = "race between blocks in buffer 'counter'"
INC = f"atom.acq_rel.gpu.global.inc.u32 %r11, [%rd10], {BLOCKS - 1};"
PLAIN = """
    ld.global.u32 %r11, [%rd10];
    add.u32 %r16, %r11, 1;
    st.global.u32 [%rd10], %r16;
"""
FENCE = "fence.acq_rel.gpu;\n"
RELEASE, ACQUIRE = f"{FENCE}atom", f"4;\n{FENCE}"
ARRIVE, MEET = "bar.sync 0;\nsetp", "told:\nbar.sync 0;\n"
UNRELEASED, UNACQUIRED = FENCES.changed(RELEASE, "atom"), FENCES.changed(ACQUIRE, "4;\n")


@pytest.mark.parametrize(
    ("kernel", "old", "new", "message"),
    [
        pytest.param(ACQ_REL, "acq_rel", "relaxed", PART, id="relaxed without fences"),
        pytest.param(RESETS, "acq_rel", "relaxed", PART, id="relaxed without fences, reset"),
        pytest.param(FENCES, RELEASE, "atom", PART, id="no fence before"),
        pytest.param(FENCES, ACQUIRE, "4;\n", PART, id="no fence after"),
        pytest.param(ACQ_REL, ARRIVE, "setp", PART, id="one thread's words are told"),
        pytest.param(UNACQUIRED, MEET, MEET + FENCE, PART, id="a fence of who met no atomic"),
        pytest.param(UNRELEASED, ARRIVE, FENCE + ARRIVE, PART, id="a fence before the barrier"),
        pytest.param(FENCES, "ld.global.f32 %f3", "ld.global.nc.f32 %f3", "nc of", id="nc"),
        pytest.param(ACQ_REL, INC, PLAIN, COUNTER, id="no atomic"),
        pytest.param(RESETS, "%r11, 4;", "%r11, 2;", COUNTER, id="reset too early"),
    ],
)
def test_what_orders_blocks_is_needed_where_it_is(
    kernel: LastBlock, old: str, new: str, message: str
) -> None:
    for seed in range(6):
        with pytest.raises(SimulationError, match=message):
            kernel.changed(old, new).simulate(seed)


def test_more_fences_do_no_harm() -> None:
    for kernel in (FENCES.changed(MEET, MEET + FENCE), FENCES.changed(ARRIVE, FENCE + ARRIVE)):
        assert kernel.simulate(3)[0]["y"].tobytes() == kernel.wanted().tobytes()


def test_an_objection_names_line_term_and_threads() -> None:
    wrong = UNRELEASED.changed("loop:", "// the sum of the parts\nloop:")
    with pytest.raises(SimulationError) as caught:
        wrong.simulate()
    said = str(caught.value)
    assert "writes (warp 1, lane 1), unordered in this launch" in said
    assert "ld.global.f32 %f3, [%rd11];, of term: the sum of the parts" in said


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
def test_the_assembler_takes_them(target: str) -> None:
    for kernel in KERNELS:
        assert runtime.assemble(kernel.text(target), target).spill_bytes == 0


@pytest.mark.gpu
@kernels
def test_last_blocks_on_the_gpu(kernel: LastBlock) -> None:
    buffers = kernel.on_gpu()
    assert buffers["y"].tobytes() == kernel.wanted().tobytes()
    assert not buffers["counter"].any()
