"""Random inputs for the members of an e-graph's classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from egraph_flash.terms import subterms


def inputs(roots: tuple[Any, ...], rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Random arrays for the tensors of an expression; integer tensors index or mask.

    A tensor called `mask` is 0 or 1 with its first row all 0; `label` and `pages` are indices.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for node in subterms(*roots):
        if node.head != "Array":
            continue
        name, dtype, extents, *_ = node.args
        shape = tuple(extent.args[-1] for extent in extents)
        if name == "mask":
            arrays[name] = (rng.random(shape) < 0.6).astype(np.int32)
            arrays[name][0] = 0
        elif dtype.startswith("i"):
            arrays[name] = rng.integers(0, 3, shape).astype(np.int32)
        else:
            arrays[name] = rng.standard_normal(shape)
    return arrays
