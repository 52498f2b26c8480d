"""Which parameters the addresses of stores may be made of, whatever the flow."""

from __future__ import annotations

from collections.abc import Iterable

from ..codegen.ptx import Address, Entry, Instruction, Register, Symbol

MEMORY = ("lsu_global", "lsu_shared", "atomic")  # what is found there is made of no parameter
Makers = dict[Register, list[Instruction]]


def stored_through(entry: Entry) -> list[frozenset[str]]:
    """For each register that a store or an atomic takes its address from: names of parameters."""
    makers: Makers = {}
    bases: dict[Register, None] = {}
    for instruction in entry.instructions():
        if instruction.row.counter not in MEMORY:
            for register in instruction.writes:
                makers.setdefault(register, []).append(instruction)
        elif instruction.row.mnemonic.startswith(("st.global", "atom.")):
            (operand,) = instruction.operands["a"]
            assert isinstance(operand, Address)
            assert isinstance(operand.base, Register)
            bases[operand.base] = None
    return [frozenset(_made_of(base, makers)) for base in bases]


def _made_of(base: Register, makers: Makers) -> Iterable[str]:
    """The parameters that some chain of instructions leads from to a register."""
    seen, left = {base}, [base]
    while left:
        for instruction in makers.get(left.pop(), ()):
            yield from _symbols(instruction)
            new = {*instruction.reads} - seen
            seen |= new
            left += new


def _symbols(instruction: Instruction) -> Iterable[str]:
    for operands in instruction.operands.values():
        for operand in operands:
            if isinstance(operand, Address) and isinstance(operand.base, Symbol):
                yield operand.base.name
