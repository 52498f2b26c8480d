"""Are the instruction rows well formed: complete, unique, typed as they say, clear when misused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from egraph_flash.codegen import isa
from egraph_flash.codegen.isa import ROWS, Instr, instr
from egraph_flash.codegen.isa.operand import operand_spec
from egraph_flash.codegen.ptx import Address, Guard, Register, Symbol
from egraph_flash.codegen.ptx_parse import read_instruction
from egraph_flash.codegen.ptx_types import PtxError
from tests.support.fresh import fresh_rng

PLAIN = [row for row in ROWS.values() if not row.context and row.outputs]


def test_every_row_names_its_source_and_its_class() -> None:
    for name, row in ROWS.items():
        assert row.name == name
        assert row.source.startswith("PTX ISA, ")
        assert row.counter in isa.COUNTERS
        assert set(row.outputs) | set(row.sources) == set(row.operands)
        assert row.meaning.__doc__


def test_inexact_rows_are_the_known_ones() -> None:
    inexact = {name for name, row in ROWS.items() if not row.exact}
    assert inexact == {"lg2_approx_ftz_f32", "tanh_approx_f32"}


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.name)
def test_a_meaning_returns_what_its_operands_say(row: Instr) -> None:
    """Shapes and element types of a plain row's outputs, for arrays and for constants."""
    rng = fresh_rng()
    for constants in (False, True):
        given: dict[str, Any] = {}
        for name in row.sources:
            spec = row.operands[name]
            if spec.kind == "symbol":
                given[name] = np.uint64(16) if spec.space == "param" else np.uint32(1024)
                continue
            value = spec.value_type
            per_lane = spec.count * value.packed
            raw = rng.integers(0, 256, (3, 32, per_lane * value.element.itemsize), dtype=np.uint8)
            array = (raw & (1 if value.name == "pred" else 255)).view(value.element)
            if per_lane == 1:
                array = array[..., 0]
                if constants and spec.takes_immediates and len(given) > 0:
                    array = array[0, 0]
            given[name] = array
        with np.errstate(all="ignore"):
            result = row.meaning(**given)
        results = result if len(row.outputs) > 1 else (result,)
        for name, found in zip(row.outputs, results, strict=True):
            spec = row.operands[name]
            per_lane = spec.count * spec.value_type.packed
            assert np.asarray(found).dtype == spec.value_type.element
            if row.sources and row.operands[row.sources[0]].kind != "symbol":
                assert np.shape(found) == ((3, 32) if per_lane == 1 else (3, 32, per_lane))


def test_missing_operands_are_named() -> None:
    with pytest.raises(PtxError) as caught:
        isa.mma_m16n8k16_f16.bind(d=[Register("f32", i) for i in range(4)])
    assert str(caught.value) == (
        "mma_m16n8k16_f16: got operands ['d'], wants ['d', 'a', 'b', 'c'] "
        "(PTX ISA, mma.m16n8k16 with .f16; rounding: MMA-Sim (arXiv 2511.10909))"
    )


def test_operands_of_the_wrong_kind_are_named() -> None:
    r, f, rd = Register("b32", 0), Register("f32", 0), Register("b64", 0)
    with pytest.raises(PtxError, match="fma_rn_f32: operand b got Register %r0, wants f32"):
        isa.fma_rn_f32.bind(d=f, a=f, b=r, c=f)
    with pytest.raises(PtxError, match="operand d got Register %f0, wants f32 x4 register"):
        isa.mma_m16n8k16_f16.bind(d=[f], a=[r] * 4, b=[r] * 2, c=[f] * 4)
    with pytest.raises(PtxError, match="wants an address in shared memory"):
        isa.ld_shared_f32.bind(d=f, a=Address(rd))
    with pytest.raises(PtxError, match="guard got @%r0, wants a pred register"):
        isa.neg_f32.bind(d=f, a=f, guard=Guard(r))
    with pytest.raises(PtxError, match="operand d got int 3, wants b32 register"):
        isa.mov_b32.bind(d=3, a=r)


def test_untyped_operands_take_any_class_of_their_width() -> None:
    r, f = Register("b32", 0), Register("f32", 0)
    assert str(isa.mov_b32.bind(d=r, a=f)) == "mov.b32 %r0, %f0;"
    with pytest.raises(PtxError):
        isa.mov_b32.bind(d=Register("b64", 0), a=f)


