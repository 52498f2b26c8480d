"""Which instructions of a row there are: random operands of the kinds that the row takes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from egraph_flash.codegen.isa import Instr
from egraph_flash.codegen.isa.operand import OperandSpec
from egraph_flash.codegen.ptx import (
    PTX_VERSION,
    Address,
    Entry,
    Guard,
    Immediate,
    Instruction,
    Label,
    LabelMark,
    Module,
    Operand,
    Param,
    Register,
    Shared,
    Special,
    Statement,
    Symbol,
)
from egraph_flash.codegen.ptx_types import REGISTER_CLASSES, ValueType

SPECIALS = ("tid.x", "tid.y", "ctaid.x", "ntid.x", "nctaid.x", "laneid")
PARAMS = {"u32": "p_word", "s32": "p_signed", "b32": "p_bits", "f32": "p_float"}
PARAMS |= {"u64": "p_long", "s64": "p_slong", "b64": "p_pointer"}


def random_immediate(rng: random.Random, value: ValueType) -> Immediate:
    if value.is_float:
        picked = rng.choice([0.0, -0.0, 1.5, float("inf"), float("nan"), rng.gauss(0, 100)])
        return Immediate(value.name, picked)
    bits = rng.choice([1, 5, value.bits - 1])
    number = rng.getrandbits(bits)
    return Immediate(value.name, -number if value.name[0] == "s" else number)


def random_operand(rng: random.Random, spec: OperandSpec, output: bool) -> Operand:
    if spec.kind == "label":
        return Label("end")
    if spec.kind == "symbol":
        return Symbol("p_map" if spec.space == "param" else "smem")
    if spec.kind == "special":
        return Special(rng.choice(SPECIALS))
    if spec.kind == "address":
        bases = {"global": Register("b64", rng.randrange(4)), "shared": Register("b32", 1)}
        base = bases[spec.space] if rng.random() < 0.8 else Symbol("smem")
        if spec.space == "global":
            base = bases["global"]
        return Address(base, rng.choice([0, 16, 256, -32]) if isinstance(base, Register) else 16)
    always = spec.only == "immediate"
    if not output and spec.takes_immediates and (always or rng.random() < 0.3):
        return random_immediate(rng, spec.value_type)
    classes = [name for name in REGISTER_CLASSES if spec.value_type.accepts(name)]
    return Register(rng.choice(classes), rng.randrange(8))


def random_instruction(rng: random.Random, row: Instr, guards: bool = True) -> Instruction:
    """An instruction of the row, one that the assembler takes too."""
    if row.name.startswith("ld_param"):
        kind = row.mnemonic.split(".")[-1]
        loaded = random_operand(rng, row.operands["d"], output=True)
        return row.bind(d=loaded, a=Address(Symbol(PARAMS[kind])))
    given: dict[str, list[Operand]] = {}
    for name, spec in row.operands.items():
        output = name in row.outputs
        given[name] = [random_operand(rng, spec, output) for _ in range(spec.count)]
        if output and spec.count > 1:  # a vector's registers are distinct
            first = given[name][0]
            assert isinstance(first, Register)
            given[name] = [Register(first.type, first.index + i) for i in range(spec.count)]
    for name in ("size", "n") if row.counter in ("copy", "group") else ():
        if name in given and isinstance(given[name][0], Immediate):
            given[name] = [Immediate("u32", rng.randrange(5))]  # no more than the row copies
    if row.counter == "mbarrier" and isinstance(given.get("n", [None])[0], Immediate):
        given["n"] = [Immediate("u32", rng.randrange(1, 1000))]
    if isinstance(given.get("parity", [None])[0], Immediate):
        given["parity"] = [Immediate("u32", rng.randrange(2))]
    if row.name.startswith("setmaxnreg"):
        given["n"] = [Immediate("u32", 8 * rng.randrange(3, 32))]
    if row.flow in ("barrier", "arrive"):
        given["a"] = [Immediate("u32", rng.randrange(16))]
        if "b" in given:
            given["b"] = [Immediate("u32", 32 * rng.randrange(1, 5))]
    guard = None
    if guards and row.flow != "wait" and not row.collective and rng.random() < 0.3:
        guard = Guard(Register("pred", rng.randrange(4)), rng.random() < 0.5)
    return row.of(given, guard)


def module_of(body: Sequence[Statement], target: str = "sm_90") -> Module:
    """A module of one entry with every parameter that `random_instruction` names."""
    params = tuple(Param(kind, name) for kind, name in PARAMS.items())
    params += (Param("b8", "p_map", 128, 64),)
    entry = Entry("probe", params, (*body, LabelMark("end")), max_threads=128)
    return Module(PTX_VERSION, target, (entry,), (Shared("smem", 1024),))
