"""What the ladder computes: attention at a shape, written by its naive definition."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .axes import Axis
from .dtypes import DTYPES
from .errors import InputError
from .expressions import Tensor, inf, where
from .loading import Loaded
from .peers import Peer
from .reductions import softmax

NAME = "attention"
Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Problem:
    """softmax(q kᵀ / √d) v over [batch, heads, rows, depth] inputs of one dtype.

    The output has it too, unless `output` names another.
    A benchmark knows what it measures; the compiler sees the expression alone.
    """

    shape: Shape
    dtype: str = "f16"
    causal: bool = False
    output: str | None = None

    @property
    def expression(self) -> Any:
        batch, heads, rows, depth = self.shape
        b, h, m, n, d, e = Axis.many(b=batch, h=heads, m=rows, n=rows, d=depth, e=depth)
        dtype = DTYPES[self.dtype]
        q, k = Tensor("q", (b, h, m, d), dtype), Tensor("k", (b, h, n, d), dtype)
        v = Tensor("v", (b, h, n, e), dtype)
        s = (q * k).sum(d) * self.scale
        if self.causal:
            s = where(n.index <= m.index, s, -inf)
        o = (softmax(s, n) * v).sum(n)
        return o if self.output is None else o.cast(DTYPES[self.output])

    @property
    def scale(self) -> float:
        return float(self.shape[3] ** -0.5)

    @property
    def flop(self) -> float:
        """Multiplications and additions of both products; half of them under a causal mask."""
        batch, heads, rows, depth = self.shape
        return 4.0 * batch * heads * rows * rows * depth * (0.5 if self.causal else 1.0)

    @property
    def loaded(self) -> Loaded:
        """As a file would define it, with PyTorch's kernels beside it."""
        module = ModuleType(NAME)
        peer = Peer("q", "k", "v", scale=self.scale, causal=self.causal)
        vars(module)["PEERS"] = {NAME: peer}
        return Loaded(NAME, self.expression, module)

    def __str__(self) -> str:
        output = "" if self.output is None else f", output {self.output}"
        mask = ", causal" if self.causal else ""
        return f"[{', '.join(map(str, self.shape))}] {self.dtype}{mask}{output}"


def parse_shape(text: str) -> Shape:
    """A shape from `B,H,S,D`.

    >>> parse_shape("1,8,4096,64")
    (1, 8, 4096, 64)
    """
    parts = text.split(",")
    if len(parts) != 4 or not all(p.strip().isascii() and p.strip().isdigit() for p in parts):
        raise InputError(f"shape: got {text!r}, wants B,H,S,D, such as 1,8,4096,64")
    batch, heads, rows, depth = map(int, parts)
    if 0 in (batch, heads, rows, depth):
        raise InputError(f"shape: got {text!r}, wants four numbers above zero")
    return batch, heads, rows, depth
