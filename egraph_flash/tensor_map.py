"""What a tensor map describes: a strided tensor in global memory, and the box that a copy moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .dtypes import Dtype
from .errors import ScheduleError

Swizzle = Literal["none", "32B", "64B", "128B"]

MAP_BYTES = 128  # of an encoded map, as a kernel parameter
MAP_ALIGNMENT_BYTES = 64  # of that parameter
ADDRESS_ALIGNMENT_BYTES = 16  # of the tensor's first element
MOST_DIMENSIONS = 5
MOST_SIZE = 1 << 32
MOST_BOX = 256  # elements in each dimension
MOST_STRIDE_BYTES = (1 << 40) - 16
STEP_BYTES = 16  # strides, and the inner extent of a box, are multiples of it

# bytes of a box's inner extent at most, and bytes after which the pattern repeats: a slab that
# starts there has its pattern at a fixed place, since the hardware XORs absolute shared addresses
# (CUDA programming guide, tensor memory access, swizzle modes; every box starts at 128 or more)
SPAN_BYTES: dict[Swizzle, int] = {"32B": 32, "64B": 64, "128B": 128}
_ALIGNMENT_BYTES: dict[Swizzle, int] = {"none": 128, "32B": 256, "64B": 512, "128B": 1024}


@dataclass(frozen=True)
class TensorMap:
    """A kernel argument by value (`.param .align 64 .b8 [128]`): the buffer it views, and how.

    `sizes` and `box` count elements, dimension 0 innermost and contiguous; `strides_bytes` are
    those of dimensions 1, 2, …; box coordinates past a size read as zeros. Every element of a box
    is taken (element strides of 1). Strides need not grow with the dimension.

    Raises ScheduleError for what the hardware cannot describe.
    Source: CUDA driver API, cuTensorMapEncodeTiled, with no interleave.
    """

    buffer: str
    dtype: Dtype
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: Swizzle

    def __post_init__(self) -> None:
        rank = len(self.sizes)
        if not 1 <= rank <= MOST_DIMENSIONS:
            raise self._refused("dimensions", rank, f"1 to {MOST_DIMENSIONS}")
        if len(self.strides_bytes) != rank - 1:
            raise self._refused(
                "strides", self.strides_bytes, f"{rank - 1}, for sizes of rank {rank}"
            )
        if len(self.box) != rank:
            raise self._refused("box", self.box, f"{rank} extents, one for each size")
        self._check("size", self.sizes, range(1, MOST_SIZE + 1))
        self._check("stride", self.strides_bytes, range(0, MOST_STRIDE_BYTES + 1, STEP_BYTES))
        self._check("box", self.box, range(1, MOST_BOX + 1))
        if self.swizzle not in _ALIGNMENT_BYTES:
            raise self._refused("swizzle", repr(self.swizzle), " or ".join(_ALIGNMENT_BYTES))
        if self.inner_bytes % STEP_BYTES:
            raise self._refused(
                "box", f"{self.inner_bytes} bytes innermost", f"a multiple of {STEP_BYTES} bytes"
            )
        span_bytes = SPAN_BYTES.get(self.swizzle)
        if span_bytes is not None and self.inner_bytes > span_bytes:
            raise self._refused(
                "box",
                f"{self.inner_bytes} bytes innermost",
                f"at most {span_bytes} bytes with the {self.swizzle} swizzle; take "
                f"{-(-self.inner_bytes // span_bytes)} boxes",
            )

    def _check(self, what: str, values: Sequence[int], legal: range) -> None:
        for dimension, value in enumerate(values, start=what == "stride"):
            if value not in legal:
                unit = " bytes" if what == "stride" else ""
                step = f", a multiple of {legal.step}" if legal.step > 1 else ""
                wanted = f"{legal[0]} to {legal[-1]}{unit}{step}"
                raise self._refused(f"{what} of dimension {dimension}", value, wanted)

    def _refused(self, what: str, got: object, wanted: str) -> ScheduleError:
        return ScheduleError(
            f"tensor map of {self.buffer!r}: {what}: got {got}, wants {wanted} "
            "(cuTensorMapEncodeTiled)"
        )

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def inner_bytes(self) -> int:
        """Of one row of a box, along dimension 0."""
        return self.box[0] * self.dtype.size_bytes

    @property
    def box_bytes(self) -> int:
        """What one copy writes to shared memory, and what its mbarrier has to expect.

        Elements past the tensor's edges are written, and counted, too.
        """
        return math.prod(self.box) * self.dtype.size_bytes

    @property
    def shared_alignment_bytes(self) -> int:
        """Where in shared memory a box has to start, for its swizzle to stand at a known place."""
        return _ALIGNMENT_BYTES[self.swizzle]

    def __str__(self) -> str:
        sizes, box = ("×".join(map(str, reversed(each))) for each in (self.sizes, self.box))
        return f"{self.buffer} as boxes of {box} in {self.dtype} {sizes}, swizzle {self.swizzle}"
