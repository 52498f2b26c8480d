"""Which rungs the ladder has: what each pins beyond the one below it, and what it cost elsewhere.

One row is one rung; a further one is a further row. `python -m egraph_flash.cli ladder` climbs
them; docs/ladder.md says what came of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import InputError
from .loading import parse_pins

SEED_TARGET = "sm_120"  # the RTX 5090 that `seed_us` was measured on
SEED_SHAPE = (1, 8, 4096, 64)  # batch, heads, rows, depth, of f16, without a mask
SEED_FA2_US = 206.0  # FlashAttention-2 there


@dataclass(frozen=True)
class Rung:
    """One schedule, as pins on top of those of the rung below.

    `adds` spells pins as `KNOB=value;KNOB=value`, in which `{mma}` is the atom of the inputs'
    dtype, `{depth}` the head dim, `{columns}` its column atoms, `{slab}` the atoms along the depth
    that are loaded at a time, `{block}` and `{steps}` the column atoms and the depth steps of a
    fold block (`{half}` and `{halfsteps}` of one of 32 elements), and `{keep}` where an operand
    that stays is kept. Rungs that name the same `brackets` differ in movement alone: equal bits.
    An `aside` is priced against the last rung above it in the table, and nothing stands on it.
    `seed_us` is what the seed article measured (SEED_TARGET, SEED_SHAPE).
    """

    name: str
    adds: str
    changed: str
    brackets: str
    seed_us: float | None = None
    aside: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            raise InputError(f"rung: got the name {self.name!r}, wants words joined by '-'")


_SCORES, _OUTPUT = "TILE@d=a:{mma}/w%sx1/f%dx%s/k%s", "TILE@n=a:{mma}/w%sx1/f%dx{columns}/k%s"


def _mma(
    warps: int, row_atoms: int, block: str = "{block}", steps: str = "{steps}", slab: str = "{slab}"
) -> str:
    """Pins of a geometry: warps, row tiles a warp, column atoms and depth steps of a fold block.

    `slab` counts the depth atoms of the scores' operands that are loaded at a time.
    """
    return f"{_SCORES % (warps, row_atoms, block, slab)};{_OUTPUT % (warps, row_atoms, steps)}"


_HALF = ("{half}", "{halfsteps}")  # a fold block of 32 elements

RUNGS: tuple[Rung, ...] = (
    Rung(
        name="scalar",
        adds="PLACE=fold=fuse;REDUCE=g1;TILE@d=a:fma_f32/w4x1/f1x8/k8;TILE@n=a:fma_f32/w4x1/f1x{depth}/k8;"
        "EXP=ex2;SUM=block;BASE=max;SKEW=off;GRID=tiles;REGS=r255/b1",
        changed="fused, on CUDA cores, one row a lane",
        brackets="scalar",
        seed_us=24943,
    ),
    Rung(
        name="mma-global",
        adds=f"{_mma(4, 1)};STAGE=d0;HANDOFF=shared;SLAB=raw;HOIST=none;TURNS=off",
        changed="tensor cores, operands from global memory",
        brackets="mma",
        seed_us=612,
    ),
    Rung(
        name="seed-geometry",
        adds=_mma(2, 1, "16", "8", "1"),
        changed="the seed's first mma rung: 2 warps, 128 keys a block",
        brackets="wide-blocks",
        aside=True,
    ),
    Rung(
        name="staged",
        adds="STAGE=d1/cp;DRAIN=x2;ROLES=all;CACHE=none",
        changed="streamed operands through shared memory by cp.async",
        brackets="mma",
        seed_us=511,
    ),
    Rung("xor", "SLAB=xor", "chunks permuted by the row", "mma", aside=True),
    Rung("padded", "SLAB=pad16", "16 bytes between rows of slabs", "mma", 315),
    Rung("warp-barrier", "HANDOFF=shared/warp", "barriers of the warp", "mma", 315, aside=True),
    Rung("repacked", "HANDOFF=repack", "weights handed over in registers", "mma", 271),
    Rung("hoisted", "HOIST=registers", "the other operand kept in registers", "mma", 233),
    Rung("kept-shared", "HOIST=shared", "kept in shared memory instead", "mma", aside=True),
    Rung("ring", "STAGE=d2/cp/ring", "copies one block ahead", "mma", 222),
    Rung("paired", "DRAIN=x4", "two ldmatrix.x2 are one .x4", "mma", 219),
    Rung("two-tiles", f"{_mma(4, 2)};HOIST={{keep}}", "two row tiles a warp", "mma", 212),
    Rung("four-tiles", _mma(4, 4), "four row tiles a warp", "mma", 341, aside=True),
    Rung("tma", "STAGE=d2/tma/ring;SLAB=xor;ROLES=one", "tensor copies", "mma", 206),
    Rung("depth-3", "STAGE=d3/tma/ring", "three slots", "mma", aside=True),
    Rung("depth-4", "STAGE=d4/tma/ring", "four slots", "mma", aside=True),
    Rung("producer", "ROLES=producer", "a warp group that only copies", "mma", 213, aside=True),
    Rung("private", "ROLES=each", "a ring for each warp", "mma", 291, aside=True),
    Rung("rotating", "ROLES=rotate", "warps take turns to copy", "mma", aside=True),
    Rung("ping-pong", "DRAIN=x4/p2", "fragments one step ahead", "mma", 207, aside=True),
    Rung("vote", "BASE=vote", "no rescale where no maximum moved", "mma", aside=True),
    Rung("eight-warps", _mma(8, 2), "256 rows a block", "mma", aside=True),
    Rung("two-warps", _mma(2, 2), "64 rows a block", "mma", aside=True),
    Rung("evict-last", "CACHE=last", "streamed operands evicted last", "mma", aside=True),
    Rung(
        name="skew-alone",
        adds=f"{_mma(8, 2, *_HALF)};STAGE=d2x4/tma/ring;SKEW=last;ROLES=rotate",
        changed="scores one block ahead, exact maximum",
        brackets="skewed-exact",
        aside=True,
    ),
    Rung("exp-accurate", "EXP=accurate", "exp to an ulp or two", "accurate", aside=True),
    Rung("exp-polynomial", "EXP=poly2", "a quarter of exps on FMA", "poly", aside=True),
    Rung("folded", "EXP=fold;SUM=lane", "cheaper exp, sums in lanes", "folded"),
    Rung("lazy", "BASE=lazy;START=zero", "the base moves only past its slack", "lazy"),
    Rung(
        name="wide",
        adds=f"{_mma(8, 2, *_HALF)};STAGE=d2x4/tma/ring;ROLES=rotate",
        changed="8 warps, blocks of 32, four of them a slot, warps take turns to copy",
        brackets="wide",
    ),
    Rung(
        "wide-skewed",
        "SKEW=on",
        "scores of a block before the rest of the last",
        "wide",
        aside=True,
    ),
    Rung("wide-skew-last", "SKEW=last", "the same, after it in the text", "wide", aside=True),
    Rung("wide-shared", "HOIST=shared", "rows kept in shared memory", "wide", aside=True),
    Rung("wide-one", "ROLES=one", "one thread copies", "wide", aside=True),
    Rung(
        "wide-producer",
        f"{_mma(4, 2, *_HALF)};ROLES=producer",
        "a warp group copies",
        "wide",
        aside=True,
    ),
    Rung("wide-d4", "STAGE=d4x2/tma/ring", "four slots of two blocks", "wide", aside=True),
    Rung("wide-d4x1", "STAGE=d4/tma/ring", "four slots of one block", "wide", aside=True),
    Rung("wide-cp", "STAGE=d2x4/cp/ring;ROLES=all", "copies by all threads", "wide", aside=True),
    Rung("wide-turns", "TURNS=on", "halves of the warps take turns", "wide", aside=True),
    Rung("wide-persistent", "GRID=persistent", "resident blocks only", "wide", aside=True),
    Rung("wide-capped", "REGS=r224/b1", "at most 224 registers", "wide", aside=True),
    Rung("wide-exact", "BASE=vote", "the exact maximum, by vote", "wide-exact", aside=True),
    Rung("wide-ones", "SUM=ones", "sums by a column of ones", "wide-ones", aside=True),
    Rung(
        "wide-start",
        "START=base;EXP=ex2",
        "scores start at minus the base",
        "wide-start",
        aside=True,
    ),
    Rung("wide-poly", "EXP=poly1", "an eighth of exps on FMA", "wide-poly", aside=True),
)


def pins_by_rung(depth: int, dtype: str) -> dict[str, dict[str, str]]:
    """All pins of each rung by its name, for inputs of a head dim and dtype (`f16`, `bf16`)."""
    block = 8 if depth <= 96 else 4  # column atoms that leave registers for accumulators this wide
    fields = {
        "mma": f"mma_m16n8k16_{dtype}",
        "depth": depth,
        "columns": -(-depth // 8),
        "slab": min(4, -(-depth // 16)),
        "block": block,
        "steps": block // 2,
        "half": 4,
        "halfsteps": 2,
        "keep": "registers" if depth <= 96 else "shared",
    }
    below: dict[str, str] = {}
    found = {}
    for rung in RUNGS:
        own = parse_pins([pin for pin in rung.adds.format(**fields).split(";") if pin])
        found[rung.name] = below | own
        if not rung.aside:
            below = found[rung.name]
    return found


def choose(names: str | None) -> tuple[Rung, ...]:
    """The rungs of `NAME,NAME`, in the ladder's order; all of them where nothing is asked for."""
    if names is None:
        return RUNGS
    asked = [name.strip() for name in names.split(",") if name.strip()]
    known = [rung.name for rung in RUNGS]
    unknown = [name for name in asked if name not in known]
    if unknown or not asked:
        got = ", ".join(unknown) or repr(names)
        raise InputError(f"rungs: got {got}, wants some of {', '.join(known)}")
    return tuple(rung for rung in RUNGS if rung.name in asked)


def below(rungs: Sequence[Rung]) -> dict[str, str | None]:
    """Which of these rungs each is priced against, by name; None for the first."""
    found: dict[str, str | None] = {}
    last: str | None = None
    for rung in rungs:
        found[rung.name] = last
        if not rung.aside:
            last = rung.name
    return found


def _refuse_duplicates() -> None:
    names = [rung.name for rung in RUNGS]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"rungs: {twice} stand twice"


_refuse_duplicates()
