"""The coverage matrix: what is crossed, how a row becomes a trial, and what is refused, and why."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
    "sink_rows": "steps=scale:0.125 mask=causal sink=rows",
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
          ((8, 8), (16, 64), (24, 24), (40, 40), (64, 64), (72, 72), (80, 32), (96, 96),
           (128, 128), (192, 192), (256, 256))}  # fmt: skip
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
    tile = {"TILE@d": f"a:fma_f32/w4x1/f1x8/k{min(8, case.d)}"}
    if reads_values(case):
        tile["TILE@n"] = f"a:fma_f32/w4x1/f1x{min(case.e, 128)}/k8"
    return tile


def tensor_cores(case: Case, **more: str) -> Pins:
    """Two warps of rows, fold blocks of 32 keys, exact algebra, unless `more` says otherwise; keys
    and values are staged alike, and biases as the search likes."""
    atom = f"a:mma_m16n8k16_{case.dtype}"
    exact = {"BASE": "max", "SUM": "block", "EXP": "ex2", "STAGE": "d0", "SKEW": "off"}
    chosen = {**exact, **more}
    staging = chosen.pop("STAGE")
    operands = ("k", "v") if reads_values(case) else ("k",)
    chosen |= {f"STAGE@{name}": staging for name in operands}
    return {"TILE@d": f"{atom}/w2x1/f1x4/k{min(4, -(-case.d // 16))}", **chosen}


def reads_values(case: Case) -> bool:
    return bool({"o", "sums"} & set(case.outputs))


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
    "lazy": pinned(STAGE=RING, BASE="lazy"),
    "persistent": pinned(STAGE=RING, GRID="persistent"),
    "unskipped": pinned(SKIP="none"),
    "by_index": pinned(SKIP="index"),
    "by_data": pinned(SKIP="data"),
    "heavy_first": pinned(SKIP="index", ORDER="heavy"),
    "paired": pinned(SKIP="index", ORDER="pair"),
    "folded": pinned(SKIP="index", ORDER="fold"),
}
FAR = {
    "above": "steps=scale:0.125+add:100.0 mask=causal",
    "below": "steps=scale:0.125+add:-100.0",
    "near_the_limit": "steps=scale:1.0 mask=causal values=large",
    "peaked": "steps=scale:1.0 values=peaked",
}
LENGTHS = {f"{n}x{n}": f"m={n} n={n}" for n in (8, 16, 37, 64)}
FACTORS: dict[str, Mapping[str, object]] = {
    "scores": SCORES, "heads": HEADS, "shape": SHAPES, "depth": DEPTHS, "dtype": DTYPES,
    "outputs": OUTPUTS, "lay": LAYS, "open": OPEN, "values": VALUES, "schedule": SCHEDULES,
}  # fmt: skip
LARGEST = 5 * 2**19  # of b h m n (d + e): multiplications, for the simulator's sake


def case_of(row: Mapping[str, str]) -> Case:
    """The case of a row; factors that it leaves out are as usual."""
    words = [
        {**FACTORS[name], **FAR, **LENGTHS}[value]
        for name, value in row.items()
        if name != "schedule"
    ]
    return read_case(" ".join(map(str, words)))


def trial_of(row: Mapping[str, str], seed: int, target: str = "sm_120") -> Trial:
    case = case_of(row)
    return Trial(case, target, SCHEDULES[row["schedule"]](case), seed)


# ---- what does not go together -------------------------------------------------------------------

TILED = tuple(name for name in SCHEDULES if name not in ("chosen", "materialized"))
TENSOR = tuple(name for name in TILED if name != "cuda_cores")
STAGED = ("cp_ring", "tma_ring", "skewed", "lazy", "persistent")
ORDERED = ("heavy_first", "paired", "folded")
ROWS_APART = ("causal", "window", "window_left", "prefix", "bias_rows", "alibi", "keep_heads",
              "sink_zero", "sink_rows", "everything")  # fmt: skip
BY_INDEX = (*ROWS_APART, "window_right", "one_key", "length", "unforeseen")
BY_DATA = ("documents", "everything")
MORE_ROWS = ("64x37", "130x16", "5x0")  # than keys: the first have no place among them
MANY_ROWS = ("37x64", "64x64")  # several row tiles, and fold blocks that some of them skip
MOST_ROWS = ("37x64", "64x37", "64x64", "130x16")  # more than there are heads
NOTHING = "it changes nothing here"


@dataclass(frozen=True)
class Limit:
    """Values of some factors that do not go together, and what a refusal of them says.

    `says` is None where nothing refuses them, but the test cannot have them.
    """

    name: str
    choices: Mapping[str, Sequence[str]]
    says: str | None

    def holds(self, row: Mapping[str, str]) -> bool:
        for name, values in self.choices.items():  # noqa: SIM110, a generator takes twice as long
            if row.get(name) not in values:
                return False
        return True


def but(factor: str, *values: str) -> list[str]:
    return [each for each in FACTORS[factor] if each not in values]


LIMITS = (
    Limit("tensor_cores_take_no_f32", {"dtype": [d for d in DTYPES if d.startswith("f32")],
                                       "schedule": TENSOR}, "does not take its operands"),
    Limit("no_index_masks", {"scores": but("scores", *BY_INDEX, "documents"),
                             "schedule": ["by_index", *ORDERED]}, NOTHING),
    Limit("documents_are_data", {"scores": ["documents"], "schedule": ["by_index"]},
          "no index arithmetic masks a part of the fold; the nearest legal value is data"),
    Limit("no_data_masks", {"scores": [s for s in BY_INDEX if s not in BY_DATA],
                            "schedule": ["by_data"]}, "the nearest legal value is index"),
    Limit("nothing_masks", {"scores": but("scores", *BY_INDEX, *BY_DATA),
                            "schedule": ["by_data"]}, NOTHING),
    Limit("all_rows_alike", {"scores": but("scores", *ROWS_APART), "schedule": ORDERED}, None),
    Limit("one_row_tile", {"shape": but("shape", *MANY_ROWS), "schedule": ORDERED}, None),
    Limit("base_is_told", {"outputs": ["top+total+sums"], "schedule": ["lazy"]},
          "depends on which base is kept; the nearest legal value is vote"),
    Limit("sink_of_zero_tells_the_base", {"scores": ["sink_zero"], "schedule": ["lazy"]},
          "depends on which base is kept; the nearest legal value is vote"),
    Limit("no_base", {"outputs": ["top"], "schedule": ["lazy"]}, NOTHING),
    Limit("rows_of_8_bytes", {"lay": ["sliced"], "schedule": ["tma_ring"]},
          "no tensor map describes"),
    Limit("rows_of_2_bytes", {"lay": ["unaligned"], "schedule": STAGED},
          "arrays that do not lie as its tensors say"),
    Limit("nothing_to_stage", {"shape": ["5x0"], "open": ["none", "m"], "schedule": TENSOR},
          "STAGE is chosen for an operand that is streamed along the fold"),
    Limit("shift_tells_the_base", {"scores": ["scaled_late"], "outputs": ["lse"],
                                   "schedule": ["lazy"]},
          "depends on which base is kept; the nearest legal value is vote"),
    Limit("heads_are_the_rows", {"outputs": ["lse", "top"], "shape": but("shape", *MOST_ROWS),
                                 "schedule": TILED}, None),
    Limit("more_rows_than_keys", {"scores": BY_DATA, "shape": MORE_ROWS}, None),
    Limit("no_rows_to_scan", {"shape": ["0x5"], "schedule": ["by_data"]}, None),
    Limit("no_documents_of_more_rows", {"schedule": ["by_data"], "shape": MORE_ROWS}, None),
    Limit("out_is_one_array", {"outputs": but("outputs", "o"), "lay": ["out"]}, None),
)  # fmt: skip


def limit_of(row: Mapping[str, str]) -> Limit | None:
    """The first limit that a row passes; factors that are open pass none."""
    return next((limit for limit in LIMITS if limit.holds(row)), None)


def fits(row: Mapping[str, str]) -> bool:
    return limit_of(row) is None and _work(row) <= LARGEST


def _work(row: Mapping[str, str]) -> int:
    """Multiplications, factors that are open counting as little."""
    return _work_of(row.get("heads", "mha"), row.get("shape", "1x1"), row.get("depth", "8/8"))


@functools.cache
def _work_of(heads: str, shape: str, depth: str) -> int:
    case = case_of({"heads": heads, "shape": shape, "depth": depth})
    return case.b * case.h * case.m * case.n * (case.d + case.e)


# ---- rows ----------------------------------------------------------------------------------------

USUAL: Row = {"scores": "causal", "heads": "mha", "shape": "37x64", "depth": "64/64",
              "dtype": "f16>same", "outputs": "o", "lay": "dense", "open": "none",
              "values": "normal", "schedule": "cp_ring"}  # fmt: skip


def name_of(row: Mapping[str, str]) -> str:
    return "-".join(value for name, value in row.items() if value != "normal")


def rows() -> list[Row]:
    """Every pair of values of two factors that can be is in some row."""
    return cover({name: list(values) for name, values in FACTORS.items()}, fits).rows


def sweep() -> list[Row]:
    """The article's own, and scores far from 0: each thing on several schedules."""
    changes: list[Row] = [
        {"scores": "plain"}, {"scores": "causal"}, {"scores": "bias"}, {"scores": "bias_heads"},
        *({"scores": s, "heads": h} for s in ("plain", "causal") for h in ("gqa_4_2", "gqa_16_8")),
        *({"scores": s, "dtype": "bf16>same"} for s in ("plain", "causal")),
        *({"scores": s, "outputs": "o+lse"} for s in FAR),
        *({"scores": "plain", "shape": shape, "open": "mn"} for shape in LENGTHS),
        *({"scores": s, "shape": "1x64", "heads": h} for s in ("plain", "length")
          for h in ("mha", "gqa_4_2")),
    ]  # fmt: skip
    schedules = ("materialized", "cuda_cores", "cp_ring", "tma_ring")
    return [{**USUAL, **change, "schedule": name} for change in changes for name in schedules]


