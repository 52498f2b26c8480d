"""Do atomics take turns, and do they and fences order between blocks what they should?"""

from __future__ import annotations

import re

import numpy as np
import pytest

from egraph_flash.errors import SimulationError
from tests.support.small_kernels import run_body, run_body_on_gpu

SEEDS = range(12)


def test_a_counter_holds_a_value_and_may_be_written() -> None:
    add = "atom.relaxed.gpu.global.add.u32 %r1, [%rd0], 1;\nret;"
    x = np.zeros(1, np.uint32)
    with pytest.raises(
        SimulationError, match="read of byte 0 of buffer 'x', which nothing has written"
    ):
        run_body(add, {"x": x}, uninitialised=["x"])
    with pytest.raises(SimulationError, match="misaligned: 4 bytes at byte 2"):
        run_body(add.replace("[%rd0]", "[%rd0+2]"), {"x": np.zeros(2, np.uint32)})
    with pytest.raises(SimulationError, match="out of bounds: 4 bytes at byte 4"):
        run_body(add.replace("[%rd0]", "[%rd0+4]"), {"x": x})
    x.flags.writeable = False
    with pytest.raises(SimulationError, match="atomic on buffer 'x', which is read-only"):
        run_body(add, {"x": x})


TURNS = """
    setp.lt.u32 %p0, %r100, 40;
    @%p0 atom.relaxed.gpu.global.add.u32 %r1, [%rd0], 3;
    @%p0 st.global.u32 [%rd51], %r1;
    ret;
"""


def test_threads_take_turns_in_an_order_that_the_seed_picks() -> None:
    """Each finds what the one before it left, in one instruction too; others find nothing."""
    orders = set()
    for seed in range(6):
        x, y = np.full(1, 7, np.uint32), np.zeros(3 * 64, np.uint32)
        total = run_body(TURNS, {"x": x, "y": y}, block=64, grid=3, seed=seed).total
        found = y.reshape(3, 64)[:, :40].ravel()
        assert sorted(found) == list(range(7, 7 + 3 * 120, 3))
        assert x[0] == 7 + 3 * 120
        assert (total.atomics, total.classes["atomic"], total.lsu) == (120, 6, 6)
        orders.add(found.tobytes())
    assert len(orders) == 6


EACH = """
    st.global.u32 [%rd50], %r103;
    fence.acq_rel.gpu;
    atom.relaxed.gpu.global.inc.u32 %r1, [%rd1], 95;
    fence.acq_rel.gpu;
    setp.ne.u32 %p0, %r1, 95;
    @%p0 ret;
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
    loop:
    mul.wide.u32 %rd9, %r2, 4;
    add.u64 %rd9, %rd0, %rd9;
    ld.global.u32 %r4, [%rd9];
    add.u32 %r3, %r3, %r4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 96;
    @%p1 bra loop;
    st.global.u32 [%rd2], %r3;
    ret;
"""


def test_every_thread_may_come_for_itself() -> None:
    """No barrier: the last of all threads knows of each what that one released."""
    for seed in range(6):
        buffers = {"x": np.zeros(96, np.uint32), "n": np.zeros(1, np.uint32)}
        buffers["y"] = np.zeros(1, np.uint32)
        run_body(EACH, buffers, grid=3, seed=seed, uninitialised=["x", "y"])
        assert buffers["y"][0] == 95 * 96 // 2
        for part in EACH.split("fence.acq_rel.gpu;")[1:]:
            without = EACH.replace("fence.acq_rel.gpu;" + part, part)
            with pytest.raises(SimulationError, match="race between blocks in buffer 'x'"):
                run_body(without, buffers, grid=3, seed=seed)


def check(
    body: str, wrong: str = "", *, grid: int = 3, block: int = 1, always: bool = True
) -> None:
    """Blocks of one thread over x, a word each, and counters n: accepted, or objected to as said.

    Where it is not so `always`, it depends on the order of the blocks, of which there are several.
    """
    objections = []
    for seed in SEEDS:
        buffers = {"x": np.zeros(grid * block, np.uint32), "n": np.zeros(3, np.uint32)}
        try:
            run_body(body, buffers, block=block, grid=grid, seed=seed)
        except SimulationError as objection:
            objections.append(str(objection))
    assert all(wrong and re.search(wrong, each) for each in objections), objections[:1]
    assert bool(objections) == bool(wrong)
    assert len(objections) == len(SEEDS) or not (wrong and always)


WRITE = "st.global.u32 [%rd50], %r103;"
ARRIVE = "atom.acq_rel.gpu.global.add.u32 %r1, [%rd1], 1;"
RELAXED = "atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1;"
FENCE = "fence.acq_rel.gpu;"
ONLY_LAST = "setp.ne.u32 %p0, %r1, 2;\n@%p0 ret;"
READ = "ld.global.u32 %r2, [%rd0];\nld.global.u32 %r3, [%rd0+4];\nld.global.u32 %r4, [%rd0+8];"
RACE = "race between blocks in buffer 'x'.* (read|write) of bytes that"


