"""Arrays that lie anywhere, on a real kernel: no copy, no byte of a gap, and the same bits."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from egraph_flash import (
    Axis,
    Tensor,
    f16,
    inf,
    optimize,
    runtime,
    softmax,
    specialization,
    where,
    window,
)
from egraph_flash.compilation import compile_request
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError
from egraph_flash.evaluation import evaluate
from egraph_flash.kernel import Kernel
from egraph_flash.notices import CopyWarning
from egraph_flash.pipeline import compiled
from egraph_flash.record import Record, from_json, to_json
from egraph_flash.request import Request
from egraph_flash.runtime import DeviceArray
from tests.support.fake_cuda import CudaTensor, FakeDriver
from tests.support.fresh import fresh_rng
from tests.support.layouts import (
    LAYOUTS,
    DeviceView,
    Laid,
    Lay,
    bshd,
    dense,
    expanded,
    packed,
    poison,
    sliced,
)
from tests.support.plain import assert_close_as_plain, plain_attention

SHAPE = (2, 2, 20, 16)
b, h, m, n, d, e = Axis.many(b=2, h=2, m=20, n=20, d=16, e=16)
Q = Tensor("q", (b, h, m, d), f16)
K = Tensor("k", (b, h, n, d), f16)
V = Tensor("v", (b, h, n, e), f16)
ATTENTION = (softmax((Q * K).sum(d) * 16**-0.5, n) * V).sum(n)
IDS = {"ids": lambda given: getattr(given, "__name__", str(given))}


@functools.cache
def kernel(target: str = "sm_120") -> Kernel:
    return optimize(ATTENTION, target, name="attention")


@functools.cache
def values() -> dict[str, Array]:
    """q, k and v, the heads of v all alike, so that it can be expanded."""
    rng = fresh_rng()
    made = {name: rng.standard_normal(SHAPE).astype(np.float16) for name in "qkv"}
    made["v"][:, 1] = made["v"][:, 0]
    return made


@functools.cache
def wanted(target: str = "sm_120") -> Array:
    """What dense arrays give, which is right."""
    result = kernel(target).run(backend="sim", **values())
    plain = plain_attention(values(), f16)
    assert_close_as_plain(result.astype(np.float64), plain, evaluate(ATTENTION, values()), f16)
    return result  # type: ignore[no-any-return]


def check(made: Kernel, lays: dict[str, Lay], out: Lay | None, backend: str = "sim") -> Any:
    """Run on arrays that lie so; nothing but the output's own elements changes."""
    laid = {name: lay(SHAPE, values()[name]) for name, lay in lays.items()}
    before = {name: each.whole.copy() for name, each in laid.items()}
    given = {name: each.view for name, each in laid.items()}
    if out is None:
        result = made.run(backend=backend, **given)
    else:
        target = out(SHAPE, None)
        result = made.run(backend=backend, out=target.view, **given)
        assert result is target.view
        assert target.gaps.any() == (target.whole.size != target.view.size)
        assert np.isnan(target.whole[target.gaps]).all()
    np.testing.assert_array_equal(result, wanted(made.target))
    for name, each in laid.items():
        np.testing.assert_array_equal(each.whole.view(np.uint16), before[name].view(np.uint16))
    return result


@pytest.mark.parametrize(("lay", "alignment"), LAYOUTS, **IDS)  # type: ignore[arg-type]
def test_all_inputs_lie_so(lay: Lay, alignment: int | None) -> None:
    check(kernel(), dict.fromkeys("qkv", lay), None)
    laid = {name: lay(SHAPE, values()[name]).view for name in "qkv"}
    used = kernel().specialized(**laid)
    assert (used is kernel()) == (alignment is None)
    assert {row.alignment_bytes for row in used.record.plan.buffers[:3]} == {alignment or 16}


@pytest.mark.parametrize(("lay", "alignment"), LAYOUTS, **IDS)  # type: ignore[arg-type]
def test_the_output_lies_so(lay: Lay, alignment: int | None) -> None:
    check(kernel(), dict.fromkeys("qkv", dense), lay)


