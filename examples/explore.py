"""How many ways to compute an expression its e-graph holds, which carriers, and at what cost.

    python examples/explore.py
    python examples/explore.py examples/workloads.py:entropy --members 500 --plot entropy.png

Shows how many terms the laws made of the one that was written; the carriers of each axis; the chain
from the naive term to the chosen one, as a tree of their passes; and what a random sample of the
terms would cost. The picture, for which matplotlib is needed, has a point for each of the sample.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.tree import Tree

from egraph_flash.derivation import derive
from egraph_flash.extraction import Extraction, Search
from egraph_flash.frozen import Klass, Node
from egraph_flash.ladder_plot import need_plot
from egraph_flash.loading import load
from egraph_flash.machines import machine
from egraph_flash.members import Sampler, count
from egraph_flash.printing import table
from egraph_flash.record import Derivation

HERE = Path(__file__).parent
HEIGHTS = 8  # how much higher than the lowest term members are counted
SLACK = 12  # and sampled

# (passes, unsafe operations, predicted µs) of a term
Price = tuple[int, int, float]


def counts(search: Search) -> None:
    """How many terms there are of the first output, by their height."""
    klass = search.frozen.roots[0]
    lowest = Sampler(search.frozen, random.Random(0)).heights[klass]
    heights = range(lowest, lowest + HEIGHTS + 1, 2)
    found = {height: count(search.frozen, klass, height) for height in heights}
    rows = [
        (f"at most {height} high", f"{number:,}" if number < 10**12 else f"{Decimal(number):.1e}")
        for height, number in found.items()
    ]
    nodes = sum(len(each.nodes) for each in search.frozen.classes)
    title = f"{nodes:,} nodes in {len(search.frozen.classes):,} classes; terms of the first output"
    table(title, ["", "terms"], rows)


def carriers(search: Search) -> None:
    """The sets of channels over which the e-graph folds each axis."""
    folds = [node for klass in search.frozen.classes for node in klass.having("Fold")]
    found: dict[Any, set[frozenset[Klass]]] = {}
    for node in folds:
        found.setdefault(node.args[0], set()).update(_channels(node))
    rows = [
        (
            str(search.naming.original(axis)),
            len(several),
            sum(len(channels) == 1 for channels in several),
            max(map(len, several)),
        )
        for axis, several in sorted(found.items(), key=lambda pair: str(pair[0]))
    ]
    table("carriers", ["axis", "carriers", "of one channel", "channels of the largest"], rows)


def _channels(fold: Node) -> set[frozenset[Klass]]:
    return {lift.args[0] for lift in fold.args[2].having("Lift")}


def tree(title: str, derivation: Derivation) -> Tree:
    """The chain of terms, each with the folds that it takes."""
    found = Tree(f"[bold]{title}")
    for step in derivation.steps:
        branch = found.add(
            f"[bold]{step.law_family}[/]: passes {step.passes}, unsafe {step.unsafe}, "
            f"{step.cost_us:.1f} µs"
        )
        for line in step.term.splitlines():
            branch.add(line.replace("[", r"\["))
    return found


def sample(search: Search, members: int, seed: int) -> list[Price]:
    """The prices of different terms of the first output, at random."""
    sampler = Sampler(search.frozen, random.Random(seed))
    klass, terms = search.frozen.roots[0], dict[Any, None]()
    for _ in range(20 * members):
        if len(terms) == members:
            break
        term = sampler.member(klass, sampler.rng.randrange(SLACK))
        if term is not None:
            terms[term] = None
    return [price(search, term) for term in terms]


def price(search: Search, term: Any) -> Price:
    (unsafe, cost_us, *_), outline = search.solver.joint((term,))
    return outline.count, unsafe, cost_us


def prices(found: Sequence[Price], chosen: Price) -> None:
    times: dict[tuple[int, int], list[float]] = {}
    for passes, unsafe, cost_us in found:
        times.setdefault((passes, min(unsafe, 1)), []).append(cost_us)
    rows = []
    for (passes, unsafe), several in sorted(times.items()):
        name = f"{passes} {'pass' if passes == 1 else 'passes'}"
        ends = (f"{min(several):.1f}", f"{max(several):.1f}")
        rows.append((name, "no" if unsafe else "yes", len(several), *ends))
    title = f"{len(found):,} terms at random; chosen: {chosen[0]} passes, {chosen[2]:.1f} µs"
    table(title, ["", "safe", "terms", "least µs", "most µs"], rows, words=2)


def draw(found: Sequence[Price], chosen: Price, naive: Price, title: str, path: Path) -> None:
    """A point for each term: its passes to the right, its predicted time upwards."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    shift = random.Random(0)
    for unsafe, colour, label in ((1, "#c8553d", "may overflow or cancel"), (0, "#5b8db8", "safe")):
        points = [(p + shift.uniform(-0.3, 0.3), us) for p, u, us in found if min(u, 1) == unsafe]
        across, up = ([point[place] for point in points] for place in (0, 1))
        axes.scatter(across, up, s=9, alpha=0.6, color=colour, label=label)
    for mark, (passes, _, cost_us), label in (("s", naive, "as written"), ("*", chosen, "chosen")):
        axes.scatter([passes], [cost_us], marker=mark, s=130, color="#1f2933", label=label)
    axes.set(xlabel="passes", ylabel="predicted µs", yscale="log", title=title)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter("{x:,.0f}")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=160)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("expression", nargs="?", default=f"{HERE / 'attention.py'}:attention")
    parser.add_argument("--target", default="sm_120")
    parser.add_argument("--members", type=int, default=300, help="terms in the sample")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="a file for the picture: .png, .pdf or .svg")
    given = parser.parse_args(arguments)
    if given.plot is not None:
        need_plot(given.plot)
    loaded = load(given.expression)
    search = Search((loaded.expression,), machine(given.target))
    counts(search)
    carriers(search)
    chosen: Extraction = search.extract("fuse", {})
    found = sample(search, given.members, given.seed)
    Console(width=120).print(tree(loaded.name, derive(chosen)))
    best = (chosen.passes, chosen.unsafe, chosen.cost_us)
    prices(found, best)
    if given.plot is not None:
        draw(found, best, price(search, search.roots[0]), loaded.name, given.plot)
        print(f"drawn: {given.plot}")


_Raw = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
