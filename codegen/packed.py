"""Products of two 16-bit loads as an operand: two halves at a time, rounded once, as they lie."""

from __future__ import annotations

from typing import Any

from .atoms import Atom
from .context import Context
from .drains import drained
from .frames import Frame, atoms_along, fragment
from .lanes import LaneMap
from .memory import Place, load_words, unpacked
from .ptx import Register

Fragments = dict[Place, list[Register]]


def packed_product(
    ctx: Context, term: Any, frame: Frame, atom: Atom, lanes: LaneMap
) -> Fragments | None:
    """The fragments of a product of two loads in the atom's own dtype; None for anything else.

    A product of two halves is exact before it is rounded, so that nothing is gained by reals. Past
    the end of the depth an operand must be zero, as loads are there that lie along it.
    """
    if term.head != "Mul" or not atom.on_tensor_cores:
        return None
    loads = [arg for arg in term.args if arg.head == "Load"]
    if len(loads) < 2 or any(load.args[0].args[1] != atom.operand for load in loads):
        return None
    depth = 1 if lanes.shape == atom.a.shape else 0
    ends = ctx.inside((frame.row, frame.column)[depth]) is not None
    if ends and not all(ctx.uses(load, frame)[depth] for load in loads):
        return None
    one, other = (_words(ctx, load, frame, lanes) for load in loads)
    row = f"mul_rn_{atom.operand}x2"
    return {
        place: [ctx.builder.op(row, *pair) for pair in zip(words, other[place], strict=True)]
        for place, words in one.items()
    }


def _words(ctx: Context, load: Any, frame: Frame, lanes: LaneMap) -> Fragments:
    """A load's elements in pairs, as fragments hold them; along an axis that it lacks, again."""
    if load in ctx.held:
        return drained(ctx, ctx.held[load], frame, lanes)
    words, _ = load_words(ctx, load, frame, here=True)
    rows, columns = ctx.uses(load, frame)
    whole: dict[tuple[Place, ...], Register] = {
        word.places: word.register for word in words if len(word.places) == 2
    }
    halves: dict[Place, Register] = {}

    def half(place: Place) -> Register:
        if place not in halves:
            (word,) = (word for word in words if place in word.places)
            halves.update(unpacked(ctx, [word]))
        return halves[place]

    def pair(low: Place, high: Place) -> Register:
        one, other = ((r if rows else 0, c if columns else 0) for r, c in (low, high))
        if (one, other) not in whole:
            whole[one, other] = ctx.builder.op("mov_pack_b32", [half(one), half(other)])
        return whole[one, other]

    down, along = atoms_along(lanes, frame)
    found: Fragments = {}
    for place in ((i, j) for i in range(down) for j in range(along)):
        elements = fragment(lanes, frame, place)
        found[place] = [pair(*two) for two in zip(elements[::2], elements[1::2], strict=True)]
    return found
