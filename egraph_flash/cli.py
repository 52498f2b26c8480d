"""The command line: `egraph-flash compile | run | bench FILE.py:NAME`, and `ladder`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from . import printing
from .bench import bench as measure
from .checking import compare, seeded_inputs
from .debug import VARIABLE
from .errors import EgraphFlashError
from .kernel import Kernel
from .ladder_cli import ladder
from .lengths import lengths_of
from .loading import Loaded, LoadError, load, parse_lengths, parse_pins, parse_row, read_arrays
from .peers import parse_peers

app = typer.Typer(
    name="egraph-flash",
    help="Derive a kernel from a plain expression, emit PTX, run it and time it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Emit(StrEnum):
    """What `compile --emit` can write."""

    derivation = "derivation"
    term = "term"
    schedule = "schedule"
    cost = "cost"
    tile = "tile"
    ptx = "ptx"
    sass = "sass"
    cubin = "cubin"


class Backend(StrEnum):
    gpu = "gpu"
    sim = "sim"


Spec = Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="The expression.")]
Target = Annotated[
    str | None,
    typer.Option(help="sm_90, sm_120, …; by default that of the GPU that is present, else sm_120."),
]
Pins = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="KNOB=VALUE", help="Force a choice; repeatable."),
]
Lengths = Annotated[
    list[str] | None,
    typer.Option("--length", metavar="NAME=N", help="A length that is left open; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("compile")
def compile_(
    spec: Spec,
    target: Target = None,
    pin: Pins = None,
    emit: Annotated[Emit | None, typer.Option(help="Write only this.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to a file, not to stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Derive and emit a kernel; show what was found, or write one part of it."""
    kernel = _compile(load(spec), target, parse_pins(pin or []))
    if as_json:
        printing.write(json.dumps(printing.kernel_dict(kernel)), output)
    elif emit is not None:
        content = getattr(kernel, emit.value)
        printing.write(content if isinstance(content, bytes) else str(content), output)
    elif output is not None:
        raise LoadError("compile: got -o without --emit or --json; say what to write")
    else:
        printing.show_kernel(kernel)


@app.command()
def run(
    spec: Spec,
    inputs: Annotated[
        Path | None, typer.Option(help="The arrays, an .npz file with one for each input.")
    ] = None,
    target: Target = None,
    pin: Pins = None,
    length: Lengths = None,
    seed: Annotated[
        int | None, typer.Option(help="Random arrays of this seed, where no file is given.")
    ] = None,
    backend: Annotated[
        Backend | None, typer.Option(help="By default the GPU if one fits, else the simulator.")
    ] = None,
    counters: Annotated[bool, typer.Option(help="Print what the simulator counted.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Save the outputs as .npz.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a kernel on arrays from a file or a seed, and compare it with float64."""
    if (inputs is None) == (seed is None):
        raise LoadError("run: wants the arrays, by --inputs FILE.npz or by --seed NUMBER")
    loaded = load(spec)
    lengths = parse_lengths(length or [])
    read = read_arrays(inputs) if inputs is not None else {}
    for name in lengths:
        if name in read:
            raise LoadError(f"length: {name} is an array in {inputs}, and given as a number")
    kernel = _compile(loaded, target, parse_pins(pin or []))
    arrays = read if inputs is not None else seeded_inputs(loaded, kernel, seed, lengths)
    if inputs is None:  # what neither arrays nor the user tell is as the expression hints
        shapes = {name: np.shape(array) for name, array in arrays.items()}
        lengths = lengths_of(kernel.record, shapes, lengths, kernel.record.lengths)
    with printing.plain_warnings(), printing.progress() as step:
        step("running")
        result = kernel.run(backend=backend.value if backend else None, **arrays, **lengths)
        step("checking against float64")
        found = compare(loaded, kernel, arrays, result, lengths)
    check = loaded.beside("CHECKS")
    wrong = check(kernel, arrays, result) if check is not None else None
    named = _by_name(kernel, result)
    if output is not None:
        np.savez(output, **named)
    counted: Mapping[str, Any] | None = None
    if counters and kernel.counters is not None:
        counted = kernel.counters.as_dict()
    if as_json:
        errors = [{"computed_by": who, **vars(error)} for who, error in found]
        print(json.dumps({"errors": errors, "counters": counted, "wrong": wrong}, default=str))
    else:
        _show_run(kernel, found, counted if counters else {})
    if wrong is not None:
        print(f"wrong: {wrong}", file=sys.stderr)
        raise SystemExit(1)


def _show_run(kernel: Kernel, found: Any, counted: Mapping[str, Any] | None) -> None:
    """The errors, and the counters: None where nothing counted, empty where nobody asked."""
    printing.show_errors(f"{kernel.name} for {kernel.target}, against float64", found)
    if counted:
        printing.table("counted, in all launches", ["counter", "value"], _flat(counted["total"]))
    elif counted is None:
        print("counted: nothing, since it ran on a GPU; --backend sim counts")


@app.command()
def bench(
    spec: Spec,
    target: Target = None,
    pin: Pins = None,
    row: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL:KNOB=VALUE;…", help="A row with these pins too; repeatable."),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="fa2,cudnn,flex,math", help="PyTorch's kernels.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds.")] = 30,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs; fresh by default.")] = None,
    length: Lengths = None,
    as_json: Json = False,
) -> None:
    """Time kernels and their peers in one run on this GPU, each output checked."""
    loaded = load(spec)
    shared = parse_pins(pin or [])
    rows = [parse_row(text) for text in row or []] or [("ours", {})]
    labels = [label for label, _ in rows]
    names = [name for text in peer or [] for name in parse_peers(text)]
    twice = {label for label in (*labels, *names) if (*labels, *names).count(label) > 1}
    if twice:
        raise LoadError(f"bench: got {', '.join(sorted(twice))} twice, wants a label for each row")
    kernels = {label: _compile(loaded, target, shared | pins) for label, pins in rows}
    lengths = parse_lengths(length or [])
    with printing.progress() as step:
        found = measure(
            loaded, kernels, names, rounds=rounds, seed=seed, lengths=lengths, progress=step
        )
    if as_json:
        print(json.dumps(found.to_dict()))
    else:
        printing.show_bench(found)


app.command()(ladder)


def _compile(loaded: Loaded, target: str | None, pins: dict[str, str]) -> Kernel:
    from .pipeline import optimize

    with printing.progress() as step:
        step(f"deriving {loaded.name}")
        kernel: Kernel = optimize(loaded.expression, target=target, pins=pins or None)
        return kernel


def _by_name(kernel: Kernel, result: Any) -> dict[str, Any]:
    results = result if isinstance(result, tuple) else (result,)
    return {spec.name: array for spec, array in zip(kernel.outputs, results, strict=True)}


def _flat(counted: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Counters that are not zero, those of a group under its name."""
    rows: list[tuple[str, Any]] = []
    for name, value in counted.items():
        label = f"{prefix}{name}"
        if isinstance(value, Mapping):
            rows += _flat(value, f"{label}.")
        elif value:
            rows.append((label, value))
    return rows


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Our own errors end the program with one message and exit code 2, or raise when debugging."""
    try:
        yield
    except EgraphFlashError as error:
        if os.environ.get(VARIABLE, "0") not in ("", "0"):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    with reporting_errors():
        app(args=list(arguments) if arguments is not None else None)


if __name__ == "__main__":
    main()
