"""How a ladder is shown: step by step beside the seed article's figures, then what each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from . import printing, rungs
from .ladder import Ladder, Row
from .printing import Cell

Figure = Callable[[Row], float | None]

NOTHING = "–"
LEAST_RANKED = 3  # rungs below which a rank correlation says nothing


def show(ladder: Ladder) -> None:
    """The whole scoreboard on stdout."""
    printing.table(_title(ladder), *_known(*_times(ladder)), words=2)
    for line in summary(ladder):
        print(line)
    print()
    printing.table("what each rung takes", *_known(*_resources(ladder)))
    for row in ladder.rows:
        if row.refusal is not None:
            print(f"refused: {row.rung.name} ({row.knobs}): {row.refusal}")


def _title(ladder: Ladder) -> str:
    if ladder.backend == "gpu":
        how = f"medians of {ladder.rounds} interleaved rounds"
    elif ladder.backend == "sim":
        how = f"simulated for {ladder.target}; µs predicted"
    else:
        how = f"predicted for {ladder.target}; instructions as planned"
    checked = f"; {ladder.checked:,} elements of each against float64" if ladder.checked else ""
    seed = "" if ladder.seed is None else f"; seed {ladder.seed}"
    return f"ladder at {ladder.problem} on {ladder.device}: {how}{checked}{seed}"


def _known(columns: list[str], rows: list[list[Cell]]) -> tuple[list[str], list[list[Cell]]]:
    """Without the columns that this backend says nothing in."""
    kept = [at for at in range(len(columns)) if any(row[at] != NOTHING for row in rows)]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _times(ladder: Ladder) -> tuple[list[str], list[list[Cell]]]:
    unit = "µs" if ladder.backend == "gpu" else "predicted µs"
    columns = ["rung", "changed", unit, "step", "seed µs", "seed step", "FA-2 ratio"]
    columns += ["max |error|", "hash"]
    steps, seed_steps = step_factors(ladder, _time), step_factors(ladder, _seed)
    return columns, [
        [
            f"({row.rung.name})" if row.rung.aside else row.rung.name,
            "\n".join(difference(ladder, row)),
            _number(_time(row), 1),
            _number(steps.get(row.rung.name), 2),
            _number(_seed(row), 0),
            _number(seed_steps.get(row.rung.name), 2),
            _number(_over(row.us_fa2, row.us), 2),
            NOTHING if row.max_err is None else f"{row.max_err:.3e}",
            row.digest or NOTHING,
        ]
        for row in ladder.rows
    ]


def _resources(ladder: Ladder) -> tuple[list[str], list[list[Cell]]]:
    columns = ["rung", "registers", "blocks an SM", "spilled bytes", "shared bytes"]
    columns += ["LSU", "load conflicts", "mma", "barrier waits"]
    return columns, [
        [
            row.rung.name,
            *(
                NOTHING if value is None else value
                for value in (
                    *(row.registers, row.ctas, row.spills, row.shared_bytes),
                    *(row.lsu, row.ld_conflicts, row.mma, row.barrier_waits),
                )
            ),
        ]
        for row in ladder.rows
    ]


def summary(ladder: Ladder) -> list[str]:
    """The whole descent, the ranks, and whether rungs of equal brackets have equal bits."""
    lines = []
    if ladder.us_fa2 is not None:
        best = min(row.us for row in ladder.rows if row.us is not None)
        lines.append(
            f"FlashAttention-2 {ladder.us_fa2:,.1f} µs, max |error| {ladder.max_err_fa2:.3e}; "
            f"mma.sync roofline {ladder.roofline_us:,.1f} µs; the best rung takes "
            f"{best / ladder.us_fa2:.2f} of FlashAttention-2's time"
        )
    total, seed_total = total_factor(ladder, _time), total_factor(ladder, _seed)
    if total is not None:
        beside = "" if seed_total is None else f"; the seed's {seed_total:,.0f}×"
        lines.append(f"bottom over top: {total:,.1f}×{beside}")
    rank = rank_correlation(ladder)
    if rank is not None:
        lines.append(
            f"rank correlation with the seed's µs on its RTX 5090 at "
            f"{list(rungs.SEED_SHAPE)}: {rank:.3f}"
        )
    for brackets, hashes in ladder.agreement().items():
        alike = ", ".join(f"{digest} of {len(who)}" for digest, who in hashes.items())
        lines.append(f"bits of the brackets {brackets!r}: {alike} rungs")
    return lines


def _time(row: Row) -> float | None:
    return row.time_us


def _seed(row: Row) -> float | None:
    return row.rung.seed_us


def step_factors(ladder: Ladder, figure: Figure) -> dict[str, float]:
    """How many times faster each rung is than the one it is priced against."""
    found = {}
    for name, other in rungs.below([row.rung for row in ladder.rows]).items():
        factor = (
            None if other is None else _over(figure(ladder.row(other)), figure(ladder.row(name)))
        )
        if factor is not None:
            found[name] = factor
    return found


def total_factor(ladder: Ladder, figure: Figure) -> float | None:
    """The bottom's figure over the top's, of those that have one and are no asides."""
    values = [figure(row) for row in ladder.rows if not row.rung.aside]
    known = [value for value in values if value is not None]
    return known[0] / known[-1] if len(known) > 1 else None


def rank_correlation(ladder: Ladder) -> float | None:
    """Spearman's, of our times with the seed's; None for fewer than three rungs that have both."""
    pairs = [
        (time_us, row.rung.seed_us)
        for row in ladder.rows
        if (time_us := row.time_us) is not None and row.rung.seed_us is not None
    ]
    if len(pairs) < LEAST_RANKED:
        return None
    ours, theirs = (ranks(list(values)) for values in zip(*pairs, strict=True))
    if np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return None
    return float(np.corrcoef(ours, theirs)[0, 1])


def ranks(values: Sequence[float]) -> list[float]:
    """Places in ascending order from 1; equal values share the mean of their places.

    >>> ranks([10.0, 30.0, 10.0])
    [1.5, 3.0, 1.5]
    """
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def difference(ladder: Ladder, row: Row) -> list[str]:
    """The knobs, as emitted, whose value is another one than on the rung below; `refused`."""
    if row.refusal is not None:
        return ["refused"]
    other = rungs.below([each.rung for each in ladder.rows])[row.rung.name]
    before = _knobs(ladder.row(other)) if other is not None else {}
    return [f"{name}={value}" for name, value in _knobs(row).items() if before.get(name) != value]


def _knobs(row: Row) -> Mapping[str, str]:
    return dict(pin.split("=", 1) for pin in row.knobs.split(";")) if row.refusal is None else {}


def _over(above: float | None, under: float | None) -> float | None:
    return None if above is None or not under else above / under


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"