def lines(*parts: str) -> str:
    return "\n".join([*parts, "ret;"])


def test_what_comes_after_a_release_is_not_told() -> None:
    check(lines(WRITE, ARRIVE, ONLY_LAST, READ))
    check(lines(ARRIVE, WRITE, ONLY_LAST, READ), RACE)
    check(lines(WRITE, FENCE, RELAXED, FENCE, ONLY_LAST, READ))
    check(lines(FENCE, WRITE, RELAXED, FENCE, ONLY_LAST, READ), RACE)
    check(lines(FENCE, RELAXED, WRITE, FENCE, ONLY_LAST, READ), RACE)


def test_what_is_read_before_an_acquire_is_not_known() -> None:
    check(lines(WRITE, FENCE, RELAXED, ONLY_LAST, READ, FENCE), RACE)


def test_an_atomic_that_releases_nothing_passes_on_what_the_word_tells() -> None:
    """Even blocks write and release; odd ones come too, and any of them may be the last."""
    even = "and.b32 %r5, %r101, 1;\nsetp.eq.u32 %p1, %r5, 0;"
    read = "ld.global.u32 %r2, [%rd0];\nld.global.u32 %r4, [%rd0+8];"
    parts = (even, f"@%p1 {WRITE}", f"@%p1 {FENCE}", RELAXED, FENCE, ONLY_LAST)
    check(lines(*parts, read))
    check(lines(*parts, READ).replace(f"@%p1 {WRITE}", WRITE), RACE, always=False)


def test_a_plain_store_ends_what_a_word_tells() -> None:
    """The second of two blocks comes again; what lies between decides what it learns then."""
    again = "atom.acq_rel.gpu.global.add.u32 %r5, [%rd1], 0;"
    second = "setp.eq.u32 %p0, %r1, 0;\n@%p0 ret;"
    read = "ld.global.u32 %r2, [%rd0];\nld.global.u32 %r3, [%rd0+4];"
    store = "st.global.u32 [%rd1], %r1;"
    check(lines(WRITE, FENCE, RELAXED, second, again, read), grid=2)
    check(lines(WRITE, FENCE, RELAXED, second, store, again, read), RACE, grid=2)


def test_plain_accesses_of_a_counter_come_after_its_atomics_or_before() -> None:
    first = "setp.eq.u32 %p1, %r101, 0;"
    race = "race between blocks in buffer 'n'"
    check(lines(first, "@%p1 st.global.u32 [%rd1], %r101;", ARRIVE), race, always=False)
    check(lines(first, "@%p1 ld.global.u32 %r2, [%rd1];", ARRIVE), race, always=False)
    check(lines(ARRIVE, ONLY_LAST, "ld.global.u32 %r2, [%rd1];", "st.global.u32 [%rd1], %r2;"))
    check(lines(ARRIVE, "ld.global.u32 %r2, [%rd1];"), race)
    check(lines(ARRIVE, "ld.global.nc.u32 %r2, [%rd1];"), race)


def test_counters_may_lie_in_one_cell_with_wider_words() -> None:
    wide = "st.global.b64 [%rd0], %rd1;"
    check(lines("add.u64 %rd1, %rd1, 4;", ARRIVE, ONLY_LAST, wide), grid=4)


TOLD_ON = """
    setp.eq.u32 %p0, %r100, 0;
    setp.eq.u32 %p1, %r100, 1;
    shr.u32 %r10, %r101, 1;
    mul.wide.u32 %rd10, %r10, 4;
    add.u64 %rd10, %rd1, %rd10;
    mul.wide.u32 %rd11, %r101, 4;
    add.u64 %rd11, %rd0, %rd11;
    xor.b32 %r11, %r10, 1;
    mul.wide.u32 %rd12, %r11, 8;
    add.u64 %rd12, %rd0, %rd12;
    @%p1 st.global.u32 [%rd11], %r103;
    bar.warp.sync 4294967295;
    @%p0 atom.acq_rel.gpu.global.add.u32 %r1, [%rd10], 1;
    @!%p0 mov.u32 %r1, 0;
    shfl.sync.idx.b32 %r1, %r1, 0, 31, 4294967295;
    setp.ne.u32 %p2, %r1, 1;
    @%p2 ret;
    bar.warp.sync 4294967295;
    @!%p1 ret;
    atom.acq_rel.gpu.global.add.u32 %r2, [%rd1+8], 1;
    setp.ne.u32 %p2, %r2, 1;
    @%p2 ret;
    ld.global.u32 %r3, [%rd12];
    ld.global.u32 %r4, [%rd12+4];
    ret;
"""


