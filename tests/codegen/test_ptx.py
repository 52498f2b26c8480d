"""Does PTX text read back to the module it was printed from, and say what is wrong otherwise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egraph_flash.codegen import isa
from egraph_flash.codegen.isa import ROWS, Instr
from egraph_flash.codegen.ptx import (
    Address,
    Comment,
    Entry,
    Guard,
    Immediate,
    Label,
    LabelMark,
    Module,
    Param,
    Register,
    Shared,
    Special,
    Symbol,
)
from egraph_flash.codegen.ptx_parse import parse, read_instruction
from egraph_flash.codegen.ptx_text import emit
from egraph_flash.codegen.ptx_types import PtxError
from egraph_flash.runtime import assemble
from tests.support.bound_rows import module_of, random_instruction

rows = pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)


@rows
@settings(max_examples=15, deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_every_row_prints_and_reads_back(row: Instr, rng: random.Random) -> None:
    instruction = random_instruction(rng, row)
    text = str(instruction)
    assert text.endswith(";")
    assert read_instruction(text[:-1]) == instruction


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_module_of_every_row_prints_and_reads_back(seed: int) -> None:
    rng = random.Random(seed)
    module = module_of([random_instruction(rng, row) for row in ROWS.values()], "sm_90a")
    text = emit(module)
    assert parse(text) == module
    assert emit(parse(text)) == text


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_120", "sm_120a"])
def test_the_assembler_takes_every_row(target: str) -> None:
    rng = random.Random()
    seed = rng.getrandbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    there = [row for row in ROWS.values() if not row.targets or target in row.targets]
    body = [random_instruction(rng, row) for row in there for _ in range(2)]
    body = [each for each in body if each.row.flow != "exit"]
    body.append(isa.ret.bind())
    assert assemble(emit(module_of(body, target)), target).cubin[:4] == b"\x7fELF"


SMALL = """\
.version 8.7
.target sm_120
.address_size 64

.extern .shared .align 1024 .b8 smem[];
.shared .align 16 .b8 fixed[64];

.visible .entry first(
    .param .u64 p_x,
    .param .align 64 .b8 p_map[128]
)
.reqntid 128, 1, 1
.maxnreg 96
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .f32 %f<1>;
    // a term: x + 1
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p1, %r0, 5;
    @!%p1 bra done;
    mov.u32 %r2, smem;
    st.shared.f32 [%r2+16], 0f3F800000;
    ld.shared.f32 %f0, [fixed+4];
done:
    ret;
}

.visible .entry second()
.maxntid 64, 1, 1
.minnctapersm 2
{
    ret;
}
"""


def test_a_small_module_is_this_text() -> None:
    r0, r2, p1 = Register("b32", 0), Register("b32", 2), Register("pred", 1)
    body = (
        Comment("a term: x + 1"),
        isa.mov_special.bind(d=r0, a=Special("tid.x")),
        isa.setp_lt_u32.bind(d=p1, a=r0, b=5),
        isa.bra.bind(target=Label("done"), guard=Guard(p1, negated=True)),
        isa.mov_symbol.bind(d=r2, a=Symbol("smem")),
        isa.st_shared_f32.bind(a=Address(r2, 16), b=1.0),
        isa.ld_shared_f32.bind(d=Register("f32", 0), a=Address(Symbol("fixed"), 4)),
        LabelMark("done"),
        isa.ret.bind(),
    )
    params = (Param("u64", "p_x"), Param("b8", "p_map", 128, 64))
    first = Entry("first", params, body, reqntid=(128, 1, 1), maxnreg=96)
    second = Entry("second", (), (isa.ret.bind(),), max_threads=64, minnctapersm=2)
    shared = (Shared("smem", 1024), Shared("fixed", 16, 64))
    module = Module((8, 7), "sm_120", (first, second), shared)
    assert emit(module) == SMALL
    assert parse(SMALL) == module
    lines = [statement.line for statement in parse(SMALL).entries[0].body]
    assert lines == list(range(18, 27))


LOOSE = """
.version 8.7
  .target sm_90

