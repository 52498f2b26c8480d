"""Are counts those that can be told from the program: instructions, conflicts, sectors, bytes."""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash.simulator import predicted_seconds
from egraph_flash.simulator.counters import SharedTraffic
from tests.support.small_kernels import run_body

Array = np.ndarray


def shared_line(body: str, line: str, block: int = 32) -> SharedTraffic:
    """The traffic of the only instruction that starts so."""
    counters = run_body(body, {"x": np.zeros(1)}, shared_bytes=32768, block=block)
    (found,) = [t for t in counters.launches[0].shared.values() if t.text.startswith(line)]
    return found


STORE = "mad.lo.u32 %r0, %r100, {stride}, %r104;\nst.shared.{type} [%r0], {value};\nret;"


@pytest.mark.parametrize(
    ("stride", "wavefronts"), [(4, 1), (8, 2), (12, 1), (16, 4), (32, 8), (64, 16), (128, 32)]
)
def test_word_stores_conflict_as_their_stride_says(stride: int, wavefronts: int) -> None:
    found = shared_line(STORE.format(stride=stride, type="u32", value="%r100"), "st.shared")
    assert (found.requests, found.wavefronts, found.conflicts) == (1, wavefronts, wavefronts - 1)


@pytest.mark.parametrize(
    ("type", "value", "stride", "wavefronts", "conflicts"),
    [
        ("b16", "%h0", 2, 1, 0),
        ("b64", "%rd0", 8, 2, 0),
        ("b64", "%rd0", 16, 4, 2),
        ("v4.b32", "{%r100, %r100, %r100, %r100}", 16, 4, 0),
        ("v4.b32", "{%r100, %r100, %r100, %r100}", 32, 8, 4),
        ("v4.b32", "{%r100, %r100, %r100, %r100}", 128, 32, 28),
    ],
)
def test_other_widths_go_in_phases(
    type: str, value: str, stride: int, wavefronts: int, conflicts: int
) -> None:
    body = "mov.b16 %h0, 1;\n" + STORE.format(stride=stride, type=type, value=value)
    found = shared_line(body, "st.shared")
    assert (found.wavefronts, found.conflicts) == (wavefronts, conflicts)


def test_a_broadcast_is_one_wavefront() -> None:
    body = "st.shared.u32 [%r104], %r101;\nbar.sync 0;\nld.shared.u32 %r1, [%r104];\nret;"
    found = shared_line(body, "ld.shared")
    assert (found.requests, found.wavefronts, found.conflicts) == (1, 1, 0)


def test_lanes_that_do_not_take_part_ask_for_nothing() -> None:
    body = (
        "mad.lo.u32 %r0, %r100, 128, %r104;\nsetp.lt.u32 %p0, %r100, 3;\n"
        "@%p0 st.shared.u32 [%r0], %r100;\nret;"
    )
    found = shared_line(body, "@%p0 st.shared", block=64)
    assert (found.requests, found.wavefronts, found.conflicts) == (1, 3, 2)


LDMATRIX = """
    mov.u32 %r5, 0;
fill:
    mad.lo.u32 %r6, %r100, 4, %r104;
    mad.lo.u32 %r6, %r5, 128, %r6;
    st.shared.u32 [%r6], %r5;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p0, %r5, 64;
    @%p0 bra fill;
    bar.sync 0;
    mad.lo.u32 %r0, %r100, STRIDE, %r104;
    ldmatrix.sync.aligned.m8n8.xCOUNT.shared.b16 {REGISTERS}, [%r0];
    ret;
"""


@pytest.mark.parametrize(
    ("matrices", "stride", "wavefronts"),
    [
        (4, 16, 4),
        (4, 144, 4),
        (4, 32, 8),
        (4, 64, 16),
        (4, 128, 32),
        (2, 128, 16),
        (1, 128, 8),
        (1, 16, 1),
    ],
)
def test_ldmatrix_takes_a_wavefront_a_matrix_unless_rows_conflict(
    matrices: int, stride: int, wavefronts: int
) -> None:
    registers = ", ".join(f"%r{10 + i}" for i in range(matrices))
    body = (
        LDMATRIX.replace("STRIDE", str(stride))
        .replace("COUNT", str(matrices))
        .replace("REGISTERS", registers)
    )
    found = shared_line(body, "ldmatrix")
    assert (found.wavefronts, found.conflicts) == (wavefronts, wavefronts - matrices)


@pytest.mark.parametrize(("stride", "sectors"), [(4, 4), (8, 8), (32, 32), (128, 32), (0, 1)])
def test_a_load_counts_the_sectors_it_touches(stride: int, sectors: int) -> None:
    body = (
        f"mul.wide.u32 %rd7, %r103, {stride};\nadd.u64 %rd8, %rd0, %rd7;\n"
        "ld.global.f32 %f0, [%rd8];\nret;"
    )
    total = run_body(body, {"x": np.zeros(4096, np.float32)}, block=64).total
    assert total.global_sectors_read == (2 * sectors if stride else 2)
    assert total.global_bytes_read == 64 * 4
    assert total.global_sectors_written == total.global_bytes_written == 0


def test_instructions_are_counted_once_a_warp() -> None:
    body = """
        mov.u32 %r0, 0;
    loop:
        add.u32 %r0, %r0, 1;
        setp.lt.u32 %p0, %r0, 5;
        @%p0 bra loop;
        bar.sync 0;
        st.global.u32 [%rd50], %r0;
        ret;
    """
    counters = run_body(body, {"x": np.zeros(96, np.uint32)}, block=96)
    total = counters.total
    assert total.rows["add_u32"] == total.rows["bra"] == 3 * 5
    assert total.classes["lsu_global"] == total.lsu == 3
    assert total.barrier_waits == total.classes["barrier"] == 3
    assert total.instructions == sum(total.classes.values())
    plain = counters.as_dict()
    assert plain["total"]["instructions"] == total.instructions  # type: ignore[index]
    assert len(plain["launches"]) == 1  # type: ignore[arg-type]


def test_a_warp_that_splits_issues_both_sides() -> None:
    body = """
        setp.lt.u32 %p0, %r100, 40;
        @%p0 bra low;
        mul.rn.f32 %f0, 0f00000000, 0f3F800000;
        bra end;
    low:
        add.rn.f32 %f0, 0f00000000, 0f3F800000;
    end:
        ret;
    """
    rows = run_body(body, {"x": np.zeros(1)}, block=96).total.rows
    assert (rows["mul_rn_f32"], rows["add_rn_f32"], rows["ret"]) == (2, 2, 3)


def test_counts_do_not_depend_on_the_batch_or_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    from egraph_flash.simulator import launch

    body = STORE.format(stride=8, type="u32", value="%r100")
    body = body.replace("ret;", "ld.global.u32 %r1, [%rd50];\nret;")
    found = []
    for warps, seed in ((128, 0), (2, 1), (6, 2)):
        monkeypatch.setattr(launch, "WARPS_AT_ONCE", warps)
        total = run_body(body, {"x": np.zeros(576)}, block=64, grid=9, seed=seed).total.as_dict()
        total.pop("steps")
        found.append(total)
    assert found[0] == found[1] == found[2]


def test_a_prediction_grows_with_the_work() -> None:
    small = predicted_seconds({"any": 1000}, 32)
    assert 0 < small < predicted_seconds({"any": 2000}, 32)
    assert predicted_seconds({"alu": 1000}, 32) < predicted_seconds({"mma": 1000}, 32)
    assert predicted_seconds({"alu": 1000}, 4096) > 8 * predicted_seconds({"alu": 1000}, 32)
