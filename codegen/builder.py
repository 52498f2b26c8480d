"""Where instructions are put: blocks in order, fresh registers, and the term each came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .isa import ROWS
from .ptx import Comment, Guard, Immediate, Instruction, Label, LabelMark, Register, Statement

Word = Register | Immediate


class Block:
    """A run of statements; `depth` is how many loops it stands in, `rounds` how often it runs."""

    def __init__(self, depth: int, rounds: int = 1) -> None:
        self.depth = depth
        self.rounds = rounds
        self.statements: list[Statement | Block] = []
        self.term = ""

    def executed(self) -> Counter[str]:
        """The instructions that a warp executes here, by the class that they are counted in."""
        own = Counter(e.row.counter for e in self.statements if isinstance(e, Instruction))
        for each in self.statements:
            if isinstance(each, Block):
                own += each.executed()
        return Counter({name: self.rounds * count for name, count in own.items()})

    def flatten(self) -> Iterator[Statement]:
        for each in self.statements:
            if isinstance(each, Block):
                yield from each.flatten()
            else:
                yield each


class Builder:
    """Emits into the current block; code that a loop does not change goes to the block before it.

    Registers are numbered in the order of their making, so equal input gives equal text.
    """

    def __init__(self) -> None:
        self.root = Block(0)
        self.blocks = [self.root]
        self.counts: dict[str, int] = {}
        self.labels = 0
        self.term = ""

    # ---- registers and instructions --------------------------------------------------------------

    def new(self, register_class: str) -> Register:
        index = self.counts.get(register_class, 0)
        self.counts[register_class] = index + 1
        return Register(register_class, index)

    def many(self, register_class: str, count: int) -> list[Register]:
        return [self.new(register_class) for _ in range(count)]

    def put(self, row: str, guard: Register | Guard | None = None, **operands: Any) -> Instruction:
        instruction = self.made(row, guard, **operands)
        self._append(instruction)
        return instruction

    def made(self, row: str, guard: Register | Guard | None = None, **operands: Any) -> Instruction:
        """An instruction that is not placed yet."""
        return ROWS[row].bind(guard=guard, **operands)

    def op(self, row: str, *sources: Any) -> Register:
        """The instruction with its sources in the row's order, into a fresh register."""
        instr = ROWS[row]
        (out,) = instr.outputs
        fresh = self.new(instr.operands[out].value_type.register_class)
        names = [name for name in instr.operands if name != out]
        self.put(row, **{out: fresh}, **dict(zip(names, sources, strict=True)))
        return fresh

    def move(self, into: Register, value: Any) -> None:
        self.put(f"mov_{into.type}", d=into, a=value)

    def _append(self, statement: Statement) -> None:
        block = self.blocks[-1]
        if self.term != block.term:
            block.statements.append(Comment(self.term))
            block.term = self.term
        block.statements.append(statement)

    @contextmanager
    def of(self, term: str) -> Iterator[None]:
        """Instructions emitted inside belong to `term`."""
        before, self.term = self.term, _one_line(term)
        yield
        self.term = before

    # ---- control ---------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return self.blocks[-1].depth

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """Emit at the end of the innermost open block of at most that loop depth."""
        place = max(i for i, block in enumerate(self.blocks) if block.depth <= depth)
        held, self.blocks = self.blocks, self.blocks[: place + 1]
        yield
        self.blocks = held

    @contextmanager
    def loop(self, counter: Register, begin: int, end: int, step: int) -> Iterator[None]:
        """A loop of at least one round: `counter` takes what range(begin, end, step) has."""
        depth = self.depth
        label = f"L{self.labels}"
        self.labels += 1
        self.move(counter, begin)
        # what the body does not change is appended to `before` while the body is being written
        before, body = Block(depth), Block(depth + 1, -(-(end - begin) // step))
        self.blocks[-1].statements += [before, body]
        self.blocks += [before, body]
        self._append(LabelMark(label))
        yield
        self.put("add_s32", d=counter, a=counter, b=step)
        again = self.op("setp_lt_s32" if step > 0 else "setp_gt_s32", counter, end)
        self.put("bra", guard=again, target=Label(label))
        del self.blocks[-2:]
        self.blocks[-1].term = ""  # what follows the loop names its term again

    @contextmanager
    def sweep(
        self,
        counter: Register,
        begin: Register,
        end: Register,
        step: int,
        rounds: int,
        *,
        uniform: bool = True,
    ) -> Iterator[None]:
        """A loop that may have no round: `counter` takes begin, begin + step, … below `end`.

        `rounds` is how many there are typically; `uniform`: all of a warp are here.
        """
        depth = self.depth
        label, done = f"L{self.labels}", f"L{self.labels + 1}"
        self.labels += 2
        self.move(counter, begin)
        before, body = Block(depth), Block(depth + 1, rounds)
        self.blocks[-1].statements += [before, body]
        self.blocks += [before, body]
        none = self.op("setp_ge_s32", counter, end)
        row = "bra_uni" if uniform else "bra"
        self.put(row, guard=none, target=Label(done))
        self._append(LabelMark(label))
        yield
        self.put("add_s32", d=counter, a=counter, b=step)
        again = self.op("setp_lt_s32", counter, end)
        self.put(row, guard=again, target=Label(label))
        self._append(LabelMark(done))
        del self.blocks[-2:]
        self.blocks[-1].term = ""

    @contextmanager
    def when(
        self, predicate: Register, *, holds: bool = True, uniform: bool = False
    ) -> Iterator[None]:
        """Code for the threads whose predicate holds; `uniform`: all of a warp agree on it."""
        depth = self.depth
        label = Label(f"L{self.labels}")
        self.labels += 1
        before, body = Block(depth), Block(depth + 1)
        self.blocks[-1].statements += [before, body]
        self.blocks += [before, body]
        row = "bra_uni" if uniform else "bra"
        self.put(row, guard=Guard(predicate, negated=holds), target=label)
        yield
        self._append(LabelMark(label.name))
        del self.blocks[-2:]
        self.blocks[-1].term = ""

    def mark(self, label: str) -> None:
        """A place that a branch may name."""
        self._append(LabelMark(label))

    @contextmanager
    def until(self) -> Iterator[Register]:
        """Code that is repeated until it sets the predicate that is given to it."""
        label = f"L{self.labels}"
        self.labels += 1
        done = self.new("pred")
        self._append(LabelMark(label))
        yield done
        self.put("bra", guard=Guard(done, negated=True), target=Label(label))

    def statements(self) -> Sequence[Statement]:
        return tuple(self.root.flatten())


def _one_line(term: str) -> str:
    """A term as a comment: one line of ASCII, which is all that the assembler takes."""
    line = " ".join(term.replace("Σ", "sum").replace("…", "...").split())
    line = line.encode("ascii", "replace").decode()
    return line if len(line) <= 200 else line[:197] + "..."
