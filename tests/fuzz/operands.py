"""The axes and tensors of one case, each tensor made once and known by its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from egraph_flash import Axis, Tensor, boolean, f32, i32, where
from egraph_flash.dtypes import Dtype

HINT_OFF = 3  # a hint is never the length itself


@dataclass
class Operands:
    """q[b, h, m, d], k and v[b, g, n, d or e], where `group` heads h share one g."""

    axes: dict[str, Axis]
    group: int
    dtype: Dtype
    tensors: dict[str, Tensor] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)  # where an operand is not 0

    def axis(self, name: str) -> Axis:
        return self.axes[name]

    def tensor(self, name: str, axes: str, dtype: Dtype = f32) -> Tensor:
        """The tensor over axes that are named by a letter each."""
        if name not in self.tensors:
            self.tensors[name] = Tensor(name, tuple(self.axes[a] for a in axes), dtype)
        return self.tensors[name]

    def heads(self, name: str, axes: str) -> Any:
        """An operand of the keys' heads, as each of the queries' heads reads it."""
        if self.group == 1:
            return self.tensor(name, axes.replace("g", "h"), self.dtype).expr
        made = self.tensor(name, axes, self.dtype)
        indices = {"g": self.axes["h"] // self.group}
        return made[tuple(indices.get(a, self.axes[a].index) for a in axes)]

    def scores(self, other: str = "") -> Any:
        """Σ q k over d; `other` names further queries and keys."""
        q = self._visible(f"q{other}", self.tensor(f"q{other}", "bhmd", self.dtype))
        return (q * self.heads(f"k{other}", "bgnd")).sum(self.axes["d"])

    @property
    def values(self) -> Any:
        return self._visible("v", self.heads("v", "bgne"))

    def _visible(self, name: str, operand: Any) -> Any:
        return where(self.seen[name], operand, 0.0) if name in self.seen else operand

    def truths(self, name: str, axes: str) -> Any:
        return self.tensor(name, axes, boolean).expr

    def integers(self, name: str, axes: str) -> Tensor:
        return self.tensor(name, axes, i32)


def axis_of(name: str, size: int, symbolic: bool) -> Axis:
    """The axis; a symbolic one's hint is near its length, not the length itself."""
    if symbolic:
        return Axis(name, f"len_{name}", hint=size + HINT_OFF)
    return Axis(name, size)
