"""What text a module prints as: one statement a line, the same bytes for the same module."""

from __future__ import annotations

from collections.abc import Iterator

from .ptx import Comment, Entry, LabelMark, Module, Param, Shared
from .ptx_types import REGISTER_CLASSES

INDENT = "    "


def emit(module: Module) -> str:
    """The module as PTX; `parse` (codegen/ptx_parse.py) reads it back to an equal module."""
    major, minor = module.version
    lines = [f".version {major}.{minor}", f".target {module.target}", ".address_size 64", ""]
    if module.shared:
        lines += [shared_text(array) for array in module.shared] + [""]
    for entry in module.entries:
        lines += [*_entry_lines(entry), ""]
    return "\n".join(lines)


def shared_text(array: Shared) -> str:
    if array.size_bytes is None:
        return f".extern .shared .align {array.align_bytes} .b8 {array.name}[];"
    return f".shared .align {array.align_bytes} .b8 {array.name}[{array.size_bytes}];"


def param_text(param: Param) -> str:
    align = f".align {param.align_bytes} " if param.align_bytes else ""
    count = f"[{param.count}]" if param.count is not None else ""
    return f".param {align}.{param.type} {param.name}{count}"


def _entry_lines(entry: Entry) -> Iterator[str]:
    if entry.params:
        yield f".visible .entry {entry.name}("
        *first, last = (INDENT + param_text(param) for param in entry.params)
        yield from (each + "," for each in first)
        yield last
        yield ")"
    else:
        yield f".visible .entry {entry.name}()"
    if entry.reqntid:
        yield f".reqntid {', '.join(map(str, entry.reqntid))}"
    if entry.max_threads:
        yield f".maxntid {entry.max_threads}, 1, 1"
    if entry.maxnreg:
        yield f".maxnreg {entry.maxnreg}"
    if entry.minnctapersm:
        yield f".minnctapersm {entry.minnctapersm}"
    yield "{"
    for name, count in entry.registers().items():
        yield f"{INDENT}.reg .{name} {REGISTER_CLASSES[name].prefix}<{count}>;"
    for statement in entry.body:
        if isinstance(statement, Comment):
            yield f"{INDENT}// {statement.text}".rstrip()
        elif isinstance(statement, LabelMark):
            yield f"{statement.name}:"
        else:
            yield f"{INDENT}{statement}"
    yield "}"
