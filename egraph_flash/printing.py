"""How the command line shows things: tables and progress for people, JSON for programs."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .bench import Table
from .checking import Error
from .kernel import Kernel
from .listing import listing
from .notices import EgraphFlashWarning
from .record import to_json

Cell = str | float | int
FILE_WIDTH = 200  # of a table that goes to a file or a pipe; it takes no more than it needs


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, words: int = 1
) -> None:
    """A table on stdout: the first columns, which hold words, on the left, numbers on the right."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    made = RichTable(title=escape(title), title_justify="left", title_style="bold", highlight=False)
    for number, column in enumerate(columns):
        made.add_column(
            escape(column),
            justify="left" if number < words else "right",
            overflow="fold",
            no_wrap=not number,
        )
    for row in rows:
        made.add_row(*(escape(cell) if isinstance(cell, str) else f"{cell:,}" for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    console.print(made)


def section(title: str, body: object) -> None:
    """A titled block of plain text on stdout."""
    print(f"── {title}\n{body}\n")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that says on stderr, where that is a terminal, which long step runs now."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    with console.status("") as status:
        yield lambda step: status.update(step)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings as one line each on stderr, without a place in our sources."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", EgraphFlashWarning)
        warnings.showwarning = lambda message, *rest, **named: print(
            f"warning: {message}", file=sys.stderr
        )
        yield


def write(content: str | bytes, path: Path | None) -> None:
    """To a file, else to stdout."""
    if path is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    elif isinstance(content, bytes):
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        print(content, end="" if content.endswith("\n") else "\n")


def kernel_dict(kernel: Kernel) -> dict[str, Any]:
    """A kernel as JSON takes it: its record, and what the assembler says."""
    read: dict[str, Any] = json.loads(to_json(kernel.record))
    assembly = kernel.assembly
    entries = [vars(entry) for entry in assembly.entries]
    read["assembly"] = {"assembler": assembly.assembler, "entries": entries}
    read["workspace_bytes"] = kernel.workspace_bytes
    read["timings_s"] = kernel.timings
    return read


def show_kernel(kernel: Kernel) -> None:
    """What was found, how it is emitted, and what the assembler makes of it."""
    section("derivation", kernel.derivation)
    section("term", listing(*kernel.terms))
    section("schedule", kernel.schedule)
    section("cost", kernel.cost)
    show_assembly(kernel)


def show_assembly(kernel: Kernel) -> None:
    entries = {entry.name: entry for entry in kernel.assembly.entries}
    rows: list[list[Cell]] = []
    for launch in kernel.plan.launches:
        entry = entries[launch.entry]
        shared_bytes = entry.shared_bytes + launch.shared_bytes
        grid = "×".join(map(str, launch.grid))
        rows.append(
            [launch.entry, grid, launch.threads, entry.registers, shared_bytes, entry.spill_bytes]
        )
    columns = ["kernel", "grid", "threads", "registers", "shared bytes", "spilled bytes"]
    title = f"assembled for {kernel.target} by {kernel.assembly.assembler}"
    table(title, columns, rows)


def show_errors(title: str, found: Sequence[tuple[str, Error]]) -> None:
    """Errors from float64, one line for each way of computing and output."""
    rows = [[f"{who}: {e.output}", f"{e.max_abs:.3e}", f"{e.mean_abs:.3e}"] for who, e in found]
    table(title, ["computed by", "max |error|", "mean |error|"], rows)


def show_bench(measured: Table) -> None:
    rows = [
        [
            row.label,
            f"{row.time_us:.1f}",
            f"{row.quartiles_us[0]:.1f}–{row.quartiles_us[1]:.1f}",
            f"{row.ratio:.2f}",
            "?" if row.tflop_s is None else f"{row.tflop_s:.1f}",
            f"{row.max_error:.3e}",
            f"{row.mean_error:.3e}",
            row.digest,
        ]
        for row in measured.rows
    ]
    title = (
        f"{measured.name} on {measured.device}: medians of {measured.rounds} interleaved rounds; "
        f"{measured.checked:,} elements of each checked against float64; seed {measured.seed}"
    )
    columns = ["row", "µs", "quartiles", "ratio", "TFLOP/s", "max |error|", "mean |error|"]
    table(title, [*columns, "hash"], rows)
