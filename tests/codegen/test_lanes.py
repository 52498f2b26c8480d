"""Are the lane maps bijective, and those that PTX documents?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash.codegen.lanes import A_M16K16, B_K16N8, C_M16N8, M8N8_B16, LaneMap
from egraph_flash.codegen.ptx_types import PtxError
from tests.support.fresh import fresh_rng

MAPS = {"A": A_M16K16, "B": B_K16N8, "C": C_M16N8, "M8N8": M8N8_B16}
maps = pytest.mark.parametrize("lanes", MAPS.values(), ids=MAPS.keys())


def documented(name: str, lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, Matrix Fragments for mma.m16n8k16 with floating point types, as written there."""
    group, thread = lane >> 2, lane % 4
    if name == "A":
        row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
        col = thread * 2 + (i & 1) if i < 4 else thread * 2 + (i & 1) + 8
        return row, col
    if name == "B":
        row = thread * 2 + (i & 1) if i < 2 else thread * 2 + (i & 1) + 8
        return row, group
    if name == "C":
        return (group if i < 2 else group + 8), thread * 2 + (i & 1)
    return group, thread * 2 + i  # ldmatrix, .b16


@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_the_documented_one(name: str) -> None:
    lanes = MAPS[name]
    for lane in range(32):
        for element in range(lanes.elements):
            assert lanes.coordinates(lane, element) == documented(name, lane, element)


@maps
def test_a_map_is_bijective(lanes: LaneMap) -> None:
    places = {lanes.coordinates(t, e) for t in range(lanes.lanes) for e in range(lanes.elements)}
    rows, cols = lanes.shape
    assert len(places) == rows * cols == lanes.lanes * lanes.elements


@maps
def test_scatter_and_gather_are_inverse(lanes: LaneMap) -> None:
    tiles = fresh_rng().integers(0, 1 << 16, (3, 5, *lanes.shape))
    fragments = lanes.gather(tiles)
    assert fragments.shape == (3, 5, lanes.lanes, lanes.elements)
    assert (lanes.scatter(fragments) == tiles).all()
    for lane, element in ((0, 0), (7, lanes.elements - 1), (31, 1)):
        row, col = lanes.coordinates(lane, element)
        assert (fragments[..., lane, element] == tiles[..., row, col]).all()


def test_which_lanes_share_a_row() -> None:
    assert C_M16N8.row_lane_bits == (0, 1)
    assert C_M16N8.row_lanes(13) == (12, 13, 14, 15)
    assert C_M16N8.column_lane_bits == (2, 3, 4)
    assert C_M16N8.element_rows == (0, 0, 8, 8)
    assert C_M16N8.element_cols == (0, 1, 0, 1)
    assert B_K16N8.row_lane_bits == (2, 3, 4)
    assert B_K16N8.row_lanes(1) == tuple(range(1, 32, 4))


def test_two_accumulators_side_by_side_are_one_left_operand() -> None:
    """The repack: C of two column atoms holds, lane by lane, what A of one depth step needs."""
    for lane in range(32):
        for element in range(8):
            row, col = A_M16K16.coordinates(lane, element)
            atom, register = col // 8, (element & 1) | (element >> 1 & 1) << 1
            assert C_M16N8.coordinates(lane, register) == (row, col - 8 * atom)


def test_a_broadcast_is_a_zero_step() -> None:
    per_row = LaneMap((8, 1), lane=((0, 0), (0, 0), (1, 0), (2, 0), (4, 0)), element=())
    assert per_row.row_lanes(9) == (8, 9, 10, 11)
    tile = np.arange(8).reshape(8, 1)
    fragment = per_row.gather(tile)
    assert fragment[:, 0].tolist() == [lane // 4 for lane in range(32)]
    assert (per_row.scatter(fragment) == tile).all()


def test_a_wider_map_spans_several_warps() -> None:
    """Nothing is bound to 32 lanes: 128 threads of an m64n8 accumulator."""
    wide = LaneMap(
        (64, 8),
        lane=((0, 2), (0, 4), (1, 0), (2, 0), (4, 0), (16, 0), (32, 0)),
        element=((0, 1), (8, 0)),
    )
    assert wide.lanes == 128
    assert wide.coordinates(32 + 5, 3) == (16 + 9, 3)


@pytest.mark.parametrize(
    ("shape", "lane", "element", "message"),
    [
        ((2, 2), ((0, 1),), ((0, 1),), "places inside 2 × 2"),
        ((4, 4), ((0, 1), (1, 0)), ((0, 1),), "two of them collide"),
        ((4, 4), ((0, 1), (1, 0)), (), "wants all 16 of 4 × 4"),
    ],
)
def test_the_constructor_refuses(
    shape: tuple[int, int],
    lane: tuple[tuple[int, int], ...],
    element: tuple[tuple[int, int], ...],
    message: str,
) -> None:
    with pytest.raises(PtxError, match=message):
        LaneMap(shape, lane, element)