def test_an_unknown_instruction_names_its_neighbours() -> None:
    with pytest.raises(AttributeError, match=r"near it: .*fma_rn_f32"):
        _ = isa.fma_rn_f23


def test_the_table_refuses_bad_rows() -> None:
    with pytest.raises(PtxError, match="already has a row of this name"):
        instr("ret;", counter="control", source="PTX ISA, ret")(lambda: None)
    with pytest.raises(PtxError, match="takes \\['z'\\], which are neither operands"):
        instr("foo.f32 $d, $a;", d="f32", a="f32", counter="fma", source="x")(lambda z: z)
    with pytest.raises(PtxError, match="must agree, end in ';'"):
        instr("foo.f32 $d, $b;", d="f32", a="f32", counter="fma", source="x")(lambda a: a)
    with pytest.raises(PtxError, match="got counter 'tea'"):
        instr("foo.f32 $d, $a;", d="f32", a="f32", counter="tea", source="x")(lambda a: a)
    assert not [name for name in ROWS if name.startswith("foo")]


def test_spellings_of_operands() -> None:
    for spelling in ("f32", "f16x2 x4", "u32 immediate", "b32 register", "label", "special u32"):
        assert str(operand_spec(spelling)).replace("a special register of type", "special")
    assert str(operand_spec("symbol param")) == "a symbol of a parameter"
    with pytest.raises(PtxError, match="got the spelling 'f33 x2'"):
        operand_spec("f33 x2")
    assert operand_spec("u32 immediate").check(Register("b32", 1)) is None
    assert operand_spec("u32 register").check(3) is None
    assert operand_spec("address param").check(Address(Symbol("p"))) is not None


def test_asynchronous_instructions_are_spelled_as_the_manual_does() -> None:
    """The forms that several rows share a mnemonic with, and those with unusual operands."""
    to, there = Address(Register("b32", 1), 64), Address(Register("b64", 2))
    size, policy, wide = Register("b32", 3), Register("b64", 4), Register("b64", 5)
    column, row = Register("b32", 6), Register("b32", 7)
    p = Register("pred", 0)
    spelled = [
        (isa.cp_async_ca_4.bind(a=to, b=there), "cp.async.ca.shared.global [%r1+64], [%rd2], 4;"),
        (
            isa.cp_async_cg_16_zfill.bind(a=to, b=there, size=size),
            "cp.async.cg.shared.global [%r1+64], [%rd2], 16, %r3;",
        ),
        (
            isa.cp_async_cg_16_zfill_hint.bind(a=to, b=there, size=8, policy=policy),
            "cp.async.cg.shared.global.L2::cache_hint [%r1+64], [%rd2], 16, 8, %rd4;",
        ),
        (isa.cp_async_wait_group.bind(n=2), "cp.async.wait_group 2;"),
        (isa.mbarrier_arrive.bind(a=to), "mbarrier.arrive.shared::cta.b64 _, [%r1+64];"),
        (
            isa.mbarrier_arrive_count.bind(a=to, n=3),
            "mbarrier.arrive.shared::cta.b64 _, [%r1+64], 3;",
        ),
        (
            isa.mbarrier_arrive_expect_tx.bind(a=to, n=4096),
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+64], 4096;",
        ),
        (
            isa.mbarrier_try_wait_parity.bind(p=p, a=to, parity=size),
            "mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r1+64], %r3;",
        ),
        (isa.mov_param.bind(d=wide, a=Symbol("p_map")), "mov.b64 %rd5, p_map;"),
        (isa.cvta_param_u64.bind(d=wide, a=wide), "cvta.param.u64 %rd5, %rd5;"),
        (
            isa.cp_async_bulk_tensor_2d_hint.bind(
                a=to, map=wide, at=[column, row], bar=Address(size), policy=policy
            ),
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            ".L2::cache_hint [%r1+64], [%rd5, {%r6, %r7}], [%r3], %rd4;",
        ),
        (isa.elect_sync_pred.bind(p=p, mask=0xFFFFFFFF), "elect.sync _|%p0, 4294967295;"),
        (isa.bar_arrive.bind(a=1, b=64), "bar.arrive 1, 64;"),
    ]
    for instruction, text in spelled:
        assert str(instruction) == text
        assert read_instruction(text[:-1]) == instruction