.entry k(
.param .u32 n
)
{
.reg .pred %p<1>;
.reg .b32 %r<9>;  // more than it needs
.reg .b64  %rd<4>;
\tadd.s32   %r1 , %r2,-3 ;  // trailing


 @%p0  mov.b64 { %r1 , %r2 }, %rd3;
}
"""


def test_hand_written_text_may_be_loose() -> None:
    first, second = parse(LOOSE).entries[0].body
    assert str(first) == "add.s32 %r1, %r2, -3;"
    assert str(second) == "@%p0 mov.b64 {%r1, %r2}, %rd3;"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("frobnicate.f32 %f1, %f2", "unsupported instruction 'frobnicate.f32'"),
        ("add.rn.f32 %f1, %r2, %f3", "add_rn_f32: operand a got Register %r2, wants f32"),
        ("add.rn.f32 %f1, 1.5, %f3", "'1.5' is no f32 constant; wants 0f or 0d and hex digits"),
        (
            "add.rn.f32 0f00000000, %f2, %f3",
            "operand d got Immediate 0f00000000, wants f32 register",
        ),
        ("add.rn.f32 %f1, %f2", "is written 'add.rn.f32 $d, $a, $b;'"),
        ("ld.global.v2.f32 {%f1}, [%rd1]", "wants f32 x2 register"),
        (
            "ld.global.f32 %f1, [%r1]",
            "operand a got Address %r1, wants an address in global memory",
        ),
        ("mov.u32 %r1, 4294967296", "immediate: got 4294967296, wants an integer of type u32"),
        ("?", "wants an instruction"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str) -> None:
    text = f".version 8.7\n.target sm_90\n.entry k()\n{{\n    ret;\n    {line};\n}}\n"
    with pytest.raises(PtxError, match="line 6: ") as caught:
        parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            ".version 8.7\n.target sm_90\n.func f\n",
            "line 3: got '.func f', wants a module directive",
        ),
        (".version 8.7\n.target sm_90\n.entry k()\n{\nret;\n", "wants a closing }"),
        ("\n", "wants .version and .target"),
        (".version 8.7\n.target sm_90\n.entry k()\n.fast 3\n{", "wants one of .reqntid"),
        (".version 8.7\n.target sm_90\n.entry k()\n{\nret; ret;\n}", "wants one instruction"),
        (".version 8.7\n.target sm_90\n.entry k()\n{\nbra out;\n}", "label out of bra out; is not"),
        (
            ".version 8.7\n.target sm_90\n.entry k()\n{\n.reg .b32 %r<2>;\nadd.u32 %r2, %r1, 1;\n}",
            "line 7: entry k uses %r2, declares 2 registers of .b32",
        ),
        (
            ".version 8.7\n.target sm_90\n.entry k()\n{\n.reg .b32 %f<2>;\n}",
            "wants .reg .type %prefix<count>; with one of .pred %p, .b16 %h",
        ),
        (
            ".version 8.7\n.target sm_90\n.entry k()\n{\na:\na:\n}",
            "label a is placed more than once",
        ),
    ],
)
def test_a_bad_module_is_named(text: str, message: str) -> None:
    with pytest.raises(PtxError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_operands_are_validated_where_they_are_built() -> None:
    with pytest.raises(PtxError, match="register: got type 'f16'"):
        Register("f16", 0)
    with pytest.raises(PtxError, match="wants an integer of type u32"):
        Immediate("u32", -1)
    with pytest.raises(PtxError, match="takes no constants"):
        Immediate("f16x2", 0)
    with pytest.raises(PtxError, match="wants one line"):
        Comment("two\nlines")
    with pytest.raises(PtxError, match="at most one of them"):
        Entry("k", (), (), reqntid=(1, 1, 1), max_threads=32)


def test_immediates_compare_by_their_bits() -> None:
    assert Immediate("f32", 0.1).value == 0.10000000149011612
    assert Immediate("f32", 0.0) != Immediate("f32", -0.0)
    assert Immediate("f32", float("nan")) == Immediate("f32", float("nan"))
    assert str(Immediate("f32", float("-inf"))) == "0fFF800000"
    assert str(Immediate("f32", 1e39)) == "0f7F800000"
    assert str(Immediate("b32", 0xFFFF)) == "0xffff"
    assert str(Immediate("s32", -7)) == "-7"


def test_a_module_refuses_what_its_target_lacks() -> None:
    body = [isa.cvt_f32_bf16.bind(d=Register("f32", 0), a=Register("b16", 0))]
    assert module_of(list(body), "sm_90")
    with pytest.raises(PtxError, match="cvt_f32_bf16: got target sm_80, wants sm_90 or later"):
        module_of(list(body), "sm_80")
    with pytest.raises(PtxError, match="wants sm_ and a number"):
        module_of(list(body), "gfx942")
    grows = [isa.setmaxnreg_inc.bind(n=232)]
    assert module_of(list(grows), "sm_120a")
    with pytest.raises(PtxError, match="setmaxnreg_inc: got target sm_120, wants sm_100a or"):
        module_of(list(grows), "sm_120")


def test_an_instruction_knows_what_it_reads_and_writes() -> None:
    r, f = ([Register(kind, i) for i in range(8)] for kind in ("b32", "f32"))
    p = Register("pred", 0)
    c = f[:4]
    mma = isa.mma_m16n8k16_f16.bind(d=c, a=r[:4], b=r[4:6], c=c)
    assert list(mma.writes) == c
    assert list(mma.reads) == [*r[:6], *c]
    store = isa.st_shared_f32.bind(a=Address(r[1], 4), b=f[2]).guarded(p)
    assert list(store.writes) == []
    assert list(store.reads) == [p, r[1], f[2]]
