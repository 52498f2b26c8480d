"""How boxes of arrays reach shared memory: tensor maps as parameters, cp.async.bulk.tensor."""

from __future__ import annotations

from typing import Any

from .machine import Array, Tensors
from .row import instr

BULK = "PTX ISA, Asynchronous Copy: cp.async.bulk.tensor (.tile, global to shared)"


@instr(
    "mov.b64 $d, $a;",
    name="mov_param",
    d="u64",
    a="symbol param",
    counter="move",
    source="PTX ISA, Data Movement and Conversion: mov (of a kernel parameter's address)",
)
def _mov_param(a: Array) -> Array:
    """d = the address of a parameter, within parameter space."""
    return a


@instr(
    "cvta.param.u64 $d, $a;",
    d="u64",
    a="u64 register",
    counter="move",
    source="PTX ISA, Data Movement and Conversion: cvta (.param of a kernel)",
)
def _cvta_param(tensors: Tensors, a: Array) -> Array:
    """d = a parameter's address as a generic one."""
    return tensors.generic(a)


@instr(
    "prefetch.tensormap [$map];",
    map="u64 register",
    counter="tma",
    sm=90,
    source="PTX ISA, Data Movement and Conversion: prefetch (.tensormap)",
)
def _prefetch(tensors: Tensors, map: Array) -> None:
    """The map at a generic address will be used: changes no bytes."""
    tensors.prefetch(map)


def _load(rank: int, hinted: bool) -> None:
    def plain(tensors: Tensors, a: Array, map: Array, at: Array, bar: Array) -> None:
        """The map's box at those elements goes to shared a, dimension 0 innermost; past the array
        are zeros. All its bytes count towards the phase of the barrier at bar."""
        tensors.load(a, map, at, bar)

    def with_hint(tensors: Tensors, a: Array, map: Array, at: Array, bar: Array,
                  policy: Array) -> None:  # fmt: skip
        """The same; the policy changes no bytes."""
        tensors.load(a, map, at, bar)

    hint = ".L2::cache_hint" if hinted else ""
    policy: dict[str, Any] = {"policy": "u64 register"} if hinted else {}
    instr(
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        f"{hint} [$a], [$map, {{$at}}], [$bar]{', $policy' if hinted else ''};",
        name=f"cp_async_bulk_tensor_{rank}d{'_hint' * hinted}",
        counter="tma",
        access_bytes=16,
        sm=90,
        source=BULK,
        a="address shared",
        map="u64 register",
        at=f"s32 x{rank}" if rank > 1 else "s32",
        bar="address shared",
        **policy,
    )(with_hint if hinted else plain)


for _rank in range(1, 6):
    _load(_rank, hinted=False)
    _load(_rank, hinted=True)
