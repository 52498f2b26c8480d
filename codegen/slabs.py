"""How a tile lies in shared memory: rows end to end, padded, or with their chunks permuted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Swizzle = Literal["none", "32B", "64B", "128B"]

CHUNK_BYTES = 16  # a row of an 8 × 8 matrix of 16-bit elements: what ldmatrix reads a lane
SPANS: dict[int, Swizzle] = {128: "128B", 64: "64B", 32: "32B"}


@dataclass(frozen=True)
class SlabLayout:
    """`rows` rows of `row_bytes`, in boxes of `span_bytes` of each row, box after box.

    Rows of a box are `pitch_bytes` apart. With a swizzle, pitch and span are equal, and the
    number of a 16-byte chunk inside its span is XORed with bits of the row number, so that the
    same chunk of 8 consecutive rows lies in 8 different places modulo 128 bytes:

        128B: chunk bits 0-2 ^= row bits 0-2     64B: bits 0-1 ^= row bits 1-2     32B: 0 ^= 2
    """

    rows: int
    row_bytes: int
    span_bytes: int
    pitch_bytes: int
    swizzle: Swizzle = "none"

    @property
    def boxes(self) -> int:
        return -(-self.row_bytes // self.span_bytes)

    @property
    def box_bytes(self) -> int:
        return self.rows * self.pitch_bytes

    @property
    def size_bytes(self) -> int:
        return self.boxes * self.box_bytes

    @property
    def align_bytes(self) -> int:
        """Of the slab's address: the swizzle is a function of absolute addresses."""
        return {"none": 128, "32B": 256, "64B": 512, "128B": 1024}[self.swizzle]

    @property
    def chunk_bits(self) -> int:
        """How many bits of the chunk number the swizzle changes."""
        return {"none": 0, "32B": 1, "64B": 2, "128B": 3}[self.swizzle]

    def offset(self, row: int, byte: int) -> int:
        """Where a byte of a row lies, from the start of the slab.

        >>> slab_layout("xor", 8, 128).offset(3, 16)
        416
        """
        box, inside = divmod(byte, self.span_bytes)
        mask = (row & 7) >> (3 - self.chunk_bits)
        swizzled = inside ^ mask * CHUNK_BYTES
        return box * self.box_bytes + row * self.pitch_bytes + swizzled


def slab_layout(kind: str, rows: int, row_bytes: int) -> SlabLayout:
    """The layout of a kind of slab: `raw`, `pad16` or `xor`; rows are rounded up to 16 bytes.

    >>> slab_layout("pad16", 64, 128).pitch_bytes, slab_layout("xor", 64, 192).boxes
    (144, 3)
    """
    row_bytes = -(-row_bytes // CHUNK_BYTES) * CHUNK_BYTES
    if kind == "xor" and row_bytes > CHUNK_BYTES:
        row_bytes = -(-row_bytes // 32) * 32
        span = next(each for each in SPANS if row_bytes % each == 0)
        return SlabLayout(rows, row_bytes, span, span, SPANS[span])
    spreads = row_bytes // CHUNK_BYTES % 2 == 1  # 8 rows then start in 8 different banks
    padding = CHUNK_BYTES if kind == "pad16" and not spreads else 0
    return SlabLayout(rows, row_bytes, row_bytes, row_bytes + padding)
