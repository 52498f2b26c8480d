"""Towers that nobody chose: any brackets of a fold agree with the flat one, equal ones in bits.

A tower is drawn for each workload of the table, over extents that it mostly does not divide: parts
of the grid by number or by size, the serial loop's blocks, the tile's rows, warps and columns.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

from egraph_flash import Axis, evaluate, f32, optimize
from egraph_flash.dtypes import Array
from egraph_flash.errors import ScheduleError
from egraph_flash.kernel import Kernel
from egraph_flash.sharing import Cut
from egraph_flash.terms import subterms
from examples.workloads import WORKLOADS
from tests.support.bounds import Rounding, bound
from tests.support.fresh import fresh_rng
from tests.support.moving import plainly_moved, same_bits

Pins = dict[str, str]
DRAWS = 2  # of each workload
TRIES = 8  # pins that a refusal corrects, one at a time


def extents(name: str, rng: np.random.Generator) -> dict[str, int]:
    """Those of a definition that decide its tiles, at random."""
    drawn = {
        "m": int(rng.integers(1, 40)),
        "n": int(rng.integers(20, 400)),
        "k": int(rng.integers(20, 400)),
        "d": int(rng.choice([16, 32, 40, 64])),
        "e": int(rng.choice([8, 24, 40, 64])),
    }
    return {axis: drawn[axis] for axis in inspect.signature(WORKLOADS[name].make).parameters
            if axis in drawn}  # fmt: skip


def tower(of: dict[str, int], rng: np.random.Generator) -> Pins:
    """Pins of parts, and of a tile for each kind of stage: one of them fits."""
    count = of.get("k", of.get("n", 20))
    parts = f"g{rng.integers(1, 9)}" if rng.integers(2) else f"s{rng.integers(16, count + 1)}"
    rows, atoms = rng.choice([1, 2, 4]), rng.choice([1, 2])
    block = rng.choice([1, 2, 4])
    kind = rng.choice(["mma_m16n8k16_f16", "mma_m16n8k16_f16", "fma_f32"])
    wide = 2 * block if kind.startswith("mma") else 4 * block
    deep = block if kind.startswith("mma") else wide
    contracting = f"a:{kind}/w{rows}x1/f{atoms}x{wide}/k{deep}"
    return {"REDUCE": parts, "TILE": rng.choice([contracting, MAP.format(rows, atoms, block)])}


MAP = "a:map_m1n32/w{}x1/f{}x{}/k1"


def legal(roots: tuple[Any, ...], pins: Pins, name: str) -> tuple[Kernel, Pins]:
    """A kernel of these pins, or of the values that refusals name as the nearest legal ones."""
    refused = []
    for _ in range(TRIES):
        try:
            return optimize(whole(roots), "sm_90", pins, name=name), pins
        except ScheduleError as refusal:
            refused.append(str(refusal))
        named = re.match(r"pin (\w+)\b.*legal value (?:of \w+ )?is (\S+)$", refused[-1], re.DOTALL)
        if named is None or pins[named[1]] == named[2]:
            break
        pins = {**pins, named[1]: named[2]}
    raise AssertionError(f"what is called legal is not: {refused}")


def whole(roots: tuple[Any, ...]) -> Any:
    return roots if len(roots) > 1 else roots[0]


def results(kernel: Kernel, arrays: dict[str, Array]) -> tuple[Array, ...]:
    found = kernel.run(backend="sim", **arrays)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("draw", range(DRAWS))
@pytest.mark.parametrize("name", WORKLOADS)
def test_any_tower_folds_to_the_same(name: str, draw: int) -> None:
    rng = fresh_rng()
    of = extents(name, rng)
    roots = tuple(root.cast(f32) for root in WORKLOADS[name].outputs(**of))
    kernel, pins = legal(roots, tower(of, rng), name)
    print(of, pins)
    arrays = WORKLOADS[name].inputs(rng, **of)
    found = results(kernel, arrays)
    for root, got in zip(roots, found, strict=True):
        wanted = evaluate(root, arrays)
        assert np.isfinite(wanted).all()
        within = bound(root, arrays, Rounding.of(kernel.schedule), {})
        assert (np.abs(got - wanted) <= within).all()
    again = (plainly_moved(whole(roots), kernel), respelled(roots, kernel))
    for other in filter(None, again):
        assert same_bits(results(other, arrays), found), dict(other.record.pins)


def respelled(roots: tuple[Any, ...], kernel: Kernel) -> Kernel | None:
    """The same with its parts by size where they were by number; None where there are none."""
    pins = dict(kernel.schedule)
    axes = {axis.name: axis for axis in subterms(*roots) if isinstance(axis, Axis)}
    for knob, parts in kernel.schedule.items():
        name, _, axis = knob.partition("@")
        if name == "REDUCE" and parts.startswith("g"):
            pins[knob] = f"s{Cut.even(axes[axis], int(parts[1:])).part.size}"
    return optimize(whole(roots), kernel.target, pins) if pins != dict(kernel.schedule) else None


@pytest.mark.parametrize("name", ["row_softmax", "log_sum_exp", "entropy", "mean_variance"])
def test_the_bound_would_notice_what_is_left_out(name: str) -> None:
    """One element of a row: most rows are beyond it somewhere."""
    x = WORKLOADS[name].inputs(fresh_rng())["x"]
    (root, *_), (less, *_) = WORKLOADS[name].outputs(), WORKLOADS[name].outputs(n=x.shape[1] - 1)
    wanted, within = evaluate(root, {"x": x}), bound(root, {"x": x}, Rounding(), {})
    other = evaluate(less, {"x": x[:, :-1]})
    off = np.abs(wanted[..., : other.shape[-1]] - other) > within[..., : other.shape[-1]]
    assert off.reshape(len(off), -1).any(axis=1).mean() > 0.5
