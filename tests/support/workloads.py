"""The expressions that the laws are tried on: each a function of its extents, tiny by default.

Those of the README's table are here, and other spellings of them and of what nobody has a name for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from egraph_flash import (
    Axis,
    Tensor,
    exp,
    f16,
    f32,
    i32,
    inf,
    log,
    maximum,
    minimum,
    softmax,
    sqrt,
    tanh,
    where,
)
from egraph_flash.expressions import Expr
from examples.workloads import WORKLOADS as LISTED
from tests.support.rows import (
    best,
    covariance,
    cross_entropy_picked,
    layer_norm_gain,
    linear_cross_entropy_picked,
    log_sum_exp_masked,
    mean_deviation,
    softmax_variance,
    squashed,
    variance,
    weighted_spread,
    weighted_variance,
)

Workload = Callable[..., Any]


def _axes(**extents: int) -> tuple[Axis, ...]:
    return Axis.many(**extents)


def _operands(h: Axis, m: Axis, n: Axis, d: Axis, e: Axis, group: int = 1) -> tuple[Expr, ...]:
    heads = -(-h.size // group)
    (g,) = _axes(g=heads)
    head = h // group if group > 1 else h
    q = Tensor("q", (h, m, d), f16)
    if group == 1:
        return q.expr, Tensor("k", (h, n, d), f16).expr, Tensor("v", (h, n, e), f16).expr
    return (
        q.expr,
        Tensor("k", (g, n, d), f16)[head, n, d],
        Tensor("v", (g, n, e), f16)[head, n, e],
    )


def _shape(h: int, m: int, n: int, d: int, e: int) -> tuple[Axis, ...]:
    return _axes(h=h, m=m, n=n, d=d, e=e)


def attention(
    h: int = 2,
    m: int = 3,
    n: int = 11,
    d: int = 4,
    e: int = 5,
    *,
    mask: str = "",
    bias: bool = False,
    softcap: float = 0.0,
    group: int = 1,
) -> Expr:
    H, M, N, D, E = _shape(h, m, n, d, e)
    q, k, v = _operands(H, M, N, D, E, group)
    s = (q * k).sum(D) * d**-0.5
    if softcap:
        s = softcap * tanh(s / softcap)
    if bias:
        s = s + Tensor("bias", (H, M, N), f16)
    if mask == "causal":
        s = where(N.index <= M.index, s, -inf)
    if mask == "rows":  # some rows have no element at all
        s = where(Tensor("mask", (M, N), i32).expr == 1.0, s, -inf)
    return (softmax(s, N) * v).sum(N)


def _scores(h: int = 2, m: int = 3, n: int = 11, d: int = 4, e: int = 5) -> tuple[Any, ...]:
    H, M, N, D, E = _shape(h, m, n, d, e)
    q, k, v = _operands(H, M, N, D, E)
    return (q * k).sum(D) * d**-0.5, v, q, k, H, M, N, D, E


def without_max(**sizes: int) -> Any:
    s, v, *_, N, _, _ = _scores(**sizes)
    return (exp(s) / exp(s).sum(N) * v).sum(N)


def divided_outside(**sizes: int) -> Any:
    s, v, *_, N, _, _ = _scores(**sizes)
    p = exp(s - s.max(N))
    return (p * v).sum(N) / p.sum(N)


def late_scale(**sizes: int) -> Any:
    """exp(scale (s - m)) with m the maximum of the unscaled score."""
    _, v, q, k, _, _, N, D, _ = _scores(**sizes)
    s = (q * k).sum(D)
    p = exp(0.125 * (s - s.max(N)))
    return (p * v).sum(N) / p.sum(N)


def against_log_sum(**sizes: int) -> Any:
    """p = exp(s - lse)."""
    s, v, *_, N, _, _ = _scores(**sizes)
    m = s.max(N)
    return (v * exp(s - (m + log(exp(s - m).sum(N))))).sum(N)


def commuted(**sizes: int) -> Any:
    """v p and k q the other way round, with the scale on the left."""
    _, v, q, k, _, _, N, D, _ = _scores(**sizes)
    s = 0.125 * (k * q).sum(D)
    p = exp(s - s.max(N))
    return (v * (p / p.sum(N))).sum(N)


def sink(**sizes: int) -> Any:
    s, v, _, _, H, _, N, _, _ = _scores(**sizes)
    c = Tensor("sink", (H,), f32).expr
    m = maximum(s.max(N), c)
    p = exp(s - m)
    return (p / (p.sum(N) + exp(c - m)) * v).sum(N)


def gated(**sizes: int) -> Any:
    """A gate for each element, and a normaliser that skips it."""
    s, v, _, _, H, _, N, _, _ = _scores(**sizes)
    p = exp(s - s.max(N))
    return (p * Tensor("gate", (H, N), f16) * v).sum(N) / p.sum(N)


def _sigmoid(x: Any) -> Expr:
    return 1.0 / (1.0 + exp(-x))


def gated_output(**sizes: int) -> Any:
    """A gate for each element of the result."""
    s, v, _, _, H, M, N, _, E = _scores(**sizes)
    return _sigmoid(Tensor("gate", (H, M, E), f16)) * (softmax(s, N) * v).sum(N)


def gated_scores(**sizes: int) -> Any:
    """A gate for each pair, beside weights that sum to 1 without it."""
    s, v, _, _, H, M, N, _, _ = _scores(**sizes)
    return (softmax(s, N) * _sigmoid(Tensor("gate", (H, M, N), f16)) * v).sum(N)


def linear(**sizes: int) -> Any:
    """No weights at all: a product of products."""
    s, v, *_, N, _, _ = _scores(**sizes)
    return (s * v).sum(N)


def linear_features(**sizes: int) -> Any:
    """Features elu + 1 of both sides, and their own normaliser, under a mask."""
    _, v, q, k, _, M, N, D, _ = _scores(**sizes)

    def features(x: Expr) -> Expr:
        return where(x > 0.0, x + 1.0, exp(minimum(x, 0.0)))

    s = where(N.index <= M.index, (features(q) * features(k)).sum(D), 0.0)
    return (s * v).sum(N) / s.sum(N)


def best_rows(**sizes: int) -> Any:
    """The rows of the elements with the greatest score, of several their mean."""
    s, v, *_, N, _, _ = _scores(**sizes)
    p = where(s == s.max(N), 1.0, 0.0)
    return (p * v).sum(N) / p.sum(N)


def sigmoid_scores(**sizes: int) -> Any:
    """Score arithmetic that nobody foresaw."""
    s, v, _, _, H, M, N, _, _ = _scores(**sizes)
    s = 5.0 / (1.0 + exp(-s)) - abs(N.index - M.index) * Tensor("slope", (H,), f32)
    return (softmax(s, N) * v).sum(N)


def masked_weights(**sizes: int) -> Any:
    """The mask applied to the weights, not to the scores."""
    s, v, _, _, _, M, N, _, _ = _scores(**sizes)
    p = where(N.index <= M.index, exp(s - s.max(N)), 0.0)
    return (p * v).sum(N) / p.sum(N)


def masked_then_scaled(**sizes: int) -> Any:
    _, v, q, k, _, M, N, D, _ = _scores(**sizes)
    s = where(N.index <= M.index, (q * k).sum(D), -inf) * 0.5
    return (softmax(s, N) * v).sum(N)


def additive_mask(**sizes: int) -> Any:
    s, v, _, _, _, M, N, _, _ = _scores(**sizes)
    s = s + where(N.index <= M.index, 0.0, -inf)
    return (softmax(s, N) * v).sum(N)


def kernel_regression(m: int = 3, n: int = 11, d: int = 4, e: int = 5) -> Expr:
    M, N, D, E = _axes(m=m, n=n, d=d, e=e)
    x, y = Tensor("x", (M, D), f16), Tensor("y", (N, D), f16)
    w = exp(2.0 * (x * y).sum(D) - (y * y).sum(D))
    return (w * Tensor("z", (N, E), f16)).sum(N) / w.sum(N)


def product(m: int = 3, n: int = 11, e: int = 4) -> Expr:
    M, N, E = _axes(m=m, n=n, e=e)
    return (Tensor("a", (M, N), f16) * Tensor("b", (N, E), f16)).sum(N)


def paged(m: int = 3, n: int = 12, d: int = 4, e: int = 5) -> Expr:
    """Rows found through an integer table, four to a page."""
    M, N, D, E, P, R = _axes(m=m, n=n, d=d, e=e, page=n // 4, row=4)
    pages = Tensor("pages", (P,), i32)
    q = Tensor("q", (M, D), f16)
    k = Tensor("k", (P, R, D), f16)[pages[N // 4], N % 4, D]
    v = Tensor("v", (P, R, E), f16)[pages[N // 4], N % 4, E]
    return (softmax((q * k).sum(D) * 0.5, N) * v).sum(N)


def two_outputs(**sizes: int) -> tuple[Expr, Expr]:
    s, v, *_, N, _, _ = _scores(**sizes)
    return (softmax(s, N) * v).sum(N), s.max(N) + log(exp(s - s.max(N)).sum(N))


def block(h: int = 2, q: int = 5, c: int = 6, d: int = 3) -> Expr:
    """RMS norm, three projections, weighted sum, output projection: one term."""
    H, Q, K, D, E = _axes(h=h, q=q, k=q, d=d, e=d)
    C, CQ, CK, CV = _axes(c=c, cq=c, ck=c, cv=c)
    X, G = Tensor("x", (Q, C), f16), Tensor("gain", (C,), f16)

    def normed(t: Axis, a: Axis) -> Expr:
        x = X[t, a]
        return x / sqrt((x * x).sum(a) / c + 1e-6) * G[a]

    wq = Tensor("wq", (H, CQ, D), f16)
    wk, wv = Tensor("wk", (H, CK, D), f16), Tensor("wv", (H, CV, E), f16)
    qs = (normed(Q, CQ) * wq).sum(CQ)
    ks = (normed(K, CK) * wk).sum(CK)
    vs = (normed(K, CV) * wv).sum(CV)
    o = (softmax((qs * ks).sum(D) * d**-0.5, K) * vs).sum(K)
    return (o * Tensor("wo", (H, E, C), f16)).sum(E).sum(H)


# The table's rows, as small as shows what there is to show.
TINY: dict[str, dict[str, int]] = {
    "matmul": {"m": 3, "n": 4, "k": 11},
    "batched_matmul": {"b": 2, "m": 3, "n": 4, "k": 11},
    "long_matmul": {"m": 3, "n": 4, "k": 130},
    "linear_cross_entropy": {"m": 4, "n": 11, "d": 6},
    "layer_norm_matmul": {"m": 3, "n": 11, "e": 4},
    "rms_norm_matmul": {"m": 3, "n": 11, "e": 4},
    "gated_attention": {"m": 3, "n": 11, "d": 4},
    "linear_attention": {"m": 3, "n": 11, "d": 4},
    "decode_contiguous": {"h": 4, "n": 32, "d": 4},
    "decode_paged": {"h": 4, "n": 32, "d": 4},
}
ROW = {"m": 4, "n": 11}


def tiny(name: str) -> Workload:
    """A row of the table at its tiny extents, where none are given."""
    extents = TINY.get(name, ROW)
    return lambda **given: LISTED[name].make(**{**extents, **given})


WORKLOADS: dict[str, Workload] = {
    **{name: tiny(name) for name in LISTED},
    "attention": attention,
    "attention_causal": lambda **s: attention(mask="causal", bias=True, softcap=30.0, **s),
    "attention_rows": lambda **s: attention(mask="rows", **s),
    "attention_grouped": lambda **s: attention(group=4, **{"h": 8, **s}),
    "without_max": without_max,
    "divided_outside": divided_outside,
    "late_scale": late_scale,
    "against_log_sum": against_log_sum,
    "commuted": commuted,
    "sink": sink,
    "gated": gated,
    "gated_output": gated_output,
    "gated_scores": gated_scores,
    "linear": linear,
    "linear_features": linear_features,
    "best": best,
    "best_rows": best_rows,
    "sigmoid_scores": sigmoid_scores,
    "masked_weights": masked_weights,
    "masked_then_scaled": masked_then_scaled,
    "additive_mask": additive_mask,
    "kernel_regression": kernel_regression,
    "log_sum_exp_masked": log_sum_exp_masked,
    "cross_entropy_picked": cross_entropy_picked,
    "linear_cross_entropy_picked": linear_cross_entropy_picked,
    "variance": variance,
    "weighted_variance": weighted_variance,
    "softmax_variance": softmax_variance,
    "weighted_spread": weighted_spread,
    "mean_deviation": mean_deviation,
    "squashed": squashed,
    "layer_norm_gain": layer_norm_gain,
    "covariance": covariance,
    "product": product,
    "paged": paged,
    "two_outputs": two_outputs,
    "block": block,
}
