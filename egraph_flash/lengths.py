"""How long a call's axes are: told by the shapes of its arrays, or given as numbers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .errors import InputError
from .record import Record

NONE: Mapping[str, int] = MappingProxyType({})
MOST = 2**31 - 1  # of one length: kernels count in 32 bits


def lengths_of(
    record: Record,
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, Any],
    otherwise: Mapping[str, int] = NONE,
) -> dict[str, int]:
    """Every length of a kernel by name, from shapes of inputs and outputs and from numbers.

    `shapes`, by array, have as many dimensions as the arrays of the kernel; `given` may name
    lengths that shapes tell too, and then agrees with them; `otherwise` has numbers for those
    that nothing tells. Raises InputError for a length that the kernel does not have, that nothing
    tells, that two tell differently, or that is no number.
    """
    told: dict[str, tuple[int, str]] = {}
    for name in given:
        if name not in record.lengths:
            has = ", ".join(record.lengths) or "none"
            raise InputError(f"{record.name}: got no use for length {name!r}; has {has}")
    for name, value in given.items():
        told[name] = _number(record.name, name, value), "as given"
    for number, spec in enumerate((*record.inputs, *record.outputs)):
        kind = "input" if number < len(record.inputs) else "output"
        if spec.name not in shapes:
            continue
        for axis, extent, size in zip(spec.axes, spec.extents, shapes[spec.name], strict=True):
            if isinstance(extent, str):
                source = f"by axis {axis!r} of {kind} {spec.name!r}"
                before, other = told.setdefault(extent, (size, source))
                if before != size:
                    raise InputError(
                        f"{record.name}: length {extent!r} is {before} {other} and {size} "
                        f"{source}; wants one number"
                    )
    for name, length in otherwise.items():
        told.setdefault(name, (length, "otherwise"))
    missing = [name for name in record.lengths if name not in told]
    if missing:
        spelled = ", ".join(f"{name}=<number>" for name in missing)
        raise InputError(
            f"{record.name}: missing length {', '.join(missing)}, which no shape tells; "
            f"pass {spelled}"
        )
    return {name: told[name][0] for name in record.lengths}


def _number(kernel: str, name: str, value: Any) -> int:
    wanted = f"wants an int from 0 to {MOST}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InputError(
            f"{kernel}: length {name!r}: got {type(value).__name__}, {wanted}"
        ) from None
    if not 0 <= number <= MOST:
        raise InputError(f"{kernel}: length {name!r}: got {number}, {wanted}")
    return number
