"""Saturated e-graphs that are kept: a compile that finds one gives what a fresh one would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from egraph_flash import Axis, Tensor, f16, f32, inf, register, saturated, softmax, where
from egraph_flash.compilation import compile_request
from egraph_flash.errors import ScheduleError
from egraph_flash.extraction import Search, searching
from egraph_flash.machines import machine
from egraph_flash.record import to_json
from egraph_flash.request import request_for
from tests.support.own import MIN
from tests.support.workloads import WORKLOADS

b, h, m, n, d = Axis.many(b=2, h=2, m=40, n=80, d=32)
q, k, v = Tensor("q", (b, h, m, d), f16), Tensor("k", (b, h, n, d), f16), Tensor("v", (n, d), f32)


def causal() -> Any:
    s = where(n.index <= m.index, (q * k).sum(d) * 0.125, -inf)
    return (softmax(s, n) * k).sum(n)


EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "causal": causal,
    "two outputs": lambda: (v.expr.max(n), softmax(v, n)),
    "norm of a product": WORKLOADS["layer_norm_gain"],
}
PINS: tuple[dict[str, str], ...] = (
    {},
    {"PLACE": "fold=cut"},
    {"PLACE": "fold=fuse", "REDUCE": "g2"},
    {"TILE": "a:fma_f32/w4x1/f1x8/k99"},  # which no geometry has
)
CASES = list(itertools.product(EXPRESSIONS, range(len(PINS))))


def record(name: str, pins: dict[str, str], target: str = "sm_90") -> str:
    """All of what compiling says, whatever that is."""
    try:
        request = request_for(EXPRESSIONS[name](), target, pins, "kernel")
        return to_json(compile_request(request, {}))
    except ScheduleError as refused:
        return str(refused)


def in_a_new_thread(made: Callable[[], Any]) -> Any:
    """What it returns where no e-graph is kept yet, since each thread has its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(made).result()


def of_all(cases: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    return {(name, place): record(name, PINS[place]) for name, place in cases}


@pytest.fixture(scope="module")
def fresh() -> dict[tuple[str, int], str]:
    """The record of each case, of an engine of its own."""
    return {case: in_a_new_thread(partial(of_all, [case]))[case] for case in CASES}


def test_records_are_those_of_fresh_e_graphs(
    fresh: dict[tuple[str, int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In either order of the pins, and where e-graphs of other expressions come between."""
    monkeypatch.setattr(saturated, "KEPT", len(EXPRESSIONS) - 1)
    assert len(set(fresh.values())) > len(EXPRESSIONS)
    between = sorted(CASES, key=lambda case: case[1])
    for order in (CASES[::-1], between):
        assert in_a_new_thread(partial(of_all, order)) == fresh


def test_other_targets_have_the_same_e_graph() -> None:
    fresh = in_a_new_thread(lambda: record("causal", {}, "sm_120"))
    record("causal", {}, "sm_90")
    assert record("causal", {}, "sm_120") == fresh


# ---- what is kept --------------------------------------------------------------------------------


@pytest.fixture
def engines() -> Iterator[list[Any]]:
    """What this thread keeps, from nothing on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saturated._LOCAL, "engines", saturated._Engines())
        yield saturated._LOCAL.engines.idle


def sessions_of(*roots: Any) -> Any:
    with searching(roots, machine("sm_90")) as search:
        return search.session


def test_an_expression_is_found_again_under_other_names(engines: list[Any]) -> None:
    x, y = Tensor("x", (m, n), f32), Tensor("y", (b, h), f32)
    first = sessions_of(x.expr.sum(n))
    assert sessions_of(x.expr.sum(n)) is first
    (i, j) = Axis.many(i=m.size, j=n.size)
    assert sessions_of(Tensor("z", (i, j), f32).expr.sum(j)) is first
    assert sessions_of(y.expr.sum(h)) is not first
    assert len(engines) == 2


def test_few_are_kept_and_those_that_were_used_last(engines: list[Any]) -> None:
    axes = [Axis("n", size) for size in range(1, saturated.KEPT + 2)]
    roots = [Tensor("x", (axis,), f32).expr.sum(axis) for axis in axes]
    for root in (*roots[:-1], roots[0], roots[-1]):
        sessions_of(root)
    sizes = [engine.held.session.roots[0].args[1].size for engine in engines]
    assert sizes == [*range(3, saturated.KEPT + 1), 1, saturated.KEPT + 1]


def test_what_was_asked_of_it_is_forgotten(engines: list[Any]) -> None:
    """The laws' hits too, which derivations show."""
    with searching((softmax(v, n),), machine("sm_90")) as search:
        sizes, hits = search.session.sizes(), dict(search.session.hits)
        axis = search.roots[0].axes[0]
        for size in (16, 32):
            search.session.bracket({axis: size})
        assert search.session.sizes() != sizes
        assert search.session.hits != hits
    with searching((softmax(v, n),), machine("sm_90")) as again:
        assert again.session is search.session
        assert (again.session.sizes(), dict(again.session.hits)) == (sizes, hits)
        assert again.saturation.seconds == 0.0


def test_laws_of_ones_own_are_read_by_engines_of_their_own(engines: list[Any]) -> None:
    plain = sessions_of(v.expr.sum(n))
    for _ in range(2):
        with register(MIN):
            own = sessions_of(v.expr.sum(n))
            assert own is not plain
            assert sessions_of(v.expr.sum(n)) is own
            least = sessions_of(v.expr.fold("Min", n))
        assert sessions_of(v.expr.sum(n)) is plain
    with register(MIN):  # anew, so that the name is another monoid's
        assert sessions_of(v.expr.fold("Min", n)) is not least


# ---- one caller at a time ------------------------------------------------------------------------


def test_two_searches_at_once_share_nothing(engines: list[Any]) -> None:
    def one() -> Any:
        return searching((v.expr.sum(n),), machine("sm_90"))

    with one() as outer, one() as inner:
        assert outer.session is not inner.session
    assert len(engines) == 2


def test_threads_compile_at_once(fresh: dict[tuple[str, int], str]) -> None:
    cases = [case for case in CASES if case[1] < 2 and case[0] != "causal"]
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(of_all, (cases, cases[::-1])):
            assert found == {case: fresh[case] for case in cases}


@pytest.mark.parametrize(("error", "left"), [(ScheduleError, 1), (RuntimeError, 0)])
def test_it_is_kept_after_refusals_alone(
    engines: list[Any], error: type[Exception], left: int
) -> None:
    with suppress(error), searching((v.expr.sum(n),), machine("sm_90")) as search:
        assert isinstance(search, Search)
        raise error("while it was searched")
    assert len(engines) == left
