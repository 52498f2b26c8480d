"""The coverage matrix: what is crossed, how a row becomes a trial, and what is refused, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tests.fuzz.cases import Case, read_case
from tests.fuzz.trials import Trial

from .covering import Row, cover

SCORES = {
    "plain": "steps=scale:0.125",
    "scaled_late": "steps=add:0.5+over:4.0",
    "causal": "steps=scale:0.125 mask=causal",
    "window": "steps=scale:0.125 mask=window:8:3",
    "window_left": "steps=scale:0.125 mask=window:12:all",
    "window_right": "steps=scale:0.125 mask=window:all:5",
    "one_key": "steps=scale:0.125 mask=window:0:0",
    "prefix": "steps=scale:0.125 mask=or(causal,prefix:20)",
    "length": "steps=scale:0.125 mask=and(causal,length)",
    "documents": "steps=scale:0.125 mask=documents",
    "keep": "steps=scale:0.125 mask=keep:bmn",
    "keep_heads": "steps=scale:0.125 mask=and(keep:hn,causal)",
    "bias": "steps=scale:0.125+bias:bhmn:f32",
    "bias_heads": "steps=scale:0.125+bias:mn:f16",
    "bias_rows": "steps=scale:0.125+bias:hn:f32 mask=causal",
    "alibi": "steps=scale:0.125+alibi mask=causal",
    "both_ways": "steps=scale:0.125+bothways",
    "softcap": "steps=scale:0.5+cap:20.0",
    "table": "steps=scale:0.125+table:6",
    "sink": "steps=scale:0.125 sink=heads",
    "sink_zero": "steps=scale:0.125 mask=window:9:0 sink=zero",
    "above": "steps=scale:0.125+add:100.0 mask=causal",
    "below": "steps=scale:0.125+add:-100.0 sink=rows",
    "everything": "steps=scale:0.125+table:4+cap:20.0+alibi sink=heads "
    "mask=and(or(window:20:0,prefix:4),and(documents,keep:bmn))",
    "unforeseen": "steps=scale:0.25+sigmoid+root+log+pick:3 "
    "mask=le(div:5(at:n),add(div:4(at:m),at:h))",
}
HEADS = {"mha": "h=2 g=2", "gqa_4_2": "h=4 g=2", "gqa_16_8": "h=16 g=8", "mqa": "h=4 g=1",
         "gqa_9_3": "h=9 g=3", "batches": "b=3 h=2 g=1"}  # fmt: skip
SHAPES = {f"{m}x{n}": f"m={m} n={n}" for m, n in
          ((1, 64), (8, 8), (16, 16), (37, 64), (64, 37), (64, 64), (16, 130), (130, 16), (1, 1),
           (5, 0), (0, 5))}  # fmt: skip
DEPTHS = {f"{d}/{e}": f"d={d} e={e}" for d, e in
          ((8, 8), (16, 16), (24, 24), (40, 40), (64, 64), (72, 72), (80, 80), (96, 96),
           (128, 128), (192, 192), (256, 256), (64, 32), (32, 80), (192, 128))}  # fmt: skip
DTYPES = {f"{dtype}>{cast}": f"dtype={dtype} cast={cast}"
          for dtype in ("f16", "bf16", "f32") for cast in ("same", "f16", "bf16", "f32")
          if dtype != cast}  # fmt: skip
OUTPUTS = {name: f"outputs={name}" for name in ("o", "o+lse", "lse", "top", "top+total+sums")}
LAYS = {
    "dense": "lay=q:dense",
    "turned": "lay=q:turned+k:turned+v:turned",
    "packed": "lay=q:packed+k:packed+v:packed",
    "expanded": "lay=k:expanded+v:expanded",
    "sliced": "lay=q:sliced:8:8+k:sliced:4:4+v:sliced:4:4",
    "unaligned": "lay=q:sliced:1:6+k:sliced:1:6+v:sliced:3:5",
    "out": "lay=k:turned+out:sliced:1:6",
}
OPEN = {name: f"open={name}" for name in ("none", "m", "n", "mn", "bmn")}
VALUES = {name: f"values={name}" for name in ("normal", "peaked", "large", "wild")}


# ---- schedules -----------------------------------------------------------------------------------

Pins = dict[str, str]


def materialized(case: Case) -> Pins:
    return {"PLACE": "fold=cut"}


def cuda_cores(case: Case) -> Pins:
    columns = min(case.e, 128)
    return {
        "TILE@d": f"a:fma_f32/w4x1/f1x8/k{min(8, case.d)}",
        "TILE@n": f"a:fma_f32/w4x1/f1x{columns}/k8",
    }


def tensor_cores(case: Case, **more: str) -> Pins:
    """Two warps of rows, fold blocks of 32 keys, exact algebra, unless `more` says otherwise."""
    atom = f"a:mma_m16n8k16_{case.dtype}"
    exact = {"BASE": "max", "SUM": "block", "EXP": "ex2", "STAGE": "d0", "SKEW": "off"}
    return {"TILE@d": f"{atom}/w2x1/f1x4/k{min(4, -(-case.d // 16))}", **exact, **more}


def pinned(**more: str) -> Callable[[Case], Pins]:
    return lambda case: tensor_cores(case, **more)


RING = "d2/cp/ring"
SCHEDULES: dict[str, Callable[[Case], Pins]] = {
    "chosen": lambda case: {},
    "materialized": materialized,
    "cuda_cores": cuda_cores,
    "tensor_cores": tensor_cores,
    "cp_ring": pinned(STAGE=RING),
    "tma_ring": pinned(STAGE="d2/tma/ring"),
    "skewed": pinned(STAGE=RING, SKEW="on"),
    "lazy": pinned(STAGE=RING, BASE="lazy", EXP="fold", SUM="lane"),
    "persistent": pinned(STAGE=RING, GRID="persistent"),
    "unskipped": pinned(SKIP="none"),
    "by_index": pinned(SKIP="index"),
    "by_data": pinned(SKIP="data"),
    "heavy_first": pinned(SKIP="index", ORDER="heavy"),
    "paired": pinned(SKIP="index", ORDER="pair"),
    "folded": pinned(SKIP="index", ORDER="fold"),
}
FACTORS: dict[str, Mapping[str, object]] = {
    "scores": SCORES, "heads": HEADS, "shape": SHAPES, "depth": DEPTHS, "dtype": DTYPES,
    "outputs": OUTPUTS, "lay": LAYS, "open": OPEN, "values": VALUES, "schedule": SCHEDULES,
}  # fmt: skip
LARGEST = 3 * 2**16  # of b h m n (d + e): multiplications, for the simulator's sake


def case_of(row: Mapping[str, str]) -> Case:
    """The case of a row; factors that it leaves out are as usual."""
    words = [FACTORS[name][value] for name, value in row.items() if name != "schedule"]
    return read_case(" ".join(map(str, words)))


def trial_of(row: Mapping[str, str], target: str, seed: int) -> Trial:
    case = case_of(row)
    return Trial(case, target, SCHEDULES[row["schedule"]](case), seed)


# ---- what does not go together -------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """Choices that are refused together, and what the refusal says; None: no call can say it."""

    applies: Callable[[Case, str, Mapping[str, str]], bool]
    says: str | None


ON_TENSOR_CORES = tuple(
    name for name in SCHEDULES if name not in ("chosen", "materialized", "cuda_cores")
)
INDEXED = ("by_index", "heavy_first", "paired", "folded")


def limit_of(row: Mapping[str, str]) -> Limit | None:
    """The first limit that a row passes; factors that are open pass none."""
    case = case_of(row)
    return next((limit for limit in LIMITS if limit.applies(case, row.get("schedule", ""), row)), None)


def fits(row: Mapping[str, str]) -> bool:
    return limit_of(row) is None


LIMITS: list[Limit] = []


def rows() -> list[Row]:
    return cover(FACTORS_BY_NAME, fits).rows


FACTORS_BY_NAME = {name: list(values) for name, values in FACTORS.items()}