def exhaustive() -> list[Row]:
    """Scores, schedules and outputs all crossed; the other factors take turns."""
    crossed = ("scores", "schedule", "outputs")
    others = [name for name in FACTORS if name not in crossed]
    made = []
    for place, values in enumerate(itertools.product(*(FACTORS[name] for name in crossed))):
        row = dict(zip(crossed, values, strict=True))
        for name in others:
            turns = list(FACTORS[name])
            chosen = (turns[(place + turn) % len(turns)] for turn in range(len(turns)))
            row[name] = next((each for each in chosen if fits({**row, name: each})), "")
        if all(row.values()) and fits(row):
            made.append({name: row[name] for name in FACTORS})
    return made


@dataclass(frozen=True)
class Refused:
    name: str
    row: Row
    says: str


def refusals() -> list[Refused]:
    """Each limit that something refuses, for every schedule that it is about."""
    made = []
    for limit in LIMITS:
        if limit.says is None:
            continue
        others = {n: v for n, v in limit.choices.items() if n != "schedule"}
        for place, schedule in enumerate(limit.choices["schedule"]):
            values = {name: every[place % len(every)] for name, every in others.items()}
            row = {**USUAL, **values, "schedule": schedule}
            made.append(Refused(f"{limit.name}-{schedule}", row, limit.says))
    return made
