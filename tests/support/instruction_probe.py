"""What one instruction does, as a kernel: inputs from buffers, the row, outputs to buffers.

The same PTX and launch run in the simulator and on a GPU; the buffers hold raw bits, thread by
thread: `in_a [threads, words]`, `out_d [threads, words]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from egraph_flash.codegen import isa
from egraph_flash.codegen.isa import ROWS, Instr
from egraph_flash.codegen.isa.operand import OperandSpec
from egraph_flash.codegen.ptx import (
    DYNAMIC_SHARED,
    PTX_VERSION,
    Address,
    Comment,
    Entry,
    Module,
    Operand,
    Param,
    Register,
    Special,
    Statement,
    Symbol,
)
from egraph_flash.codegen.ptx_text import emit
from egraph_flash.codegen.ptx_types import REGISTER_CLASSES, VALUE_TYPES
from egraph_flash.plan import Launch, Pointer

Array = np.ndarray
THREADS = 128
GRID, BLOCK = (2, 1, 1), (64, 1, 1)
SHARED_BYTES = 4096
FULL_MASK = 0xFFFFFFFF
UNPROBED = {"mov_f64", "mov_param", "cvta_param_u64"}
UNPROBED |= {"mbarrier_test_wait_parity", "mbarrier_try_wait_parity"}
WORD = {"pred": "b32", "b16": "b16", "b32": "b32", "b64": "b64", "f32": "b32"}


@dataclass(frozen=True)
class Probe:
    """A kernel of one row; `inputs` and `outputs` give each buffer's words a thread and dtype."""

    row: Instr
    ptx: str
    launch: Launch
    inputs: Mapping[str, tuple[int, np.dtype[np.unsignedinteger]]]
    outputs: Mapping[str, tuple[int, np.dtype[np.unsignedinteger]]]

    def buffers(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Copies of `inputs`, by operand name, as buffers; outputs are zero."""
        given = {f"in_{name}": np.array(values, order="C") for name, values in inputs.items()}
        empty = {
            f"out_{name}": np.zeros((THREADS, words), dtype)
            for name, (words, dtype) in self.outputs.items()
        }
        return given | empty


def probed_rows() -> list[Instr]:
    """The rows that a probe can be made of: those with an output, and stores.

    Not those that need a barrier or a tensor map, which have tests of their own.
    """
    rows = [row for row in ROWS.values() if row.outputs or stores(row)]
    return [row for row in rows if row.name not in UNPROBED]


def stores(row: Instr) -> bool:
    return row.mnemonic.startswith(("st.", "stmatrix"))


def probe(row: Instr, target: str = "sm_90") -> Probe:
    return _Builder(row).build(target)


class _Builder:
    """Writes the kernel; registers are handed out one after another."""

    def __init__(self, row: Instr) -> None:
        self.row = row
        self.body: list[Statement] = []
        self.next: dict[str, int] = {}
        self.params: list[str] = []
        self.inputs: dict[str, tuple[int, np.dtype[np.unsignedinteger]]] = {}
        self.outputs: dict[str, tuple[int, np.dtype[np.unsignedinteger]]] = {}

    def build(self, target: str) -> Probe:
        self.body.append(Comment("where this thread's words are"))
        self.thread = self.new("b32")
        block, size, local = (self.new("b32") for _ in range(3))
        self.local = local
        self.add(isa.mov_special.bind(d=block, a=Special("ctaid.x")))
        self.add(isa.mov_special.bind(d=size, a=Special("ntid.x")))
        self.add(isa.mov_special.bind(d=local, a=Special("tid.x")))
        self.add(isa.mad_lo_u32.bind(d=self.thread, a=block, b=size, c=local))
        given = {name: self.source(name) for name in self.row.sources}
        made = {name: self.registers(self.row.operands[name]) for name in self.row.outputs}
        self.body.append(Comment("the instruction"))
        self.add(self.row.of({**given, **made}))
        self.body.append(Comment("its results"))
        if not self.row.outputs:
            self.after_store()
        if self.row.counter == "atomic":
            self.after_update()
        for name, registers in made.items():
            self.store(name, registers)
        self.add(isa.ret.bind())
        entry = Entry(
            "probe", tuple(Param("u64", name) for name in self.params), tuple(self.body), BLOCK
        )
        launch = Launch("probe", GRID, BLOCK, SHARED_BYTES, tuple(map(Pointer, self.params)))
        module = Module(PTX_VERSION, target, (entry,), (DYNAMIC_SHARED,))
        return Probe(self.row, emit(module), launch, self.inputs, self.outputs)

    def add(self, instruction: Statement) -> None:
        self.body.append(instruction)

    def new(self, register_class: str) -> Register:
        index = self.next.get(register_class, 0)
        self.next[register_class] = index + 1
        return Register(register_class, index)

    def registers(self, spec: OperandSpec) -> list[Register]:
        return [self.new(spec.value_type.register_class) for _ in range(spec.count)]

    def pointer(self, buffer: str, bytes_per_thread: int) -> Register:
        """The address of this thread's part of a buffer; the buffer becomes a parameter."""
        self.params.append(buffer)
        base, offset, address = (self.new("b64") for _ in range(3))
        self.add(isa.ld_param_u64.bind(d=base, a=Address(Symbol(buffer))))
        self.add(isa.mul_wide_u32.bind(d=offset, a=self.thread, b=bytes_per_thread))
        self.add(isa.add_u64.bind(d=address, a=base, b=offset))
        return address

    def load_words(self, name: str, kind: str, count: int) -> list[Register]:
        """`count` words of `in_name`, into registers of the class `kind`."""
        word = WORD[kind]
        size = REGISTER_CLASSES[word].bits // 8
        self.inputs[name] = (count, np.dtype(f"u{size}"))
        address = self.pointer(f"in_{name}", size * count)
        loaded = [self.new(kind if kind != "pred" else "b32") for _ in range(count)]
        for place, register in enumerate(loaded):
            load = ROWS[f"ld_global_{word}"]
            self.add(load.bind(d=register, a=Address(address, place * size)))
        if kind != "pred":
            return loaded
        (predicate,) = (self.new("pred") for _ in loaded)
        self.add(isa.setp_ne_u32.bind(d=predicate, a=loaded[0], b=0))
        return [predicate]

    def source(self, name: str) -> list[Operand] | Operand | int:
        spec = self.row.operands[name]
        if name == "mask":
            return FULL_MASK
        if spec.kind == "special":
            return Special("tid.x")
        if spec.kind == "symbol":
            return Symbol("smem")
        if spec.kind == "address":
            return self.address(spec)
        return list(self.load_words(name, spec.value_type.register_class, spec.count))

    def address(self, spec: OperandSpec) -> Address:
        """Where a load finds what this probe's `in_a` holds, or where a store shall write."""
        if spec.space == "param":
            self.params.append("in_a")
            self.inputs["a"] = (1, np.dtype("u8"))
            return Address(Symbol("in_a"))
        size = self.row.access_bytes
        if spec.space == "global":
            if stores(self.row):
                self.outputs["a"] = (size // 2, np.dtype("u2"))
                return Address(self.pointer("out_a", size))
            self.inputs["a"] = (max(size // 2, 1), np.dtype(f"u{min(size, 2)}"))
            self.mine = Address(self.pointer("in_a", size))
            return self.mine
        base, mine = self.new("b32"), self.new("b32")
        self.add(isa.mov_symbol.bind(d=base, a=Symbol("smem")))
        self.add(isa.mad_lo_u32.bind(d=mine, a=self.local, b=size, c=base))
        self.mine = Address(mine, 16 if size == 16 else 0)
        if self.row.mnemonic.startswith("stmatrix"):  # not every lane's address is one of a row
            zero = isa.st_shared_v4_b32.bind(a=self.mine, b=[self.local] * 4)
            self.add(zero)
            self.add(isa.bar_sync.bind(a=0))
        if not stores(self.row):
            for place, word in enumerate(self.load_words("a", "b16", size // 2)):
                self.add(
                    isa.st_shared_b16.bind(
                        a=Address(mine, self.mine.offset_bytes + 2 * place), b=word
                    )
                )
            self.add(isa.bar_sync.bind(a=0))
        return self.mine

    def after_store(self) -> None:
        """Read back what a shared store wrote."""
        if ".shared" not in self.row.mnemonic:
            return
        words = self.row.access_bytes // 2
        self.add(isa.bar_sync.bind(a=0))
        found = []
        for place in range(words):
            found.append(self.new("b16"))
            at = Address(self.mine.base, self.mine.offset_bytes + 2 * place)
            self.add(isa.ld_shared_b16.bind(d=found[-1], a=at))
        self.store("a", found)

    def after_update(self) -> None:
        """Read back what an atomic left."""
        after = self.new("b32")
        self.add(isa.ld_global_u32.bind(d=after, a=self.mine))
        self.store("a", [after])

    def store(self, name: str, registers: list[Register]) -> None:
        """This thread's result words go to `out_name`; a predicate as 0 or 1."""
        kind = registers[0].type
        word = WORD[kind]
        size = REGISTER_CLASSES[word].bits // 8
        self.outputs[name] = (len(registers), np.dtype(f"u{size}"))
        address = self.pointer(f"out_{name}", size * len(registers))
        for place, register in enumerate(registers):
            value = register
            if kind == "pred":
                value = self.new("b32")
                self.add(isa.selp_u32.bind(d=value, a=1, b=0, c=register))
            self.add(ROWS[f"st_global_{word}"].bind(a=Address(address, place * size), b=value))


def random_inputs(made: Probe, rng: np.random.Generator) -> dict[str, Array]:
    """Raw words for every input, of the kind that the row's operands have, edges among them."""
    return {
        name: _words(made.row, name, words, dtype, rng)
        for name, (words, dtype) in made.inputs.items()
    }


def _words(
    row: Instr, name: str, words: int, dtype: np.dtype[np.unsignedinteger],
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    shape = (THREADS, words)
    high = 1 << 8 * dtype.itemsize
    values = rng.integers(0, high - 1, shape, dtype=dtype, endpoint=True)
    spec = row.operands[name]
    if spec.kind != "value":
        return values
    kind = VALUE_TYPES[spec.value_type.name]
    if kind.name == "pred":
        return (values & 1).astype(dtype)
    if row.name.startswith("shfl") and name in "bc":
        return _shuffle_words(row, name, rng)
    if row.name.startswith("sh") and name == "b":
        return rng.integers(0, 70, shape, dtype=dtype)
    if kind.name in ("f16x2", "bf16x2"):
        return _finite_halves(kind.name, values)
    if kind.is_float:
        return _float_words(row, name, rng, shape)
    edges = np.array([0, 1, 2, 7, high // 2, high // 2 - 1, high - 1, high - 7], dtype)
    values = np.where(rng.random(shape) < 0.3, rng.choice(edges, shape), values)
    if row.mnemonic.startswith("setp") and name == "b":
        values = np.where(rng.random(shape) < 0.3, edges[0], values)
    if row.mnemonic[:3] in ("div", "rem") and name == "b":
        values = np.where(values == 0, 3, values)
    return values.astype(dtype)


def _shuffle_words(row: Instr, name: str, rng: np.random.Generator) -> Array:
    """Lane offsets and clamps, the same for a whole warp."""
    if name == "b":
        per_warp = rng.integers(0, 32, THREADS // 32)
    else:
        segments = rng.choice([0, 0x10, 0x18, 0x1C], THREADS // 32)
        per_warp = segments << 8 | (0 if "_up_" in row.name else 0x1F)
    return np.repeat(per_warp, 32).astype(np.uint32).reshape(THREADS, 1)


def _finite_halves(kind: str, words: Array) -> Array:
    halves = np.ascontiguousarray(words).view(np.uint16)
    exponent = np.uint16(0x7C00 if kind == "f16x2" else 0x7F80)
    halves = np.where(halves & exponent == exponent, halves & np.uint16(0xBFFF), halves)
    return np.ascontiguousarray(halves).view(np.uint32)


def _float_words(row: Instr, name: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Any f32 bits; near ±2^7 where exponents or integers are made of them; c is finite in mma."""
    bits = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    near = rng.normal(scale=60, size=shape).astype(np.float32).view(np.uint32)
    bits = np.where(rng.random(shape) < 0.5, near, bits)
    special = np.array(
        [0, 0x80000000, 1, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000], np.uint32
    )
    bits = np.where(rng.random(shape) < 0.15, rng.choice(special, shape), bits)
    if row.counter == "mma":
        infinite = bits & np.uint32(0x7F800000) == 0x7F800000
        bits = np.where(infinite, bits & np.uint32(0xBFFFFFFF), bits)
    return bits.astype(np.uint32)