def test_layouts_mix() -> None:
    """Each array lies somewhere of its own."""
    rng = fresh_rng()
    lays = [lay for lay, _ in LAYOUTS]
    for _ in range(8):
        picked = {name: lays[rng.integers(len(lays))] for name in "qkv"}
        check(kernel(), picked, lays[rng.integers(len(lays))])


def test_heads_may_be_expanded() -> None:
    check(kernel(), {"q": dense, "k": bshd, "v": expanded}, None)


def test_one_key_is_copied_in_runs_as_many_are() -> None:
    """Rows past the only key lie where it does, as its stride is a call's: 16 bytes at a time."""
    one, wide = Axis.many(n=1, e=96)
    keys, held = Tensor("k", (b, h, one, d), f16), Tensor("v", (b, h, one, wide), f16)
    expr = (softmax((Q * keys).sum(d), one) * held).sum(one)
    made = optimize(expr, "sm_120", {"STAGE": "d2/cp/ring"})
    v = fresh_rng().standard_normal((2, 2, 1, 96)).astype(np.float16)
    given = {"q": values()["q"], "k": values()["k"][:, :, :1].copy()}
    laid = sliced(0, 8)(v.shape, v).view
    found = made.run(backend="sim", **given, v=laid)
    np.testing.assert_array_equal(found, np.broadcast_to(v, (2, 2, 20, 96)))


def test_one_key_is_loaded_wherever_a_mask_is_needed() -> None:
    """Its address is the same in every round, but not whether it is inside: no round keeps it."""
    row, one = Axis.many(m=1, n=1)
    query, keys = Tensor("q", (b, h, row, d), f16), Tensor("k", (b, h, one, d), f16)
    scores = where(window(row, one, left=12), (query * keys).sum(d), -inf)
    expr = (softmax(scores, one) * Tensor("v", (b, h, one, e), f16)).sum(one)
    pins = {"TILE@d": "a:mma_m16n8k16_f16/w2x1/f1x4/k1", "STAGE": "d0", "SKEW": "off"}
    made = optimize(expr, "sm_120", pins)
    given = {name: values()[name][:, :, :1].copy() for name in "qkv"}
    laid = sliced(1, 6)(given["k"].shape, given["k"]).view
    np.testing.assert_array_equal(made.run(backend="sim", **given | {"k": laid}), given["v"])


def test_views_of_one_buffer() -> None:
    """q, k, v and the output interleaved in one array, as [b, s, 4, h, d]."""
    whole = poison(2, 20, 4, 2, 16)
    views = [whole[:, :, i].swapaxes(1, 2) for i in range(4)]
    for name, view in zip("qkv", views, strict=False):
        view[...] = values()[name]
    kernel().run(backend="sim", q=views[0], k=views[1], v=views[2], out=views[3])
    for view, held in zip(views, [*values().values(), wanted()], strict=True):
        np.testing.assert_array_equal(view, held)


@pytest.mark.parametrize(
    ("lay", "order"),
    [(dense, "bhmd"), (bshd, "bmhd"), (packed, "bmhd"), (sliced(8, 8), "bhmd")],
    **IDS,  # type: ignore[arg-type]
)
def test_new_outputs_lie_in_the_order_of_the_first_input(lay: Lay, order: str) -> None:
    result = check(kernel(), {"q": lay, "k": dense, "v": dense}, None)
    in_memory = result.transpose(["bhmd".index(axis) for axis in order])
    assert in_memory.flags.c_contiguous


# ---- which kernels run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lay", "transport"),
    [(bshd, "tma"), (sliced(4, 4), "cp"), (sliced(0, 2), "cp"), (sliced(1, 6), None)],
    **IDS,  # type: ignore[arg-type]
)
def test_the_schedule_says_how_they_can_be_moved(lay: Lay, transport: str | None) -> None:
    """Tensor copies take what they can; what threads would copy may stay where it is as well."""
    used = kernel().specialized(**{name: lay(SHAPE, values()[name]).view for name in "qkv"})
    for name in "kv":
        stage = used.schedule[f"STAGE@{name}"]
        moved = stage.split("/")[1] if "/" in stage else None
        assert moved in ((transport,) if transport == "tma" else (transport, None)), stage


