"""How threads copy from global to shared memory without waiting: cp.async, its groups, policies."""

from __future__ import annotations

from typing import Any

import numpy as np

from .machine import Array, Copies
from .row import instr

ASYNC = "PTX ISA, Asynchronous Copy: "
EVICT_FIRST, EVICT_LAST = 0x12F0_0000_0000_0000, 0x14F0_0000_0000_0000


def _cp_async(cached: str, width: int, fills: bool, hinted: bool) -> None:
    def plain(copies: Copies, a: Array, b: Array) -> None:
        """The bytes at global b go to shared a, some time before a wait for them ends."""
        copies.copy(a, b, None)

    def filled(copies: Copies, a: Array, b: Array, size: Array) -> None:
        """The first size bytes at global b go to shared a, and zeros after them."""
        copies.copy(a, b, size)

    def plain_hinted(copies: Copies, a: Array, b: Array, policy: Array) -> None:
        """The bytes at global b go to shared a; the policy changes no bytes."""
        copies.copy(a, b, None)

    def filled_hinted(copies: Copies, a: Array, b: Array, size: Array, policy: Array) -> None:
        """The first size bytes at b go to a, and zeros after them; the policy changes no bytes."""
        copies.copy(a, b, size)

    meaning = (filled_hinted if fills else plain_hinted) if hinted else filled if fills else plain
    operands: dict[str, Any] = {"a": "address shared", "b": "address global"}
    operands |= {"size": "u32"} if fills else {}
    operands |= {"policy": "u64 register"} if hinted else {}
    tail = (", $size" if fills else "") + (", $policy" if hinted else "")
    hint = ".L2::cache_hint" if hinted else ""
    instr(
        f"cp.async.{cached}.shared.global{hint} [$a], [$b], {width}{tail};",
        name=f"cp_async_{cached}_{width}{'_zfill' * fills}{'_hint' * hinted}",
        counter="copy",
        access_bytes=width,
        source=ASYNC + "cp.async",
        **operands,
    )(meaning)


for _fills in (False, True):
    for _width in (4, 8, 16):
        _cp_async("ca", _width, _fills, hinted=False)
    _cp_async("cg", 16, _fills, hinted=False)
    for _cached in ("ca", "cg"):
        _cp_async(_cached, 16, _fills, hinted=True)


@instr("cp.async.commit_group;", counter="group", source=ASYNC + "cp.async.commit_group")
def _commit(copies: Copies) -> None:
    """The thread's copies since its last commit become a group, maybe an empty one."""
    copies.commit()


@instr(
    "cp.async.wait_group $n;",
    n="u32 immediate",
    counter="group",
    source=ASYNC + "cp.async.wait_group",
)
def _wait_group(copies: Copies, n: Array) -> None:
    """All groups of the thread but its latest n are complete, and the thread sees their bytes."""
    copies.wait(n)


@instr("cp.async.wait_all;", counter="group", source=ASYNC + "cp.async.wait_all")
def _wait_all(copies: Copies) -> None:
    """All copies of the thread are complete, and the thread sees their bytes."""
    copies.wait_all()


def _createpolicy(kind: str, word: int) -> None:
    def meaning() -> Array:
        """d = the policy, for all accesses that name it."""
        return np.full((1, 1), word, np.uint64)

    instr(
        f"createpolicy.fractional.L2::{kind}.b64 $d;",
        name=f"createpolicy_{kind}",
        d="u64",
        counter="alu",
        source="PTX ISA, Data Movement and Conversion: createpolicy",
    )(meaning)


_createpolicy("evict_first", EVICT_FIRST)
_createpolicy("evict_last", EVICT_LAST)
