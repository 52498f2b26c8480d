"""Few query rows on long caches: grouped heads, pages found through a table, lengths of a batch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, Tensor, evaluate, f16, f32, inf, optimize, runtime, softmax, where
from egraph_flash.dtypes import Array, i32
from egraph_flash.errors import InputError
from egraph_flash.masks import causal
from tests.support.forms import inputs
from tests.support.fresh import fresh_rng

BATCH, HEADS, GROUPS, SIZE, DEPTH, PAGE = 3, 8, 2, 304, 32, 16
PAGES = BATCH * -(-SIZE // PAGE)


@dataclass(frozen=True)
class Cache:
    """Keys and values that sequences have so far, up to a size; `paged`: in pages of a pool."""

    paged: bool
    size: int = SIZE

    def expression(self, rows: int) -> Any:
        """New rows [b, m, h, d], the last of the `count` that each sequence then has."""
        b, h, m = Axis.many(b=BATCH, h=HEADS, m=rows)
        n, d, e = Axis.many(n=self.size, d=DEPTH, e=DEPTH)
        count = Tensor("count", (b,), i32)
        scores = (Tensor("q", (b, m, h, d), f16) * self.read("k", b, h, n, d)).sum(d) * DEPTH**-0.5
        seen = n.index <= m.index + (count[b.index] - rows)
        weights = softmax(where(seen, scores, -inf), n)
        return (weights * self.read("v", b, h, n, e)).sum(n).cast(f32).order(b, m, h, e)

    def read(self, name: str, b: Axis, h: Axis, n: Axis, d: Axis) -> Any:
        g, group = Axis("g", GROUPS), h // (HEADS // GROUPS)
        if not self.paged:
            return Tensor(name, (b, n, g, d), f16)[b, n, group, d]
        table = Tensor("page", (b, Axis("of", -(-SIZE // PAGE))), i32)
        pool = Tensor(name, (Axis("pages", PAGES), Axis("slot", PAGE), g, d), f16)
        return pool[table[b.index, n // PAGE], n % PAGE, group, d]

    def arrays(self, rows: int, counts: list[int], rng: np.random.Generator) -> dict[str, Array]:
        shape = (PAGES, PAGE) if self.paged else (BATCH, self.size)
        found: dict[str, Array] = {
            name: rng.standard_normal((*shape, GROUPS, DEPTH)).astype(np.float16) for name in "kv"
        }
        found["q"] = rng.standard_normal((BATCH, rows, HEADS, DEPTH)).astype(np.float16)
        found["count"] = np.array(counts, np.int32)
        if self.paged:
            found["page"] = rng.permutation(PAGES).reshape(BATCH, -1).astype(np.int32)
        return found


@pytest.mark.parametrize("pins", [{}, {"REDUCE": "s96"}, {"REDUCE": "g4", "PACK": "off"}])
@pytest.mark.parametrize("rows", [1, 2, 16])
@pytest.mark.parametrize(
    "cache",
    [Cache(False), Cache(True), Cache(True, SIZE - 4)],
    ids=["contiguous", "paged", "ending inside a page"],
)
def test_new_rows_see_what_there_is(cache: Cache, rows: int, pins: dict[str, str]) -> None:
    """Sequences of any length, one of them as long as the cache, one with nothing else."""
    kernel = optimize(cache.expression(rows), "sm_90", pins)
    arrays = cache.arrays(rows, [cache.size, rows, 77], fresh_rng())
    out = np.asarray(kernel.run(backend="sim", **arrays))
    wanted = evaluate(cache.expression(rows), arrays)
    assert not np.isnan(wanted).any()
    assert np.abs(out - wanted).max() < 2e-3


def counted() -> Any:
    """One row a sequence, which sees the first `count` of a cache in pages."""
    b, h, n, d, e = Axis.many(b=BATCH, h=HEADS, n=SIZE, d=DEPTH, e=DEPTH)
    scores = (Tensor("q", (b, h, d), f16) * Cache(True).read("k", b, h, n, d)).sum(d)
    scores = where(n.index < Tensor("count", (b,), i32)[b], scores * DEPTH**-0.5, -inf)
    return (softmax(scores, n) * Cache(True).read("v", b, h, n, e)).sum(n)


@pytest.mark.parametrize(
    ("name", "place", "value", "says"),
    [
        ("page", (1, 2), PAGES, f"index 0 of k: page[b, n // 16] is {PAGES} at b = 1, n = 32, "
         f"wants 0 to {PAGES - 1}"),
        ("page", (0, 0), -1, f"page[b, n // 16] is -1 at b = 0, n = 0, wants 0 to {PAGES - 1}"),
        ("count", 2, SIZE + 1, f"a length along n: count[b] is {SIZE + 1} at b = 2, "
         f"wants 0 to {SIZE}"),
        ("count", 0, -3, f"a length along n: count[b] is -3 at b = 0, wants 0 to {SIZE}"),
    ],
)  # fmt: skip
def test_pages_and_lengths_that_there_are_not(name: str, place: Any, value: int, says: str) -> None:
    kernel = optimize(counted(), "sm_90", name="decode")
    arrays = Cache(True).arrays(1, [SIZE, 77, 100], fresh_rng())
    arrays["q"] = arrays["q"][:, 0]
    kernel.check(**arrays)
    arrays[name][place] = value
    for call in (lambda: kernel.check(**arrays), lambda: kernel.run(backend="sim", **arrays)):
        with pytest.raises(InputError, match=re.escape(says)):
            call()


@pytest.mark.parametrize("stage", ["d2/cp/ring", "d3/tma/ring"])
def test_pages_past_a_length_may_be_any(stage: str) -> None:
    """What no sequence has yet is not looked up: tables are often filled with -1."""
    arrays = Cache(True).arrays(1, [33, 1, 100], fresh_rng())
    arrays["q"] = arrays["q"][:, 0]
    for sequence, count in enumerate(arrays["count"]):
        arrays["page"][sequence, -(-count // PAGE) :] = -1
    kernel = optimize(counted(), "sm_90", {"STAGE": stage})
    out = np.asarray(kernel.run(backend="sim", **arrays))
    filled = np.where(arrays["page"] < 0, 0, arrays["page"]).astype(np.int32)
    wanted = evaluate(counted(), {**arrays, "page": filled})
    assert not np.isnan(wanted).any()
    assert np.abs(out - wanted).max() < 2e-3


def test_a_length_past_an_open_cache() -> None:
    b, m, d, e = Axis.many(b=2, m=4, d=16, e=16)
    n = Axis("n", "size", hint=64)
    k, v = Tensor("k", (b, n, d), f16), Tensor("v", (b, n, e), f16)
    seen = n.index < Tensor("count", (b,), i32)[b]
    scores = where(seen, (Tensor("q", (b, m, d), f16) * k).sum(d), -inf)
    kernel = optimize((softmax(scores, n) * v).sum(n), "sm_90", name="open")
    arrays = {"q": np.ones((2, 4, 16), np.float16), "count": np.array([30, 31], np.int32)}
    arrays |= {x: np.ones((2, 30, 16), np.float16) for x in "kv"}
    says = "open: a length along n: count[b] is 31 at b = 1, wants 0 to 30"
    with pytest.raises(InputError, match=re.escape(says)):
        kernel.run(backend="sim", **arrays)
    says = "length 'size' is 40 as given and 30 by axis 'n' of input 'k'"
    with pytest.raises(InputError, match=re.escape(says)):
        kernel.run(backend="sim", size=40, **arrays)


@pytest.mark.parametrize("stage", ["d2/cp/ring", "d3/tma/ring", "d2x2/tma/ring"])
def test_pages_are_the_same_as_a_cache_in_one_piece(stage: str) -> None:
    """Bit for bit: where an element lies is movement. A tensor copy takes a page at a time."""
    pins = {"REDUCE": "s96", "PACK": "on", "STAGE": stage, "SLAB": "xor", "SKEW": "off"}
    tile = "a:mma_m16n8k16_f16/w1x1/f1x4/k2"
    pins |= {"TILE@d": tile, "TILE@n": tile, "EXP": "ex2", "BASE": "max", "SUM": "block"}
    plain, paged = Cache(False), Cache(True)
    arrays = paged.arrays(2, [SIZE, 40, 123], fresh_rng())
    whole = dict(arrays)
    places = whole.pop("page")
    for name in "kv":
        whole[name] = arrays[name][places].reshape(BATCH, -1, GROUPS, DEPTH)[:, :SIZE]
    found = [
        np.asarray(optimize(cache.expression(2), "sm_90", pins).run(backend="sim", **given))
        for cache, given in ((plain, whole), (paged, arrays))
    ]
    assert found[0].tobytes() == found[1].tobytes()


def test_a_row_on_an_open_cache() -> None:
    """The cache grows from call to call; one text serves all its lengths."""
    b, h, m = Axis.many(b=2, h=HEADS, m=4)
    n, d, e, g = Axis("n", "size", hint=1 << 15), Axis("d", 32), Axis("e", 32), Axis("g", GROUPS)
    k, v = Tensor("k", (b, g, n, d), f16), Tensor("v", (b, g, n, e), f16)
    group = h // (HEADS // GROUPS)
    scores = (Tensor("q", (b, h, m, d), f16) * k[b, group, n, d]).sum(d) * 0.2
    expr = (softmax(where(causal(m, n), scores, -inf), n) * v[b, group, n, e]).sum(n).cast(f32)
    kernel = optimize(expr, "sm_90")
    assert {"REDUCE@n", "PACK"} <= set(kernel.schedule)
    rng = fresh_rng()
    for size in (4, 5, 100, 517):
        arrays = {
            name: rng.standard_normal((2, of, rows, 32)).astype(np.float16)
            for name, of, rows in (("q", HEADS, 4), ("k", GROUPS, size), ("v", GROUPS, size))
        }
        out = np.asarray(kernel.run(backend="sim", **arrays))
        wanted = evaluate(expr, arrays, lengths={"size": size})
        assert not np.isnan(wanted).any()
        assert np.abs(out - wanted).max() < 2e-3


@pytest.mark.gpu
@pytest.mark.parametrize("splits", ["g8", "g8/last", "s256"])
def test_a_hundred_runs_give_one_hash(splits: str) -> None:
    """Split states are folded in the order of their parts, whichever block ends first."""
    target = runtime.present_target()
    assert target is not None
    b, h, g, n, d, e = Axis.many(b=2, h=8, g=2, n=2000, d=64, e=64)
    k, v = Tensor("k", (b, g, n, d), f16), Tensor("v", (b, g, n, e), f16)
    s = (Tensor("q", (b, h, d), f16) * k[b, h // 4, n, d]).sum(d) * 0.125
    pins = {"REDUCE@n": splits, "TILE@d": "a:mma_m16n8k16_f16/w1x1/f1x8/k4"}
    kernel = optimize((softmax(s, n) * v[b, h // 4, n, e]).sum(n), target, pins)
    arrays = inputs(kernel, fresh_rng())
    runs = (kernel.run(backend="gpu", **arrays) for _ in range(100))
    assert len({np.asarray(each).tobytes() for each in runs}) == 1


def test_a_prefix_that_is_longer_than_the_cache_is_no_length_of_data() -> None:
    """The expression says how long it is, not the data; a length beside it is still one."""
    b, n, d, e = Axis.many(b=2, n=20, d=16, e=16)
    k, v = Tensor("k", (b, n, d), f16), Tensor("v", (b, n, e), f16)
    seen = (n.index < 48) | (n.index < Tensor("count", (b,), i32)[b])
    scores = where(seen, (Tensor("q", (b, d), f16) * k).sum(d), -inf)
    expr = (softmax(scores, n) * v).sum(n)
    kernel = optimize(expr, "sm_90")
    rng = fresh_rng()
    arrays = {x: rng.standard_normal((2, 20, 16)).astype(np.float16) for x in "kv"}
    arrays |= {"q": rng.standard_normal((2, 16)).astype(np.float16)}
    arrays["count"] = np.array([0, 20], np.int32)
    out = np.asarray(kernel.run(backend="sim", **arrays))
    assert np.abs(out - evaluate(expr, arrays)).max() < 4e-3
    arrays["count"][1] = 21
    with pytest.raises(InputError, match=r"count\[b\] is 21 at b = 1, wants 0 to 20"):
        kernel.run(backend="sim", **arrays)
