"""What holds of every lowered kernel: fixed text, blind to names, and no barrier too many."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, f16, inf, optimize, softmax, where
from egraph_flash.codegen.ptx import Entry, Instruction, Module
from egraph_flash.codegen.ptx_parse import parse
from egraph_flash.codegen.ptx_text import emit
from egraph_flash.errors import SimulationError
from egraph_flash.kernel import Kernel
from egraph_flash.simulator import run
from tests.support.forms import FORMS, TENSOR_CORES, attention, inputs, pins
from tests.support.fresh import fresh_rng

PRINT = """
import hashlib
from egraph_flash import optimize, f16
from tests.support.forms import FORMS, attention, pins
for form in FORMS:
    kernel = optimize(attention(1, 2, 40, 100, 32, causal=True), "sm_120", pins(form, 32, 32, f16))
    text = kernel.ptx + kernel.tile + kernel.record.term + str(kernel.schedule)
    print(form, hashlib.sha256((text + str(kernel.derivation)).encode()).hexdigest())
"""


def printed(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "EGRAPH_FLASH_CACHE": "off"}
    environment["PYTHONPATH"] = os.getcwd()
    done = subprocess.run(
        [sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_every_process_emits_the_same_text() -> None:
    first = printed("0")
    assert len(first.splitlines()) == len(FORMS)
    assert all(printed(seed) == first for seed in ("1", "4242"))


# ---- names ---------------------------------------------------------------------------------------


def named(q: str, k: str, v: str, axes: str) -> Any:
    sizes = (1, 2, 40, 100, 32, 32)
    b, h, m, n, d, e = (Axis(name, size) for name, size in zip(axes.split(), sizes, strict=True))
    left, right = Tensor(q, (b, h, m, d), f16), Tensor(k, (b, h, n, d), f16)
    s = where(n.index <= m.index, (left * right).sum(d) * 32**-0.5, -inf)
    return (softmax(s, n) * Tensor(v, (b, h, n, e), f16)).sum(n)


def skeleton(ptx: str) -> str:
    """The text without comments, and with parameters numbered in order."""
    lines = [line for line in ptx.splitlines() if not line.strip().startswith("//")]
    text = "\n".join(lines)
    names = dict.fromkeys(re.findall(r"\b[pt]_\w+", text))
    for place, name in enumerate(names):
        text = re.sub(rf"\b{name}\b", f"param{place}", text)
    return text


@pytest.mark.parametrize("place", ["fold=fuse", "fold=cut"])
def test_names_do_not_reach_the_instructions(place: str) -> None:
    spellings = [
        ("q", "k", "v", "b h m n d e"),
        ("z", "y", "x", "f e d c b a"),
        ("values", "a", "m", "n m h b e d"),
    ]
    texts = {
        skeleton(optimize(named(*spelling), "sm_120", {"PLACE": place}).ptx)
        for spelling in spellings
    }
    assert len(texts) == 1


# ---- barriers ------------------------------------------------------------------------------------


def without(module: Module, place: int) -> Module:
    """The module with its barrier numbered `place` left out."""
    (entry,) = module.entries
    seen, body = 0, []
    for statement in entry.body:
        if isinstance(statement, Instruction) and statement.row.name == "bar_sync":
            seen += 1
            if seen - 1 == place:
                continue
        body.append(statement)
    return replace(module, entries=(replace(entry, body=tuple(body)),))


def barriers(entry: Entry) -> int:
    return sum(each.row.name == "bar_sync" for each in entry.instructions())


def simulate(kernel: Kernel, module: Module, arrays: dict[str, Any]) -> None:
    buffers = dict(arrays)
    for spec in kernel.outputs:
        buffers[spec.name] = np.zeros(spec.shape, spec.dtype.storage)
    run(emit(module), kernel.plan.launches, buffers, target=kernel.target)


def test_each_barrier_is_needed() -> None:
    """Three blocks of 64 and a remainder: a barrier left out anywhere is a race."""
    kernel = optimize(
        attention(1, 1, 64, 200, 32), "sm_120", pins(TENSOR_CORES, 32, 32, f16), name="barriers"
    )
    module = parse(kernel.ptx)
    count = barriers(module.entries[0])
    assert count == 4  # two in the loop, two in the remainder
    arrays = inputs(kernel, fresh_rng())
    simulate(kernel, module, arrays)
    for place in range(count):
        with pytest.raises(SimulationError, match="race"):
            simulate(kernel, without(module, place), arrays)


# ---- movement ------------------------------------------------------------------------------------


def outputs_of(geometries: list[dict[str, str]], place: str = "fuse") -> list[Any]:
    expr = attention(1, 2, 100, 200, 64)
    common = {"PLACE": f"fold={place}", "BASE": "max", "REDUCE": "g1"}
    kernels = [optimize(expr, "sm_120", {**common, **geometry}) for geometry in geometries]
    assert len({kernel.ptx for kernel in kernels}) == len(kernels), "the knobs changed nothing"
    arrays = inputs(kernels[0], fresh_rng())
    return [kernel.run(backend="sim", **arrays) for kernel in kernels]


A = "a:mma_m16n8k16_f16"


@pytest.mark.parametrize(
    "geometries",
    [
        pytest.param(
            [
                {"TILE@d": f"{A}/w{w}x1/f{f}x4/k{k}", "TILE@n": f"{A}/w{w}x1/f{f}x8/k2"}
                for w, f, k in ((1, 1, 4), (4, 1, 4), (8, 1, 4), (2, 2, 4), (4, 1, 1), (4, 1, 2))
            ],
            id="row warps, row atoms, depth steps of the body",
        ),
        pytest.param(
            [
                {"TILE@d": f"{A}/w4x1/f1x4/k4", "TILE@n": f"{A}/w4x1/f1x{c}/k2"}
                for c in (8, 4, 2, 1)
            ],
            id="column atoms of the accumulators",
        ),
        pytest.param(
            [
                {"TILE@d": f"{A}/w4x1/f1x4/k4", "TILE@n": f"{A}/w4x1/f1x8/k2", "REGS": regs}
                for regs in ("r255/b1", "r168/b2")
            ],
            id="register limits",
        ),
        pytest.param(
            [
                {
                    "TILE@d": f"a:fma_f32/w{w}x1/f{f}x8/k8",
                    "TILE@n": f"a:fma_f32/w{w}x1/f{f}x32/k8",
                }
                for w, f in ((1, 1), (4, 1), (2, 2))
            ],
            id="rows on CUDA cores",
        ),
    ],
)
def test_movement_keeps_every_bit(geometries: list[dict[str, str]]) -> None:
    first, *others = outputs_of(geometries)
    for other in others:
        np.testing.assert_array_equal(first.view(np.uint16), other.view(np.uint16))


def test_column_warps_keep_every_bit() -> None:
    first, *others = outputs_of(
        [
            {"TILE@d": f"{A}/w{rows}x{columns}/f1x4/k4"}
            for rows, columns in ((4, 1), (2, 2), (1, 4))
        ],
        place="cut",
    )
    for other in others:
        np.testing.assert_array_equal(first.view(np.uint16), other.view(np.uint16))


def test_the_fold_block_moves_brackets() -> None:
    """The block is a bracket: bits may differ, and here they do."""
    small, large = outputs_of(
        [{"TILE@d": f"{A}/w4x1/f1x{2 * k}/k4", "TILE@n": f"{A}/w4x1/f1x8/k{k}"} for k in (1, 4)]
    )
    assert (small != large).any()
    assert np.abs(small.astype(float) - large).max() < 2e-3


@pytest.mark.parametrize("form", FORMS)
def test_the_plan_knows_what_each_warp_executes(form: str) -> None:
    """The instructions that a launch announces, by class, are those that the simulator counts."""
    kernel = optimize(attention(1, 2, 40, 100, 32), "sm_120", pins(form, 32, 32, f16))
    kernel.run(backend="sim", **inputs(kernel, fresh_rng()))
    assert kernel.counters is not None
    for launch, counted in zip(kernel.plan.launches, kernel.counters.launches, strict=True):
        warps = math.prod(launch.grid) * launch.threads // 32
        expected = {name: count * warps for name, count in launch.instructions.items()}
        assert expected == {name: count for name, count in counted.classes.items() if count}
