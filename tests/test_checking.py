"""How errors from float64 are measured, wholly or on a sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, f32
from egraph_flash.checking import SAMPLED, errors, oracle, random_inputs, real, restrict, sample
from egraph_flash.dtypes import DTYPES, bf16
from egraph_flash.record import Spec

m, n = Axis.many(m=6, n=50)
X = Tensor("x", (m, n), f32)
IN = Spec("x", (6, 50), f32, ("m", "n"))
OUT = Spec("y", (6, 50), f32, ("m", "n"))
RNG = np.random.default_rng(0)


def test_small_ones_are_checked_whole() -> None:
    assert sample([IN], [OUT], RNG) == {}
    arrays = random_inputs([IN], RNG)
    (wanted,) = oracle(X + X, arrays, {})
    (found,) = errors([OUT], [wanted], 2 * arrays["x"], {})
    assert (found.output, found.max_abs, found.mean_abs, found.elements) == ("y", 0.0, 0.0, 300)


def test_large_ones_are_sampled_by_axis() -> None:
    large = replace(OUT, shape=(6, 10**9))
    at = sample([replace(IN, shape=(6, 10**9))], [large], RNG)
    assert {axis: len(indices) for axis, indices in at.items()} == {"m": 6, "n": SAMPLED}
    assert all(indices == sorted(set(indices)) for indices in at.values())


def test_samples_of_oracle_and_result_agree() -> None:
    arrays = random_inputs([IN], RNG)
    at = {"m": [1, 4], "n": [0, 7, 49]}
    (wanted,) = oracle(X + X, arrays, at)
    assert wanted.shape == (2, 3)
    np.testing.assert_array_equal(restrict(2 * arrays["x"], OUT, at), wanted)
    result = 2 * arrays["x"]
    result[4, 7] += 0.25
    result[0, 0] += 99  # not in the sample
    (found,) = errors([OUT], [wanted], result, at)
    assert found.max_abs == pytest.approx(0.25, rel=1e-6)
    assert found.mean_abs == pytest.approx(0.25 / 6, rel=1e-6)


def test_infinities_agree_and_nan_shows() -> None:
    wanted = np.array([-np.inf, 1.0])
    spec = replace(OUT, shape=(2,), axes=("m",))
    assert errors([spec], [wanted], np.array([-np.inf, 1.0]), {})[0].max_abs == 0.0
    assert np.isnan(errors([spec], [wanted], np.array([-np.inf, np.nan]), {})[0].max_abs)


def test_bit_patterns_are_read_as_numbers() -> None:
    values = np.array([1.0, -2.5])
    np.testing.assert_array_equal(real(bf16.encode(values)), values)


def test_random_inputs_are_stored_as_kernels_take_them() -> None:
    specs = [Spec(name, (5,), dtype, ("m",)) for name, dtype in DTYPES.items()]
    made = random_inputs(specs, RNG)
    assert {name: array.dtype for name, array in made.items()} == {
        name: dtype.storage for name, dtype in DTYPES.items()
    }
    assert not made["i32"].any()
    assert made["f16"].any()
