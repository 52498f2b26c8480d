"""How far a kernel's outputs are from what the expression means, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import DTYPES, Array, bf16, decode_bf16
from .lengths import NONE, lengths_of
from .record import Spec

if TYPE_CHECKING:
    from .kernel import Kernel
    from .loading import Loaded

WHOLE = 1e8  # elements of outputs times folds, up to which the oracle evaluates every element
SAMPLED = 16  # indices an axis, where it does not


@dataclass(frozen=True)
class Error:
    """Absolute differences from float64 over `elements` elements of one output."""

    output: str
    max_abs: float
    mean_abs: float
    elements: int


def random_inputs(specs: Sequence[Spec], rng: np.random.Generator) -> dict[str, Array]:
    """Normals for real inputs, as stored in numpy; zeros for integers, coins for truths."""
    return {
        spec.name: np.zeros(spec.shape, spec.dtype.storage)
        if spec.dtype.is_integer
        else spec.dtype.encode(
            rng.integers(0, 2, spec.shape)
            if spec.dtype.is_boolean
            else rng.standard_normal(spec.shape)
        )
        for spec in specs
    }


def seeded_inputs(
    loaded: Loaded, kernel: Kernel, seed: int | None, lengths: Mapping[str, int] = NONE
) -> dict[str, Array]:
    """Random inputs, fresh ones without a seed; as the file makes them, where it says how.

    Lengths that are not given are their hints.
    """
    rng = np.random.default_rng(seed)
    make: Callable[..., dict[str, Array]] | None = loaded.beside("INPUTS")
    if make is not None:
        return make(rng)
    every = lengths_of(kernel.record, {}, lengths, kernel.record.lengths)
    return random_inputs([spec.at(every) for spec in kernel.inputs], rng)


def sample(
    inputs: Sequence[Spec], outputs: Sequence[Spec], rng: np.random.Generator
) -> dict[str, list[int]]:
    """Which indices of the outputs' axes to check, by axis name: none at all where all of them."""
    if any(spec.placed for spec in outputs):
        return {}  # its axes are not those of the expression
    sizes = {
        a: n for spec in (*inputs, *outputs) for a, n in zip(spec.axes, spec.shape, strict=True)
    }
    free = {a: n for spec in outputs for a, n in zip(spec.axes, spec.shape, strict=True)}
    if math.prod(sizes.values()) / max(1, _smallest(sizes, free)) <= WHOLE:
        return {}
    return {
        axis: sorted(rng.choice(size, min(size, SAMPLED), replace=False).tolist())
        for axis, size in free.items()
    }


def _smallest(sizes: Mapping[str, int], free: Mapping[str, int]) -> int:
    """The smallest folded axis: a product of all axes but that one is about what is evaluated."""
    return min((size for axis, size in sizes.items() if axis not in free), default=1)


def oracle(
    expression: Any,
    arrays: Mapping[str, Array],
    at: Mapping[str, list[int]],
    lengths: Mapping[str, int] = NONE,
) -> tuple[Array, ...]:
    """The outputs in float64, at the sampled indices; `lengths` that no shape tells among them."""
    from .evaluation import evaluate

    values = evaluate(expression, dict(arrays), at=dict(at) or None, lengths=lengths)
    return values if isinstance(values, tuple) else (values,)


def errors(
    specs: Sequence[Spec],
    expected: Sequence[Array],
    results: Any,
    at: Mapping[str, list[int]],
) -> list[Error]:
    """Each output's error; `results` is an array or a tuple, as a kernel returns it, in numpy."""
    given = results if isinstance(results, tuple | list) else (results,)
    return [
        _error(spec, wanted, restrict(real(array), spec, at))
        for spec, wanted, array in zip(specs, expected, given, strict=True)
    ]


def compare(
    loaded: Loaded,
    kernel: Kernel,
    arrays: Mapping[str, Array],
    result: Any,
    given: Mapping[str, int] = NONE,
) -> list[tuple[str, Error]]:
    """Errors of what a kernel returned, and of the file's `PLAIN` computation where it has one.

    Each comes with who computed it. `given` are the lengths that the call was given as numbers.
    """
    lengths = lengths_of(kernel.record, {name: np.shape(a) for name, a in arrays.items()}, given)
    inputs, outputs = (
        [spec.at(lengths) for spec in specs] for specs in (kernel.inputs, kernel.outputs)
    )
    at = sample(inputs, outputs, np.random.default_rng(0))
    expected = oracle(loaded.expression, arrays, at, lengths)
    found = [(kernel.name, error) for error in errors(outputs, expected, result, at)]
    plain = loaded.beside("PLAIN")
    if plain is not None:
        who = f"plain {plain_dtype(kernel.inputs)}"
        others = errors(outputs, expected, plain(**arrays), at)
        found += [(who, error) for error in others]
    return found


def _error(spec: Spec, wanted: Array, got: Array) -> Error:
    with np.errstate(invalid="ignore"):
        difference = np.where(got == wanted, 0.0, np.abs(got - wanted))  # equal infinities too
    if not difference.size:
        return Error(spec.name, 0.0, 0.0, 0)
    return Error(spec.name, float(difference.max()), float(difference.mean()), difference.size)


def real(stored: Array) -> Array:
    """Stored elements as float64; uint16 are bf16 bit patterns."""
    if stored.dtype.name == "bfloat16" or stored.dtype == bf16.storage:
        return decode_bf16(stored)
    return stored.astype(np.float64)


def restrict(array: Array, spec: Spec, at: Mapping[str, list[int]]) -> Array:
    """The sampled elements of a whole output."""
    if not at:
        return array
    picks = [at.get(axis, range(size)) for axis, size in zip(spec.axes, spec.shape, strict=True)]
    return array[np.ix_(*(np.asarray(pick) for pick in picks))] if picks else array


def plain_dtype(specs: Sequence[Spec]) -> str:
    """The dtype that a computation without upcasts would keep: the first input's."""
    floating = [spec.dtype.name for spec in specs if DTYPES[spec.dtype.name].is_real]
    return floating[0] if floating else "f32"
