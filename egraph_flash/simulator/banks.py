"""How many times memory is asked: shared wavefronts over 32 banks, global sectors of 32 bytes."""

from __future__ import annotations

import numpy as np

from .batch import Array

BANKS = 32
BANK_BYTES = 4
SECTOR_BYTES = 32
LINE_BYTES = BANKS * BANK_BYTES


def phases_of(offsets: Array, size_bytes: int, active: Array | None) -> Array:
    """The words that each phase of an access asks for: `[warps, phases, words]`, −1 for none.

    A phase moves at most 128 bytes: all lanes of up to 4 bytes each, half of them at 8 bytes, a
    quarter at 16. `offsets` are bytes `[warps, lanes]`.
    """
    words = offsets // BANK_BYTES
    if active is not None:
        words = np.where(active, words, -1)
    per_lane = max(size_bytes // BANK_BYTES, 1)
    warps, lanes = words.shape
    if per_lane > 1:
        steps = np.where(words[..., None] < 0, 0, np.arange(per_lane))
        words = words[..., None] + steps
    phases = max(lanes * per_lane // BANKS, 1)
    return words.reshape(warps, phases, -1)


def wavefronts_of(words: Array) -> tuple[int, int]:
    """Wavefronts and conflicts of phases `[warps, phases, words]`.

    A phase takes as many wavefronts as the most distinct words that one bank must give.
    """
    ordered = np.sort(words, axis=-1)
    first = np.ones(ordered.shape, np.bool_)
    first[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    first &= ordered >= 0
    shape = ordered.shape[:-1]
    phase = np.arange(shape[0] * shape[1]).reshape(*shape, 1)
    slots = (phase * BANKS + ordered % BANKS)[first]
    demand = np.bincount(slots, minlength=shape[0] * shape[1] * BANKS).reshape(-1, BANKS)
    per_phase = demand.max(axis=1)
    wavefronts = int(per_phase.sum())
    return wavefronts, wavefronts - int((per_phase > 0).sum())


def copied_wavefronts(source: Array, offsets: Array, active: Array | None) -> tuple[int, int]:
    """Wavefronts of a cp.async of 16 bytes a lane, and those beyond 128 bytes each.

    Line by line of global memory, sector by sector: a wavefront fills sectors of one line of
    shared memory, each from one sector of the source, whose halves it may exchange. So rows that
    are 16 bytes out of step take up to four. Read off an H200: raw rows 1, rows whose chunks are
    XORed 1, rows 16 bytes apart 1, 3, 2, 4, 2, 4, 2, 3 and again. `source` are global addresses,
    `offsets` bytes of shared memory, `[warps, 32]`.
    """
    warp = np.broadcast_to(np.arange(len(offsets))[:, None], offsets.shape)
    lanes = np.ones(offsets.shape, np.bool_) if active is None else active
    columns = (warp, source >> 7, offsets >> 7, offsets >> 5, source >> 5)
    moves = np.unique(
        np.stack([np.asarray(column, np.int64)[lanes] for column in columns], axis=1), axis=0
    )
    filled, counts = np.unique(moves[:, :4], axis=0, return_counts=True)
    pieces, piece = np.unique(filled[:, :3], axis=0, return_inverse=True)
    passes = np.zeros(len(pieces), np.int64)
    np.maximum.at(passes, piece.reshape(-1), counts)
    wavefronts = int(passes.sum())
    least = int((-(-lanes.sum(axis=1) * 16 // LINE_BYTES)).sum())
    return wavefronts, max(wavefronts - least, 0)


def sectors_of(offsets: Array, active: Array | None) -> int:
    """The distinct 32-byte sectors that each warp's request touches, summed: `[warps, 32]`."""
    sectors = (offsets >> 5).astype(np.int64, copy=False)
    if active is not None:
        sectors = np.where(active, sectors, -1)
    ordered = np.sort(sectors, axis=1)
    distinct = int(np.count_nonzero(ordered[:, 1:] != ordered[:, :-1])) + len(ordered)
    return distinct - (0 if active is None else int(np.count_nonzero(ordered[:, 0] < 0)))
