"""Do these arrays fit this kernel? Every input and output is checked before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .errors import InputError
from .notices import CopyWarning
from .plan import Plan
from .record import Record, Spec
from .runtime.arrays import ALIGNMENT_BYTES, View, dense_strides, view

_USER_FRAME = 6  # from `warnings.warn` up to whoever called the kernel


@dataclass(frozen=True)
class Bound:
    """The arrays of one call: inputs by name, and for each output the caller's array or None.

    `device` is the CUDA ordinal on which all of them lie, None for host memory. `plan` is what
    runs for them.
    """

    plan: Plan
    inputs: dict[str, View]
    outputs: tuple[View | None, ...]
    device: int | None

    @property
    def first(self) -> View | None:
        """The first input, whose kind the outputs take."""
        return next(iter(self.inputs.values()), None)


def bind(record: Record, arrays: Mapping[str, Any], out: Any) -> Bound:
    """Match arrays with a kernel's inputs and outputs.

    Host arrays with other strides are copied, with a CopyWarning. Raises InputError, which names
    the kernel and the tensor, for a name that is missing or extra, a wrong dtype, shape or device,
    strides or an address that a GPU kernel cannot take, and outputs that share an input's memory.
    """
    _check_names(record, arrays)
    inputs = {}
    for spec in record.inputs:  # a loop: a comprehension is a frame of its own before 3.12
        inputs[spec.name] = _input(record.name, spec, arrays[spec.name])
    outputs = _outputs(record, out)
    found = [(f"input {name!r}", view_) for name, view_ in inputs.items()]
    given = zip(record.outputs, outputs, strict=True)
    found += [(f"output {spec.name!r}", view_) for spec, view_ in given if view_ is not None]
    device = _one_place(record.name, found)
    _check_overlaps(record.name, found, len(inputs))
    return Bound(record.plan.at({}, {}), inputs, outputs, device)


def _check_names(record: Record, arrays: Mapping[str, Any]) -> None:
    wanted = [spec.name for spec in record.inputs]
    listed = ", ".join(wanted) or "no inputs"
    missing = [name for name in wanted if name not in arrays]
    extra = [name for name in arrays if name not in wanted]
    if missing:
        raise InputError(f"{record.name}: missing input {', '.join(missing)}; wants {listed}")
    if extra:
        raise InputError(f"{record.name}: got no use for input {', '.join(extra)}; wants {listed}")


def _input(kernel: str, spec: Spec, array: Any) -> View:
    where = f"{kernel}: input {spec.name!r}"
    found = view(array, where)
    _check_elements(where, spec, found)
    if not found.is_dense:
        found = _dense(where, found)
    _check_aligned(where, found)
    return found


def _check_elements(where: str, spec: Spec, found: View) -> None:
    wanted = f"wants {spec.dtype} [{_sizes(spec)}]"
    if found.dtype != spec.dtype.name:
        raise InputError(f"{where} is {found.dtype} {list(found.shape)}, {wanted}")
    if len(found.shape) != len(spec.shape):
        raise InputError(
            f"{where} has {len(found.shape)} dimensions, {list(found.shape)}, {wanted}"
        )
    for axis, got, want in zip(spec.axes, found.shape, spec.shape, strict=True):
        if got != want:
            raise InputError(
                f"{where}: axis {axis!r} is {got}, wants {want}; got {list(found.shape)}, {wanted}"
            )


def _sizes(spec: Spec) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in zip(spec.axes, spec.shape, strict=True))


def _dense(where: str, found: View) -> View:
    strides = f"strides {found.strides}, wants dense row-major {dense_strides(found.shape)}"
    if found.device is not None:
        raise InputError(f"{where} on {found.place} has {strides}; pass a contiguous copy of it")
    warnings.warn(f"{where} has {strides}; copied", CopyWarning, stacklevel=_USER_FRAME)
    assert found.host is not None
    copy = np.ascontiguousarray(found.host)
    return replace(found, address=copy.ctypes.data, strides=dense_strides(found.shape), host=copy)


def _check_aligned(where: str, found: View) -> None:
    if found.device is not None and not found.is_aligned:
        raise InputError(
            f"{where} starts at address {found.address:#x}, wants a multiple of {ALIGNMENT_BYTES} "
            "bytes; pass a copy of it"
        )


def _outputs(record: Record, out: Any) -> tuple[View | None, ...]:
    if out is None:
        return (None,) * len(record.outputs)
    given: Sequence[Any] = out if isinstance(out, tuple | list) else (out,)
    if len(given) != len(record.outputs):
        names = ", ".join(spec.name for spec in record.outputs)
        raise InputError(
            f"{record.name}: out= has {len(given)} arrays, wants {len(record.outputs)}: {names}"
        )
    return tuple(
        _output(record.name, spec, array) for spec, array in zip(record.outputs, given, strict=True)
    )


def _output(kernel: str, spec: Spec, array: Any) -> View:
    where = f"{kernel}: output {spec.name!r}"
    found = view(array, where)
    _check_elements(where, spec, found)
    if not found.writable:
        raise InputError(f"{where} is read-only; pass an array that can be written")
    if found.device is not None and not found.is_dense:
        raise InputError(
            f"{where} on {found.place} has strides {found.strides}, wants dense row-major "
            f"{dense_strides(found.shape)}"
        )
    _check_aligned(where, found)
    return found


def _one_place(kernel: str, found: Sequence[tuple[str, View]]) -> int | None:
    if not found:
        return None
    (first, there), *rest = found
    for where, other in rest:
        if other.device != there.device:
            raise InputError(
                f"{kernel}: {where} is in {other.place}, {first} in {there.place}; wants all "
                "arrays in one place"
            )
    return there.device


def _check_overlaps(kernel: str, found: Sequence[tuple[str, View]], inputs: int) -> None:
    """On a GPU blocks run in any order, so no output may share bytes with any other array."""
    for number, (where, output) in enumerate(found[inputs:], start=inputs):
        for other, array in found[:number]:
            if output.device is not None and output.overlaps(array):
                raise InputError(f"{kernel}: {where} shares memory with {other}; pass another out=")
