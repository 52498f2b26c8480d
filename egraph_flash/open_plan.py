"""What of a plan is left open until a call: lengths, the strides of arrays, and what follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .dtypes import Dtype
from .plan import Buffer, Dim3, Launch, Plan, Pointer, Role, Scalar
from .tensor_map import Swizzle, TensorMap

Extent = int | str  # a number, or the name of a length that a call gives
Lengths = Mapping[str, int]


@dataclass(frozen=True)
class OpenBuffer:
    """An array in global memory: `shape` in elements of `dtype`, outermost first.

    `strides` are in elements, None where a call's array says. `alignment_bytes` divides the
    address of the first element, and each stride that the array says.
    """

    name: str
    shape: tuple[Extent, ...]
    dtype: Dtype
    role: Role
    strides: tuple[int | None, ...]
    alignment_bytes: int

    def at(self, lengths: Lengths, strides: Mapping[str, tuple[int, ...]]) -> Buffer:
        shape = tuple(number(extent, lengths) for extent in self.shape)
        steps = strides.get(self.name) or self._tight(shape)
        return Buffer(self.name, shape, self.dtype, self.role, steps)

    def takes(self, shape: Sequence[int], strides: Sequence[int], address: int) -> bool:
        """Whether an array of a call lies as this buffer says, for its shape at that call."""
        if 0 in shape:
            return True
        size_bytes = self.dtype.size_bytes
        if address % self.alignment_bytes:
            return False
        return all(
            given == wanted
            if wanted is not None
            else given >= 0 and given * size_bytes % self.alignment_bytes == 0
            for extent, given, wanted in zip(shape, strides, self.strides, strict=True)
            if extent > 1
        )

    def _tight(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Its strides, those that a call says as small as rows without overlap permit."""
        unit = max(self.alignment_bytes // self.dtype.size_bytes, 1)
        steps: list[int] = []
        inside = 1
        for extent, stride in zip(reversed(shape), reversed(self.strides), strict=True):
            whole = inside if not steps else -(-inside // unit) * unit
            steps.append(whole if stride is None else stride)
            inside = steps[-1] * max(extent, 1)
        return tuple(reversed(steps))


@dataclass(frozen=True)
class Length:
    """A kernel argument: a length of the call (PTX `.s32`)."""

    name: str


@dataclass(frozen=True)
class Stride:
    """A kernel argument: the bytes between neighbours along `dim` of a buffer (PTX `.s64`)."""

    buffer: str
    dim: int


@dataclass(frozen=True)
class BufferMap:
    """A tensor map over a whole buffer. `box` counts elements, dimension 0 innermost: the last."""

    buffer: str
    dtype: Dtype
    box: tuple[int, ...]
    swizzle: Swizzle

    def at(self, held: Buffer) -> TensorMap:
        """The map over the buffer; ScheduleError for what the hardware cannot describe.

        A dimension of one element may have any stride.
        """
        size = self.dtype.size_bytes
        pairs = zip(held.shape, held.strides, strict=True)
        steps = [0 if extent == 1 else stride * size for extent, stride in pairs]
        sizes = tuple(max(extent, 1) for extent in reversed(held.shape))
        outer = tuple(reversed(steps[:-1]))
        return TensorMap(self.buffer, self.dtype, sizes, outer, self.box, self.swizzle)

    def __str__(self) -> str:
        box = "×".join(map(str, reversed(self.box)))
        return f"{self.buffer} as boxes of {box} in {self.dtype}, swizzle {self.swizzle}"


OpenArgument = Pointer | Scalar | Length | Stride | TensorMap | BufferMap


@dataclass(frozen=True)
class Tiles:
    """How many blocks a launch has: the product of ceil(extent / per), `most` at most."""

    factors: tuple[tuple[Extent, int], ...]
    most: int | None = None

    def at(self, lengths: Lengths) -> int:
        count = math.prod(-(-number(extent, lengths) // per) for extent, per in self.factors)
        return count if self.most is None else min(count, self.most)


@dataclass(frozen=True)
class OpenLaunch:
    """One kernel launch whose grid and arguments follow from a call; see `Launch`."""

    entry: str
    tiles: Tiles
    block: Dim3
    shared_bytes: int
    arguments: tuple[OpenArgument, ...]
    instructions: Mapping[str, float] = field(default_factory=dict, compare=False)

    def at(self, lengths: Lengths, buffers: Mapping[str, Buffer]) -> Launch:
        arguments = tuple(_given(each, lengths, buffers) for each in self.arguments)
        grid = (self.tiles.at(lengths), 1, 1)
        return Launch(self.entry, grid, self.block, self.shared_bytes, arguments, self.instructions)


@dataclass(frozen=True)
class OpenPlan:
    """One PTX module for calls of all lengths; `hints` are typical ones, by name."""

    ptx: str
    target: str
    launches: tuple[OpenLaunch, ...]
    buffers: tuple[OpenBuffer, ...]
    hints: Mapping[str, int] = field(default_factory=dict)

    def at(self, lengths: Lengths, strides: Mapping[str, tuple[int, ...]]) -> Plan:
        """The plan of one call: its lengths by name, and its arrays' strides in elements.

        Buffers that `strides` does not name lie as close as their own strides permit. Raises
        ScheduleError for a tensor map that these numbers rule out.
        """
        buffers = tuple(buffer.at(lengths, strides) for buffer in self.buffers)
        known = {buffer.name: buffer for buffer in buffers}
        launches = tuple(launch.at(lengths, known) for launch in self.launches)
        return Plan(self.ptx, self.target, launches, buffers)

    @property
    def typical(self) -> Plan:
        """The plan of a call with the hinted lengths and arrays without gaps."""
        return self.at(self.hints, {})


def number(extent: Extent, lengths: Lengths) -> int:
    return lengths[extent] if isinstance(extent, str) else extent


def _given(
    argument: OpenArgument, lengths: Lengths, buffers: Mapping[str, Buffer]
) -> Pointer | Scalar | TensorMap:
    match argument:
        case Length(name):
            return Scalar("s32", lengths[name])
        case Stride(buffer, dim):
            held = buffers[buffer]
            return Scalar("s64", held.strides[dim] * held.dtype.size_bytes)
        case BufferMap(buffer):
            return argument.at(buffers[buffer])
        case _:
            return argument
