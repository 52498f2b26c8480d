"""What the user asked `optimize` for, once its form is checked: outputs, target and pins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .axes import Axis
from .dtypes import DTYPES, Dtype
from .errors import ExpressionError
from .expressions import Expr, Output, lift
from .knobs import knob_of
from .layouts import Layout, array_term
from .machines import machine
from .notation import parse, text
from .terms import rewrite, subterms

Root = tuple[str, Any, tuple[Axis, ...], Dtype]  # name, expression, axes as its array has, dtype


@dataclass(frozen=True)
class Request:
    """What the user asked for, once its form is checked: outputs with their axes and dtypes.

    `layouts` says of outputs, by name, how they lie where they are not row-major without gaps.
    """

    name: str
    outputs: tuple[Root, ...]
    inputs: tuple[Any, ...]  # the Array terms, in order of first appearance
    target: str
    pins: Mapping[str, str]
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All but target and pins, as JSON that `read_request` takes."""
        outputs = [
            [name, text(expr), list(map(text, axes)), dtype.name]
            for name, expr, axes, dtype in self.outputs
        ]
        layouts = {name: [row.strides, row.alignment_bytes] for name, row in self.layouts.items()}
        return json.dumps({"name": self.name, "outputs": outputs, "layouts": layouts})

    def relaid(self, alignments: Mapping[str, int]) -> Request:
        """The same with other arrays: those named have contiguous rows wherever a call says.

        `alignments` gives, for an input or output, the bytes that then divide its address and
        the strides of its rows.
        """
        change, layouts = {}, dict(self.layouts)
        for array in self.inputs:
            name, dtype, extents, *_ = array.args
            if name in alignments:
                layout = Layout.open(len(extents), alignments[name])
                change[array] = array_term(
                    name, dtype, extents, layout.strides, layout.alignment_bytes
                )
        for name, _, axes, _ in self.outputs:
            if name in alignments:
                layouts[name] = Layout.open(len(axes), alignments[name])
        outputs = tuple((name, rewrite(expr, change), *rest) for name, expr, *rest in self.outputs)
        inputs = tuple(change.get(array, array) for array in self.inputs)
        return replace(self, outputs=outputs, inputs=inputs, layouts=layouts)


def read_request(written: str, target: str, pins: Mapping[str, str]) -> Request:
    """The request whose `text` this is."""
    read = json.loads(written)
    outputs: tuple[Root, ...] = tuple(
        (name, parse(expr), tuple(map(parse, axes)), DTYPES[dtype])
        for name, expr, axes, dtype in read["outputs"]
    )
    layouts = {
        name: Layout(None if strides is None else tuple(strides), alignment_bytes)
        for name, (strides, alignment_bytes) in read["layouts"].items()
    }
    inputs = tuple(node for node in subterms(*(o[1] for o in outputs)) if node.head == "Array")
    return Request(read["name"], outputs, inputs, target, pins, layouts)


def request_for(expr: Any, target: str, pins: dict[str, str], name: str) -> Request:
    """The request, or an ExpressionError, ScheduleError or LoweringError that says what is off."""
    given = expr if isinstance(expr, tuple) else (expr,)
    if not given:
        raise ExpressionError(f"{name}: got no expression, wants one or more")
    inputs: dict[Any, None] = {}
    lengths: dict[str, Any] = {}
    roots = []
    for item in given:
        term = item.expr if isinstance(item, Output) else lift(item)
        for node in subterms(term):
            if node.head == "Array":
                inputs[node] = None
            if node.head == "Symbol":
                _check_length(name, node, lengths)
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


def _check_length(name: str, symbol: Any, seen: dict[str, Any]) -> None:
    """One length has one hint."""
    length, hint = symbol.args
    other = seen.setdefault(length, symbol)
    if other is not symbol:
        raise ExpressionError(
            f"{name}: length {length!r} has the hints {other.args[1]} and {hint}; wants one number"
        )
