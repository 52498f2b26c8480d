"""What a cubin says to the machine: its SASS, as NVIDIA's disassembler prints it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..errors import AssemblyError

TOOLS = {"nvdisasm": ["-c"], "cuobjdump": ["-sass"]}


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin; AssemblyError where no disassembler is found or it fails."""
    tool, options = _tool()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        done = subprocess.run([tool, *options, path], capture_output=True, text=True)
    if done.returncode:
        raise AssemblyError(f"{tool}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _tool() -> tuple[str, list[str]]:
    for name, options in TOOLS.items():
        on_path = shutil.which(name) or _in_packages(name)
        if on_path:
            return on_path, options
    raise AssemblyError(
        "sass: got neither nvdisasm nor cuobjdump on PATH or among the pip packages; "
        "pip install 'egraph-flash[sass]', or install the CUDA toolkit"
    )


def _in_packages(name: str) -> str | None:
    """The tool as NVIDIA's pip packages install it: nvidia/cu13/bin/NAME beside the libraries."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob(f"*/bin/{name}*"), reverse=True):
            if path.stem == name:
                return str(path)
    return None
