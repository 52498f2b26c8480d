"""Timing on a real GPU, beside peers that are right."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, f32, peers
from egraph_flash.bench import bench, repeats_for
from egraph_flash.errors import InputError
from egraph_flash.kernel import Kernel
from egraph_flash.loading import Loaded
from egraph_flash.record import Spec
from egraph_flash.runtime import driver, present_target, timing
from tests.support import doubling

m, n = Axis.many(m=300, n=400)
X = Tensor("x", (m, n), f32)


def test_graphs_hold_enough_work() -> None:
    assert [repeats_for(once_us) for once_us in (0.0, 1.0, 100.0, 1e5)] == [50, 50, 20, 1]


def test_peers_name_their_inputs() -> None:
    with pytest.raises(InputError, match="peer fa2: no input called 'q'; has x"):
        peers.computation("fa2", peers.Peer("q", "k", "v", 1.0), {"x": None})


@pytest.mark.gpu
def test_times_and_checks_kernels() -> None:
    loaded = Loaded("doubling", X + X, ModuleType("none"))
    made = Kernel(doubling.record(300, 400, target=present_target() or "sm_90"))
    table = bench(loaded, {"first": made, "second": made}, rounds=5)
    first, second = table.rows
    assert 0.5 < first.time_us < 1000
    assert first.ratio == 1.0
    assert 0.2 < second.ratio < 5
    assert (first.max_error, second.max_error) == (0.0, 0.0)
    assert table.checked == 120_000


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "name", ["fa2", "cudnn", "math", pytest.param("flex", marks=pytest.mark.exhaustive)]
)
def test_peers_compute_the_same(name: str, causal: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    torch: Any = importlib.import_module("torch")
    from egraph_flash.dtypes import f16

    shape, axes = (1, 2, 256, 64), ("b", "h", "s", "d")
    specs = tuple(Spec(letter, shape, f16, axes) for letter in "qkv")
    rng = np.random.default_rng(0)
    arrays = {letter: rng.standard_normal(shape).astype(np.float16) for letter in "qkv"}
    q, k, v = (arrays[letter].astype(np.float64) for letter in "qkv")
    scores = q @ k.swapaxes(-1, -2) / 8
    if causal:
        scores[..., ~np.tri(256, dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights @ v / weights.sum(-1, keepdims=True)

    tensors = peers.tensors(specs, arrays, torch.cuda.current_device())
    compute = peers.computation(name, peers.Peer("q", "k", "v", 1 / 8, causal), tensors)
    with driver.on(torch.cuda.current_device()):
        replay = peers.TorchReplay(compute, 2)
        timing.interleave({name: replay}, 2)
        (found,) = replay.output()
    np.testing.assert_allclose(found, wanted, atol=3e-3)
