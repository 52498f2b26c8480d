"""How words of global memory are changed by atomics, thread after thread, and what fences order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .batch import LANES, Array, Rows
from .global_memory import GlobalAccess
from .grid_order import GridOrder
from .where import objection


class AtomicAccess:
    """One instruction's view of the words; `rows` and `active` are set before each use."""

    def __init__(self, order: GridOrder, access: GlobalAccess) -> None:
        self.order = order
        self.access = access
        self.rows: Rows = access.rows
        self.active: Array | None = None

    def update(
        self, address: Array, change: Callable[[Array, Array], Array], given: Array, acq_rel: bool
    ) -> Array:
        """Threads of one instruction have their turns in an order that the seed picks."""
        access, order = self.access, self.order
        access.rows, access.active = self.rows, self.active
        races, size = access.memory.races, access.size_bytes
        found = np.zeros(address.shape, np.uint32)
        given = np.broadcast_to(given, address.shape)
        warps = np.arange(access.batch.capacity)[self.rows]
        tags = order.tags(self.rows)
        for buffer, offsets, active in access.pieces(address):
            if not buffer.writable:
                raise objection(
                    access.where, f"atomic on buffer {buffer.name!r}, which is read-only"
                )
            access.check_written(buffer, offsets, active)
            lanes = np.ones((len(warps), LANES), np.bool_) if active is None else active
            words = buffer.elements(found.dtype, 1)
            for row, lane in order.turns(lanes):
                offset, tag = int(offsets[row, lane]), int(tags[row, lane])
                order.update(
                    int(warps[row]), int(lane), races.word(buffer, offset, size), tag, acq_rel
                )
                races.update(buffer, offset, size, tag, access.where)
                found[row, lane] = words[offset // size]
                words[offset // size] = change(found[row, lane], given[row, lane])
            access.counts.atomics += int(np.count_nonzero(lanes))
        if acq_rel:
            order.step(self.rows)
        return found

    def fence(self) -> None:
        self.order.fence(self.rows, self.active)
