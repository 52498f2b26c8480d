"""A few small kernels as they are written out, so that a change of the emitter shows.

`pytest --update-golden` rewrites them. Each also parses back unchanged, assembles and runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, exp, f16, f32, log, optimize
from egraph_flash.codegen.ptx_parse import parse
from egraph_flash.codegen.ptx_text import emit
from egraph_flash.notation import parse as parse_term
from egraph_flash.notation import text
from tests.support.forms import attention, decoded, inputs
from tests.support.fresh import fresh_rng

FOLDER = Path(__file__).parent / "golden" / "test_golden"


def product() -> Any:
    m, n, k = Axis.many(m=16, n=8, k=16)
    return (Tensor("a", (m, k), f16) * Tensor("b", (k, n), f16)).sum(k)


def log_sum_exp() -> Any:
    m, n = Axis.many(m=4, n=40)
    return log(exp(Tensor("x", (m, n), f32)).sum(n))


def one_tile() -> Any:
    return attention(1, 1, 16, 16, 16)


CASES = {
    "product": (product, {"TILE": "a:mma_m16n8k16_f16/w1x1/f1x1/k1"}),
    "log_sum_exp": (log_sum_exp, {"TILE": "a:map_m1n32/w1x1/f1x1/k1"}),
    "one_tile": (one_tile, {"TILE": "a:mma_m16n8k16_f16/w1x1/f1x2/k1"}),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    build, pins = CASES[name]
    expr = build()
    kernel = optimize(expr, "sm_120", pins, name=name)
    term = "\n".join(map(text, kernel.terms)) + "\n"
    if request.config.getoption("--update-golden"):
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{name}.ptx").write_text(kernel.ptx)
        (FOLDER / f"{name}.term").write_text(term)
    stored = (FOLDER / f"{name}.ptx").read_text()
    assert kernel.ptx == stored, "the emitter changed: look, then pytest --update-golden"
    assert term == (FOLDER / f"{name}.term").read_text()
    assert emit(parse(stored)) == stored
    assert [text(parse_term(line)) for line in term.splitlines()] == term.splitlines()
    assert not any(entry.spill_bytes for entry in kernel.assembly.entries)
    arrays = inputs(kernel, fresh_rng())
    result = kernel.run(backend="sim", **arrays).astype(np.float64)
    reference = evaluate(expr, decoded(kernel, arrays))
    assert np.abs(result - reference).max() <= 2e-3 * max(1.0, np.abs(reference).max())
