"""How long a simulation takes: seconds from counts, so that a user can be told beforehand."""

from __future__ import annotations

from collections.abc import Mapping

from .batch import LANES

STEP_US = 6.0  # numpy's own overhead an instruction, whatever the number of warps
LANE_NS: dict[str, float] = {}
DEFAULT_LANE_NS = 5.0


def predicted_seconds(
    instructions: Mapping[str, float], warps: int, warps_at_once: int = 128
) -> float:
    """Seconds to simulate `warps` warps that each execute so many instructions of each class."""
    batches = -(-warps // warps_at_once)
    lanes = warps * LANES
    return sum(
        count * (batches * STEP_US * 1e-6 + lanes * LANE_NS.get(kind, DEFAULT_LANE_NS) * 1e-9)
        for kind, count in instructions.items()
    )
