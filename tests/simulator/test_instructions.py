"""Does every instruction, run from its PTX text, give the bits that the manual says?"""

from __future__ import annotations

import numpy as np
import pytest

from egraph_flash import arithmetic, runtime
from egraph_flash.codegen.isa import ROWS, Instr
from egraph_flash.simulator import run
from tests.support.fresh import fresh_rng
from tests.support.instruction_probe import (
    THREADS,
    UNPROBED,
    Probe,
    probe,
    probed_rows,
    random_inputs,
)
from tests.support.references import Words, reference_of

Array = np.ndarray
rows = pytest.mark.parametrize("row", probed_rows(), ids=lambda row: row.name)


def simulate(made: Probe, inputs: dict[str, Array]) -> dict[str, Array]:
    buffers = made.buffers(inputs)
    outputs = [name for name in buffers if name.startswith("out_")]
    run(made.ptx, [made.launch], buffers, uninitialised=outputs, complete=outputs)
    return {name.removeprefix("out_"): buffers[name] for name in outputs}


def words_of(inputs: dict[str, Array], thread: int) -> Words:
    return {name: [int(word) for word in values[thread]] for name, values in inputs.items()}


@rows
def test_an_instruction_gives_the_manual_s_bits(row: Instr) -> None:
    made = probe(row)
    inputs = random_inputs(made, fresh_rng())
    got = simulate(made, inputs)
    of_thread, of_warp = reference_of(row)
    threads = [words_of(inputs, thread) for thread in range(THREADS)]
    if of_thread is not None:
        wanted = [of_thread(words) for words in threads]
    elif of_warp is not None:
        warps = [threads[first : first + 32] for first in range(0, THREADS, 32)]
        wanted = [words for warp in warps for words in of_warp(warp)]
    else:
        wanted = [None] * THREADS  # type: ignore[list-item]
        check_otherwise(row, inputs, got)
    for thread, words in enumerate(wanted):
        if words is not None:
            for name, values in words.items():
                found = [int(word) for word in got[name][thread]]
                assert found == values, (thread, threads[thread])


def check_otherwise(row: Instr, inputs: dict[str, Array], got: dict[str, Array]) -> None:
    """Rows without a reference in integers: special registers, parameters, approximations."""
    if row.name == "mov_special":
        assert (got["d"][:, 0] == np.arange(THREADS) % 64).all()
    elif row.name == "mov_symbol":
        assert set(got["d"].ravel()) == {1024}
    elif row.mnemonic.startswith("ld.param"):
        assert len(set(got["d"].ravel())) == 1
    else:
        a = inputs["a"].view(np.float32)
        found = got["d"].view(np.float32)
        with np.errstate(all="ignore"):
            if row.exact:
                name = row.name.removesuffix("_f32")
                assert (found.view(np.uint32) == getattr(arithmetic, name)(a).view(np.uint32)).all()
                return
            wide = a.astype(np.float64)
            true = {"lg2": np.log2, "tanh": np.tanh}[row.name.split("_")[0]](wide)
        normal = (np.abs(a) >= np.float32(2.0**-126)) & np.isfinite(a) & np.isfinite(true)
        assert np.allclose(found[normal], true[normal], rtol=1e-3, atol=1e-6)


def test_every_row_with_an_output_is_probed() -> None:
    names = {row.name for row in probed_rows()}
    missing = {name for name, row in ROWS.items() if row.outputs} - names
    assert missing == UNPROBED


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
def test_the_assembler_takes_every_probe(target: str) -> None:
    from egraph_flash.codegen.ptx_parse import parse
    from egraph_flash.codegen.ptx_text import emit

    entries = []
    for row in probed_rows():
        text = probe(row, target).ptx.replace("entry probe(", f"entry probe_{row.name}(")
        module = parse(text)
        assert emit(module) == text
        entries.append(text[text.index(".visible .entry") :])
    head = text[: text.index(".visible .entry")]
    assert len(runtime.assemble(head + "\n".join(entries), target).entries) == len(entries)


@pytest.mark.gpu
@rows
def test_the_gpu_gives_the_simulator_s_bits(row: Instr) -> None:
    """The same probe on the hardware; approximations without a model within their error."""
    target = runtime.present_target()
    assert target is not None
    made = probe(row, target)
    inputs = random_inputs(made, fresh_rng())
    wanted = simulate(made, inputs)
    buffers = made.buffers(inputs)
    runtime.run(made.ptx, [made.launch], buffers, target=target, name=row.name)
    for name, values in wanted.items():
        found = buffers[f"out_{name}"]
        if row.name == "mov_symbol" or row.mnemonic.startswith("ld.param"):
            continue  # addresses differ
        if row.exact:
            assert (found == values).all(), inputs
        else:
            nan = np.isnan(values.view(np.float32))
            assert (np.isnan(found.view(np.float32)) == nan).all()
            close = np.isclose(
                found.view(np.float32), values.view(np.float32), rtol=2e-3, atol=1e-5
            )
            assert (close | nan).all()
