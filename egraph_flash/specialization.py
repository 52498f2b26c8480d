"""Which kernel runs arrays that lie otherwise: the same request, with their layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .errors import ScheduleError
from .knobs import KNOBS
from .pipeline import compiled
from .record import Record
from .request import read_request


def specialized(record: Record, alignments: Mapping[str, int], where: str) -> Record:
    """The record for arrays that have contiguous rows wherever a call says.

    `alignments` names them, with the bytes that divide their addresses and the strides of their
    rows. Brackets and algebra are pinned to those of `record`, so that the bits of results do not
    depend on where arrays lie; only where no schedule moves their data so are they chosen anew.

    Raises ScheduleError, which says `where`, if a user's pin rules the layouts out.
    """
    request = read_request(record.asked, record.target, record.pins).relaid(alignments)
    kept = {name: value for name, value in record.pins.items() if _moves_data(name)}
    kept |= {name: value for name, value in record.schedule.items() if not _moves_data(name)}
    try:
        found = compiled(replace(request, pins=kept), {}, record.derivation)
    except ScheduleError:
        try:
            found = compiled(request, {})
        except ScheduleError as error:
            raise ScheduleError(f"{where}: {error}") from error
    return replace(found, pins=record.pins)


def _moves_data(name: str) -> bool:
    """Whether a knob, spelled as in a pin, leaves all bits alone."""
    kinds = KNOBS[name.partition("@")[0]].fields.values()
    return all(kind == "movement" for kind in kinds)
