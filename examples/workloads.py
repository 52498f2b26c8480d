"""The workloads that the README's table lists, each as its textbook definition says it.

    egraph-flash compile examples/workloads.py:entropy --emit derivation
    egraph-flash run examples/workloads.py:decode_paged --seed 1 --backend sim

Each is a function of its extents, which are small unless given: at these the table is simulated,
while a benchmark gives its own. The table, tests and the benchmark all read `WORKLOADS`. The
compiler knows none of them, nor any of their names, which tests/rules/test_vocabulary.py sees to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from egraph_flash import (
    Axis,
    Expr,
    Tensor,
    argmax,
    exp,
    f16,
    f32,
    i32,
    inf,
    log,
    maximum,
    softmax,
    sqrt,
    tanh,
    where,
)
from egraph_flash.axes import size_of
from egraph_flash.dtypes import DTYPES, Array
from egraph_flash.terms import subterms

# ---- products ------------------------------------------------------------------------------------


def matmul(m: int = 48, n: int = 40, k: int = 96) -> Expr:
    """A product with a bias and an activation."""
    M, N, K = Axis.many(m=m, n=n, k=k)
    product = (Tensor("a", (M, K), f16) * Tensor("w", (K, N), f16)).sum(K)
    y = product + Tensor("bias", (N,), f16)
    return 0.5 * y * (1.0 + tanh(0.7978845608 * (y + 0.044715 * y * y * y)))


def batched_matmul(b: int = 3, m: int = 40, n: int = 48, k: int = 64) -> Expr:
    """Both operands transposed: a of a batch, w shared by it."""
    B, M, N, K = Axis.many(b=b, m=m, n=n, k=k)
    return (Tensor("a", (B, K, M), f16) * Tensor("w", (N, K), f16)).sum(K)


def long_matmul(m: int = 16, n: int = 16, k: int = 1 << 13) -> Expr:
    """Few outputs and a long sum: split-K, which nobody asks for."""
    M, N, K = Axis.many(m=m, n=n, k=k)
    return (Tensor("a", (M, K), f16) * Tensor("w", (K, N), f16)).sum(K).cast(f32)


# ---- statistics of a row -------------------------------------------------------------------------


def _row(m: int, n: int) -> tuple[Axis, Axis, Expr]:
    M, N = Axis.many(m=m, n=n)
    return M, N, Tensor("x", (M, N), f32).expr


def row_softmax(m: int = 16, n: int = 600) -> Expr:
    _, N, x = _row(m, n)
    p = exp(x - x.max(N))
    return p / p.sum(N)


def log_sum_exp(m: int = 16, n: int = 600) -> Expr:
    _, N, x = _row(m, n)
    return x.max(N) + log(exp(x - x.max(N)).sum(N))


def log_sum_exp_plain(m: int = 16, n: int = 600) -> Expr:
    """Without the maximum that keeps it from overflowing."""
    _, N, x = _row(m, n)
    return log(exp(x).sum(N))


def cross_entropy(m: int = 16, n: int = 600) -> Expr:
    """Minus the logarithm of the softmax, picked by a one-hot mask."""
    M, N, x = _row(m, n)
    one_hot = where(Tensor("label", (M,), i32).expr == N.index, 1.0, 0.0)
    return -(one_hot * log(softmax(x, N))).sum(N)


def linear_cross_entropy(m: int = 32, n: int = 300, d: int = 64) -> Expr:
    """Of logits that no kernel writes."""
    M, N, D = Axis.many(m=m, n=n, d=d)
    x = (Tensor("hidden", (M, D), f16) * Tensor("w", (N, D), f16)).sum(D)
    one_hot = where(Tensor("label", (M,), i32).expr == N.index, 1.0, 0.0)
    return (-(one_hot * log(softmax(x, N))).sum(N)).cast(f32)


def entropy(m: int = 16, n: int = 600) -> Expr:
    _, N, x = _row(m, n)
    p = softmax(x, N)
    return -(p * log(p)).sum(N)


def collision(m: int = 16, n: int = 600) -> Expr:
    """Σ p²: how likely two draws are the same."""
    _, N, x = _row(m, n)
    p = softmax(x, N)
    return (p * p).sum(N)


def argmax_index(m: int = 16, n: int = 600) -> Expr:
    """The least index of the largest element."""
    _, N, x = _row(m, n)
    return argmax(x, N)


def mean_variance(m: int = 16, n: int = 600) -> tuple[Expr, Expr]:
    _, N, x = _row(m, n)
    mean = x.sum(N) / n
    return mean, ((x - mean) * (x - mean)).sum(N) / n


# ---- norms ---------------------------------------------------------------------------------------


def layer_norm(m: int = 16, n: int = 600) -> Expr:
    _, N, x = _row(m, n)
    centred = x - x.sum(N) / n
    normed = centred / sqrt((centred * centred).sum(N) / n + 1e-5)
    return normed * Tensor("gain", (N,), f32) + Tensor("bias", (N,), f32)


def layer_norm_matmul(m: int = 32, n: int = 128, e: int = 64) -> Expr:
    M, N, E = Axis.many(m=m, n=n, e=e)
    x = Tensor("x", (M, N), f16).expr
    centred = x - x.sum(N) / n
    normed = centred / sqrt((centred * centred).sum(N) / n + 1e-5)
    return (normed * Tensor("w", (N, E), f16)).sum(N)


def rms_norm(m: int = 16, n: int = 600) -> Expr:
    _, N, x = _row(m, n)
    return x / sqrt((x * x).sum(N) / n + 1e-6) * Tensor("gain", (N,), f32)


def rms_norm_matmul(m: int = 32, n: int = 128, e: int = 64) -> Expr:
    M, N, E = Axis.many(m=m, n=n, e=e)
    x = Tensor("x", (M, N), f16).expr
    normed = x / sqrt((x * x).sum(N) / n + 1e-6) * Tensor("gain", (N,), f16)
    return (normed * Tensor("w", (N, E), f16)).sum(N)


# ---- weighted sums of values ---------------------------------------------------------------------


def _operands(h: int, m: int, n: int, d: int) -> tuple[Any, ...]:
    H, M, N, D, E = Axis.many(h=h, m=m, n=n, d=d, e=d)
    q, k = Tensor("q", (H, M, D), f16).expr, Tensor("k", (H, N, D), f16).expr
    return q, k, Tensor("v", (H, N, E), f16).expr, H, N, D


def attention(h: int = 2, m: int = 32, n: int = 80, d: int = 64) -> Any:
    q, k, v, _, N, D = _operands(h, m, n, d)
    return (softmax((q * k).sum(D) * d**-0.5, N) * v).sum(N)


def gated_attention(h: int = 2, m: int = 32, n: int = 80, d: int = 64) -> Any:
    """A gate on each element, which the weights' sum does not see."""
    q, k, v, H, N, D = _operands(h, m, n, d)
    gate = 1.0 / (1.0 + exp(-Tensor("gate", (H, N), f16).expr))
    return (softmax((q * k).sum(D) * d**-0.5, N) * gate * v).sum(N)


