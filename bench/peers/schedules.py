"""Schedules of other products, each in an environment and databases of its own."""

from collections.abc import Collection
from functools import partial

from .measure import Note, Report
from .runner import measure_peer, note_unknown
from .schedule_catalogue import SCHEDULE_PEERS
from .schedule_measure import ScheduleBench


def run(dsn: str, *, quick: bool, only: Collection[str] | None, report: Report, note: Note) -> None:
    """Measure every peer, or those named in `only`; a peer that fails is noted, and the next one is measured."""
    note_unknown(only, {schedules.name for schedules in SCHEDULE_PEERS}, note)
    for schedules in SCHEDULE_PEERS:
        if only is None or schedules.name in only:
            bench = partial(ScheduleBench, schedules, quick=quick, report=report, note=note)
            measure_peer(schedules.peer, schedules.name, dsn, note, bench)
