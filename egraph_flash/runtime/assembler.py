"""What the assembler makes of PTX text: a cubin, and the registers and memory of each entry."""

from __future__ import annotations

import functools
import importlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import AssemblyError


@dataclass(frozen=True)
class Entry:
    """What one kernel of the module takes: registers a thread, and bytes a thread or a block."""

    name: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.registers} registers, {self.shared_bytes} static shared bytes, "
            f"{self.stack_bytes} stack bytes, {self.spill_bytes} spilled bytes"
        )


@dataclass(frozen=True)
class Assembly:
    """A cubin for `target`, what its entries take, and which assembler made it."""

    cubin: bytes
    target: str
    entries: tuple[Entry, ...]
    assembler: str
    remarks: tuple[str, ...] = ()  # what it says that it could not do as it was told

    def __str__(self) -> str:
        size = f"{len(self.cubin)} bytes for {self.target}, by {self.assembler}"
        return "\n".join([size, *map(str, self.entries)])

    @property
    def spill_bytes(self) -> int:
        return sum(entry.spill_bytes for entry in self.entries)

    def to_bytes(self) -> bytes:
        """One line of JSON, then the cubin; `from_bytes` reads it back."""
        head = {
            "target": self.target,
            "assembler": self.assembler,
            "entries": [asdict(entry) for entry in self.entries],
            "remarks": list(self.remarks),
        }
        return json.dumps(head).encode() + b"\n" + self.cubin

    @classmethod
    def from_bytes(cls, stored: bytes) -> Assembly:
        head, _, cubin = stored.partition(b"\n")
        read = json.loads(head)
        entries = tuple(Entry(**entry) for entry in read["entries"])
        return cls(cubin, read["target"], entries, read["assembler"], tuple(read["remarks"]))


@functools.cache
def assembler_version() -> str:
    """The in-process assembler's version, with its package's where pip installed it.

    Raises AssemblyError where nvJitLink cannot be loaded.
    """
    try:
        major, minor = _nvjitlink().version()
    except Exception as error:
        raise AssemblyError(
            f"assembler: nvJitLink cannot be loaded ({error}); pip install nvidia-nvjitlink"
        ) from error
    from importlib import metadata

    try:
        package = f" (nvidia-nvjitlink {metadata.version('nvidia-nvjitlink')})"
    except metadata.PackageNotFoundError:
        package = ""
    return f"nvJitLink {major}.{minor}{package}"


def assemble(ptx: str, target: str) -> Assembly:
    """Turn PTX text into a cubin for `target` (such as "sm_120"), without GPU or driver.

    Raises AssemblyError that shows the refused lines, each under the term it came from.
    """
    version = assembler_version()
    link = _nvjitlink()
    try:
        # a result from nvJitLink's own cache comes without a log, hence without register counts
        handle = link.create(3, [f"-arch={target}", "-verbose", "-no-cache"])
    except link.nvJitLinkError as error:
        raise AssemblyError(f"assembler: got target {target!r}: {error}; {version}") from error
    try:
        cubin, log = _link(link, handle, ptx, target, version)
    finally:
        link.destroy(handle)
    return Assembly(cubin, target, parse_log(log), version, remarks(log))


def _link(link: Any, handle: int, ptx: str, target: str, version: str) -> tuple[bytes, str]:
    image = ptx.encode() + b"\0"
    try:
        link.add_data(handle, link.InputType.PTX, image, len(image), "kernel.ptx")
        link.complete(handle)
    except link.nvJitLinkError as error:
        log = _read(handle, link.get_error_log_size, link.get_error_log)
        raise AssemblyError(explain(log or str(error), ptx, target, version)) from error
    cubin = bytearray(link.get_linked_cubin_size(handle))
    link.get_linked_cubin(handle, cubin)
    return bytes(cubin), _read(handle, link.get_info_log_size, link.get_info_log)


def _read(handle: int, size: Any, get: Any) -> str:
    log = bytearray(size(handle))
    if log:
        get(handle, log)
    return log.decode(errors="replace").rstrip("\0\n ")


def _nvjitlink() -> Any:
    return importlib.import_module("cuda.bindings.nvjitlink")


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"^ptxas info\s*: Used (\d+) registers(.*)$", re.MULTILINE)
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_log(log: str) -> tuple[Entry, ...]:
    """The entries in an assembler's verbose log, in its order."""
    found = list(_ENTRY.finditer(log))
    if not found:
        raise AssemblyError(f"assembler: got a log that names no entry: {log!r}")
    ends = [match.start() for match in found[1:]] + [len(log)]
    return tuple(
        _entry(match.group(1), log[match.end() : end])
        for match, end in zip(found, ends, strict=True)
    )


def _entry(name: str, part: str) -> Entry:
    stack, used = _STACK.search(part), _USED.search(part)
    if stack is None or used is None:
        raise AssemblyError(f"assembler: got no registers and stack for {name!r} in its log {part}")
    shared = _SHARED.search(used.group(2))
    return Entry(
        name=name,
        registers=int(used.group(1)),
        shared_bytes=int(shared.group(1)) if shared else 0,
        stack_bytes=int(stack.group(1)),
        spill_store_bytes=int(stack.group(2)),
        spill_load_bytes=int(stack.group(3)),
    )


_REMARK = re.compile(r"\((C\d+)\) (.+)")
_COMPLAINT = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")
_SHOWN = 8


def remarks(log: str) -> tuple[str, ...]:
    """The assembler's numbered remarks, each once.

    >>> remarks("ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored.")
    ("C7504: Potential Performance Loss: 'setmaxnreg' ignored.",)
    """
    return tuple(dict.fromkeys(f"{code}: {said}" for code, said in _REMARK.findall(log)))


def explain(log: str, ptx: str, target: str, version: str) -> str:
    """The assembler's complaints, each with its PTX line and the `// term` above that line."""
    lines = ptx.splitlines()
    complaints = sorted({(int(at), text) for at, text in _COMPLAINT.findall(log)})
    shown = [_point(lines, at, text) for at, text in complaints[:_SHOWN]]
    if len(complaints) > _SHOWN:
        shown.append(f"  and {len(complaints) - _SHOWN} more")
    return "\n".join([f"{version} refused the PTX for {target}:", *(shown or [log])])


def _point(lines: list[str], at: int, text: str) -> str:
    found = [f"  line {at}: {text}"]
    if not 1 <= at <= len(lines):
        return found[0]
    found.append(f"    {lines[at - 1].strip()}")
    above = (line.strip() for line in reversed(lines[: at - 1]))
    term = next((line for line in above if line.startswith("//")), None)
    return "\n".join(found if term is None else [*found, f"    from {term}"])
