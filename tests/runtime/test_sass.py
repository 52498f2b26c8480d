"""The disassembler: what a cubin says, and what is said where there is none."""

from __future__ import annotations

import shutil

import pytest

from egraph_flash.errors import AssemblyError
from egraph_flash.runtime import assemble, sass
from tests.support import doubling


def test_shows_the_instructions() -> None:
    text = sass.disassemble(assemble(doubling.ptx(), "sm_120").cubin)
    assert "sm_120" in text
    assert "FADD" in text


def test_no_disassembler_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sass, "_in_packages", lambda name: None)
    with pytest.raises(
        AssemblyError, match=r"neither nvdisasm nor cuobjdump.*egraph-flash\[sass\]"
    ):
        sass.disassemble(b"")


def test_no_cubin_is_a_clear_error() -> None:
    with pytest.raises(AssemblyError, match="exit code"):
        sass.disassemble(b"no cubin")
