"""On which pipe each pointwise operator runs, and how many of its operations it takes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .arithmetic import normal_reciprocal

_ON = {
    "fma": ("Add", "Sub", "Mul", "Neg", "Abs"),
    "alu": ("Max2", "Min2", "Where", "Lt", "Le", "Eq", "Ne", "And", "Or", "Not"),
}
PIPES: dict[str, dict[str, float]] = {
    **{name: {pipe: 1.0} for pipe, names in _ON.items() for name in names},
    "FloorDiv": {"alu": 4.0},
    "Mod": {"alu": 4.0},
    "Exp": {"fma": 1.0, "mufu": 1.0},
    "Log": {"fma": 1.0, "mufu": 1.0},
    "Tanh": {"fma": 3.0, "mufu": 2.0},
    "Sqrt": {"fma": 6.0, "mufu": 1.0},
    "Div": {"fma": 8.0, "mufu": 1.0},
    "Cast": {"alu": 2.0},
}
TANH_APPROX: dict[str, float] = {"mufu": 1.0}  # in the place of its row above
_SCALED = {"fma": 1.0}


def operations(node: Any) -> Mapping[str, float]:
    """The operations of one node for each element, by pipe; none of what is no operator."""
    return _SCALED if is_scaling(node) else PIPES.get(node.head, {})


def is_scaling(node: Any) -> bool:
    """Whether it is a quotient by a constant, which is a product in the machine."""
    if node.head != "Div" or node.args[1].head != "Num":
        return False
    return normal_reciprocal(node.args[1].args[0]) is not None
