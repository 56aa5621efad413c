"""Schedules on other products, each in an environment and databases of its own."""

from collections.abc import Collection
from functools import partial

from .measure import Note, Report
from .schedule_catalogue import SCHEDULE_PEERS
from .schedule_measure import ScheduleBench
from .visit import note_unknown, visit


def run(dsn: str, *, quick: bool, only: Collection[str] | None, report: Report, note: Note) -> None:
    """Measure every peer, or those named in `only`; one that fails is noted and the next one follows."""
    note_unknown(only, {schedules.name for schedules in SCHEDULE_PEERS}, note)
    for schedules in SCHEDULE_PEERS:
        if only is None or schedules.name in only:
            bench = partial(ScheduleBench, schedules, quick=quick, report=report, note=note)
            visit(schedules.peer, schedules.name, dsn, note, bench)
