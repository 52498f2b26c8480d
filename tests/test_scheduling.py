"""Pins: honoured exactly, or refused by name with the reason and the nearest legal value."""

from __future__ import annotations

import pytest

from egraph_flash import Axis, Tensor, exp, f16, f32, optimize
from egraph_flash.errors import ScheduleError
from egraph_flash.expressions import Expr
from egraph_flash.kernel import Kernel
from tests.support.forms import attention

MMA = "a:mma_m16n8k16_f16"


def compiled(pins: dict[str, str], depth: int = 64, target: str = "sm_120") -> Kernel:
    return optimize(attention(1, 2, 256, 256, depth), target, pins)


def refused(pins: dict[str, str], depth: int = 64, target: str = "sm_120") -> str:
    with pytest.raises(ScheduleError) as error:
        compiled(pins, depth, target)
    return str(error.value)


def test_an_unscoped_pin_holds_for_all_that_accept_it() -> None:
    kernel = compiled({"TILE": f"{MMA}/w4x1/f1x8/k4"})
    assert kernel.schedule["TILE@d"] == kernel.schedule["TILE@n"] == f"{MMA}/w4x1/f1x8/k4"


def test_an_unscoped_pin_may_hold_for_one() -> None:
    """At D = 128 the accumulators have other columns; the pin holds for the scores."""
    kernel = compiled({"TILE": f"{MMA}/w4x1/f1x4/k8"}, depth=128)
    assert kernel.schedule["TILE@d"] == f"{MMA}/w4x1/f1x4/k8"
    assert kernel.schedule["TILE@n"].startswith(f"{MMA}/w4x1/f1x")


def test_pins_that_need_each_other_are_taken_together() -> None:
    """START=base wants a base that seldom moves, which this output refuses to be lazy."""
    m, n, d = Axis.many(m=64, n=256, d=32)
    s = (Tensor("q", (m, d), f16) * Tensor("k", (n, d), f16)).sum(d)
    pins = {"BASE": "vote", "START": "base"}
    kernel = optimize(exp(s - s.max(n)).sum(n), "sm_120", pins)
    assert pins.items() <= dict(kernel.schedule).items()


def test_a_scoped_pin_holds_exactly() -> None:
    kernel = compiled({"TILE@n": f"{MMA}/w2x1/f1x8/k2"})
    assert kernel.schedule["TILE@n"] == f"{MMA}/w2x1/f1x8/k2"
    assert kernel.schedule["TILE@d"].startswith(f"{MMA}/w2x1/f1x4/k")


def test_register_limits_reach_the_ptx() -> None:
    kernel = compiled({"REGS": "r128/b3", "TILE": f"{MMA}/w4x1/f1x2/k2"})
    assert kernel.schedule["REGS"] == "r128/b3"
    assert ".maxnreg 128" in kernel.ptx
    assert ".minnctapersm 3" in kernel.ptx
    assert kernel.assembly.entries[0].registers <= 128


def test_stages_are_pinned_by_name() -> None:
    kernel = compiled({"PLACE": "fold=cut", "REGS@stage1": "r64/b4"})
    assert kernel.schedule["REGS@stage1"] == "r64/b4"
    assert kernel.schedule["REGS@stage0"] == "r255/b1"


@pytest.mark.parametrize(
    ("pins", "told"),
    [
        pytest.param(
            {"TILE@d": "a:mma_m16n8k16_bf16/w4x1/f1x8/k4"},
            ("pin TILE@d=a:mma_m16n8k16_bf16", "does not take its operands", "nearest legal value"),
            id="an atom of another dtype",
        ),
        pytest.param(
            {"TILE@d": f"{MMA}/w4x1/f1x8/k9"},
            ("axis d has 4 depth steps, fewer than k9", f"is {MMA}/w4x1/f1x8/k4"),
            id="more depth steps than there are",
        ),
        pytest.param(
            {"TILE@d": f"{MMA}/w4x2/f1x8/k4"},
            ("pin TILE@d", "nearest legal value"),
            id="column warps where rows are folded",
        ),
        pytest.param(
            {"TILE@n": f"{MMA}/w64x1/f1x8/k4"},
            ("64 warps are more than the 32", "nearest legal value"),
            id="too many warps",
        ),
        pytest.param(
            {"TILE@d": f"{MMA}/w4x1/f4x16/k4"},
            ("registers a thread", "255", "nearest legal value"),
            id="too many registers",
        ),
        pytest.param(
            {"TILE": "a:mma_m8n8k4_f64/w4x1/f1x8/k4"},
            ("pin TILE=", "does not take its operands", "nearest legal value"),
            id="an unknown atom",
        ),
        pytest.param(
            {"TILE@k": f"{MMA}/w4x1/f1x8/k4"},
            ("pin TILE@k", "wants TILE@d, TILE@n"),
            id="an unknown scope",
        ),
        pytest.param(
            {"REGS@stage7": "r128/b1"}, ("pin REGS@stage7", "REGS@stage0"), id="an unknown stage"
        ),
        pytest.param({"STAGES": "3"}, ("pin STAGES: no such knob",), id="an unknown knob"),
    ],
)
def test_pins_that_cannot_be_honoured(pins: dict[str, str], told: tuple[str, ...]) -> None:
    message = refused(pins)
    for part in told:
        assert part in message


def test_a_nearest_value_is_legal() -> None:
    message = refused({"TILE@d": f"{MMA}/w4x1/f4x16/k4"})
    nearest = message.rpartition("nearest legal value is ")[2]
    assert compiled({"TILE@d": nearest}).schedule["TILE@d"] == nearest


def test_shared_memory_is_the_requested_targets() -> None:
    """Eight slots of 16 KB fit a block of sm_90, not of sm_120, which has room for six."""
    pin = {
        "TILE@d": f"{MMA}/w4x1/f1x8/k4",
        "TILE@n": f"{MMA}/w4x1/f1x8/k4",
        "STAGE": "d8/cp/ring",
        "HANDOFF": "repack",
        "HOIST": "registers",
        "SKEW": "off",
    }
    on_120 = refused(pin, depth=64, target="sm_120")
    assert "131072 shared bytes, more than the 101376 that a block of sm_120 may have" in on_120
    assert "the nearest legal depth is d6" in on_120
    assert compiled(pin, depth=64, target="sm_90").plan.launches[0].shared_bytes == 131072


def test_unknown_targets_are_refused() -> None:
    assert "target: got 'sm_75'" in refused({}, target="sm_75")


def test_f32_operands_stay_on_cuda_cores() -> None:
    def product(dtype: object) -> Expr:
        m, n, k = Axis.many(m=64, n=64, k=64)
        return (Tensor("x", (m, k), dtype) * Tensor("y", (k, n), dtype)).sum(k)  # type: ignore[arg-type]

    assert "a:fma_f32" in optimize(product(f32), "sm_120").schedule["TILE@k"]
    with pytest.raises(ScheduleError, match="does not take its operands"):
        optimize(product(f32), "sm_120", {"TILE@k": f"{MMA}/w4x1/f1x8/k4"})
    assert "mma" in optimize(product(f16), "sm_120").schedule["TILE@k"]
