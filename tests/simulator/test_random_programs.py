"""Do random programs of branches, loops and guards give what each thread alone would compute?"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.small_kernels import run_body

WORD = 1 << 32
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b,
    "sub.u32": lambda a, b: a - b,
    "xor.b32": lambda a, b: a ^ b,
    "mul.lo.u32": lambda a, b: a * b,
    "min.u32": min,
}
REGISTERS = range(1, 6)  # %r0 is a loop's counter


class Program:
    """Text and, line by line, what it does to one thread; loops end after a few rounds."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = [f"mad.lo.u32 %r{i}, %r103, {i}, {i * 7};" for i in REGISTERS]
        self.labels = 0
        self.counter = 10
        self.block(3)
        total = "".join(f"xor.b32 %r1, %r1, %r{i};\n" for i in REGISTERS if i != 1)
        self.text = "\n".join(self.lines) + f"\n{total}st.global.u32 [%rd50], %r1;\nret;"

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def operation(self, guard: str = "") -> None:
        name = self.rng.choice(list(OPERATIONS))
        d, a, b = (self.rng.choice(REGISTERS) for _ in range(3))
        self.lines.append(f"{guard}{name} %r{d}, %r{a}, %r{b};")

    def condition(self, predicate: str) -> None:
        a, bits = self.rng.choice(REGISTERS), self.rng.choice([1, 3, 32, 256])
        self.lines.append(f"and.b32 %r9, %r{a}, {bits};")
        self.lines.append(f"setp.ne.u32 {predicate}, %r9, 0;")

    def block(self, depth: int) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            kind = self.rng.random()
            if depth == 0 or kind < 0.3:
                self.operation()
            elif kind < 0.45:
                self.condition("%p1")
                self.operation(self.rng.choice(["@%p1 ", "@!%p1 "]))
            elif kind < 0.75:
                self.branch(depth)
            else:
                self.loop(depth)

    def branch(self, depth: int) -> None:
        other, join = self.label(), self.label()
        self.condition("%p2")
        self.lines.append(f"@%p2 bra {other};")
        self.block(depth - 1)
        self.lines += [f"bra {join};", f"{other}:"]
        self.block(depth - 1)
        self.lines.append(f"{join}:")

    def loop(self, depth: int) -> None:
        """As many rounds as the thread's own register says, at most four."""
        top, counter = self.label(), f"%r{self.counter}"
        self.counter += 1
        self.lines.append(f"and.b32 {counter}, %r{self.rng.choice(REGISTERS)}, 3;")
        self.lines.append(f"{top}:")
        self.block(depth - 1)
        self.lines += [
            f"add.u32 {counter}, {counter}, 1;",
            f"setp.lt.u32 %p3, {counter}, 4;",
            f"@%p3 bra {top};",
        ]


def alone(text: str, thread: int) -> int:
    """One thread, one line at a time."""
    lines = text.splitlines()
    places = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    held: dict[str, int] = {"%r103": thread}

    def value(operand: str) -> int:
        return held[operand] if operand.startswith("%") else int(operand)

    at = 0
    while True:
        line = lines[at]
        at += 1
        if line.endswith(":"):
            continue
        if line.startswith("@"):
            guard, line = line.split(" ", 1)
            if bool(held[guard.lstrip("@!")]) == ("!" in guard):
                continue
        name, _, rest = line.rstrip(";").partition(" ")
        if name == "st.global.u32":
            return held["%r1"]
        if name == "bra":
            at = places[rest]
            continue
        d, *sources = rest.split(", ")
        numbers = [value(each) for each in sources]
        if name == "mad.lo.u32":
            held[d] = (numbers[0] * numbers[1] + numbers[2]) % WORD
        elif name == "and.b32":
            held[d] = numbers[0] & numbers[1]
        elif name.startswith("setp"):
            held[d] = int(numbers[0] != numbers[1] if ".ne." in name else numbers[0] < numbers[1])
        else:
            held[d] = OPERATIONS[name](*numbers) % WORD


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_thread_computes_what_it_would_alone(seed: int) -> None:
    text = Program(random.Random(seed)).text
    x = np.zeros(2 * 80, np.uint32)
    run_body(text, {"x": x}, block=80, grid=2, uninitialised=["x"], complete=["x"])
    assert x.tolist() == [alone(text, thread) for thread in range(x.size)]
