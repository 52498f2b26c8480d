"""A value of a knob that is accepted changes what the kernel does: ignored, it would be a lie.

Texts are compared without what nothing reads, so that a hint that no copy carries is no change.
"""

from __future__ import annotations

from typing import Any

import pytest

from egraph_flash import Axis, Tensor, exp, f16, f32, i32, log, tanh, where
from egraph_flash.arranging import PLAN_KNOBS
from egraph_flash.knobs import KNOBS
from tests.support.forms import attention
from tests.support.live import live
from tests.support.realized import Realized
from tests.test_movement import MOVES

VALUES = {
    **MOVES,
    "BASE": ["max", "vote", "lazy"],
    "SUM": ["block", "lane", "ones"],
    "EXP": ["ex2", "fold", "accurate", "poly1", "poly3"],
    "START": ["zero", "base"],
    "TANH": ["exp", "approx"],
    "REGS": ["r255/b1", "r200/b2"],
}
BOXES = {"STAGE": "d2/tma/ring", "SLAB": "xor", "HANDOFF": "repack", "HOIST": "registers"}
BOXES |= {"DRAIN": "x4", "ROLES": "one", "SKEW": "off", "EXP": "ex2"}
COPIES = {**BOXES, "STAGE": "d2/cp/ring", "ROLES": "all"}
MOVED = {**BOXES, "BASE": "vote", "SUM": "lane"}

m, n, d, e, short = Axis.many(m=70, n=296, d=32, e=32, short=20)
q, k = Tensor("q", (m, d), f16), Tensor("k", (n, d), f16)
v, a = Tensor("v", (n, e), f16), Tensor("a", (m, n), f16)
x, y = Tensor("x", (m, n), f32), Tensor("y", (m,), f32)
place = Tensor("place", (n,), i32)
s = (q * k).sum(d)
thin = (Tensor("q", (m, short), f16) * Tensor("k", (n, short), f16)).sum(short)
weights = exp(s - s.max(n))

# An expression, the values that the others are compared with, and the knobs with a choice.
STREAMS = {"STAGE", "SLAB", "HOIST", "DRAIN", "GRID", "CACHE", "SKEW", "REGS", "ROLES"}
BODY = {*STREAMS, "TURNS"}
CASES: dict[str, tuple[Any, dict[str, str], set[str]]] = {
    "twisted sums": (
        attention(1, 2, 70, 296, 32),
        BOXES,
        {*BODY, "HANDOFF", "BASE", "EXP", "SUM"},
    ),
    "kernel sum": ((exp(-abs(s)) * v).sum(n), BOXES, {*BODY, "HANDOFF", "EXP"}),
    "short rows": (
        (exp(-abs(thin)) * v).sum(n),
        COPIES,
        {*BODY, "HANDOFF", "EXP"} - {"CACHE", "ROLES"},
    ),
    "product": ((a * v).sum(n), COPIES, STREAMS - {"HOIST", "SKEW", "ROLES"}),
    "log-sum-exp": (
        s.max(n) + log(weights.sum(n)),
        MOVED,
        {*BODY, "BASE", "EXP", "SUM", "START"},
    ),
    "maximum": (s.max(n), BOXES, BODY),
    "sum in the body": (
        (abs(q - k).sum(d) * v).sum(n),
        BOXES,
        {*STREAMS, "HANDOFF"} - {"HOIST"},
    ),
    "one depth step": ((abs(q - k).sum(d) * v).sum(n), BOXES, {*STREAMS, "HANDOFF"} - {"HOIST"}),
    "masked kernel sum": (
        (where((n.index <= m.index) & (place[m] == place), exp(-abs(s)), 0.0) * v).sum(n),
        {**BOXES, "SKIP": "index"},
        {*BODY, "HANDOFF", "EXP", "SKIP", "ORDER"},
    ),
    "bounded kernel sum": (
        (exp(5.0 * tanh(s)) * v).sum(n),
        BOXES,
        {*BODY, "HANDOFF", "EXP", "TANH"},
    ),
    "sum of rows": (x.sum(n) * exp(y), {}, {"SUM", "GRID", "REGS"}),
    "log-sum-exp of rows": (
        x.max(n) + log(exp(x - x.max(n)).sum(n)),
        {},
        {"BASE", "EXP", "SUM", "GRID", "REGS"},
    ),
}


BLOCKS = {"one depth step": 16}


@pytest.mark.parametrize("name", CASES)
def test_each_accepted_value_changes_the_kernel(name: str) -> None:
    expr, values, choosable = CASES[name]
    realized = Realized.of(expr.cast(f32), block=BLOCKS.get(name, 32))
    found = set()
    for knob, words in VALUES.items():
        if knob in PLAN_KNOBS:
            continue  # they make other stages
        texts = {word: realized.ptx(values, {knob: word}) for word in words}
        kept = {word: live(text) for word, text in texts.items() if text is not None}
        assert kept, f"no value of {knob} is legal"
        assert len(set(kept.values())) == len(kept), f"{knob}: some of {list(kept)} are alike"
        if len(kept) > 1:
            found.add(knob)
    assert found == choosable


def test_each_knob_has_an_effect_somewhere() -> None:
    """Of some expression that is no quotient of twisted sums."""
    others = [knobs for name, (_, _, knobs) in CASES.items() if name != "twisted sums"]
    assert set().union(*others) | {"PLACE", "TILE", *PLAN_KNOBS} == set(KNOBS)


def test_what_nothing_reads_is_no_effect() -> None:
    """A policy that no copy names, and a value that is computed twice."""
    realized = Realized.of((exp(-abs(thin)) * v).sum(n).cast(f32))
    text = realized.ptx(COPIES, {"STAGE": "d2/cp/ring"})
    assert text is not None
    first = next(line for line in text.splitlines() if "%tid.x" in line)
    unread = "    createpolicy.fractional.L2::evict_last.b64 %rd900;"
    more = text.replace(first, f"{first}\n{unread}").replace(".b64 %rd<", ".b64 %rd<9")
    assert more != text
    assert live(more) == live(text)
    assert live(text.replace("mma.sync", "// mma.sync")) != live(text)
