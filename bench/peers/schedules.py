"""Schedules on other products, each in an environment and databases of its own."""

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import psycopg

from .database import PeerDatabases
from .environment import prepare
from .failure import PeerFailed
from .measure import Site
from .schedule_catalogue import SCHEDULE_PEERS, SchedulePeer
from .schedule_measure import ScheduleBench


def run(
    dsn: str,
    *,
    quick: bool,
    only: Collection[str] | None,
    report: Callable[[str, float, str], None],
    note: Callable[[str], None],
) -> None:
    """Measure every peer, or those named in `only`; one that fails is noted and the next one follows."""
    for schedules in _chosen(only, note):
        peer = schedules.peer
        try:
            command = prepare(peer)
            with tempfile.TemporaryDirectory(prefix="bench-peer-") as scratch:
                site = Site(command, PeerDatabases(dsn, peer.name), Path(scratch))
                ScheduleBench(schedules, site, quick, report, note).run()
        except (PeerFailed, psycopg.Error, OSError) as failure:
            note(f"{schedules.name}: not run: {' '.join(str(failure).split())}")


def _chosen(only: Collection[str] | None, note: Callable[[str], None]) -> list[SchedulePeer]:
    if only is None:
        return list(SCHEDULE_PEERS)
    known = {schedules.name for schedules in SCHEDULE_PEERS}
    for name in sorted(set(only) - known):
        note(f"{name}: not run: no such peer; there are {', '.join(sorted(known))}")
    return [schedules for schedules in SCHEDULE_PEERS if schedules.name in only]
