"""Sums of signed summands, compared as their rounding allows."""

from __future__ import annotations

import numpy as np

from egraph_flash.dtypes import Array


def assert_same_sums(got: Array, want: Array, magnitude: Array, relative: float) -> None:
    """Two orders of one sum differ by `relative` of the sum of its summands' magnitudes at most.

    Relative to the sum itself there is no bound: summands may cancel.
    """
    assert not np.isnan(want).any()
    assert got.shape == want.shape == magnitude.shape
    excess = np.abs(got - want) / np.where(magnitude > 0, magnitude, 1.0)
    assert np.all(excess <= relative), f"{excess.max():.3g} of the magnitudes, wants {relative}"
