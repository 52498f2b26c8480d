"""What a launch's arguments are to its entry: parameter memory, and which buffers it may write.

A tensor map is a parameter whose bytes are nobody's to read: its address, made generic, names it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..codegen.ptx import Entry, Param
from ..codegen.ptx_types import VALUE_TYPES
from ..errors import SimulationError
from ..plan import Argument, Launch, Pointer
from ..tensor_map import MAP_ALIGNMENT_BYTES, MAP_BYTES, TensorMap
from .batch import Array
from .global_memory import GlobalMemory
from .reach import stored_through

GENERIC = 0x6000_0000_0000  # where parameter space begins among generic addresses


class Params:
    """Parameter space: `ld.param` reads it; the same for every thread of the launch."""

    rows: Any = None
    active: Any = None

    def __init__(self, entry: Entry, launch: Launch, memory: GlobalMemory) -> None:
        self.entry = entry
        if len(entry.params) != len(launch.arguments):
            raise SimulationError(
                f"{entry.name}: got {len(launch.arguments)} arguments, "
                f"wants {len(entry.params)} ({', '.join(p.name for p in entry.params)})"
            )
        self.buffers: dict[str, str] = {}
        self.bytes: dict[str, bytes] = {}
        self.maps: dict[int, TensorMap] = {}
        self.offsets: dict[str, int] = {}
        end = 0
        for param, argument in zip(entry.params, launch.arguments, strict=True):
            size = _size_bytes(param)
            aligned = param.align_bytes or size
            self.offsets[param.name] = -(-end // aligned) * aligned
            end = self.offsets[param.name] + size
            self._take(param, argument, memory)

    def _take(self, param: Param, argument: Argument, memory: GlobalMemory) -> None:
        if isinstance(argument, TensorMap):
            wanted = ("b8", MAP_BYTES, MAP_ALIGNMENT_BYTES)
            if (param.type, param.count, param.align_bytes) != wanted:
                raise self._misfit(param, argument)
            self._check_buffer(param, argument.buffer, memory)
            self.maps[self.offsets[param.name]] = argument
            return
        kind = "u64" if isinstance(argument, Pointer) else argument.type
        if param.type[1:] != kind[1:] or (param.type[0] == "f") != (kind[0] == "f"):
            raise self._misfit(param, argument)
        if isinstance(argument, Pointer):
            self._check_buffer(param, argument.buffer, memory)
            self.buffers[param.name] = argument.buffer
        value = (
            memory.buffers[argument.buffer].first_address
            if isinstance(argument, Pointer)
            else (argument.value)
        )
        try:
            held = np.array(value, VALUE_TYPES[param.type].element)
        except OverflowError as error:
            raise SimulationError(
                f"{self.entry.name}: parameter {param.name} is .{param.type}, got {value}"
            ) from error
        self.bytes[param.name] = held.tobytes()

    def _misfit(self, param: Param, argument: Argument) -> SimulationError:
        array = f" .align {param.align_bytes} [{param.count}]" if param.count is not None else ""
        return SimulationError(
            f"{self.entry.name}: parameter {param.name} is .{param.type}{array}, got {argument!r}"
        )

    def _check_buffer(self, param: Param, name: str, memory: GlobalMemory) -> None:
        if name not in memory.buffers:
            raise SimulationError(
                f"{self.entry.name}: parameter {param.name} got buffer {name!r}, "
                f"has {', '.join(memory.buffers)}"
            )

    def generic(self, address: Array) -> Array:
        """An address in parameter space as a generic one."""
        moved: Array = address + np.uint64(GENERIC)
        return moved

    def map_at(self, address: int) -> TensorMap | None:
        """The tensor map at a generic address."""
        return self.maps.get(address - GENERIC)

    def load(self, address: tuple[str, int], element: np.dtype[Any], count: int) -> Any:
        name, offset = address
        held = self.bytes.get(name)
        if held is None or offset < 0 or offset + element.itemsize > len(held):
            raise SimulationError(
                f"{self.entry.name}: ld.param of {element.itemsize} bytes at {name}+{offset}, "
                f"has {', '.join(self.bytes)}"
            )
        return np.frombuffer(held, element, 1, offset)[0]

    def may_be_written(self) -> Collection[str]:
        """The buffers whose address may reach a store or an atomic.

        An address that no buffer's is part of, such as one read from memory, may be any's.
        """
        everything = set(self.buffers.values())
        written: set[str] = set()
        for names in stored_through(self.entry):
            written |= {self.buffers[n] for n in names if n in self.buffers} or everything
        return written


def _size_bytes(param: Param) -> int:
    if param.type == "b8":
        return param.count or 1
    return VALUE_TYPES[param.type].bits // 8 * (param.count or 1)
