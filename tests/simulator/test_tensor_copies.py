"""Do bulk copies bring the box that a tensor map says, to where its swizzle says?"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from egraph_flash import runtime
from egraph_flash.dtypes import DTYPES
from egraph_flash.errors import SimulationError
from egraph_flash.plan import Launch
from egraph_flash.simulator import run
from egraph_flash.tensor_map import Swizzle, TensorMap
from tests.support.small_kernels import kernel_text, launch_of

Array = np.ndarray

# thread 0 copies the box at {COORDINATES} to shared memory, all threads store it from there
BOX = """
    setp.ne.u32 %p9, %r100, 0;
    @%p9 bra made;
    mbarrier.init.shared::cta.b64 [%r104], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r104], BYTES;
    add.u32 %r1, %r104, TO;
    MOVES
    cp.async.bulk.tensor.RANKd.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
[%r1], [%rd60, {COORDINATES}], [%r104];
made:
    bar.sync 0;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r104], 0;
    @!%p1 bra wait;
    mad.lo.u32 %r2, %r100, 4, %r104;
    mov.u32 %r3, %r100;
store:
    setp.ge.u32 %p2, %r3, WORDS;
    @%p2 bra done;
    ld.shared.u32 %r4, [%r2+TO];
    st.global.u32 [%rd51], %r4;
    add.u32 %r2, %r2, 128;
    add.u32 %r3, %r3, 32;
    add.u64 %rd51, %rd51, 128;
    bra store;
done:
    ret;
"""


def box_body(map: TensorMap, at: tuple[int, ...], to: int = 1024) -> str:
    names = [f"%r{10 + axis}" for axis in range(len(at))]
    moves = "\n".join(f"mov.s32 {name}, {value};" for name, value in zip(names, at, strict=True))
    values = {"BYTES": map.box_bytes, "TO": to, "MOVES": moves, "RANK": map.rank}
    values |= {"COORDINATES": ", ".join(names), "WORDS": map.box_bytes // 4}
    body = BOX
    for name, value in values.items():
        body = body.replace(name, str(value))
    return body


def run_box(
    map: TensorMap, x: Array, at: tuple[int, ...], body: str = "", **options: object
) -> Array:
    """The box's bytes as they lie in shared memory."""
    buffers = {"x": x, "y": np.zeros(map.box_bytes, np.uint8)}
    launch = launch_of(buffers, 32, 1, 16384, (map,))
    text = kernel_text(body or box_body(map, at), ("x", "y"), maps=("x",))
    run(text, [launch], buffers, **options)  # type: ignore[arg-type]
    return buffers["y"]


def run_box_on_gpu(map: TensorMap, x: Array, at: tuple[int, ...]) -> Array:
    """The same on the GPU that is present."""
    target = runtime.present_target()
    assert target is not None, "a test that asks for the GPU has the marker gpu"
    buffers = {"x": x, "y": np.zeros(map.box_bytes, np.uint8)}
    launch = launch_of(buffers, 32, 1, 16384, (map,))
    text = kernel_text(box_body(map, at), ("x", "y"), target, ("x",))
    runtime.run(text, [launch], buffers, target=target)
    return buffers["y"]


def wanted_box(map: TensorMap, x: Array, at: tuple[int, ...]) -> Array:
    """The same from numpy, index by index, before any swizzle."""
    size = map.dtype.size_bytes
    raw = x.reshape(-1).view(np.uint8)
    out = []
    for place in itertools.product(*(range(extent) for extent in reversed(map.box))):
        index = [at[axis] + step for axis, step in enumerate(reversed(place))]
        strides = (size, *map.strides_bytes)
        inside = all(0 <= i < n for i, n in zip(index, map.sizes, strict=True))
        first = sum(i * stride for i, stride in zip(index, strides, strict=True))
        out.append(raw[first : first + size] if inside else np.zeros(size, np.uint8))
    return np.concatenate(out)


