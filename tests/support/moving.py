"""The kernel of the same brackets that moves its data in the plainest way."""

from __future__ import annotations

from typing import Any

from egraph_flash import optimize
from egraph_flash.errors import ScheduleError
from egraph_flash.kernel import Kernel
from egraph_flash.knobs import KNOBS

STILL = {
    "STAGE": "d0",
    "HOIST": "none",
    "HANDOFF": "shared",
    "SLAB": "raw",
    "SKEW": "off",
    "SKIP": "none",
    "GRID": "tiles",
    "ORDER": "rows",
    "TURNS": "off",
}


def plainly_moved(expression: Any, kernel: Kernel) -> Kernel | None:
    """A kernel of the expression with all that decides bits, and plain movement as far as that is
    legal; None where it is nowhere."""
    kept = {name: value for name, value in kernel.schedule.items() if not moves(name)}
    still = dict(STILL)
    while still:
        try:
            return optimize(expression, kernel.target, {**kept, **still})
        except ScheduleError as refusal:
            named = [name for name in still if f"{name}=" in str(refusal)]
            for name in named or list(still)[-1:]:
                del still[name]
    return None


def moves(name: str) -> bool:
    """Whether a knob, as a pin spells it, moves data and no bit."""
    return set(KNOBS[name.partition("@")[0]].fields.values()) == {"movement"}


def same_bits(one: Any, other: Any) -> bool:
    """Whether two results, arrays or tuples of them, are the same to the last bit."""
    if isinstance(one, tuple):
        return all(same_bits(a, b) for a, b in zip(one, other, strict=True))
    return bool(one.tobytes() == other.tobytes())
