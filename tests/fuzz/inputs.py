"""The arrays that a case is run on: fresh values, laid as it says, poison past given lengths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from egraph_flash import Tensor
from egraph_flash.dtypes import DTYPES, Array, Dtype, decode_bf16, encode_bf16

from . import masking
from .cases import Built, Case
from .laying import lay

DOCUMENTS = 4
STEEP = 0.6  # of ALiBi's slopes, the largest


def arrays(built: Built, rng: np.random.Generator) -> dict[str, Array]:
    """Every input by name, and `out` where the case says how the one output lies."""
    case, made = built.case, {}
    lays, read = dict(case.lay), built.tensors()
    for name, tensor in sorted(built.operands.tensors.items()):
        if name not in read:
            continue
        shape = _shape(case, tensor)
        view = lay(lays.get(name, "dense"), shape, tensor.dtype)
        view[...] = _values(case, name, tensor.dtype, shape, rng)
        made[name] = view
    if case.values == "wild":
        _make_wild(made, rng)
        _hide(built, made, rng)
    if masking.bounds_keys(case.mask):
        _poison_past(built, made)
    if "out" in lays:
        shape = tuple(getattr(case, axis) for axis in case.order)
        made["out"] = lay(lays["out"], shape, _output_dtype(built))
    return made


def _output_dtype(built: Built) -> Dtype:
    case = built.case
    return DTYPES[case.dtype if case.cast == "same" else case.cast]


def _shape(case: Case, tensor: Tensor) -> tuple[int, ...]:
    """The shape of a call: lengths that are open are not their hints."""
    return tuple(
        getattr(case, axis.name) if axis.extent.head == "Symbol" else axis.size
        for axis in tensor.axes
    )


def _values(
    case: Case, name: str, dtype: Dtype, shape: tuple[int, ...], rng: np.random.Generator
) -> Array:
    kind = next((row for row in _KINDS if name.startswith(row)), "")
    made = _KINDS[kind](case, shape, rng)
    if name[0] in "qk":
        made = made * {"peaked": 4.0, "large": _large(case)}.get(case.values, 1.0)
    if case.values == "alike" and made.size:
        made = np.broadcast_to(made.flat[0], shape)
    return dtype.encode(made)


def _large(case: Case) -> float:
    """So that products of rows come near the largest f16, but not past it."""
    return float((12000.0 / max(case.d, 1) ** 0.5) ** 0.5)


Values = Callable[[Case, tuple[int, ...], np.random.Generator], Array]
_KINDS: dict[str, Values] = {
    "doc": lambda c, shape, rng: np.sort(rng.integers(0, DOCUMENTS, shape), axis=-1),
    "length": lambda c, shape, rng: rng.integers(0, c.n + 1, shape),
    "label": lambda c, shape, rng: rng.integers(0, max(c.n, 1), shape),
    "keep": lambda c, shape, rng: rng.integers(0, 2, shape),
    "alibi": lambda c, shape, rng: rng.uniform(0.01, STEEP, shape),
    "bothways": lambda c, shape, rng: rng.uniform(0.01, STEEP, shape),
    "": lambda c, shape, rng: rng.standard_normal(shape),
}


def _make_wild(made: dict[str, Array], rng: np.random.Generator) -> None:
    """A query of NaN, one with an infinity to which some key answers with a score of +inf, a key
    of NaN."""
    q, k = made["q"], made["k"]
    nan = _encoded(q, np.nan)
    for array in (q, k):
        if array.size:
            array[tuple(int(rng.integers(extent)) for extent in array.shape[:-1])] = nan
    if q.size and k.size:
        batch, head, _, depth = (int(rng.integers(extent)) for extent in q.shape)
        own = k[batch, head * k.shape[1] // q.shape[1], -1, depth]  # which the last query sees
        sign = np.sign(decode_bf16(own) if k.dtype == np.uint16 else own)
        q[batch, head, -1, depth] = _encoded(q, np.inf * (-1.0 if sign < 0 else 1.0))


def _hide(built: Built, made: dict[str, Array], rng: np.random.Generator) -> None:
    """Minus infinity in biases, for the first keys of every other row: as many as it happens."""
    for name in sorted(made):
        letters = [axis.name for axis in built.operands.tensors[name].axes]
        if not name.startswith("bias") or "n" not in letters:
            continue
        along = np.moveaxis(made[name], letters.index("n"), -1)
        hidden = rng.integers(0, along.shape[-1] + 1, along.shape[:-1])
        hidden = hidden * rng.integers(0, 2, hidden.shape)
        first = np.arange(along.shape[-1]) < hidden[..., None]
        along[first] = _encoded(made[name], -np.inf)


def _encoded(array: Array, value: float) -> Array:
    single = np.asarray(value)
    return encode_bf16(single) if array.dtype == np.uint16 else single.astype(array.dtype)


def _poison_past(built: Built, made: dict[str, Array]) -> None:
    """NaN in every real input from each batch's given length on."""
    for name, tensor in built.operands.tensors.items():
        letters = "".join(axis.name if len(axis.name) == 1 else "?" for axis in tensor.axes)
        if name not in made or not tensor.dtype.is_real or "n" not in letters or "b" not in letters:
            continue
        along = np.moveaxis(made[name], (letters.index("b"), letters.index("n")), (0, 1))
        for batch, length in enumerate(made["length"]):
            along[batch, length:] = tensor.dtype.encode(np.asarray(np.nan))
