"""What of a PTX text matters: without comments, numbers of registers, and what nothing reads."""

from __future__ import annotations

import re

from egraph_flash.codegen.ptx import Comment, Entry, Instruction, LabelMark, Register
from egraph_flash.codegen.ptx_parse import parse

REGISTER = re.compile(r"%(p|rs|rd|r|f)\d+")


def live(ptx: str) -> str:
    """The instructions whose results are read, or that have none, and the limits of each entry."""
    return "\n".join(_live(entry) for entry in parse(ptx).entries)


def _live(entry: Entry) -> str:
    body = [each for each in entry.body if not isinstance(each, Comment)]
    while True:
        read = {r for each in body if isinstance(each, Instruction) for r in each.reads}
        kept = [each for each in body if not _is_dead(each, read)]
        if len(kept) == len(body):
            break
        body = kept
    head = f"{entry.reqntid} {entry.maxnreg} {entry.minnctapersm}"
    lines = [each.name if isinstance(each, LabelMark) else str(each) for each in body]
    return _renumbered("\n".join([head, *lines]))


def _is_dead(each: object, read: set[Register]) -> bool:
    if not isinstance(each, Instruction):
        return False
    written = list(each.writes)
    return bool(written) and read.isdisjoint(written)


def _renumbered(text: str) -> str:
    names: dict[str, str] = {}
    return REGISTER.sub(lambda r: names.setdefault(r[0], f"%{r[1]}{len(names)}"), text)
