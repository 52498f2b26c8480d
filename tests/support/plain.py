"""What plain arithmetic in the inputs' own dtype gives, and the bounds of the field."""

from __future__ import annotations

import numpy as np

from egraph_flash.dtypes import Array, Dtype


def plain_attention(arrays: dict[str, Array], dtype: Dtype, *, causal: bool = False) -> Array:
    """Scores, scaled scores, probabilities and output, each rounded to the dtype; as float64."""

    def rounded(values: Array) -> Array:
        return dtype.decode(dtype.encode(values))

    q, k, v = (dtype.decode(arrays[name]) for name in ("q", "k", "v"))
    scores = rounded(np.matmul(q, np.swapaxes(k, -1, -2)))
    scaled = rounded(scores * q.shape[-1] ** -0.5)
    if causal:
        rows, columns = scaled.shape[-2:]
        scaled = np.where(np.arange(columns) <= np.arange(rows)[:, None], scaled, -np.inf)
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    probabilities = rounded(weights / weights.sum(axis=-1, keepdims=True))
    return rounded(np.matmul(probabilities, v))


def rounding_floor(reference: Array, dtype: Dtype) -> float:
    """What storing the reference in the dtype already costs (FlashAttention's own floor)."""
    return float(np.abs(dtype.decode(dtype.encode(reference + 0.3)) - 0.3 - reference).max())


def assert_close_as_plain(result: Array, plain: Array, reference: Array, dtype: Dtype) -> None:
    """Element by element: at most twice the plain computation's largest error, and the floor."""
    assert not np.isnan(reference).any()
    assert not np.isnan(result).any()
    bound = 2 * np.abs(plain - reference).max() + 2 * rounding_floor(reference, dtype)
    worst = np.abs(result - reference).max()
    assert worst <= bound, f"got an error of {worst:.3e}, wants at most {bound:.3e}"
