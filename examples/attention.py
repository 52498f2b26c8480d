"""Attention as its definition says it, and an expression that nobody has a name for.

    egraph-flash compile examples/attention.py:attention --emit derivation
    egraph-flash run examples/attention.py:minilm --inputs examples/data/minilm_layer3_qkv.npz
    egraph-flash bench examples/attention.py:attention --peer fa2,math

`PLAIN` computes the same in the inputs' own dtype, step by step, for comparison; `PEERS` names
what PyTorch has for it.
"""

from __future__ import annotations

import numpy as np

from egraph_flash import Axis, Expr, Tensor, exp, f16, inf, softmax, where
from egraph_flash.dtypes import Array
from egraph_flash.peers import Peer


def scores_of(q: Tensor, k: Tensor, d: Axis, scale: float) -> Expr:
    return (q * k).sum(d) * scale


# The perf shape.
b, h, m, n, d, e = Axis.many(b=1, h=8, m=4096, n=4096, d=64, e=64)
q, k, v = (
    Tensor("q", (b, h, m, d), f16),
    Tensor("k", (b, h, n, d), f16),
    Tensor("v", (b, h, n, e), f16),
)
s = scores_of(q, k, d, 64**-0.5)

attention = (softmax(s, n) * v).sum(n)
causal = (softmax(where(n.index <= m.index, s, -inf), n) * v).sum(n)

# The same without its maximum, with the division inside, or with operands commuted: the laws find
# one safe pass for each of them.
weights = exp(s)
no_maximum = (weights * v).sum(n) / weights.sum(n)
divided_inside = (weights / weights.sum(n) * v).sum(n)
commuted = (v * softmax(64**-0.5 * (k * q).sum(d), n)).sum(n)

# A real model's shape: a layer of all-MiniLM-L6-v2 over a paragraph of 128 tokens.
b1, h12, m128, n128, d32, e32 = Axis.many(b=1, h=12, m=128, n=128, d=32, e=32)
minilm_q = Tensor("q", (b1, h12, m128, d32), f16)
minilm_k = Tensor("k", (b1, h12, n128, d32), f16)
minilm_v = Tensor("v", (b1, h12, n128, e32), f16)
minilm = (softmax(scores_of(minilm_q, minilm_k, d32, 32**-0.5), n128) * minilm_v).sum(n128)

# Kernel regression with vectors x and y: a weighted mean of z under a Gaussian kernel, up to a
# factor that cancels.
rows, points, width, channels = Axis.many(rows=1024, points=4096, width=64, channels=64)
x = Tensor("x", (rows, width), f16)
y = Tensor("y", (points, width), f16)
z = Tensor("z", (points, channels), f16)
closeness = exp(2 * (x * y).sum(width) - (y * y).sum(width))
kernel_regression = (closeness * z).sum(points) / closeness.sum(points)


def plain(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    """Scores, scaled scores, probabilities and output, each rounded to the inputs' dtype."""
    dtype = q.dtype.type
    scores = np.matmul(q.astype(np.float32), np.swapaxes(k, -1, -2).astype(np.float32)).astype(
        dtype
    )
    scaled = (scores * dtype(q.shape[-1] ** -0.5)).astype(np.float32)
    if causal:
        rows, columns = scaled.shape[-2:]
        scaled = np.where(np.arange(columns) <= np.arange(rows)[:, None], scaled, -np.inf)
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    probabilities = (weights / weights.sum(axis=-1, keepdims=True)).astype(dtype)
    result: Array = np.matmul(probabilities.astype(np.float32), v.astype(np.float32)).astype(dtype)
    return result


def plain_causal(q: Array, k: Array, v: Array) -> Array:
    return plain(q, k, v, causal=True)


PLAIN = {
    "attention": plain,
    "causal": plain_causal,
    "no_maximum": plain,
    "divided_inside": plain,
    "commuted": plain,
    "minilm": plain,
}
PEERS = {
    "attention": Peer("q", "k", "v", scale=64**-0.5),
    "causal": Peer("q", "k", "v", scale=64**-0.5, causal=True),
    "minilm": Peer("q", "k", "v", scale=32**-0.5),
}
INPUTS = {
    # vectors near each other, so that the kernel has neighbours to average over
    "kernel_regression": lambda rng: {
        name: (0.3 * rng.standard_normal(shape)).astype(np.float16)
        for name, shape in (("x", (1024, 64)), ("y", (4096, 64)), ("z", (4096, 64)))
    },
}