def linear_attention(h: int = 2, m: int = 32, n: int = 80, d: int = 64) -> Any:
    """Weights φ(q)·φ(k), with φ(x) = 1 + elu(x), each row's divided by their sum."""

    def feature(x: Expr) -> Expr:
        return maximum(x, 0.0) + exp(-maximum(-x, 0.0))

    q, k, v, _, N, D = _operands(h, m, n, d)
    weight = (feature(q) * feature(k)).sum(D)
    return (weight * v).sum(N) / weight.sum(N)


# ---- a new row on a long cache -------------------------------------------------------------------

PAGE = 16


def decode_contiguous(b: int = 2, h: int = 8, g: int = 2, n: int = 1 << 11, d: int = 64) -> Expr:
    """One query row a sequence, `h / g` heads of queries for each head of keys."""
    B, H, G, N, D, E = Axis.many(b=b, h=h, g=g, n=n, d=d, e=d)
    k, v = Tensor("k", (B, G, N, D), f16), Tensor("v", (B, G, N, E), f16)
    scores = (Tensor("q", (B, H, D), f16) * k[B, H // (h // g), N, D]).sum(D) * d**-0.5
    return (softmax(scores, N) * v[B, H // (h // g), N, E]).sum(N)


def decode_paged(b: int = 2, h: int = 8, g: int = 2, n: int = 1 << 11, d: int = 64) -> Expr:
    """The same with a cache in pages that a table finds, and a length for each sequence."""
    B, H, G, N, D, E = Axis.many(b=b, h=h, g=g, n=n, d=d, e=d)
    of, pages, slot = Axis.many(of=-(-n // PAGE), pages=b * -(-n // PAGE), slot=PAGE)
    page, count = Tensor("page", (B, of), i32), Tensor("count", (B,), i32)
    place = (page[B, N // PAGE], N % PAGE, H // (h // g))
    k = Tensor("k", (pages, slot, G, D), f16)[(*place, D)]
    v = Tensor("v", (pages, slot, G, E), f16)[(*place, E)]
    scores = (Tensor("q", (B, H, D), f16) * k).sum(D) * d**-0.5
    return (softmax(where(N.index < count[B], scores, -inf), N) * v).sum(N)


# ---- the rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """A row of the table: what it says, and its definition."""

    says: str
    make: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.make.__name__

    def outputs(self, **extents: int) -> tuple[Expr, ...]:
        """Its outputs, of which there are often just one; small unless extents are given."""
        made = self.make(**extents)
        return made if isinstance(made, tuple) else (made,)

    def inputs(self, rng: np.random.Generator, **extents: int) -> dict[str, Array]:
        """Normals, labels that there are, pages in no order, lengths of a cache."""
        nodes: list[Any] = list(subterms(*self.outputs(**extents)))
        most = next((axis.size for axis in nodes if axis.head == "Ax" and axis.name == "n"), 0)
        found: dict[str, Array] = {}
        for name, dtype, sizes, *_ in (node.args for node in nodes if node.head == "Array"):
            shape = tuple(map(size_of, sizes))
            if name == "page":
                found[name] = rng.permutation(math.prod(shape)).reshape(shape).astype(np.int32)
            elif DTYPES[dtype].is_integer:
                first = 1 if name == "count" else 0
                found[name] = rng.integers(first, most + first, shape).astype(np.int32)
            else:
                found[name] = DTYPES[dtype].encode(rng.standard_normal(shape))
        return found


WORKLOADS: dict[str, Workload] = {
    row.name: row
    for row in (
        Workload("matmul, bias, GELU", matmul),
        Workload("batched, transposed", batched_matmul),
        Workload("split-K", long_matmul),
        Workload("softmax", row_softmax),
        Workload("log-sum-exp", log_sum_exp),
        Workload("the same without its maximum", log_sum_exp_plain),
        Workload("cross-entropy", cross_entropy),
        Workload("linear + cross-entropy", linear_cross_entropy),
        Workload("entropy of a softmax", entropy),
        Workload("Σ p² of a softmax", collision),
        Workload("argmax", argmax_index),
        Workload("mean and variance", mean_variance),
        Workload("LayerNorm", layer_norm),
        Workload("LayerNorm + matmul", layer_norm_matmul),
        Workload("RMSNorm", rms_norm),
        Workload("RMSNorm + matmul", rms_norm_matmul),
        Workload("attention", attention),
        Workload("gated attention", gated_attention),
        Workload("linear attention", linear_attention),
        Workload("decoding", decode_contiguous),
        Workload("decoding, paged", decode_paged),
    )
}
INPUTS = {name: row.inputs for name, row in WORKLOADS.items()}
