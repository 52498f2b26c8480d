"""What each instruction does to a batch: one closure an instruction, made once a launch.

A step takes `rows` and the `active` lanes (None: all). What a row's meaning asks for is looked up
here, so that running a step costs little more than its numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ..codegen.isa import Instr
from ..codegen.isa.operand import OperandSpec
from ..codegen.ptx import Address, Guard, Instruction, Register, Special, Symbol
from ..codegen.ptx_types import VALUE_TYPES
from ..errors import SimulationError
from .atomics import AtomicAccess
from .barriers import warp_barrier
from .batch import Array, Batch, Rows
from .block_races import Way
from .copies import CopyAccess
from .counters import LaunchCounts
from .exchange import WarpExchange, check_members, check_whole_warps
from .flow import Block
from .global_memory import GlobalAccess, GlobalMemory
from .mbarrier_access import MbarrierAccess
from .operands import Constant, Source, pointer_type, source, view, writer
from .params import Params
from .shared_memory import SharedAccess, SharedLayout, SharedMemory
from .tensors import TensorAccess
from .waits import Waits
from .where import Where, objection

Step = Callable[[Rows, "Array | None"], None]


class Decoder:
    """Makes steps for one launch: knows where operands live and which memories there are."""

    def __init__(
        self, batch: Batch, params: Params, layout: SharedLayout, shared: SharedMemory,
        memory: GlobalMemory, counts: LaunchCounts, waits: Waits,
    ) -> None:  # fmt: skip
        self.batch = batch
        self.waits = waits
        self.params = params
        self.layout = layout
        self.shared = shared
        self.memory = memory
        self.counts = counts
        self.assigned: dict[Register, Array] = {}

    def steps(self, blocks: list[Block]) -> list[list[Step]]:
        """The steps of each block's body, in order; its end is the scheduler's."""
        for block in blocks:
            for registers in block.unsure.values():
                for register in registers:
                    shape = (self.batch.capacity, 32)
                    self.assigned.setdefault(register, np.zeros(shape, np.bool_))
        return [
            [
                self.step(instruction, where, block.unsure.get(place, []))
                for place, (instruction, where) in enumerate(block.body)
            ]
            for block in blocks
        ]

    def reset(self) -> None:
        """New blocks start: no register holds a value."""
        for written in self.assigned.values():
            written[:] = False

    def step(self, instruction: Instruction, where: Where, unsure: list[Register]) -> Step:
        row = instruction.row
        if row.flow == "warp_barrier":
            step = warp_barrier(self.batch, self.shared.clocks_of, where,
                                self.value(instruction, "mask"))  # fmt: skip
        elif row.context:
            step = self._with_context(instruction, where)
        else:
            step = self._plain(instruction)
        if row.collective:
            step = self._for_whole_warps(step, where)
        elif "mask" in instruction.operands:
            step = self._for_members(step, where, self.value(instruction, "mask"))
        marked = [self.assigned[each] for each in instruction.writes if each in self.assigned]
        if marked:
            step = _marking(step, marked)
        if instruction.guard:
            step = self.guarded(step, instruction.guard)
        return self.checking(step, unsure, instruction.guard, where) if unsure else step

    def value(self, instruction: Instruction, name: str) -> Source:
        """What an operand reads, as `source[rows]`."""
        spec: OperandSpec = instruction.row.operands[name]
        operands = instruction.operands[name]
        (operand,) = operands if len(operands) == 1 else (None,)
        if isinstance(operand, Special):
            if operand.name not in self.batch.specials:
                raise _unknown("special register", operand, instruction)
            return self.batch.specials[operand.name]
        if isinstance(operand, Symbol) and spec.space == "param":
            return Constant(np.uint64(self._param(operand, instruction)))
        if isinstance(operand, Symbol):
            return Constant(np.uint32(self._symbol(operand, instruction)))
        if isinstance(operand, Address):
            return self._address(operand, spec, instruction)
        return source(self.batch.files, operands, spec.value_type)

    def _symbol(self, symbol: Symbol, instruction: Instruction) -> int:
        if symbol.name not in self.layout.addresses:
            raise _unknown("shared array", symbol, instruction)
        return self.layout.addresses[symbol.name]

    def _param(self, symbol: Symbol, instruction: Instruction) -> int:
        if symbol.name not in self.params.offsets:
            raise _unknown("parameter", symbol, instruction)
        return self.params.offsets[symbol.name]

    def _address(self, address: Address, spec: OperandSpec, instruction: Instruction) -> Source:
        if spec.space == "param":
            assert isinstance(address.base, Symbol)
            return Constant((address.base.name, address.offset_bytes))
        if isinstance(address.base, Symbol):
            fixed = self._symbol(address.base, instruction) + address.offset_bytes
            return np.full((self.batch.capacity, 32), fixed, np.uint32)
        kind = pointer_type(spec.space)
        base = view(self.batch.files, address.base, kind)
        if not address.offset_bytes:
            return base
        bits = 64 if kind.name == "u64" else 32
        return _Offset(base, kind.element.type(address.offset_bytes % (1 << bits)))

    def _plain(self, instruction: Instruction) -> Step:
        """A row that is numpy alone: specialised by how many sources it has."""
        row = instruction.row
        meaning = row.meaning
        write = self._writer(instruction)
        sources = [self.value(instruction, name) for name in row.sources]
        if len(sources) == 1:
            (a,) = sources
            return lambda rows, active: write(rows, active, meaning(a[rows]))
        if len(sources) == 2:
            a, b = sources
            return lambda rows, active: write(rows, active, meaning(a[rows], b[rows]))
        if len(sources) == 3:
            a, b, c = sources
            return lambda rows, active: write(rows, active, meaning(a[rows], b[rows], c[rows]))
        return lambda rows, active: write(rows, active, meaning(*(each[rows] for each in sources)))

    def _writer(self, instruction: Instruction) -> Callable[[Rows, Array | None, Any], None]:
        row = instruction.row
        writers = [
            writer(self.batch.files, instruction.operands[name], row.operands[name].value_type)
            for name in row.outputs
        ]
        if len(writers) == 1:
            return writers[0]

        def write(rows: Rows, active: Array | None, values: Any) -> None:
            for each, value in zip(writers, values or (), strict=True):
                each(rows, active, value)

        return write

    def assign(
        self, instruction: Instruction, rows: Rows, active: Array | None, value: Any
    ) -> None:
        """Write an instruction's outputs, which then hold values."""
        self._writer(instruction)(rows, active, value)
        for register in instruction.writes:
            if register in self.assigned:
                _marking(lambda rows, active: None, [self.assigned[register]])(rows, active)

    def _with_context(self, instruction: Instruction, where: Where) -> Step:
        """A row whose meaning asks for memory or other lanes."""
        write = self._writer(instruction)
        value = self.evaluation(instruction, where)
        return lambda rows, active: write(rows, active, value(rows, active))

    def evaluation(self, instruction: Instruction, where: Where) -> Callable[..., Any]:
        """What an instruction gives for rows and their active lanes, before it is written."""
        row = instruction.row
        meaning = row.meaning
        sources = {name: self.value(instruction, name) for name in row.sources}
        offered = {name: self._offer(name, instruction, where) for name in row.context}

        def value(rows: Rows, active: Array | None) -> Any:
            for each in offered.values():
                each.rows = rows
                each.active = active
            given = {name: each[rows] for name, each in sources.items()}
            return meaning(**given, **offered)

        return value

    def _offer(self, name: str, instruction: Instruction, where: Where) -> Any:
        if name == "exchange":
            return WarpExchange(self.batch, where)
        row = instruction.row
        if name == "copies":
            return self._copies(row, where)
        if name == "atomics":
            size = row.access_bytes
            words = GlobalAccess(self.memory, self.batch, where, size, self.counts)
            return AtomicAccess(self.memory.races.order, words)
        if name in ("mbarriers", "tensors"):
            waits = self.waits
            barriers = MbarrierAccess(waits.mbarriers, waits.groups, waits.flights, where)
            if name == "mbarriers":
                return barriers
            return TensorAccess(self.memory, self.shared, self.params, barriers, where)
        space = next(spec.space for spec in row.operands.values() if spec.kind == "address")
        if space == "param":
            return self.params
        if space == "shared":
            return SharedAccess(self.shared, where, row.access_bytes)
        way: Way = "ld.nc" if ".nc" in row.mnemonic else "ld"
        return GlobalAccess(self.memory, self.batch, where, row.access_bytes, self.counts, way)

    def _copies(self, row: Instr, where: Where) -> CopyAccess:
        """A cp.async, or, without bytes, a commit or a wait; global traffic is counted there."""
        size = row.access_bytes
        source = piece = to = None
        if size:
            apart = LaunchCounts()
            source = GlobalAccess(self.memory, self.batch, where, size, apart, "copy")
            to = SharedAccess(self.shared, where, size, copies=True)
            if "size" in row.operands:
                piece = GlobalAccess(self.memory, self.batch, where, 1, apart, "copy")
        return CopyAccess(self.waits.groups, where, source, piece, to)

    def _for_whole_warps(self, step: Step, where: Where) -> Step:
        batch = self.batch

        def checked(rows: Rows, active: Array | None) -> None:
            check_whole_warps(batch, where, rows, active, every_lane=True)
            step(rows, active)

        return checked

    def _for_members(self, step: Step, where: Where, mask: Source) -> Step:
        batch = self.batch

        def checked(rows: Rows, active: Array | None) -> None:
            check_members(batch, where, rows, active, mask[rows])
            step(rows, active)

        return checked

    def predicate(self, guard: Guard) -> Array:
        return view(self.batch.files, guard.register, VALUE_TYPES["pred"])

    def guarded(self, step: Step, guard: Guard) -> Step:
        predicate, negated = self.predicate(guard), guard.negated

        def run(rows: Rows, active: Array | None) -> None:
            lanes = holds(predicate, negated, rows, active)
            if lanes.all():
                step(rows, None)
            elif lanes.any():
                step(rows, lanes)

        return run

    def checking(
        self, step: Step, unsure: list[Register], guard: Guard | None, where: Where
    ) -> Step:
        """Object when a lane that executes the step reads a register without a value."""
        batch = self.batch
        predicate = self.predicate(guard) if guard else None

        def checked(rows: Rows, active: Array | None) -> None:
            for register in unsure:
                missing = ~self.assigned[register][rows]
                if active is not None:
                    missing &= active
                if guard is not None and predicate is not None and register != guard.register:
                    missing &= holds(predicate, guard.negated, rows, active)
                if missing.any():
                    raise objection(
                        where, f"read of register {register}, which holds no value",
                        batch.thread_name(rows, missing),
                    )  # fmt: skip
            step(rows, active)

        return checked


class _Offset:
    """An address register plus a constant."""

    __slots__ = ("base", "offset")

    def __init__(self, base: Array, offset: Any) -> None:
        self.base = base
        self.offset = offset

    def __getitem__(self, rows: Rows) -> Array:
        return cast(Array, self.base[rows] + self.offset)


def holds(predicate: Array, negated: bool, rows: Rows, active: Array | None) -> Array:
    """The active lanes whose guard holds."""
    lanes: Array = ~predicate[rows] if negated else predicate[rows]
    return lanes if active is None else lanes & active


def _unknown(what: str, operand: Special | Symbol, instruction: Instruction) -> SimulationError:
    return SimulationError(f"unknown {what} {operand} in line {instruction.line}: {instruction}")


def _marking(step: Step, marked: list[Array]) -> Step:
    def run(rows: Rows, active: Array | None) -> None:
        step(rows, active)
        for written in marked:
            if active is None:
                written[rows] = True
            else:
                written[rows] |= active

    return run
