"""No name in an expression reaches an instruction: a kernel is made of structure alone."""

from __future__ import annotations

from typing import Any

import pytest

from egraph_flash import optimize
from examples.workloads import WORKLOADS
from tests.support.fresh import fresh_rng
from tests.support.renaming import instructions, random_names, renamed
from tests.support.workloads import WORKLOADS as SPELLED


def compiled(roots: tuple[Any, ...], name: str) -> str:
    return optimize(roots if len(roots) > 1 else roots[0], "sm_120", name=name).ptx


@pytest.mark.parametrize("name", WORKLOADS)
def test_names_change_no_instruction(name: str) -> None:
    """Tensors, axes and the kernel itself under random names."""
    names = random_names(fresh_rng())
    roots = WORKLOADS[name].outputs()
    others, _ = renamed(roots, names)
    mine, theirs = compiled(roots, name), compiled(others, next(names))
    assert mine != theirs
    assert instructions(mine) == instructions(theirs)


def test_another_expression_has_other_instructions() -> None:
    """What is compared tells kernels apart that differ in one constant, order or operand."""
    texts = [
        compiled((SPELLED[name](**extents),), name)
        for name, extents in (
            ("row_softmax", {"m": 16, "n": 600}),
            ("row_softmax", {"m": 16, "n": 601}),
            ("variance", {"m": 16, "n": 600}),
            ("collision", {"m": 16, "n": 600}),
            ("entropy", {"m": 16, "n": 600}),
        )
    ]
    assert len(set(map(instructions, texts))) == len(texts)


def test_what_is_compared_has_every_operand() -> None:
    """An instruction that reads another parameter, or a changed constant, is another."""
    ptx = compiled(WORKLOADS["cross_entropy"].outputs(), "one")
    assert "[p_x]" in ptx
    for old, new in (("[p_x]", "[p_label]"), ("0f3FB8AA3B", "0f3FB8AA3C")):
        changed = ptx.replace(old, new)
        assert changed != ptx
        assert instructions(changed) != instructions(ptx)
    assert instructions(ptx.replace("// the", "// another")) == instructions(ptx)