def test_a_pinned_tensor_copy_says_which_array_cannot_be_copied_so() -> None:
    pinned = optimize(ATTENTION, "sm_120", {"STAGE": "d2/tma/ring"}, name="pinned")
    given = dict(values())
    given["k"] = bshd(SHAPE, given["k"]).view
    np.testing.assert_array_equal(pinned.run(backend="sim", **given).shape, SHAPE)
    given["k"] = sliced(4, 4)(SHAPE, given["k"]).view
    with pytest.raises(ScheduleError) as caught:
        pinned.run(backend="sim", **given)
    message = str(caught.value)
    assert "k with strides (1584, 528, 24, 1) at 8 past 16 bytes" in message
    assert "STAGE" in message
    assert "d2/tma/ring" in message


class Counted:
    """Stands for `compiled`, and counts the requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request, *given: Any) -> Record:
        self.requests.append(request)
        return compiled(request, *given)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted()
    monkeypatch.setattr(specialization, "compiled", made)
    return made


def test_one_kernel_serves_all_strides_of_a_class(counted: Counted) -> None:
    made = Kernel(kernel().record)
    for start, rest in ((8, 8), (0, 16), (16, 24), (8, 0), (24, 8)):
        check(made, dict.fromkeys("qkv", sliced(start, rest)), None)
    assert len(counted.requests) == 1
    check(made, dict.fromkeys("qkv", sliced(4, 0)), None)
    check(made, dict.fromkeys("qkv", dense), None)
    assert len(counted.requests) == 2


def test_kernels_that_were_read_back_can_do_it_too(counted: Counted) -> None:
    """From text, as from the disk cache; and a kernel for some layout serves all others."""
    read = Kernel(from_json(to_json(kernel().record)))
    given = {name: sliced(4, 4)(SHAPE, values()[name]).view for name in "qkv"}
    used = read.specialized(**given)
    assert used.ptx == kernel().specialized(**given).ptx
    again = Kernel(from_json(to_json(used.record)))
    check(again, dict.fromkeys("qkv", dense), None)
    check(again, dict.fromkeys("qkv", sliced(1, 6)), None)


@pytest.mark.parametrize("pins", [{}, {"PLACE": "fold=cut"}, {"REDUCE": "g2"}], ids=str)
def test_what_is_derived_does_not_depend_on_where_arrays_lie(
    counted: Counted, pins: dict[str, str]
) -> None:
    """It is taken from the kernel as tensors say, and would be found again."""
    record = optimize(ATTENTION, "sm_120", pins).record
    found = specialization.specialized(record, {"q": 2, "k": 2, "v": 2}, "here")
    (request,) = counted.requests
    anew = compile_request(request, {})
    assert anew.derivation == found.derivation == record.derivation
    assert (anew.term, anew.schedule) == (found.term, found.schedule)


def test_brackets_are_chosen_anew_only_where_they_cannot_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No case is known in which they cannot; here it is said of every one."""
    seen: list[dict[str, str]] = []

    def refusing(request: Request, *given: Any) -> Record:
        seen.append(dict(request.pins))
        if "PLACE" in request.pins:
            raise ScheduleError("no way")
        return compiled(request, *given)

    monkeypatch.setattr(specialization, "compiled", refusing)
    found = specialization.specialized(kernel().record, {"q": 4}, "here")
    assert found.plan.buffers[0].alignment_bytes == 4
    assert found.pins == {}
    assert [bool(pins) for pins in seen] == [True, False]
    assert {"TILE@d", "TILE@n", "BASE", "EXP"} <= set(seen[0])
    assert not {"STAGE@k", "SLAB", "GRID"} & set(seen[0])


def test_declared_strides_need_no_other_kernel(counted: Counted) -> None:
    """Tensors may say that they are strided, or how; then those are what the kernel takes."""
    q = Tensor("q", (b, h, m, d), f16, strides=(None, None, None, 1))
    k = Tensor("k", (b, h, n, d), f16, strides=(640, 16, 32, 1))
    made = Kernel(optimize((softmax((q * k).sum(d) * 0.25, n) * V).sum(n), "sm_120").record)
    check(made, {"q": packed, "k": bshd, "v": dense}, dense)
    check(made, {"q": sliced(8, 8), "k": bshd, "v": dense}, dense)
    assert not counted.requests
    check(made, {"q": dense, "k": dense, "v": dense}, None)
    assert len(counted.requests) == 1