def dense(sizes: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The strides of a dense array of those sizes, innermost first."""
    strides, step = [], size
    for extent in sizes[:-1]:
        step *= extent
        strides.append(step)
    return tuple(strides)


def array_of(sizes: tuple[int, ...], dtype: str) -> Array:
    storage = DTYPES[dtype].storage
    count = int(np.prod(sizes))
    return np.arange(1, count + 1).astype(np.uint32).astype(f"u{storage.itemsize}").view(storage)


BOXES = [
    ((40,), (16,), [(0,), (8,), (32,), (-8,), (48,)]),
    ((24, 10), (16, 4), [(0, 0), (16, 8), (-8, -1), (24, 9), (8, 30)]),
    ((16, 5, 4), (8, 2, 3), [(0, 0, 0), (8, 4, 2), (8, -1, 3)]),
    ((8, 3, 4, 2), (8, 2, 1, 2), [(0, 1, 2, 0), (0, 2, 3, 1)]),
    ((8, 3, 2, 2, 3), (8, 2, 2, 1, 2), [(0, 0, 0, 1, 1), (0, -1, 1, 0, 2)]),
]


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize(("sizes", "box", "corners"), BOXES, ids=lambda each: str(len(each)))
def test_a_box_is_what_its_coordinates_say_and_zeros_outside(
    sizes: tuple[int, ...], box: tuple[int, ...], corners: list[tuple[int, ...]], dtype: str
) -> None:
    kind = DTYPES[dtype]
    map = TensorMap("x", kind, sizes, dense(sizes, kind.size_bytes), box, "none")
    x = array_of(sizes, dtype)
    for at in corners:
        assert (run_box(map, x, at) == wanted_box(map, x, at)).all(), at


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize(("sizes", "box", "corners"), BOXES, ids=lambda each: str(len(each)))
def test_a_box_is_the_same_on_the_gpu(
    sizes: tuple[int, ...], box: tuple[int, ...], corners: list[tuple[int, ...]], dtype: str
) -> None:
    kind = DTYPES[dtype]
    map = TensorMap("x", kind, sizes, dense(sizes, kind.size_bytes), box, "none")
    x = array_of(sizes, dtype)
    for at in corners:
        assert (run_box_on_gpu(map, x, at) == run_box(map, x, at)).all(), at


def test_strides_need_not_be_dense_or_grow() -> None:
    """Dimension 1 is the outermost in memory, as heads are in [batch, row, head, column]."""
    map = TensorMap("x", DTYPES["f16"], (16, 4, 6), (32 * 6, 32), (16, 2, 3), "none")
    x = array_of((16 * 4 * 6,), "f16")
    assert (run_box(map, x, (0, 1, 2)) == wanted_box(map, x, (0, 1, 2))).all()


def swizzled(address: int, swizzle: Swizzle) -> int:
    """Bits from 4 are XORed with those from 7, one to three of them."""
    bits = {"none": 0, "32B": 1, "64B": 2, "128B": 3}[swizzle]
    for bit in range(bits):
        address ^= (address >> 7 + bit & 1) << 4 + bit
    return address


SWIZZLES: list[tuple[Swizzle, int]] = [
    *(("32B", columns) for columns in (8, 16)),
    *(("64B", columns) for columns in (8, 24, 32)),
    *(("128B", columns) for columns in (16, 40, 64)),
]
swizzles = pytest.mark.parametrize(("swizzle", "columns"), SWIZZLES)


def swizzle_box(swizzle: Swizzle, columns: int) -> tuple[TensorMap, str, int]:
    """A map of 24 rows, and a body that stores all that a box holds, so many bytes."""
    map = TensorMap("x", DTYPES["f16"], (columns, 64), (columns * 2,), (columns, 24), swizzle)
    held = 24 * int(swizzle.removesuffix("B"))
    body = box_body(map, (0, 5))
    return map, body.replace(f"%r3, {map.box_bytes // 4};", f"%r3, {held // 4};"), held


def check_swizzle(found: Array, map: TensorMap, x: Array) -> None:
    """Rows start as many bytes apart as the swizzle spans, at whatever width of the box."""
    plain = wanted_box(map, x, (0, 5)).reshape(24, -1, 16)
    for row, pieces in enumerate(plain):
        for place, piece in enumerate(pieces):
            at = row * int(map.swizzle.removesuffix("B")) + 16 * place
            to = swizzled(2048 + at, map.swizzle) - 2048  # the slab starts at a multiple of 1024
            assert (found[to : to + 16] == piece).all(), (row, place)


@swizzles
def test_a_swizzle_moves_16_bytes_by_the_bits_of_their_address(
    swizzle: Swizzle, columns: int
) -> None:
    map, body, held = swizzle_box(swizzle, columns)
    x, y = array_of((columns, 64), "f16"), np.zeros(held, np.uint8)
    clear = "mad.lo.u32 %r5, %r100, 4, %r104;\n" + "".join(
        f"st.shared.u32 [%r5+{1024 + 128 * i}], %r100;\n" for i in range(held // 128)
    )
    text = kernel_text(clear + "fence.proxy.async.shared::cta;\nbar.sync 0;\n" + body, ("x", "y"),
                       maps=("x",))  # fmt: skip
    buffers = {"x": x, "y": y}
    run(text, [launch_of(buffers, 32, 1, 16384, (map,))], buffers)
    check_swizzle(y, map, x)


@pytest.mark.gpu
@swizzles
def test_a_swizzle_is_the_same_on_the_gpu(swizzle: Swizzle, columns: int) -> None:
    map, body, held = swizzle_box(swizzle, columns)
    target = runtime.present_target()
    assert target is not None
    x, y = array_of((columns, 64), "f16"), np.zeros(held, np.uint8)
    buffers = {"x": x, "y": y}
    text = kernel_text(body, ("x", "y"), target, ("x",))
    runtime.run(text, [launch_of(buffers, 32, 1, 16384, (map,))], buffers, target=target)
    check_swizzle(y, map, x)


MAP = TensorMap("x", DTYPES["f16"], (64, 16), (128,), (64, 8), "128B")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%r104, 1024", "%r104, 1152", "misaligned, wants a multiple of 1024"),
        ("%r104, 1024", "%r104, 15872", "out of bounds of the block's 16384 shared bytes"),
        ("%r104, 1024", "%r104, 0", "overwrites the mbarrier at offset 0"),
        ("[%rd60,", "[%rd0,", "wants the generic address of a tensor map"),
        ("tensor.2d", "tensor.1d", "tensor.1d"),
        ("{%r10, %r11}", "{%r10, %r11, %r10}", "tensor.2d"),
        ("_, [%r104], 1024", "_, [%r104], 1040", "16 bytes more"),
        ("_, [%r104], 1024", "_, [%r104], 512", "512 bytes|that no expect_tx counts"),
        ("fence.mbarrier_init.release.cluster;", "", "without fence.mbarrier_init"),
        ("bra wait;", "bra wait;\nst.shared.u32 [%r104+1024], %r100;", "write different values"),
    ],
)
def test_a_bad_copy_is_objected_to(old: str, new: str, message: str) -> None:
    body = box_body(MAP, (0, 0))
    assert old in body
    with pytest.raises(SimulationError, match=message):
        run_box(MAP, array_of((64, 16), "f16"), (0, 0), body.replace(old, new))


def test_coordinate_0_must_be_a_multiple_of_16_bytes() -> None:
    """An H200 calls anything else an illegal instruction."""
    with pytest.raises(SimulationError, match="coordinate 0 is -12, wants a multiple of 16 bytes"):
        run_box(MAP, array_of((64, 16), "f16"), (-12, 0))


def test_a_rank_must_be_the_map_s() -> None:
    body = box_body(MAP, (0, 0)).replace("tensor.2d", "tensor.3d").replace("%r11}", "%r11, %r10}")
    with pytest.raises(SimulationError, match="rank 3 for a map of rank 2"):
        run_box(MAP, array_of((64, 16), "f16"), (0, 0), body)


def test_a_fence_of_the_proxy_serves_for_the_init_too() -> None:
    x = array_of((64, 16), "f16")
    body = box_body(MAP, (0, 4)).replace("fence.mbarrier_init.release.cluster", "fence.proxy.async"
                                         ".shared::cta")  # fmt: skip
    assert (np.sort(run_box(MAP, x, (0, 4), body)) == np.sort(wanted_box(MAP, x, (0, 4)))).all()


def test_an_array_past_its_buffer_is_objected_to() -> None:
    with pytest.raises(SimulationError, match="reaches byte 1152 of buffer 'x', which has 1024"):
        run_box(MAP, array_of((64, 8), "f16"), (0, 1))


def test_what_nothing_wrote_is_not_copied() -> None:
    with pytest.raises(SimulationError, match="read of byte 0 of buffer 'x', which nothing has"):
        run_box(MAP, array_of((64, 16), "f16"), (0, 0), uninitialised=["x"])


def test_a_map_fits_its_parameter() -> None:
    x = array_of((64, 16), "f16")
    buffers = {"x": x, "y": np.zeros(1024, np.uint8)}
    good = launch_of(buffers, 32, 1, 16384, (MAP,))
    text = kernel_text(box_body(MAP, (0, 0)), ("x", "y"), maps=("x",))
    for old, new, message in (
        (".align 64", ".align 32", r"parameter m_x is .b8 .align 32 \[128\], got TensorMap"),
        ("[128]", "[64]", r"parameter m_x is .b8 .align 64 \[64\], got TensorMap"),
        ("mov.b64 %rd60, m_x", "mov.b64 %rd60, m_z", "unknown parameter m_z"),
        ("cvta.param.u64 %rd60, %rd60;", "", "wants the generic address of a tensor map"),
        ("mov.b64 %rd60, m_x", "ld.param.b64 %rd60, [m_x]", "ld.param of 8 bytes at m_x"),
    ):
        assert old in text
        with pytest.raises(SimulationError, match=message):
            run(text.replace(old, new), [good], buffers)
    swapped = Launch("k", good.grid, good.block, 16384, (MAP, *good.arguments[1:]))
    with pytest.raises(SimulationError, match=r"parameter p_x is \.u64, got TensorMap"):
        run(text, [swapped], buffers)
    lost = TensorMap("z", MAP.dtype, MAP.sizes, MAP.strides_bytes, MAP.box, "none")
    with pytest.raises(SimulationError, match="parameter m_x got buffer 'z', has x, y"):
        run(text, [launch_of(buffers, 32, 1, 16384, (lost,))], buffers)


def strided_map(view: Array, box: tuple[int, int] = (8, 2)) -> TensorMap:
    sizes, strides = tuple(reversed(view.shape)), view.strides[:1]
    return TensorMap("x", DTYPES["f16"], sizes, strides, box, "none")


def test_maps_over_strided_views() -> None:
    """Rows of a wider array, with nothing of what lies between them."""
    whole = np.full((6, 24), np.nan, np.float16)
    view = whole[1:5, 8:16]
    view[...] = np.arange(32).reshape(4, 8)
    copied = run_box(strided_map(view), view, (0, 2)).view(np.float16)
    np.testing.assert_array_equal(copied.reshape(2, 8), view[2:4])
    beyond = strided_map(whole[1:5, 8:24], (16, 2))
    with pytest.raises(SimulationError, match=r"between its elements: x as boxes.*byte 16 of"):
        run_box(beyond, view, (0, 0))


def test_maps_want_an_aligned_address() -> None:
    memory = np.zeros(256, np.float16)
    start = -memory.ctypes.data % 16 // 2
    view = memory[start + 4 : start + 132].reshape(8, 16)
    with pytest.raises(SimulationError, match=r"misaligned: x as boxes.*8 bytes past a multiple"):
        run_box(strided_map(view), view, (0, 0))
