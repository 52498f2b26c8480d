"""One stage on one geometry, realized with any values of its knobs, without a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from egraph_flash.candidates import Candidate, candidates
from egraph_flash.codegen.kernel import generate
from egraph_flash.cost import predict
from egraph_flash.extraction import extract
from egraph_flash.knobs import KNOBS
from egraph_flash.machines import machine
from egraph_flash.preconditions import why_not
from egraph_flash.realizations import fitted, honours, traits
from egraph_flash.request import Request, request_for
from egraph_flash.searching import Scheduled
from egraph_flash.stages import Stage, split
from egraph_flash.workload import work_of

CHIP = machine("sm_90")


@dataclass(frozen=True)
class Realized:
    """The only stage of an expression, laid out for `rows` row warps of one row atom each."""

    request: Request
    stage: Stage
    candidate: Candidate

    @classmethod
    def of(cls, expr: Any, rows: int = 4, block: int = 32) -> Realized:
        request = request_for(expr, CHIP.target, {}, "test")
        found = extract(tuple(root.expr for root in request.outputs), CHIP, {})
        roots = [
            replace(root, expr=term)
            for root, term in zip(request.outputs, found.roots, strict=True)
        ]
        (stage,) = split(roots, [array.args[0] for array in request.inputs])
        laid_out = [
            each
            for each in candidates(stage)
            if (each.inner.row_warps, each.inner.row_atoms, each.block) == (rows, 1, block)
        ]
        on_tensor_cores = [each for each in laid_out if "mma" in each.inner.atom]
        return cls(request, stage, (on_tensor_cores or laid_out)[0])

    def ptx(self, values: Mapping[str, str], pins: Mapping[str, str]) -> str | None:
        """The text with these values, or None where the pins among them are refused."""
        given = {name: KNOBS[name].parse(text) for name, text in {**values, **pins}.items()}
        choices = fitted(self.stage, traits(self.stage, self.candidate), given)
        if not honours(choices, {name: given[name] for name in pins}):
            return None
        if why_not(self.stage, self.candidate, choices, CHIP) is not None:
            return None
        cost = predict(work_of(self.stage, self.candidate, choices), CHIP)
        scheduled = Scheduled(self.stage, self.candidate, choices, cost)
        return generate([scheduled], self.request.inputs, CHIP.target).plan.ptx
