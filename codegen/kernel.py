"""How a scheduled plan becomes one PTX module with a launch for each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..absence import Kinds, absence_of
from ..axes import size_of
from ..dtypes import DTYPES
from ..machines import machine
from ..plan import Buffer, Launch, Plan, Pointer, Role
from ..scheduling import Scheduled
from .arena import arena
from .lowering import Lowered, lower
from .ptx import PTX_VERSION, Module
from .ptx_text import emit
from .residency import Residency
from .tile import TileProgram
from .tiling import tile_program


@dataclass(frozen=True)
class Generated:
    """The plan that runs, and the tile programs that it was made of."""

    plan: Plan
    tiles: tuple[TileProgram, ...]


def generate(stages: Sequence[Scheduled], inputs: Sequence[Any], target: str) -> Generated:
    """The PTX module and launches of the stages, which read `inputs` (their `Array` terms)."""
    absent: dict[str, Kinds] = {}
    programs: list[TileProgram] = []
    lowered: list[Lowered] = []
    for index, each in enumerate(stages):
        program = tile_program(
            each.stage,
            f"stage{index}",
            each.candidate.inner,
            each.candidate.outer,
            each.candidate.depth_steps,
            each.choices,
        )
        programs.append(program)
        memory = arena(
            each.stage,
            each.candidate.inner,
            each.candidate.outer,
            each.choices,
        )
        lowered.append(lower(program, memory, absent, _residency(each, target)))
        for made in each.stage.targets:
            known = {
                t.array: absent[t.name] for s in stages for t in s.stage.targets if t.name in absent
            }
            absent[made.name] = absence_of(made.expr, known)
    module = Module(PTX_VERSION, target, tuple(each.entry for each in lowered))
    buffers = (
        *(_buffer(array, "input") for array in inputs),
        *(
            _buffer(made.array, "output" if made.is_output else "workspace")
            for each in stages
            for made in each.stage.targets
        ),
    )
    plan = Plan(emit(module), target, tuple(map(_launch, lowered)), buffers)
    return Generated(plan, tuple(programs))


def _residency(each: Scheduled, target: str) -> Residency:
    chip = machine(target)
    return Residency(
        resident_blocks=each.cost.resident_ctas * chip.sms,
        registers=chip.registers,
        reassigns=chip.reassigns,
    )


def _launch(each: Lowered) -> Launch:
    return Launch(
        entry=each.entry.name,
        grid=each.grid,
        block=each.block,
        shared_bytes=each.shared_bytes,
        arguments=(*(Pointer(name) for name in each.arrays), *each.maps),
        instructions=each.instructions,
    )


def _buffer(array: Any, role: Role) -> Buffer:
    name, dtype, extents = array.args
    return Buffer(name, tuple(map(size_of, extents)), DTYPES[dtype], role)
