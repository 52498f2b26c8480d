"""Which accesses of global memory race between the blocks of a launch.

For each cell the last writer is kept and the reader: which thread of which block, at which clock
(grid_order.py). An access of what another block wrote, or a write of what it read, races unless it
comes after it; atomics do not race with each other. Readers that were several threads are kept as
their block, or as several blocks, and nothing of another block comes after them: that may object
to a program that is right, never accept one that is wrong. Accesses within a block are not told
apart.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from .batch import Array, Rows
from .global_buffer import GlobalBuffer
from .grid_order import SEVERAL, SOME_THREAD, THREAD, GridOrder, Word, block_of, named
from .where import Where, objection

Way = Literal["ld", "ld.nc", "copy", "bulk copy"]
READS: dict[Way, str] = {
    "ld": "read of bytes",
    "ld.nc": "ld.global.nc of bytes",
    "copy": "copy of bytes",
    "bulk copy": "a bulk copy reads bytes",
}
UNORDERED = ("ld.nc", "bulk copy")  # even after what its own block writes
LATER = ("copy", "bulk copy")  # it reads at some time after it was started


class BlockRaces:
    """Looks at the accesses of a launch; the logs are the buffers'."""

    def __init__(self, order: GridOrder, cell_bytes: int) -> None:
        self.order = order
        self.cell_bytes = cell_bytes

    def read(
        self, buffer: GlobalBuffer, offsets: Array, size_bytes: int, rows: Rows,
        active: Array | None, way: Way, where: Where,
    ) -> None:  # fmt: skip
        """Log reads at `[rows, n]`; n is 32, or lanes of one thread's each where it copies."""
        if buffer.writer is None or buffer.reader is None:
            return
        cells, tags = self._cells(offsets, size_bytes, rows, active)
        writer = buffer.writer.read(cells)
        wrong = writer != 0 if way in UNORDERED else self._unordered(writer, tags)
        self._object(buffer, cells, wrong, writer, f"{READS[way]} that", "writes", where)
        self._after_atomics(buffer, cells, tags, READS[way], where, way in UNORDERED)
        if way in LATER:
            tags = tags & THREAD | SOME_THREAD
        mine = self._joined(buffer.reader.read(cells), tags)
        buffer.reader.write(cells, mine)
        found = buffer.reader.read(cells)
        lost = found != mine  # to another thread of this very step
        if lost.any():
            apart = lost & (block_of(found) != block_of(mine))
            buffer.reader.write(cells[lost], tags[lost] & THREAD | SOME_THREAD)
            buffer.reader.write(cells[apart], SEVERAL)

    def write(
        self, buffer: GlobalBuffer, offsets: Array, size_bytes: int, rows: Rows,
        active: Array | None, where: Where,
    ) -> None:  # fmt: skip
        assert buffer.writer is not None, "a buffer that may be written has its logs"
        cells, tags = self._cells(offsets, size_bytes, rows, active)
        self._after_plain(buffer, cells, tags, where)
        for word in self._after_atomics(buffer, cells, tags, "write of bytes", where):
            word.told, word.last = None, 0
        buffer.writer.write(cells, tags)
        found = buffer.writer.read(cells)
        both = block_of(found) != block_of(tags)
        if both.any():
            self._race(buffer, cells[both][0], "two blocks write the same bytes", where)

    def update(
        self, buffer: GlobalBuffer, offset: int, size_bytes: int, tag: int, where: Where
    ) -> None:
        """An atomic comes after what other blocks read and wrote there without one."""
        first = offset // self.cell_bytes
        cells = np.arange(first, first + size_bytes // self.cell_bytes)
        self._after_plain(buffer, cells, np.full(cells.shape, tag), where)

    def word(self, buffer: GlobalBuffer, offset: int, size_bytes: int) -> Word:
        """The word that atomics change at an offset."""
        first = offset // self.cell_bytes
        if first not in buffer.words:
            cells = range(first, first + size_bytes // self.cell_bytes)
            buffer.words.update(dict.fromkeys(cells, Word()))
        return buffer.words[first]

    def _cells(
        self, offsets: Array, size_bytes: int, rows: Rows, active: Array | None
    ) -> tuple[Array, Array]:
        """The cells of each access, `[…, cells]`, and its tag as often."""
        width = max(size_bytes // self.cell_bytes, 1)
        cells = (offsets // self.cell_bytes)[..., None] + np.arange(width)
        tags = self.order.tags(rows)
        if offsets.shape != tags.shape:  # of one thread of each warp
            tags = tags[:, :1]
        tags = np.broadcast_to(tags[..., None], cells.shape)
        return (cells, tags) if active is None else (cells[active], tags[active])

    def _unordered(self, held: Array, tags: Array) -> Array:
        """Which of the accesses before are other blocks' that need not come before."""
        wrong: Array = (held != 0) & (block_of(held) != block_of(tags))
        if wrong.any():
            wrong[wrong] = ~self.order.knows(tags[wrong], held[wrong])
        return wrong

    def _after_plain(self, buffer: GlobalBuffer, cells: Array, tags: Array, where: Where) -> None:
        for log, verb in ((buffer.writer, "writes"), (buffer.reader, "reads")):
            assert log is not None, "a buffer that may be written has its logs"
            held = log.read(cells)
            wrong = self._unordered(held, tags)
            self._object(buffer, cells, wrong, held, "write of bytes that", verb, where)

    def _after_atomics(
        self, buffer: GlobalBuffer, cells: Array, tags: Array, what: str, where: Where,
        never: bool = False,
    ) -> list[Word]:  # fmt: skip
        """The words that accesses without atomics touch: after the last of each, or never."""
        if not buffer.words:
            return []
        touched = np.isin(cells, np.fromiter(buffer.words, np.int64))
        words = [buffer.words[int(cell)] for cell in cells[touched]]
        held = np.array([word.last for word in words], np.int64)
        wrong = held != 0 if never else self._unordered(held, tags[touched])
        verb = "changes by an atomic"
        self._object(buffer, cells[touched], wrong, held, f"{what} that", verb, where)
        return words

    def _joined(self, held: Array, tags: Array) -> Array:
        """Who reads a cell, after one more thread does."""
        alone = (held == 0) | ((held ^ tags) & THREAD == 0)
        mine = np.where(alone, tags, tags & THREAD | SOME_THREAD)
        apart = (held != 0) & (block_of(held) != block_of(tags))
        if apart.any():
            after = ~self._unordered(held, tags)
            mine = np.where(apart, np.where(after, tags, SEVERAL), mine)
        return mine

    def _object(
        self, buffer: GlobalBuffer, cells: Array, wrong: Array, held: Array, what: str, verb: str,
        where: Where,
    ) -> None:  # fmt: skip
        if not wrong.any():
            return
        block, thread = named(int(held[wrong][0]))
        self._race(buffer, cells[wrong][0], f"{what} {block} {verb}{thread}", where)

    def _race(self, buffer: GlobalBuffer, cell: Any, problem: str, where: Where) -> None:
        raise objection(
            where,
            f"race between blocks in buffer {buffer.name!r}, byte "
            f"{int(cell) * self.cell_bytes - buffer.lead_bytes}: {problem}, unordered in "
            "this launch",
        )
