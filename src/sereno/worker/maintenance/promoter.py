"""Keeps time for everybody: due jobs become ready, silent sessions are declared dead, their jobs come back.

Any number of workers do this; SKIP LOCKED and fenced statements make it harmless. One cheap look every few seconds,
or when the next future job is due, says whether there is anything to do. What else there is to maintain runs beside it,
on connections of its own: see `maintenance`.
"""

import logging
import random
from collections.abc import Callable
from time import monotonic

from sereno.database.connect import Line
from sereno.errors import DatabaseUnavailable
from sereno.jobs import transitions
from sereno.jobs.transitions import EVERYTHING
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service
from sereno.worker import sessions
from sereno.worker.floor import Ages, LookBack, exceeded_time
from sereno.worker.maintenance.duties import MAINTENANCE_TIMEOUT, Duty, Step

LOOK_EVERY = 5.0
# Jobs that became due longer ago than this are found by looking at everything.
RECENT = 60.0
# What a look costs on a healthy table, in seconds, and the time limit of one.
ORDINARY_LOOK, LOOK_BACK_TIMEOUT = 0.005, 10.0
# Seconds between two scans for jobs overdue by more than RECENT. Only a transaction that long leaves such jobs.
OVERDUE_EVERY = 20.0
FULL_RESCUE_EVERY = 60.0


class Promoter(Service):
    """What time brings."""

    def __init__(self, line: Line, on_promoted: Callable[[], None]) -> None:
        super().__init__("keeper")
        self._line = line
        self._on_promoted = on_promoted
        self._look_back = LookBack(OVERDUE_EVERY)
        self._ages = Ages(RECENT, EVERYTHING)

    async def run_once(self) -> float:
        found = await self._line.run(sessions.look(RECENT))
        if found.expired_sessions:
            await self._bury_sessions()
        if found.orphans or found.expired_sessions:
            await rescue(self._line)
        rest = await self._promote_or_rest(found.next_due)
        if not self._look_back.begins(monotonic()):
            return min(rest, self._look_back.due_in(monotonic()))
        return 0.0 if await self._promote_overdue() else rest

    async def _promote_or_rest(self, next_due: float | None) -> float:
        if next_due is not None and next_due <= 0:
            return await self._promote()
        rest = LOOK_EVERY * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        return rest if next_due is None else min(rest, next_due + 0.001)

    def clock_was_set(self) -> None:
        """Or may have been, while nobody listened: what is due now may have been due for long."""
        self._look_back.ask()
        self.wake()

    async def _promote(self) -> float:
        """Of the recent past: under a pinned snapshot, the entries of jobs promoted long ago are still in the index."""
        moved = await self._line.run(transitions.promote(RECENT), MAINTENANCE_TIMEOUT)
        if moved:
            self._on_promoted()
        # Nothing moved although something is due: another worker holds those rows right now.
        return 0.0 if moved else 0.05

    async def _promote_overdue(self) -> int:
        """What became due longer ago: a clock that was moved, or a slow transaction, makes such jobs."""
        began = monotonic()
        older, younger = self._ages.part
        try:
            moved = await self._line.run(transitions.promote(older, younger), LOOK_BACK_TIMEOUT)
        except DatabaseUnavailable as error:
            if not exceeded_time(error):
                raise
            self._look_back.failed(monotonic())
            self._ages.failed()
            emit(logging.WARNING, "promotion.slow", f"a look for jobs overdue by {younger:.0f} s or more took too long")
            return 0
        now = monotonic()
        self._look_back.done(now, now - began, ORDINARY_LOOK)
        if moved:
            self._look_back.ask()
            self._on_promoted()
        else:
            self._ages.done(now - began)
        return moved

    async def _bury_sessions(self) -> None:
        for session, host, pid in await self._line.run(sessions.expire()):
            emit(
                logging.ERROR,
                "session.dead",
                f"session {session} ({host}, pid {pid}) let its lease run out: its jobs come back",
                session=session,
            )


async def rescue(line: Line, *, everywhere: bool = False) -> int:
    """Bring back the jobs of sessions that are not alive; answers how many."""
    total = 0
    while saved := await line.run(sessions.rescue(everywhere=everywhere), MAINTENANCE_TIMEOUT):
        total += len(saved)
    if total:
        emit(logging.WARNING, "jobs.rescued", f"{total} jobs of dead sessions are ready again", jobs=total)
    return total


async def _rescue_everywhere(line: Line) -> bool:
    await rescue(line, everywhere=True)
    return False


# Beside the keeper and not in it: where many entries of dead rows lie in the way, this takes long.
RESCUE_EVERYWHERE = Duty("rescue", FULL_RESCUE_EVERY, [Step("rescue everywhere", _rescue_everywhere)])
