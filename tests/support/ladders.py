"""Ladders made by hand, so that showing them is tested without climbing."""

from __future__ import annotations

from dataclasses import replace

from egraph_flash.ladder import Ladder, Row
from egraph_flash.problem import Problem
from egraph_flash.rungs import Rung

SCALAR = Rung("scalar", "A=1", "first", "scalar", 24943)


def made(*rows: Row) -> Ladder:
    return Ladder(Problem((1, 8, 4096, 64)), "sm_90", "gpu", "H200", 1, 30, 4096, rows, 7e-4)


def descent() -> Ladder:
    """Four measured rungs, one of them an aside, and a refused one."""

    def row(name: str, knobs: str, seed_us: float | None, us: float, aside: bool = False) -> Row:
        rung = replace(SCALAR, name=name, seed_us=seed_us, aside=aside, brackets="mma")
        return Row(
            rung, knobs, us=us, us_fa2=120.0, predicted_us=us / 2, registers=200, ctas=2, spills=0,
            shared_bytes=49152, digest="70cf2285d0de", max_err=7e-4,
        )  # fmt: skip

    return made(
        row("scalar", "A=1;B=1", 24943, 2400),
        row("mma", "A=2;B=1", 612, 480),
        row("tried", "A=2;B=9", None, 600, aside=True),
        row("ring", "A=2;B=2", 206, 96),
        Row(replace(SCALAR, name="greedy", adds="C=1", seed_us=None), "C=1", "C: too much"),
    )
