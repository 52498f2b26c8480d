"""The three forms that come out of one lowering, as pins, and the attention they are tested on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from egraph_flash import Axis, Tensor, inf, softmax, where
from egraph_flash.dtypes import Array, Dtype, f16

MATERIALIZED, CUDA_CORES, TENSOR_CORES = "materialized", "cuda_cores", "tensor_cores"
FORMS = (MATERIALIZED, CUDA_CORES, TENSOR_CORES)

Mask = Callable[[Axis, Axis], Any]
MASKS: dict[str, Mask] = {
    "causal": lambda m, n: n.index <= m.index,
    "window": lambda m, n: (n.index <= m.index + 9) & (m.index - 40 < n.index),
    "prefix": lambda m, n: (n.index <= m.index) | (n.index < 50),
    "blocks": lambda m, n: n // 32 <= m // 24,
    "band": lambda m, n: abs(n.index - m.index) < 30,
    "ahead": lambda m, n: ~(n.index <= m.index + 20),
    "rows": lambda m, n: (m.index < 40) & (n.index % 7 != 3),
}


def pins(form: str, depth: int, columns: int, dtype: Dtype) -> dict[str, str]:
    """The pins that ask for a form at a head dim (`depth`) and value dim (`columns`)."""
    if form == MATERIALIZED:
        return {"PLACE": "fold=cut"}
    exact = {"BASE": "max", "SUM": "block", "EXP": "ex2", "SKEW": "off", "REDUCE": "g1"}
    if form == CUDA_CORES:
        return {
            "TILE@d": f"a:fma_f32/w4x1/f1x8/k{min(8, depth)}",
            "TILE@n": f"a:fma_f32/w4x1/f1x{columns}/k8",
            **exact,
        }
    atom = f"a:mma_m16n8k16_{dtype}"
    block = 64 if columns <= 96 else 32  # what fits in 255 registers with operands from memory
    return {
        "TILE@d": f"{atom}/w4x1/f1x{block // 8}/k{min(4, -(-depth // 16))}",
        "TILE@n": f"{atom}/w4x1/f1x{-(-columns // 8)}/k{block // 16}",
        **exact,
        "STAGE": "d0",
        "HANDOFF": "shared",
        "SLAB": "raw",
        "HOIST": "none",
    }


def attention(
    b: int,
    h: int,
    m: int,
    n: int,
    d: int,
    dtype: Dtype = f16,
    *,
    causal: bool = False,
    mask: Mask | None = None,
) -> Any:
    """softmax(q kᵀ / √d) v over [b, h, m or n, d] inputs, under a mask of (row, key)."""
    axes = Axis.many(b=b, h=h, m=m, n=n, d=d, e=d)
    bb, hh, mm, nn, dd, ee = axes
    q, k = Tensor("q", (bb, hh, mm, dd), dtype), Tensor("k", (bb, hh, nn, dd), dtype)
    v = Tensor("v", (bb, hh, nn, ee), dtype)
    s = (q * k).sum(dd) * d**-0.5
    mask = MASKS["causal"] if causal else mask
    if mask is not None:
        s = where(mask(mm, nn), s, -inf)
    return (softmax(s, nn) * v).sum(nn)


def inputs(kernel: Any, rng: np.random.Generator) -> dict[str, Array]:
    """Fresh normals for every input of a kernel, as stored."""
    return {spec.name: spec.dtype.encode(rng.standard_normal(spec.shape)) for spec in kernel.inputs}


def decoded(kernel: Any, arrays: dict[str, Array]) -> dict[str, Array]:
    return {spec.name: spec.dtype.decode(arrays[spec.name]) for spec in kernel.inputs}
