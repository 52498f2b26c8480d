"""What hypothesis draws: cases of every kind, and pins that are legal as often as not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from egraph_flash.codegen.atoms import ATOMS
from egraph_flash.knobs import KNOBS

from . import laying
from .cases import OUTPUTS, SINKS, SOURCES, Case
from .folds import BINARY, FOLDING, FOLDS, UNARY, folds_rows
from .spelling import Part, part
from .trials import Trial

HEADS = ((1, 1), (2, 2), (2, 1), (3, 3), (4, 2), (4, 1), (6, 2), (5, 1), (9, 3))
OPEN = ("m", "n", "mn", "b", "bmn", "bm", "d", "e", "bmnde")
DEPTHS = (8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 128)
BIASES = ("n", "mn", "hmn", "hn", "bn", "bmn", "bhmn", "bh", "m")
KEEPS = ("n", "mn", "hmn", "bn", "bmn", "bhmn")
LARGEST = 2**17  # of b h m n (d + e): multiplications that a simulation takes a second or two for
# knobs that hold free numbers: a few values of each, some of which can never be
FREE = {
    "PLACE": ("fold=fuse", "fold=cut"),
    "STAGE": ("d0", "d1/sync", "d1/cp", "d2/cp/ring", "d3/cp/ring", "d2x2/cp/ring", "d1/tma",
              "d2/tma/ring", "d3/tma/ring", "d2x2/tma/ring", "d3x2/sync/ring", "d8x8/tma/ring"),
    "DRAIN": ("x2", "x4", "x2/p2", "x4/p2"),
    "REDUCE": ("g1", "g2", "g3", "g7", "s16", "s40", "s128", "g3/last", "s40/last"),
    "EXP": ("ex2", "fold", "accurate", "poly1", "poly4", "poly8"),
    "REGS": ("r255/b1", "r128/b2", "r64/b1", "r32/b24"),
}  # fmt: skip


def _number(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


# ---- masks ---------------------------------------------------------------------------------------


def indices(axes: str = "mnmnmnhb") -> st.SearchStrategy[Part]:
    leaves = st.one_of(
        st.sampled_from(axes).map(lambda a: part("at", a)),
        _number(0, 40).map(lambda k: part("num", k)),
    )

    def further(below: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
        pairs = st.tuples(st.sampled_from(("add", "sub", "min", "max")), below, below)
        singles = st.tuples(st.sampled_from(("div", "mod", "mul")), _number(2, 9), below)
        return st.one_of(
            pairs.map(lambda p: part(p[0], below=(p[1], p[2]))),
            singles.map(lambda p: part(p[0], p[1], below=(p[2],))),
        )

    return st.recursive(leaves, further, max_leaves=4)


def _limits() -> st.SearchStrategy[Any]:
    side = st.one_of(_number(0, 30), st.just("all"))
    return st.tuples(side, side).filter(lambda pair: pair != ("all", "all"))


def masks(more_rows: bool) -> st.SearchStrategy[Part]:
    named = [
        st.just(part("causal")),
        _limits().map(lambda pair: part("window", *pair)),
        _number(0, 70).map(lambda k: part("prefix", k)),
        st.just(part("length")),
        st.sampled_from(KEEPS).map(lambda axes: part("keep", axes)),
    ]
    named += [] if more_rows else [st.just(part("documents"))]
    leaves = st.one_of(*named, compared())

    def further(below: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
        joined = st.tuples(st.sampled_from(("and", "or")), below, below)
        return st.one_of(
            joined.map(lambda p: part(p[0], below=(p[1], p[2]))),
            below.map(lambda p: part("not", below=(p,))),
        )

    return st.recursive(leaves, further, max_leaves=3).filter(_one_keep)


def compared(axes: str = "mnmnmnhb") -> st.SearchStrategy[Part]:
    """A comparison of index arithmetic."""
    heads = st.sampled_from(("lt", "le", "eq", "ne"))
    pairs = st.tuples(heads, indices(axes), indices(axes))
    return pairs.map(lambda p: part(p[0], below=(p[1], p[2]))).filter(_is_of_keys)


def seldom(drawn: st.SearchStrategy[Part]) -> st.SearchStrategy[Part | None]:
    return st.one_of(*[st.none()] * 5, drawn)


def _is_of_keys(mask: Part) -> bool:
    """Whether a comparison says something of an axis at all, not of numbers alone."""
    return any(each.head == "at" for each in mask.walk())


def _one_keep(mask: Part) -> bool:
    """One tensor of truths has one shape."""
    return len({each for each in mask.walk() if each.head == "keep"}) <= 1


# ---- scores --------------------------------------------------------------------------------------


def steps() -> st.SearchStrategy[Part]:
    alone = st.sampled_from(
        ("alibi", "bothways", "root", "tanh", "sigmoid", "log", "relu", "square", "negate", "other")
    )
    return st.one_of(
        st.sampled_from(("0.125", "0.5", "1.7", "-0.3")).map(lambda x: part("scale", x)),
        st.sampled_from(("2.0", "7.5")).map(lambda x: part("over", x)),
        st.sampled_from(("100.0", "-100.0", "0.5")).map(lambda x: part("add", x)),
        st.tuples(st.sampled_from(BIASES), st.sampled_from(("f32", "f16", "bf16"))).map(
            lambda pair: part("bias", *pair)
        ),
        _number(0, 12).map(lambda reach: part("table", reach)),
        st.sampled_from(("30.0", "5.0", "50.0")).map(lambda cap: part("cap", cap)),
        _number(2, 5).map(lambda every: part("pick", every)),
        alone.map(part),
    )


# ---- cases ---------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> Case:
    heads, keys = draw(st.sampled_from(HEADS))
    lengths = st.one_of(st.sampled_from((1, 8, 16, 17, 37, 64)), _number(0, 140))
    b, m, n = draw(st.sampled_from((1, 1, 2, 3))), draw(lengths), draw(lengths)
    d = draw(st.sampled_from(DEPTHS))
    e = draw(st.one_of(st.just(d), st.sampled_from(DEPTHS)))
    while b * heads * m * n * (d + e) > LARGEST and (m > 16 or n > 16):
        m, n = (m // 2, n) if m >= n else (m, n // 2)
    outputs = draw(st.one_of(
        st.just(("o",)), st.just(("o", "lse")),
        st.lists(st.sampled_from(OUTPUTS), min_size=1, max_size=3, unique=True).map(tuple),
    ))  # fmt: skip
    chain = tuple(draw(st.lists(steps(), max_size=4)))
    mask = draw(st.one_of(st.none(), masks(m > n), masks(m > n)))
    opened = draw(st.one_of(st.just("none"), st.sampled_from(OPEN)))
    tensors = ["q", "k", "v", *(["out"] if outputs == ("o",) else [])]
    placed = draw(st.lists(st.sampled_from(tensors), max_size=3, unique=True))
    kinds = {name: [lay for lay in laying.LAYS if name != "out" or lay != "expanded"]
             for name in placed}  # fmt: skip
    return Case(
        dtype=draw(st.sampled_from(("f16", "f16", "bf16", "f32"))),
        b=b, h=heads, g=keys, m=m, n=n, d=d, e=e, steps=chain, mask=mask,
        sink=draw(st.sampled_from(("none", "none", *SINKS))),
        outputs=outputs,
        cast=draw(st.sampled_from(("same", "same", "f32", "bf16", "f16"))),
        order=draw(st.sampled_from(("bhme", "bhme", "bmhe", "hbme"))),
        open=opened,
        lay=tuple((name, draw(st.sampled_from(kinds[name]))) for name in sorted(placed)),
        values=draw(st.sampled_from(("normal", "normal", "normal", "peaked", "large", "wild",
                                     "alike"))),
        see_q=draw(seldom(compared("mmddhb"))), see_v=draw(seldom(compared("nneehb"))),
        twin=draw(st.sampled_from(("no", "yes"))),
    )  # fmt: skip


@st.composite
def folds(draw: st.DrawFn) -> Case:
    """Reductions of other kinds, one or two at a time."""
    heads, keys = draw(st.sampled_from(HEADS[:6]))
    b, m, n = draw(st.sampled_from((1, 1, 2, 3))), draw(_number(1, 70)), draw(_number(1, 300))
    d = draw(st.sampled_from(DEPTHS[:7]))
    e = draw(st.one_of(st.just(d), st.sampled_from(DEPTHS[:7])))
    while b * heads * m * n * (d + e) > LARGEST and (m > 4 or n > 16):
        m, n = (m // 2, n) if m >= n // 4 else (m, n // 2)
    tower = draw(st.one_of(st.none(), towers()))
    some = st.lists(st.sampled_from(sorted(FOLDS)), min_size=1, max_size=2, unique=True)
    outputs = tuple(draw(some)) if tower is None else ("tower",)
    source = draw(st.sampled_from(SOURCES))
    tensors = ["x"] if source == "x" else ["q", "k"]
    placed = draw(st.lists(st.sampled_from(tensors), max_size=2, unique=True))
    return Case(
        dtype=draw(st.sampled_from(("f16", "bf16", "f32"))),
        b=b, h=heads, g=keys, m=m, n=n, d=d, e=e, source=source,
        steps=tuple(draw(st.lists(steps(), max_size=2))),
        mask=draw(st.one_of(st.none(), st.none(), masks(m > n))),
        tower=tower, outputs=outputs,
        open=draw(st.sampled_from(("none", "none", "n", "m", "mn", "b"))),
        lay=tuple((name, draw(st.sampled_from(laying.LAYS))) for name in sorted(placed)),
        values=draw(st.sampled_from(("normal", "normal", "peaked", "alike"))),
        twin=draw(st.sampled_from(("no", "yes"))),
    )  # fmt: skip


def towers() -> st.SearchStrategy[Part]:
    """Pointwise arithmetic over folds of it, with a fold somewhere."""

    def further(below: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
        one = st.tuples(st.sampled_from((*UNARY, *FOLDING, *FOLDING)), below)
        two = st.tuples(st.sampled_from(tuple(BINARY)), below, below)
        return st.one_of(one, two).map(lambda p: part(p[0], below=p[1:]))

    made = st.recursive(st.just(part("z")), further, max_leaves=5)
    return made.filter(lambda p: any(each.head in FOLDING for each in p.walk()) and folds_rows(p))


# ---- pins ----------------------------------------------------------------------------------------


def tiles() -> st.SearchStrategy[str]:
    """Tiles of any atom: most of them fit nothing, so that refusals are tried too."""
    return st.builds(
        lambda atom, rows, columns, a, c, k: f"a:{atom}/w{rows}x{columns}/f{a}x{c}/k{k}",
        st.sampled_from(sorted(ATOMS)),
        st.sampled_from((1, 2, 4, 8)),
        st.sampled_from((1, 1, 1, 2)),
        st.sampled_from((1, 1, 2)),
        st.sampled_from((1, 2, 4, 8, 16)),
        st.sampled_from((1, 2, 4, 8)),
    )


def map_tiles() -> st.SearchStrategy[str]:
    """Tiles of folds that contract nothing."""
    return st.builds(
        lambda warps, rows, columns: f"a:map_m1n32/w{warps}x1/f{rows}x{columns}/k1",
        st.sampled_from((1, 2, 4, 8)),
        st.sampled_from((1, 2, 4)),
        st.sampled_from((1, 2, 4)),
    )


@st.composite
def fitting_tiles(draw: st.DrawFn, case: Case) -> dict[str, str]:
    """Tiles that usually fit a case."""
    if not set(case.outputs) <= set(OUTPUTS):
        return {"TILE": draw(st.one_of(map_tiles(), tiles()))}
    warps, atoms = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 1, 2)))
    if case.dtype == "f32" or draw(st.integers(0, 3)) == 0:
        block = draw(st.sampled_from((4, 8, 16)))
        return {
            "TILE@d": f"a:fma_f32/w{warps}x1/f{atoms}x{block}/k{min(8, case.d)}",
            "TILE@n": f"a:fma_f32/w{warps}x1/f{atoms}x{case.e}/k{block}",
        }
    atom, block = f"a:mma_m16n8k16_{case.dtype}", draw(st.sampled_from((2, 4, 8)))
    return {
        "TILE@d": f"{atom}/w{warps}x1/f{atoms}x{block}/k{min(4, -(-case.d // 16))}",
        "TILE@n": f"{atom}/w{warps}x1/f{atoms}x{-(-case.e // 8)}/k{block // 2}",
    }


def values_of(knob: str) -> st.SearchStrategy[str]:
    if knob == "TILE":
        return tiles()
    row = KNOBS[knob]
    return st.sampled_from(FREE[knob] if row.values is None else tuple(row.values))


@st.composite
def pins(draw: st.DrawFn, case: Case) -> dict[str, str]:
    """None, a cut plan, or tiles and other knobs."""
    style = draw(st.sampled_from(("none", "cut", "tiles", "tiles", "tiles", "any")))
    found = {"none": {}, "cut": {"PLACE": "fold=cut"}, "any": {}}.get(style)
    if found is None:
        found = draw(fitting_tiles(case))
    if style == "none":
        return found
    others = [name for name in KNOBS if name not in ("TILE", "PLACE")]
    if style == "any":
        others += ["TILE", "PLACE"]
    most = 1 if style == "cut" else 4
    for knob in draw(st.lists(st.sampled_from(others), max_size=most, unique=True)):
        scope = draw(st.sampled_from(("", "", "@k", "@v"))) if knob == "STAGE" else ""
        found[f"{knob}{scope}"] = draw(values_of(knob))
    return found


@st.composite
def trials(draw: st.DrawFn, of: st.SearchStrategy[Case]) -> Trial:
    case = draw(of)
    return Trial(
        case,
        draw(st.sampled_from(("sm_120", "sm_90"))),
        draw(pins(case)),
        draw(st.integers(0, 2**32 - 1)),
    )
