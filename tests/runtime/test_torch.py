"""PyTorch tensors go in and come out, on the stream that PyTorch is on."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from egraph_flash.errors import InputError
from egraph_flash.kernel import Kernel
from egraph_flash.runtime import present_target
from tests.support import doubling

pytest.importorskip("torch")
torch: Any = importlib.import_module("torch")

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
HERE = present_target() or "sm_90"


def kernel(**options: Any) -> Kernel:
    return Kernel(doubling.record(target=HERE, **options))


@pytest.mark.parametrize("dtype", doubling.DTYPES, ids=repr)
def test_tensors_on_the_host(dtype: Any) -> None:
    x = torch.arange(120).reshape(3, 40).to(TYPES[dtype.name])
    result = kernel(dtype=dtype).run(x=x, backend="sim")
    assert result.dtype == x.dtype
    assert torch.equal(result, 2 * x)


def test_a_gradient_is_refused() -> None:
    x = torch.ones(3, 40, requires_grad=True)
    with pytest.raises(InputError, match=r"input 'x': Tensor gives no DLPack: .*detach"):
        kernel().run(x=x, backend="sim")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", doubling.DTYPES, ids=repr)
@pytest.mark.parametrize("stages", [1, 2])
def test_tensors_on_the_gpu(dtype: Any, stages: int) -> None:
    x = torch.arange(120, device="cuda").reshape(3, 40).to(TYPES[dtype.name])
    result = kernel(dtype=dtype, stages=stages)(x=x)
    assert result.device == x.device
    assert torch.equal(result, 2**stages * x)
    out = torch.zeros_like(x)
    assert kernel(dtype=dtype, stages=stages)(x=x, out=out) is out
    assert torch.equal(out, result)


@pytest.mark.gpu
def test_work_is_ordered_on_the_current_stream() -> None:
    """The input is written late on a side stream, and the kernel must see it."""
    made = kernel(rows=300, columns=400)
    x = torch.zeros(300, 400, device="cuda")
    made(x=x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x += 1.0
        result = made(x=x)
    stream.synchronize()
    assert bool((result == 2.0).all())


@pytest.mark.gpu
def test_a_stream_that_is_given_is_used() -> None:
    made = kernel(rows=300, columns=400)
    x = torch.zeros(300, 400, device="cuda")
    made(x=x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x += 1.0
    result = made(x=x, stream=stream)
    stream.synchronize()
    assert bool((result == 2.0).all())


@pytest.mark.gpu
def test_calls_can_be_captured_in_a_graph() -> None:
    made = kernel(stages=2)
    x = torch.ones(3, 40, device="cuda")
    out = torch.zeros_like(x)
    made(x=x, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made(x=x, out=out)
    x.fill_(3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((out == 12.0).all())


@pytest.mark.gpu
def test_strided_and_misaligned_tensors_run_in_place() -> None:
    """A new output is the library's own, in the order of the first input."""
    made = kernel()
    assert bool((made(x=torch.ones(121, device="cuda")[1:].reshape(3, 40)) == 2.0).all())
    wide = torch.full((3, 100), float("nan"), device="cuda")
    wide[:, 7:47], out = 1.0, torch.full((3, 50), float("nan"), device="cuda")
    assert made(x=wide[:, 7:47], out=out[:, 3:43]).data_ptr() == out.data_ptr() + 12
    assert bool((out[:, 3:43] == 2.0).all())
    assert int(out.isnan().sum()) == 3 * 10


@pytest.mark.gpu
def test_tensors_that_no_kernel_takes_are_refused() -> None:
    with pytest.raises(InputError, match=r"input 'x' on CUDA device 0 has strides \(1, 3\)"):
        kernel()(x=torch.ones(40, 3, device="cuda").t())
    held = torch.ones(3, 40, device="cuda")
    with pytest.raises(InputError, match="shares memory with input 'x'"):
        kernel()(x=held, out=held)


@pytest.mark.gpu
def test_tensors_without_elements() -> None:
    result = kernel(rows=0)(x=torch.ones(0, 40, device="cuda"))
    assert tuple(result.shape) == (0, 40)


@pytest.mark.gpu
def test_numpy_and_torch_agree() -> None:
    x = np.arange(120, dtype=np.float32).reshape(3, 40)
    on_gpu = kernel()(x=torch.from_numpy(x).cuda()).cpu().numpy()
    np.testing.assert_array_equal(on_gpu, kernel()(x=x))
