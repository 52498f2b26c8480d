"""How a scheduled plan becomes one PTX module with a launch for each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..absence import Kinds, absence_of
from ..axes import extent_of
from ..dtypes import DTYPES
from ..layouts import alignment_of, strides_of
from ..machines import machine
from ..open_plan import OpenBuffer, OpenLaunch, OpenPlan
from ..plan import Role
from ..scheduling import Scheduled
from ..terms import subterms
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

    plan: OpenPlan
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
    plan = OpenPlan(
        emit(module), target, tuple(map(_launch, lowered)), buffers, _hints(stages, inputs)
    )
    return Generated(plan, tuple(programs))


def _residency(each: Scheduled, target: str) -> Residency:
    chip = machine(target)
    return Residency(
        resident_blocks=each.cost.resident_ctas * chip.sms,
        registers=chip.registers,
        reassigns=chip.reassigns,
    )


def _launch(each: Lowered) -> OpenLaunch:
    return OpenLaunch(
        entry=each.entry.name,
        tiles=each.tiles,
        block=each.block,
        shared_bytes=each.shared_bytes,
        arguments=each.arguments,
        instructions=each.instructions,
    )


def _buffer(array: Any, role: Role) -> OpenBuffer:
    name, dtype, extents, *_ = array.args
    shape = tuple(map(extent_of, extents))
    return OpenBuffer(name, shape, DTYPES[dtype], role, strides_of(array), alignment_of(array))


def _hints(stages: Sequence[Scheduled], inputs: Sequence[Any]) -> dict[str, int]:
    """Typical lengths, by the name of the extent that a call gives."""
    targets = [target for stage in stages for target in stage.stage.targets]
    nodes = subterms(
        *(axis for target in targets for axis in target.axes), *(t.expr for t in targets)
    )
    extents = [node.args[1] for node in nodes if node.head == "Ax"]
    arrays = [*(node for node in nodes if node.head == "Array"), *inputs]
    extents += [extent for array in arrays for extent in array.args[2]]
    return {extent.args[0]: extent.args[1] for extent in extents if extent.head == "Symbol"}
