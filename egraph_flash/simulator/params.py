"""What a launch's arguments are to its entry: parameter memory, and which buffers it may write."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..codegen.ptx import Address, Entry, Register, Symbol
from ..codegen.ptx_types import VALUE_TYPES
from ..errors import SimulationError
from ..plan import Launch, Pointer
from .global_memory import GlobalMemory


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
        for param, argument in zip(entry.params, launch.arguments, strict=True):
            wanted = "u64" if isinstance(argument, Pointer) else argument.type
            if param.type[1:] != wanted[1:] or (param.type[0] == "f") != (wanted[0] == "f"):
                raise SimulationError(
                    f"{entry.name}: parameter {param.name} is .{param.type}, got {argument}"
                )
            if isinstance(argument, Pointer):
                if argument.buffer not in memory.buffers:
                    have = ", ".join(memory.buffers)
                    raise SimulationError(
                        f"{entry.name}: parameter {param.name} got buffer {argument.buffer!r}, "
                        f"has {have}"
                    )
                self.buffers[param.name] = argument.buffer
                value: int | float = memory.buffers[argument.buffer].address
            else:
                value = argument.value
            try:
                held = np.array(value, VALUE_TYPES[param.type].element)
            except OverflowError as error:
                raise SimulationError(
                    f"{entry.name}: parameter {param.name} is .{param.type}, got {value}"
                ) from error
            self.bytes[param.name] = held.tobytes()

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
        """The buffers whose address may reach a store: a flow-insensitive closure of registers.

        An address read from memory may be any buffer's.
        """
        reaches: dict[Register, set[str]] = {}
        everything = set(self.buffers.values())
        changed = True
        while changed:
            changed = False
            for instruction in self.entry.instructions():
                found: set[str] = set()
                for register in instruction.reads():
                    found |= reaches.get(register, set())
                for operands in instruction.operands.values():
                    for operand in operands:
                        if isinstance(operand, Address) and isinstance(operand.base, Symbol):
                            found |= {self.buffers.get(operand.base.name, "")} - {""}
                if instruction.row.counter.startswith("lsu"):
                    found = set()  # what a load finds is handled below
                for register in instruction.writes():
                    held = reaches.setdefault(register, set())
                    if not found <= held:
                        held |= found
                        changed = True
        written: set[str] = set()
        for instruction in self.entry.instructions():
            if instruction.row.mnemonic.startswith("st.global"):
                for operand in instruction.operands["a"]:
                    assert isinstance(operand, Address)
                    assert isinstance(operand.base, Register)
                    written |= reaches.get(operand.base, set()) or everything
        return written
