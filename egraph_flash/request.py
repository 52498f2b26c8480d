"""What the user asked `optimize` for, once its form is checked: outputs, target and pins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .axes import Axis
from .dtypes import DTYPES, Dtype
from .errors import ExpressionError
from .expressions import Expr, Output, lift
from .knobs import knob_of
from .machines import machine
from .notation import text
from .terms import subterms

Root = tuple[str, Any, tuple[Axis, ...], Dtype]  # name, expression, axes in memory order, dtype


@dataclass(frozen=True)
class Request:
    """What the user asked for, once its form is checked: outputs with their axes and dtypes."""

    name: str
    outputs: tuple[Root, ...]
    inputs: tuple[Any, ...]  # the Array terms, in order of first appearance
    target: str
    pins: Mapping[str, str]

    @property
    def text(self) -> str:
        lines = [self.name]
        for name, expr, axes, dtype in self.outputs:
            lines.append(f"{name} {dtype} {' '.join(map(text, axes))} {text(expr)}")
        return "\n".join(lines)


def request_for(expr: Any, target: str, pins: dict[str, str], name: str) -> Request:
    """The request, or an ExpressionError, ScheduleError or LoweringError that says what is off."""
    given = expr if isinstance(expr, tuple) else (expr,)
    if not given:
        raise ExpressionError(f"{name}: got no expression, wants one or more")
    inputs: dict[Any, None] = {}
    roots = []
    for item in given:
        term = item.expr if isinstance(item, Output) else lift(item)
        for node in subterms(term):
            if node.head == "Array":
                inputs[node] = None
        roots.append((term, item.axes if isinstance(item, Output) else None))
    _check_inputs(name, list(inputs))
    for pin, value in pins.items():
        knob_of(pin).parse(value)
    names = _output_names(len(roots), {array.args[0] for array in inputs})
    outputs = tuple(
        _root(name, label, term, axes, list(inputs))
        for label, (term, axes) in zip(names, roots, strict=True)
    )
    machine(target)
    return Request(name, outputs, tuple(inputs), target, pins)


def _root(
    name: str, label: str, term: Expr, axes: tuple[Axis, ...] | None, inputs: list[Any]
) -> Root:
    """An output: its dtype is that of the cast at its top, else of the first real input."""
    real = [dtype for array in inputs if (dtype := DTYPES[array.args[1]]).is_real]
    if term.head == "Load" and DTYPES[term.args[0].args[1]].is_boolean:
        raise ExpressionError(
            f"{name}: its output {term} is bool, wants numbers: write where(..., 1.0, 0.0)"
        )
    if term.head == "Cast":
        dtype, term = DTYPES[term.args[0]], term.args[1]
    elif real:
        dtype = real[0]
    else:
        raise ExpressionError(
            f"{name}: its inputs {', '.join(str(array.args[0]) for array in inputs)} hold no real "
            "numbers, so the output's dtype must be said: write expr.cast(f32)"
        )
    return label, term, axes if axes is not None else term.axes, dtype


def _output_names(count: int, taken: set[str]) -> list[str]:
    names = ["out"] if count == 1 else [f"out{i}" for i in range(count)]
    return [
        next(n for n in (f"{label}{'_' * i}" for i in range(99)) if n not in taken)
        for label in names
    ]


def _check_inputs(name: str, inputs: list[Any]) -> None:
    if not inputs:
        raise ExpressionError(f"{name}: the expression reads no tensor, so there is nothing to run")
    seen: dict[str, Any] = {}
    for array in inputs:
        other = seen.setdefault(array.args[0], array)
        if other is not array:
            raise ExpressionError(
                f"{name}: two tensors are called {array.args[0]!r}: {text(other)} and {text(array)}"
            )
