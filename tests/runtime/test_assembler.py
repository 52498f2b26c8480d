"""The assembler: cubins without a GPU, what it reports, and what its refusals say."""

from __future__ import annotations

import re

import pytest

from egraph_flash.errors import AssemblyError
from egraph_flash.runtime.assembler import Assembly, assemble, assembler_version, explain, parse_log
from tests.support import doubling

TARGETS = ("sm_90", "sm_90a", "sm_120", "sm_120a")


@pytest.mark.parametrize("target", TARGETS)
def test_assembles_for_each_target(target: str) -> None:
    """The same instructions, printed for each target, become an ELF image with known registers."""
    made = assemble(doubling.ptx(target=target), target)
    assert made.cubin.startswith(b"\x7fELF")
    (entry,) = made.entries
    assert entry.name == "twice"
    assert 4 <= entry.registers <= 40
    assert (entry.stack_bytes, entry.spill_bytes, entry.shared_bytes) == (0, 0, 0)
    assert "twice: " in str(made)


def test_reports_each_entry() -> None:
    """Registers, static shared memory and stack are those of the entry they stand under."""
    first = doubling.ptx()
    second = first[first.index(".visible") :].replace("twice", "again")
    shared = second.replace("{\n", "{\n    .shared .align 16 .b8 slab[256];\n", 1)
    used = shared.replace("// term: (Add x x)\n", "st.shared.u32 [slab], %r4;\n    bar.sync 0;\n")
    made = assemble(first + used, "sm_120")
    assert {entry.name: entry.shared_bytes for entry in made.entries} == {"twice": 0, "again": 256}


def test_parses_spills_and_stack() -> None:
    log = (
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function 'fold' for 'sm_120'\n"
        "ptxas info    : Function properties for fold\n"
        "ptxas         .     48 bytes stack frame, 40 bytes spill stores, 56 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size\n"
        "info    : used 255 registers, used 3 barriers, 0 stack, 256 bytes smem, 0 bytes lmem\n"
    )
    (entry,) = parse_log(log)
    assert (entry.registers, entry.stack_bytes, entry.shared_bytes) == (255, 48, 0)
    assert (entry.spill_store_bytes, entry.spill_load_bytes, entry.spill_bytes) == (40, 56, 96)


def test_a_refusal_shows_the_line_and_its_term() -> None:
    broken = doubling.ptx().replace("add.rn.f32 %f1, %f0, %f0;", "add.rn.f32 %f1, %f0, %rd0;")
    at = next(i for i, line in enumerate(broken.splitlines(), 1) if "%f0, %rd0" in line)
    with pytest.raises(AssemblyError) as caught:
        assemble(broken, "sm_120")
    message = str(caught.value)
    assert re.match(r"nvJitLink \d+\.\d+.* refused the PTX for sm_120:", message)
    assert f"line {at}: Arguments mismatch for instruction 'add'" in message
    assert "    add.rn.f32 %f1, %f0, %rd0;" in message
    assert "from // term: (Add x x)" in message


def test_a_refusal_of_a_broken_module_shows_the_log() -> None:
    with pytest.raises(AssemblyError, match=r"refused the PTX for sm_90:\n.*target"):
        assemble(doubling.ptx(target="sm_120"), "sm_90")


def test_many_complaints_are_cut() -> None:
    log = "\n".join(f"ptxas x, line {line}; error   : bad" for line in range(1, 12))
    assert explain(log, "nop;\n" * 11, "sm_120", "nvJitLink 13.0").endswith("and 3 more")


def test_unknown_target_is_an_error() -> None:
    with pytest.raises(AssemblyError, match="got target 'sm_999'"):
        assemble(doubling.ptx(), "sm_999")


def test_stored_form_reads_back() -> None:
    made = assemble(doubling.ptx(), "sm_120")
    assert Assembly.from_bytes(made.to_bytes()) == made
    assert made.assembler == assembler_version()


def test_what_the_assembler_leaves_undone_is_told() -> None:
    """In-process assembly is for linking, which fixes the registers of a kernel once for all."""
    from egraph_flash import optimize
    from egraph_flash.notices import RemarkWarning
    from egraph_flash.rungs import pins_by_rung
    from tests.support.forms import attention

    pins = pins_by_rung(64, "f16")["producer"]
    kernel = optimize(attention(1, 1, 128, 256, 64), "sm_90a", pins)
    assert "setmaxnreg.dec.sync.aligned.u32 24;" in kernel.ptx
    with pytest.warns(RemarkWarning, match="C7504.*setmaxnreg"):
        assert kernel.assembly.remarks
    plain = optimize(attention(1, 1, 128, 256, 64), "sm_90", pins)
    assert "setmaxnreg" not in plain.ptx
    assert plain.assembly.remarks == ()
