"""What a tensor map may describe: every rule of the hardware refuses what breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from egraph_flash.dtypes import DTYPES, f16, f32
from egraph_flash.errors import ScheduleError
from egraph_flash.plan import Launch, Pointer, Scalar
from egraph_flash.tensor_map import TensorMap

# k[b=2, h=3, n=100, d=64] as boxes of 32 rows
K = TensorMap("k", f16, (64, 100, 3, 2), (128, 12_800, 38_400), (64, 32, 1, 1), "128B")


def test_a_box_knows_its_bytes() -> None:
    assert (K.rank, K.inner_bytes, K.box_bytes) == (4, 128, 4096)
    assert str(K) == "k as boxes of 1×1×32×64 in f16 2×3×100×64, swizzle 128B"


@pytest.mark.parametrize(
    ("swizzle", "columns", "alignment_bytes"),
    [("none", 256, 128), ("32B", 16, 256), ("64B", 32, 512), ("128B", 64, 1024)],
)
def test_a_swizzle_bounds_the_inner_box(swizzle: Any, columns: int, alignment_bytes: int) -> None:
    """The widest box of each mode is taken, one step wider is not."""
    widest = replace(K, sizes=(512, 100, 3, 2), box=(columns, 32, 1, 1), swizzle=swizzle)
    assert widest.shared_alignment_bytes == alignment_bytes
    with pytest.raises(ScheduleError, match="box"):
        replace(widest, box=(columns + 8, 32, 1, 1))


def test_limits_themselves_are_legal() -> None:
    most = (1 << 40) - 16
    TensorMap("x", f16, (1 << 32,), (), (256,), "none")
    TensorMap("x", f32, (4, 1, 1, 1, 1), (16, most, 0, 16), (4, 256, 1, 1, 256), "32B")


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=repr)
def test_every_dtype_has_boxes(dtype: Any) -> None:
    columns = 16 // dtype.size_bytes
    assert TensorMap("x", dtype, (columns,), (), (columns,), "none").box_bytes == 16


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sizes": (), "strides_bytes": (), "box": ()}, "dimensions: got 0, wants 1 to 5"),
        (
            {"sizes": (64,) * 6, "strides_bytes": (128,) * 5, "box": (64,) * 6},
            "dimensions: got 6, wants 1 to 5",
        ),
        ({"strides_bytes": (128,)}, r"strides: got \(128,\), wants 3, for sizes of rank 4"),
        ({"box": (64, 32)}, r"box: got \(64, 32\), wants 4 extents"),
        ({"sizes": (64, 0, 3, 2)}, "size of dimension 1: got 0, wants 1 to 4294967296"),
        ({"sizes": (64, 100, 3, (1 << 32) + 1)}, "size of dimension 3: got 4294967297"),
        (
            {"strides_bytes": (128, 12_808, 38_400)},
            "stride of dimension 2: got 12808, wants 0 to 1099511627760 bytes, a multiple of 16",
        ),
        ({"strides_bytes": (1 << 40, 16, 16)}, "stride of dimension 1: got 1099511627776"),
        ({"strides_bytes": (-16, 16, 16)}, "stride of dimension 1: got -16"),
        ({"box": (64, 257, 1, 1)}, "box of dimension 1: got 257, wants 1 to 256"),
        ({"box": (64, 32, 0, 1)}, "box of dimension 2: got 0, wants 1 to 256"),
        ({"box": (60, 32, 1, 1)}, "box: got 120 bytes innermost, wants a multiple of 16 bytes"),
        ({"box": (128, 32, 1, 1)}, "got 256 bytes innermost, wants at most 128.*take 2 boxes"),
        ({"swizzle": "256B"}, "swizzle: got '256B', wants none or 32B or 64B or 128B"),
    ],
)
def test_rules_refuse(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ScheduleError, match=rf"tensor map of 'k': .*{said}"):
        replace(K, **change)


def test_a_launch_prints_its_arguments() -> None:
    launch = Launch("f", (2, 1, 1), (128, 1, 1), 0, (Pointer("y"), K, Scalar("u32", 7)))
    assert f"arguments (y, map of {K}, u32 7)" in str(launch)
