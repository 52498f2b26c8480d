"""Text for machines reads back as the same term, for random terms of every head."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egraph_flash.notation import flat_text, parse, pretty, text
from egraph_flash.terms import HEADS, SORTS, make, subterms, variable
from tests.support.workloads import WORKLOADS

_names = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
_numbers = st.floats(allow_nan=False)
_sizes = st.integers(0, 2**40)
_LEAVES = {
    "Extent": ("Known",),
    "Axis": ("Ax",),
    "Tensor": ("Array",),
    "Monoid": ("Sum", "Max"),
    "Level": ("Flat", "Grid"),
    "Representation": ("Rep",),
    "Expr": ("Num", "Idx", "Len"),
    "Chan": ("Ch",),
    "State": ("Lift",),
}


@st.composite
def _term(draw: st.DrawFn, sort: str, depth: int) -> Any:
    """A random term of a sort: any head that makes one, leaves once the depth is used up."""
    heads = [head.name for head in HEADS.values() if head.result == sort]
    head = draw(st.sampled_from(heads if depth > 0 else _LEAVES[sort]))
    return make(head, *(draw(_argument(each, depth - 1)) for each in HEADS[head].arguments))


def _argument(sort: str, depth: int) -> st.SearchStrategy[Any]:
    literal = {"i64": _sizes, "f64": _numbers, "String": _names}
    if sort in literal:
        return literal[sort]
    if sort.startswith(("Vec ", "Set ")):
        few = 2 if depth > 0 else 1
        return st.lists(_term(sort[4:], depth), max_size=few).map(tuple)
    return _term(sort, depth)


@pytest.mark.parametrize("sort", SORTS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_parse_reads_what_text_wrote(sort: str, data: st.DataObject) -> None:
    term = data.draw(_term(sort, 3))
    assert parse(text(term)) is term


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_read_back(name: str) -> None:
    made = WORKLOADS[name]()
    for root in made if isinstance(made, tuple) else (made,):
        assert parse(text(root)) is root
        for node in subterms(root):
            assert parse(text(node)) is node


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_term_prints_for_people(data: st.DataObject) -> None:
    assert pretty(data.draw(_term("Expr", 3)))


def test_patterns_read_back_with_their_sorts() -> None:
    k, e = variable("Axis", "k"), variable("Expr", "e")
    pattern = make("Red", make("Sum"), k, make("Exp", e))
    assert text(pattern) == "(Red (Sum) k (Exp e))"
    assert parse(text(pattern), {"k": "Axis", "e": "Expr"}) is pattern


@pytest.mark.parametrize("value", [0.1, -2.5, 1e-300, 1e300, float("inf"), float("-inf"), 3.0])
def test_numbers_read_back(value: float) -> None:
    assert parse(text(make("Num", value))).args == (value,)


def test_one_node_over_named_parts() -> None:
    e = variable("Expr", "e")
    assert flat_text(make("Exp", e), {e: "$v3"}) == "(Exp $v3)"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("(Num 1.0", "is not closed"),
        ("(Num", "is not closed"),
        ("(Num 1.0) x", "unexpected 'x'"),
        ("(Nope 1.0)", r"unknown \(Nope …\) with 1 arguments"),
        ("(Num 1.0 2.0)", r"unknown \(Num …\) with 2 arguments"),
        ("(Red (Prod) k e)", r"unknown \(Prod …\) with 0 arguments; the monoids are Sum, Max"),
        ("(Exp e)", "unexpected 'e'"),
        ("", "ends too early"),
    ],
)
def test_what_is_no_term(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(source)
