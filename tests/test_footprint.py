"""Which bytes belong to elements, against a plain enumeration of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egraph_flash.footprint import MOST_RUNS, Footprint

DIMS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 14)), max_size=4)


def taken(shape: list[int], strides: list[int], item: int) -> list[int]:
    """Every byte of every element, with repeats."""
    return [
        sum(i * s for i, s in zip(index, strides, strict=True)) + byte
        for index in itertools.product(*map(range, shape))
        for byte in range(item)
    ]


@settings(max_examples=400, deadline=None)
@given(DIMS, st.sampled_from([1, 2, 4]))
def test_it_says_what_an_enumeration_says(dims: list[tuple[int, int]], item: int) -> None:
    shape, strides = [n for n, _ in dims], [s for _, s in dims]
    found, bytes_ = Footprint.of(shape, strides, item), taken(shape, strides, item)
    assert found.size_bytes == max(bytes_, default=-1) + 1
    assert found.used_bytes == len(set(bytes_))
    assert found.overlaps_itself == (len(bytes_) != len(set(bytes_)))
    assert found.is_dense == (set(bytes_) == set(range(found.size_bytes)))
    if bytes_:
        offsets = np.arange(-5, found.size_bytes + 5)
        wanted = np.isin(offsets, bytes_)
        np.testing.assert_array_equal(found.holds(offsets, 1), wanted)
        pairs = wanted[:-1] & wanted[1:]
        np.testing.assert_array_equal(found.holds(offsets[:-1], 2), pairs)


def test_nested_steps_are_not_listed() -> None:
    """However many elements there are: slices and views of transposed arrays cost nothing."""
    found = Footprint.of((4, 1 << 30, 8), (1 << 40, 48, 2), 2)
    assert found.listed is None
    assert found.dims == ((4, 1 << 40), (1 << 30, 48))
    assert found.used_bytes == 1 << 36


def test_too_many_pieces_that_interleave_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got \d+ pieces of 2 bytes that interleave, wants at"):
        Footprint.of((MOST_RUNS, 2), (6, 4), 2)
