"""The loss of a language model's head, of logits that no kernel writes.

    python examples/cross_entropy.py
    egraph-flash compile examples/cross_entropy.py:loss --emit derivation

Written as libraries have it: a matrix product, a softmax, a logarithm, and the label's element of
it, picked by a one-hot mask. That is three passes over the logits; derived, it is one, in whose
state the picked logit is a channel like the maximum and the sum, and the product is its body.
"""

from __future__ import annotations

import numpy as np

from egraph_flash import Axis, Tensor, f16, f32, i32, log, optimize, softmax, where
from egraph_flash.checking import compare, seeded_inputs
from egraph_flash.dtypes import Array
from egraph_flash.loading import load
from egraph_flash.printing import table

tokens, vocabulary, width = Axis.many(tokens=64, vocabulary=1000, width=64)
hidden = Tensor("hidden", (tokens, width), f16)
weight = Tensor("weight", (vocabulary, width), f16)
label = Tensor("label", (tokens,), i32)

logits = (hidden * weight).sum(width) * width.size**-0.5
one_hot = where(label.expr == vocabulary.index, 1.0, 0.0)
loss = (-(one_hot * log(softmax(logits, vocabulary))).sum(vocabulary)).cast(f32)


def inputs(rng: np.random.Generator) -> dict[str, Array]:
    return {
        "hidden": rng.standard_normal((64, 64)).astype(np.float16),
        "weight": rng.standard_normal((1000, 64)).astype(np.float16),
        "label": rng.integers(0, 1000, 64).astype(np.int32),
    }


INPUTS = {"loss": inputs}


def main() -> None:
    loaded = load(f"{__file__}:loss")
    rows = []
    for how in ("fold=fuse", "fold=cut"):
        kernel = optimize(loss, "sm_120", {"PLACE": how})
        if how == "fold=fuse":
            for step in kernel.derivation:
                print(step)
        arrays = seeded_inputs(loaded, kernel, seed=1)
        ((_, error),) = compare(loaded, kernel, arrays, kernel.run(backend="sim", **arrays))
        kernels, buffers = len(kernel.plan.launches), kernel.workspace_bytes
        rows.append((how, kernel.passes, kernels, buffers, f"{error.max_abs:.0e}"))
    print()
    table("simulated", ["PLACE", "passes", "kernels", "bytes of buffers", "max |error|"], rows)


if __name__ == "__main__":
    main()