def test_a_thread_tells_on_what_it_knows_that_another_has_learnt() -> None:
    """Lane 1 writes and lane 0 comes for it; lane 1 of the last of two tells the other pair."""
    check(TOLD_ON, grid=4, block=32)
    sync = "    bar.warp.sync 4294967295;\n"
    before, between, after = TOLD_ON.split(sync)
    check(before + between + sync + after, RACE, grid=4, block=32)
    check(before + sync + between + after, RACE, grid=4, block=32)


def test_a_release_tells_of_its_own_lane_and_what_is_before_it() -> None:
    first = "setp.eq.u32 %p1, %r100, 0;\nmov.u32 %r1, 0;"
    read = "ld.global.u32 %r2, [%rd0+4];\nld.global.u32 %r2, [%rd0+260];"
    come = (f"@%p1 {ARRIVE}", ONLY_LAST, read)
    sync = "bar.warp.sync 4294967295;"
    check(lines(WRITE, first, sync, *come), block=32)
    check(lines(WRITE, first, *come), RACE, block=32)


MINE, FIRST = "ld.global.u32 %r7, [%rd50];", "st.global.u32 [%rd0], %r1;"
ALL = f"{FIRST}\nst.global.u32 [%rd0+4], %r1;\nst.global.u32 [%rd0+8], %r1;"


def test_a_block_writes_what_another_has_read() -> None:
    check(lines(MINE, MINE, ARRIVE, ONLY_LAST, ALL))
    check(lines(MINE, RELAXED, ONLY_LAST, ALL), RACE)
    check(lines(ARRIVE, MINE, ONLY_LAST, ALL), RACE)


def test_every_read_comes_before_a_write() -> None:
    """Block 0 reads a word and tells nothing; block 1 reads it and tells; the last one writes."""
    zero = "setp.eq.u32 %p1, %r101, 0;\nsetp.eq.u32 %p2, %r101, 1;"
    read = "ld.global.u32 %r7, [%rd0];"
    come = f"@!%p1 {ARRIVE}\n@%p1 ret;\nsetp.ne.u32 %p0, %r1, 1;\n@%p0 ret;\n{FIRST}"
    check(lines(zero, f"@%p2 {read}", come))
    check(lines(zero, f"@%p1 {read}", f"@%p2 {read}", come), RACE)


def test_a_read_after_another_block_s_stands_for_both() -> None:
    """The first block reads a word and tells; the second reads it then, and may write it."""
    read, store = "ld.global.u32 %r7, [%rd0];", "st.global.u32 [%rd0], %r7;"
    again = "atom.acq_rel.gpu.global.add.u32 %r2, [%rd1+4], 1;\nsetp.ne.u32 %p0, %r2, 1;\n@%p0 ret;"
    check(lines(ARRIVE, f"setp.eq.u32 %p1, %r1, 0;\n@%p1 {read}", again, read, store), grid=2)


def test_reads_of_several_lanes_come_before_a_write() -> None:
    """Lane 1 reads what lane 0 reads after it; lane 0 tells of its own."""
    lanes = "setp.eq.u32 %p1, %r100, 0;\nsetp.eq.u32 %p2, %r100, 1;\nmov.u32 %r1, 0;"
    read = "mul.wide.u32 %rd9, %r101, 4;\nadd.u64 %rd9, %rd0, %rd9;\n"
    one, other = (f"@{p} ld.global.u32 %r7, [%rd9];" for p in ("%p1", "%p2"))
    come = f"@%p1 {ARRIVE}\n{ONLY_LAST}\n{ALL}"
    check(lines(lanes, read, one, come), block=32)
    check(lines(lanes, read, other, one, come), RACE, block=32)


def test_a_copy_reads_until_it_is_waited_for() -> None:
    copy = "cp.async.ca.shared.global [%r104], [%rd50], 4;\ncp.async.commit_group;"
    check(lines(copy, ARRIVE, "cp.async.wait_group 0;", ONLY_LAST, ALL), RACE)


def test_some_blocks_lag_behind_others() -> None:
    """With a seed, some block comes for the second time before another one has come at all."""
    body = lines(RELAXED, "bar.sync 0;", RELAXED, "st.global.u32 [%rd50], %r1;")
    found = []
    for seed in range(24):
        buffers = {"x": np.zeros(8 * 32, np.uint32), "n": np.zeros(1, np.uint32)}
        run_body(body, buffers, block=32, grid=8, seed=seed)
        found.append(int(buffers["x"].min()))
    assert found[0] == 8 * 32
    assert min(found) < 8 * 32


@pytest.mark.gpu
def test_turns_on_the_gpu() -> None:
    x, y = np.full(1, 7, np.uint32), np.zeros(3 * 64, np.uint32)
    run_body_on_gpu(TURNS, {"x": x, "y": y}, block=64, grid=3)
    assert sorted(y.reshape(3, 64)[:, :40].ravel()) == list(range(7, 7 + 3 * 120, 3))
