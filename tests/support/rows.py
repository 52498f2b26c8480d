"""The expressions on rows of a matrix that the laws are tried on: what one row sums up to."""

from __future__ import annotations

from egraph_flash import (
    Axis,
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
from egraph_flash.expressions import Expr


def _rows(m: int, n: int) -> tuple[Axis, Axis, Expr]:
    M, N = Axis.many(m=m, n=n)
    return M, N, Tensor("x", (M, N), f32).expr


def log_sum_exp_masked(m: int = 5, n: int = 7) -> Expr:
    M, N, x = _rows(m, n)
    s = where(Tensor("mask", (M, N), i32).expr == 1.0, x, -inf)
    return s.max(N) + log(exp(s - s.max(N)).sum(N))


def _picked(M: Axis, N: Axis, s: Expr, otherwise: float = 0.0) -> Expr:
    label = Tensor("label", (M,), i32)
    return where(label.expr == N.index, s, otherwise)


def cross_entropy_picked(m: int = 4, n: int = 11) -> Expr:
    M, N, x = _rows(m, n)
    top = x.max(N)
    return -(_picked(M, N, x).sum(N) - (top + log(exp(x - top).sum(N))))


def linear_cross_entropy_picked(m: int = 4, n: int = 11, d: int = 6) -> Expr:
    M, N, D = Axis.many(m=m, n=n, d=d)
    s = (Tensor("hidden", (M, D), f16) * Tensor("w", (N, D), f16)).sum(D)
    top = s.max(N)
    return -(_picked(M, N, s).sum(N) - (top + log(exp(s - top).sum(N))))


def variance(m: int = 4, n: int = 11) -> Expr:
    _, N, x = _rows(m, n)
    y = x - x.sum(N) / n
    return (y * y).sum(N) / n


def weighted_variance(m: int = 4, n: int = 11) -> Expr:
    _, N, x = _rows(m, n)
    w = exp(Tensor("w", (N,), f32).expr)
    y = x - (w * x).sum(N) / w.sum(N)
    return (w * (y * y)).sum(N) / w.sum(N)


def softmax_variance(m: int = 4, n: int = 11) -> Expr:
    """Of values, under the weights of scores."""
    M, N, x = _rows(m, n)
    p = softmax(Tensor("scores", (M, N), f32), N)
    y = x - (p * x).sum(N)
    return (p * (y * y)).sum(N)


def weighted_spread(m: int = 4, n: int = 11) -> Expr:
    """One pass: these weights are provably positive, and need no maximum."""
    _, N, x = _rows(m, n)
    y = Tensor("y", (N,), f32).expr
    w = y * y + 1.0
    z = x - (w * x).sum(N) / w.sum(N)
    return (w * z * z).sum(N) / w.sum(N)


def mean_deviation(m: int = 3, n: int = 11) -> Expr:
    """Two passes, by any law here: the deviations do not compose."""
    _, N, x = _rows(m, n)
    y = x - x.sum(N) / n
    return maximum(y, -y).sum(N) / n


def squashed(m: int = 3, n: int = 11) -> Expr:
    """Two passes: tanh(x - max x) has no action."""
    _, N, x = _rows(m, n)
    return tanh(x - x.max(N)).sum(N)


def layer_norm_gain(m: int = 3, n: int = 11, e: int = 4) -> Expr:
    """With a gain on what is normalised, and the matrix on the left."""
    M, N, E = Axis.many(m=m, n=n, e=e)
    x = Tensor("x", (M, N), f16).expr
    y = x - x.sum(N) / n
    z = y / sqrt((y * y).sum(N) / n + 1e-5) * Tensor("gain", (N,), f16)
    return (Tensor("w", (N, E), f16) * z).sum(N)


def covariance(m: int = 3, n: int = 11) -> Expr:
    M, N, x = _rows(m, n)
    z = Tensor("z", (M, N), f32)
    return ((x - x.sum(N) / n) * (z - z.sum(N) / n)).sum(N) / n


def best(m: int = 3, n: int = 11) -> Expr:
    """Which element is the greatest."""
    _, N, x = _rows(m, n)
    return argmax(x, N)
