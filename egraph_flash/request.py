"""What the user asked `optimize` for, once its form is checked: outputs, target and pins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .axes import Axis
from .dtypes import DTYPES, Dtype
from .errors import ExpressionError
from .expressions import Output, lift
from .knobs import knob_of
from .layouts import Layout, array_term
from .machines import machine
from .notation import parse, text
from .terms import rewrite, subterms


@dataclass(frozen=True)
class Root:
    """An output: an array over `axes`, which holds each value of `expr` at the indices `at`, where
    `where` holds (None: everywhere)."""

    name: str
    expr: Any
    axes: tuple[Axis, ...]
    dtype: Dtype
    at: tuple[Any, ...]
    where: Any | None = None

    @property
    def is_placed(self) -> bool:
        """Whether some elements of the array may get no value."""
        plain = all(i is axis.index for i, axis in zip(self.at, self.axes, strict=True))
        return self.where is not None or not plain

    @property
    def terms(self) -> tuple[Any, ...]:
        return (self.expr, *self.at, *(() if self.where is None else (self.where,)))

    def rewritten(self, change: dict[Any, Any]) -> Root:
        where = None if self.where is None else rewrite(self.where, change)
        at = tuple(rewrite(index, change) for index in self.at)
        return replace(self, expr=rewrite(self.expr, change), at=at, where=where)


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
            {
                "name": root.name,
                "expr": text(root.expr),
                "axes": list(map(text, root.axes)),
                "dtype": root.dtype.name,
                "at": list(map(text, root.at)),
                "where": None if root.where is None else text(root.where),
            }
            for root in self.outputs
        ]
        layouts = {name: [row.strides, row.alignment_bytes] for name, row in self.layouts.items()}
        return json.dumps({"name": self.name, "outputs": outputs, "layouts": layouts})

    def relaid(self, alignments: Mapping[str, int]) -> Request:
        """The same with other arrays: those named have contiguous rows wherever a call says.

        `alignments` gives, for an input or output, the bytes that then divide its address and
        the strides of its rows.
        """
        change: dict[Any, Any] = {}
        layouts = dict(self.layouts)
        for array in self.inputs:
            name, dtype, extents, *_ = array.args
            if name in alignments:
                layout = Layout.open(len(extents), alignments[name])
                change[array] = array_term(
                    name, dtype, extents, layout.strides, layout.alignment_bytes
                )
        for root in self.outputs:
            if root.name in alignments:
                layouts[root.name] = Layout.open(len(root.axes), alignments[root.name])
        outputs = tuple(root.rewritten(change) for root in self.outputs)
        inputs = tuple(change.get(array, array) for array in self.inputs)
        return replace(self, outputs=outputs, inputs=inputs, layouts=layouts)


def read_request(written: str, target: str, pins: Mapping[str, str]) -> Request:
    """The request whose `text` this is."""
    read = json.loads(written)
    outputs = tuple(
        Root(
            each["name"],
            parse(each["expr"]),
            tuple(map(parse, each["axes"])),
            DTYPES[each["dtype"]],
            tuple(map(parse, each["at"])),
            None if each["where"] is None else parse(each["where"]),
        )
        for each in read["outputs"]
    )
    layouts = {
        name: Layout(None if strides is None else tuple(strides), alignment_bytes)
        for name, (strides, alignment_bytes) in read["layouts"].items()
    }
    terms = (term for root in outputs for term in root.terms)
    inputs = tuple(node for node in subterms(*terms) if node.head == "Array")
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
        output = item if isinstance(item, Output) else Output(lift(item), lift(item).axes)
        more = () if output.where is None else (output.where,)
        for node in subterms(output.expr, *output.indices, *more, *output.axes):
            if node.head == "Array":
                inputs[node] = None
            if node.head == "Symbol":
                _check_length(name, node, lengths)
        roots.append(output)
    _check_inputs(name, list(inputs))
    for pin, value in pins.items():
        knob_of(pin).parse(value)
    names = _output_names(len(roots), {array.args[0] for array in inputs})
    outputs = tuple(
        _root(name, label, output, list(inputs)) for label, output in zip(names, roots, strict=True)
    )
    machine(target)
    return Request(name, outputs, tuple(inputs), target, pins)


def _root(name: str, label: str, output: Output, inputs: list[Any]) -> Root:
    """An output: its dtype is that of the cast at its top, else of the first real input."""
    term = output.expr
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
    return Root(label, term, output.axes, dtype, output.indices, output.where)


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
