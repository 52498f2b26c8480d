"""The command `egraph-flash ladder`: every rung at a shape, priced and checked."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from . import ladder_plot, printing, runtime, scoreboard
from .ladder import PEER, Ladder, climb, need_gpu
from .machines import machine
from .peers import parse_peers
from .problem import Problem, parse_shape
from .rungs import choose


class Backend(StrEnum):
    """Where the rungs are priced."""

    gpu = "gpu"
    sim = "sim"
    model = "model"


class Element(StrEnum):
    f16 = "f16"
    bf16 = "bf16"


def ladder(
    shape: Annotated[
        str, typer.Option(metavar="B,H,S,D", help="Batch, heads, rows and head dim of q, k and v.")
    ] = "1,8,4096,64",
    backend: Annotated[
        Backend,
        typer.Option(
            help="gpu times beside FlashAttention-2, sim counts, model predicts and runs nothing."
        ),
    ] = Backend.gpu,
    causal: Annotated[bool, typer.Option(help="Mask keys after the row.")] = False,
    dtype: Annotated[Element, typer.Option(help="Of q, k, v and the output.")] = Element.f16,
    target: Annotated[
        str | None,
        typer.Option(help="sm_90, sm_120; by default that of the GPU present, else sm_120."),
    ] = None,
    rungs: Annotated[
        str | None, typer.Option(metavar="NAME,NAME…", help="Only these; by default all.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="ladder.png", help="Draw it too; needs matplotlib.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds on the GPU.")] = 30,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs; fresh by default.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one a processor.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of rows.")] = False,
) -> None:
    """Climb the ladder: each rung one knob, its output checked and hashed, its price shown."""
    problem = Problem(parse_shape(shape), dtype.value, causal)
    chosen = choose(rungs)
    target = target or runtime.present_target() or "sm_120"
    machine(target)
    if plot is not None:
        ladder_plot.need_plot(plot)
    if backend is Backend.gpu:
        need_gpu(target)
        parse_peers(PEER)
    with printing.progress() as step:
        found: Ladder = climb(
            problem, backend.value, target=target, rungs=chosen, rounds=rounds, seed=seed,
            jobs=jobs, progress=step,
        )  # fmt: skip
    if as_json:
        print(json.dumps([row.to_dict() for row in found.rows]))
    else:
        scoreboard.show(found)
    if plot is not None:
        ladder_plot.plot(found, plot)
    found.check_bits()
