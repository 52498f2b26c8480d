"""How control flows through an entry: basic blocks, and which reads may see no value.

A register is definitely assigned at a place if every path to it writes it without a guard; only
reads of the others need a check when the program runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..codegen.ptx import Comment, Entry, Instruction, Label, LabelMark, Register
from .where import Where, where_of

ENDS_BLOCK = ("branch", "exit", "barrier", "arrive", "wait")
GOES_ON = ("barrier", "arrive", "wait")  # to the next block, when it may


@dataclass
class Block:
    """A run of instructions that all lanes of a group execute; `end` decides what comes next."""

    index: int
    body: list[tuple[Instruction, Where]] = field(default_factory=list)
    end: tuple[Instruction, Where] | None = None
    target: int | None = None
    unsure: dict[int, list[Register]] = field(default_factory=dict)

    def instructions(self) -> list[tuple[Instruction, Where]]:
        return self.body + ([self.end] if self.end else [])

    def successors(self, count: int) -> list[int]:
        after = [self.index + 1] if self.index + 1 < count else []
        if self.end is None or self.end[0].row.flow in GOES_ON:
            return after
        guarded = self.end[0].guard is not None
        if self.end[0].row.flow == "exit":
            return after if guarded else []
        assert self.target is not None
        return [self.target, *(after if guarded else [])]


def blocks_of(entry: Entry) -> list[Block]:
    """The entry's blocks in the order of the text; labels resolved, unsure reads marked."""
    blocks = [Block(0)]
    labels: dict[str, int] = {}
    term = ""
    for statement in entry.body:
        if isinstance(statement, Comment):
            term = statement.text
        elif isinstance(statement, LabelMark):
            if blocks[-1].body or blocks[-1].end:
                blocks.append(Block(len(blocks)))
            labels[statement.name] = blocks[-1].index
        else:
            if blocks[-1].end:
                blocks.append(Block(len(blocks)))
            placed = (statement, where_of(entry, statement, term))
            if statement.row.flow in ENDS_BLOCK:
                blocks[-1].end = placed
            else:
                blocks[-1].body.append(placed)
    for block in blocks:
        if block.end and block.end[0].row.flow == "branch":
            (label,) = block.end[0].operands["target"]
            assert isinstance(label, Label)
            block.target = labels[label.name]
    _mark_unsure(blocks)
    return blocks


def retries(blocks: list[Block], block: Block) -> bool:
    """Whether a wait is followed by a branch on what it found: then it may be tried again."""
    if block.end is None or block.index + 1 >= len(blocks):
        return False
    after = blocks[block.index + 1]
    if after.body or after.end is None or after.end[0].row.flow != "branch":
        return False
    guard = after.end[0].guard
    return guard is not None and guard.register in block.end[0].writes


def _mark_unsure(blocks: list[Block]) -> None:
    before = definitely_assigned(blocks)
    for block in blocks:
        assigned = set(before[block.index])
        for place, (instruction, _) in enumerate(block.instructions()):
            unsure = [each for each in dict.fromkeys(instruction.reads) if each not in assigned]
            if unsure:
                block.unsure[place] = unsure
            if instruction.guard is None:
                assigned.update(instruction.writes)


def definitely_assigned(blocks: list[Block]) -> list[set[Register]]:
    """The registers that hold a value wherever each block is entered."""
    everything = {
        register
        for block in blocks
        for instruction, _ in block.instructions()
        for register in instruction.writes
    }
    writes = [_unguarded_writes(block.instructions()) for block in blocks]
    predecessors: list[list[int]] = [[] for _ in blocks]
    for block in blocks:
        for successor in block.successors(len(blocks)):
            predecessors[successor].append(block.index)
    before = [set(everything) if index else set() for index in range(len(blocks))]
    changed = True
    while changed:
        changed = False
        for index in range(1, len(blocks)):
            arriving = [before[each] | writes[each] for each in predecessors[index]]
            meet = set.intersection(*arriving) if arriving else set()
            if meet != before[index]:
                before[index] = meet
                changed = True
    return before


def _unguarded_writes(instructions: Iterable[tuple[Instruction, Where]]) -> set[Register]:
    return {
        register
        for instruction, _ in instructions
        if instruction.guard is None
        for register in instruction.writes
    }
