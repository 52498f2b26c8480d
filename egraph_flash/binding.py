"""Do these arrays fit this kernel? Every input and output is checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .errors import InputError
from .layouts import ALIGNMENT_BYTES, alignment_class, memory_order, settled, strides_in_order
from .lengths import lengths_of
from .notices import CopyWarning, tell
from .open_plan import OpenBuffer
from .plan import dense_strides
from .record import Record, Spec
from .runtime.arrays import View, view
from .runtime.results import empty_on_host

ROWS = "the last one 1 and none negative"


@dataclass(frozen=True)
class Bound:
    """The arrays of one call: inputs by name, and for each output the caller's array or None.

    `device` is the CUDA ordinal on which all of them lie, None for host memory. `strides` (in
    elements) and `shifts` (address modulo 16) say how the kernel finds inputs and outputs; on the
    host an output has memory of its own while the kernel runs. `alignments` names those that lie
    otherwise than the record says, with the bytes that divide their addresses and strides.
    """

    inputs: dict[str, View]
    outputs: tuple[View | None, ...]
    device: int | None
    lengths: dict[str, int]
    strides: dict[str, tuple[int, ...]]
    shifts: dict[str, int]
    alignments: dict[str, int]

    @property
    def first(self) -> View | None:
        """The first input, whose kind the outputs take."""
        return next(iter(self.inputs.values()), None)


def bind(record: Record, given: Mapping[str, Any], out: Any) -> Bound:
    """Match arrays, and numbers for lengths that no shape tells, with what a kernel takes.

    Host arrays without contiguous rows are copied, with a CopyWarning. Raises InputError, which
    names the kernel and the tensor, for a name that is missing or extra, a wrong dtype, shape,
    length or device, rows that a GPU kernel cannot take, and outputs that share memory.
    """
    _check_names(record, given)
    buffers = {buffer.name: buffer for buffer in record.plan.buffers}
    inputs = {
        spec.name: _input(record.name, spec, buffers[spec.name], given[spec.name])
        for spec in record.inputs
    }
    outputs = _outputs(record, buffers, out)
    pairs = zip(record.outputs, outputs, strict=True)
    written = {spec.name: found for spec, found in pairs if found is not None}
    found = [(f"input {name!r}", view_) for name, view_ in inputs.items()]
    found += [(f"output {name!r}", view_) for name, view_ in written.items()]
    device = _one_place(record.name, found)
    numbers = {name: value for name, value in given.items() if name not in inputs}
    shapes = {name: held.shape for name, held in (inputs | written).items()}
    lengths = lengths_of(record, shapes, numbers)
    _check_overlaps(record.name, found, len(inputs))
    shapes |= {spec.name: spec.at(lengths).shape for spec in record.outputs}
    strides, shifts = _places(buffers, inputs, written, shapes)
    alignments = {
        name: alignment_class(shape, strides[name], shifts[name], buffers[name].dtype.size_bytes)
        for name, shape in shapes.items()
        if not buffers[name].takes(shape, strides[name], shifts[name])
    }
    return Bound(inputs, outputs, device, lengths, strides, shifts, alignments)


def _check_names(record: Record, given: Mapping[str, Any]) -> None:
    wanted = [spec.name for spec in record.inputs]
    listed = ", ".join(wanted) or "no inputs"
    if record.lengths:
        listed += f", and {', '.join(record.lengths)} as numbers where no shape tells them"
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted and name not in record.lengths]
    if missing:
        raise InputError(f"{record.name}: missing input {', '.join(missing)}; wants {listed}")
    if extra:
        raise InputError(f"{record.name}: got no use for input {', '.join(extra)}; wants {listed}")


# ---- arrays --------------------------------------------------------------------------------------


def _input(kernel: str, spec: Spec, buffer: OpenBuffer, array: Any) -> View:
    where = f"{kernel}: input {spec.name!r}"
    found = view(array, where)
    _check_elements(where, spec, found)
    wrong = _misfit(found, buffer)
    if wrong is None:
        return found
    if found.device is not None:
        raise InputError(f"{where} on {found.place} {wrong}; pass a contiguous copy of it")
    tell(f"{where} {wrong}; copied", CopyWarning)
    return _copied(found)


def _misfit(found: View, buffer: OpenBuffer) -> str | None:
    """What is wrong with how an array lies, if no kernel takes it without a copy."""
    if buffer.takes(found.shape, found.strides, found.address):
        return None
    if not found.has_rows:
        return f"has strides {found.strides}, wants {ROWS}"
    if found.address % found.item_bytes:
        return f"starts at address {found.address:#x}, wants a multiple of {found.item_bytes} bytes"
    return None


def _copied(found: View) -> View:
    assert found.host is not None
    strides = dense_strides(found.shape)
    copy = empty_on_host(found.shape, strides, found.host.dtype)
    copy[...] = found.host
    return replace(found, address=copy.ctypes.data, strides=strides, host=copy)


def _check_elements(where: str, spec: Spec, found: View) -> None:
    wanted = f"wants {spec.dtype} [{spec.sizes}]"
    if found.dtype != spec.dtype.name:
        raise InputError(f"{where} is {found.dtype} {list(found.shape)}, {wanted}")
    if len(found.shape) != len(spec.shape):
        raise InputError(
            f"{where} has {len(found.shape)} dimensions, {list(found.shape)}, {wanted}"
        )
    for axis, got, want in zip(spec.axes, found.shape, spec.extents, strict=True):
        if got != want and not isinstance(want, str):
            raise InputError(
                f"{where}: axis {axis!r} is {got}, wants {want}; got {list(found.shape)}, {wanted}"
            )


def _outputs(
    record: Record, buffers: Mapping[str, OpenBuffer], out: Any
) -> tuple[View | None, ...]:
    if out is None:
        return (None,) * len(record.outputs)
    given: Sequence[Any] = out if isinstance(out, tuple | list) else (out,)
    if len(given) != len(record.outputs):
        names = ", ".join(spec.name for spec in record.outputs)
        raise InputError(
            f"{record.name}: out= has {len(given)} arrays, wants {len(record.outputs)}: {names}"
        )
    return tuple(
        _output(record.name, spec, buffers[spec.name], array)
        for spec, array in zip(record.outputs, given, strict=True)
    )


def _output(kernel: str, spec: Spec, buffer: OpenBuffer, array: Any) -> View:
    where = f"{kernel}: output {spec.name!r}"
    found = view(array, where)
    _check_elements(where, spec, found)
    if not found.writable:
        raise InputError(f"{where} is read-only; pass an array that can be written")
    try:
        overlaps = found.footprint.overlaps_itself
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if overlaps:
        raise InputError(
            f"{where} has strides {found.strides}, so that elements share memory; pass an array "
            "whose elements lie apart"
        )
    wrong = _misfit(found, buffer)
    if wrong is not None and found.device is not None:
        raise InputError(f"{where} on {found.place} {wrong}; pass another out=")
    return found


# ---- places --------------------------------------------------------------------------------------


def _places(
    buffers: Mapping[str, OpenBuffer],
    inputs: Mapping[str, View],
    written: Mapping[str, View],
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Strides in elements, and addresses modulo 16, of inputs and outputs as the kernel sees them.

    On the host an output without contiguous rows is computed without gaps first.
    """
    strides: dict[str, tuple[int, ...]] = {}
    shifts: dict[str, int] = {}
    first = next(iter(inputs.values()), None)
    for name, shape in shapes.items():
        held = inputs.get(name) or written.get(name)
        if held is not None and (name in inputs or _misfit(held, buffers[name]) is None):
            strides[name] = settled(held.shape, held.strides)
            shifts[name] = held.address % ALIGNMENT_BYTES
        else:
            strides[name] = _fresh(shape, first if held is None else None)
            shifts[name] = 0
    return strides, shifts


def _fresh(shape: tuple[int, ...], like: View | None) -> tuple[int, ...]:
    """The strides of a new output: its dimensions in memory as those of an array of its rank."""
    if like is not None and len(like.shape) == len(shape):
        order = memory_order(like.shape, like.strides)
        if order is not None and order[-1:] == (len(shape) - 1,):
            return strides_in_order(shape, order)
    return dense_strides(shape)


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
    """Blocks run in any order, so no output may share bytes with another, on a GPU with any array.

    On the host outputs are written when all is done, and may lie where inputs do.
    """
    for number, (where, output) in enumerate(found[inputs:], start=inputs):
        first = inputs if output.device is None else 0
        for other, array in found[first:number]:
            if output.overlaps(array):
                raise InputError(f"{kernel}: {where} shares memory with {other}; pass another out=")