def test_arrays_without_contiguous_rows_are_copied() -> None:
    """Where the last axis is not contiguous, which no kernel for open strides reads."""
    turned = {name: np.asfortranarray(each) for name, each in values().items()}
    with pytest.warns(CopyWarning, match=r"input '[qkv]' has strides .*; copied"):
        result = kernel().run(backend="sim", **turned)
    np.testing.assert_array_equal(result, wanted())


# ---- what a GPU gets -----------------------------------------------------------------------------


def test_launches_on_a_gpu_have_addresses_and_strides(fake_gpu: FakeDriver) -> None:
    """Of the views themselves; the new output has the first input's order."""
    fake_gpu._cuLaunchKernel = lambda *_: None  # type: ignore[method-assign]
    laid = {"q": bshd, "k": packed, "v": dense}
    views = {name: lay(SHAPE, values()[name]).view for name, lay in laid.items()}
    result = kernel()(**{name: CudaTensor(view) for name, view in views.items()})
    assert isinstance(result, DeviceArray)
    assert (result.shape, result.strides) == (SHAPE, (640, 16, 32, 1))
    ((*_, (given, _), _),) = fake_gpu.called("cuLaunchKernel")
    addresses = [each.ctypes.data for each in views.values()]
    plain = [each for each in given if isinstance(each, int)]
    assert {addresses[0], result.address} <= set(plain)
    assert set(views["q"].strides[:3]) <= set(plain)
    encoded = fake_gpu.called("cuTensorMapEncodeTiled")
    maps = {tensor: strides for _, tensor, _, strides, *_ in encoded}
    assert maps[addresses[1]] == [*reversed(views["k"].strides[:3])]
    assert maps[addresses[2]] == [*reversed(views["v"].strides[:3])]


def test_unaligned_arrays_on_a_gpu_have_no_maps(fake_gpu: FakeDriver) -> None:
    fake_gpu._cuLaunchKernel = lambda *_: None  # type: ignore[method-assign]
    views = {name: sliced(1, 6)(SHAPE, values()[name]).view for name in "qkv"}
    out = poison(*SHAPE)
    given = {name: CudaTensor(view) for name, view in views.items()}
    target = CudaTensor(out)
    assert kernel()(**given, out=target) is target
    ((*_, (arguments, _), _),) = fake_gpu.called("cuLaunchKernel")
    assert {view.ctypes.data for view in (*views.values(), out)} <= set(arguments)
    assert not fake_gpu.called("cuTensorMapEncodeTiled")
    assert not fake_gpu.called("cuMemAllocAsync")


# ---- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(("lay", "alignment"), LAYOUTS, **IDS)  # type: ignore[arg-type]
def test_views_on_a_gpu(lay: Lay, alignment: int | None) -> None:
    """From the host, and where they lie on the GPU; gaps keep what they held."""
    made = kernel(runtime.present_target() or "sm_90")
    check(made, dict.fromkeys("qkv", lay), lay, backend="gpu")
    laid = {name: lay(SHAPE, values()[name]) for name in "qkv"}
    laid["out"] = lay(SHAPE, None)
    given = {name: on_gpu(each) for name, each in laid.items()}
    assert made(**given) is given["out"]
    whole = given["out"].held.numpy()
    gaps = laid["out"].gaps
    laid["out"].whole[...] = whole
    np.testing.assert_array_equal(laid["out"].view, wanted(made.target))
    assert np.isnan(whole[gaps]).all()


@pytest.mark.gpu
def test_expanded_heads_on_a_gpu() -> None:
    made = kernel(runtime.present_target() or "sm_90")
    laid = {"q": bshd(SHAPE, values()["q"]), "k": bshd(SHAPE, values()["k"])}
    given = {name: on_gpu(each) for name, each in laid.items()}
    result = made(**given, v=on_gpu(expanded(SHAPE, values()["v"])))
    assert result.strides == (640, 16, 32, 1)
    np.testing.assert_array_equal(result.numpy(), wanted(made.target))


def on_gpu(laid: Laid) -> DeviceView:
    return DeviceView(laid, DeviceArray.of(laid.whole, f16, 0))
