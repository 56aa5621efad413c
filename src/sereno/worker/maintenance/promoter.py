"""Makes due jobs ready, declares sessions with expired leases dead, rescues their jobs, and delivers late signals.

Every worker does this; SKIP LOCKED and fenced statements make it safe. One cheap query every few seconds, or when the
next scheduled job is due, shows whether there is anything to do. Other maintenance runs on separate connections: see
`duties`.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from time import monotonic

from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.jobs import group_store, settlement, signals, transitions
from sereno.jobs.transitions import EVERYTHING
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service
from sereno.worker import sessions
from sereno.worker.claiming.floor import AgeRanges, LookBack, exceeded_time
from sereno.worker.maintenance.duties import MAINTENANCE_TIMEOUT, MaintenanceDuty, MaintenanceStep

# Seconds between two queries for due work.
POLL_INTERVAL = 5.0
# Seconds between two queries while there are dependencies to check: a predecessor that runs is checked until it ends.
LINKS_INTERVAL = 1.0
# Seconds; jobs that became due longer ago are found by a look-back over all ages.
RECENT = 60.0
# Seconds after which a due job is promoted here if no worker of its own queue has done so.
ELSEWHERE = 1.0
# Seconds of jitter: of several workers of a queue, the first one promotes, and the others find it done.
JITTER = 0.004
# Seconds: the duration of an ordinary query on a healthy table, and the time limit of a look-back.
ORDINARY_SCAN, LOOK_BACK_TIMEOUT = 0.005, 10.0
# Seconds between two scans for jobs overdue by more than RECENT; only a transaction that was open as long leaves some.
OVERDUE_EVERY = 20.0
# Seconds between two searches for signals and waits that no worker has checked since their commit.
SIGNALS_EVERY = 1.0
# Seconds between two rescues that also check the jobs of sessions that ended long ago.
FULL_RESCUE_EVERY = 60.0


class Promoter(Service):
    """Promotes due jobs and rescues jobs of dead sessions."""

    def __init__(
        self, connection: ServiceConnection, on_promoted: Callable[[], None], queues: Collection[str] | None = None
    ) -> None:
        super().__init__("promoter")
        self._queues = queues
        self._connection = connection
        self._on_promoted = on_promoted
        self._timer: asyncio.TimerHandle | None = None
        self._look_back = LookBack(OVERDUE_EVERY)
        self._signal_checks = LookBack(SIGNALS_EVERY)
        self._ages = AgeRanges(RECENT, EVERYTHING)

    async def stop(self) -> None:
        self._stop_timer()
        await super().stop()

    async def run_once(self) -> float:
        # The query below finds every job that a notification told of so far.
        self._stop_timer()
        found = await self._due_work()
        if found.expired_sessions:
            await self._expire_sessions()
        if found.orphans or found.expired_sessions:
            await rescue(self._connection)
        has_signals = found.signals and await self._wake_waiting()
        rest = await self._promote_or_rest(found.next_due)
        if found.unchecked_links or found.cancelling_groups:
            await self._continue_links()
            rest = min(rest, LINKS_INTERVAL)
        if has_signals:
            return 0.0
        if not self._look_back.begins(monotonic()):
            return min(rest, self._look_back.due_in(monotonic()))
        return 0.0 if await self._promote_overdue() else rest

    async def _continue_links(self) -> None:
        """Continue jobs that wait for others whose settlement did not know of it, and cancel the rest of groups."""
        await self._connection.run(settlement.check_links(), MAINTENANCE_TIMEOUT)
        await self._connection.run(group_store.cancel_members(), MAINTENANCE_TIMEOUT, atomic=True)

    async def _due_work(self) -> sessions.DueWork:
        """Return what is due. Unchecked signals are searched less often if that is slow, under a pinned snapshot."""
        began = monotonic()
        searches = self._signal_checks.begins(began)
        try:
            found = await self._connection.run(sessions.due_work(RECENT, self._queues, ELSEWHERE, signals=searches))
        except DatabaseUnavailable as error:
            if searches and exceeded_time(error):
                self._signal_checks.failed(monotonic())
            raise
        if searches:
            self._signal_checks.done(monotonic(), monotonic() - began, ORDINARY_SCAN)
        return found

    async def _promote_or_rest(self, next_due: float | None) -> float:
        if next_due is not None and next_due <= 0:
            return await self._promote()
        rest = POLL_INTERVAL * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        return rest if next_due is None else min(rest, next_due + _jitter())

    def on_due(self, payload: str) -> None:
        """Handle a NOTIFY about a job that is due soon: the seconds until then, and its queue.

        Wake then, and not now: a query before that would find nothing to do.
        """
        seconds, _, queue = payload.partition(" ")
        # Any role can send a notification, so the payload may be anything.
        is_other = bool(queue) and self._queues is not None and queue not in self._queues
        if not seconds.replace(".", "", 1).isdecimal() or is_other:
            return
        if not queue:
            # A signal was sent that jobs of any queue may wait for.
            self._signal_checks.ask()
        loop = asyncio.get_running_loop()
        at = loop.time() + float(seconds) + _jitter()
        if self._timer is None or at < self._timer.when():
            self._stop_timer()
            self._timer = loop.call_at(at, self.wake)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def clock_was_set(self) -> None:
        """Search all ages next, because the clock was set, or may have been while the listener was disconnected."""
        self._look_back.ask()
        self.wake()

    async def _wake_waiting(self) -> bool:
        """Wake jobs whose signal was committed while they were settled as waiting; return whether there are more."""
        woken, more = await self._connection.run(signals.wake_waiting(), MAINTENANCE_TIMEOUT)
        if woken:
            self._on_promoted()
        return more

    async def _promote(self) -> float:
        """Promote jobs that became due recently.

        A longer range would be slow under a pinned snapshot, which retains the index entries of promoted jobs.
        """
        moved = await self._connection.run(transitions.promote(RECENT), MAINTENANCE_TIMEOUT)
        if moved:
            self._on_promoted()
        # Nothing was promoted although jobs are due: another worker holds those rows right now.
        return 0.0 if moved else 0.05

    async def _promote_overdue(self) -> int:
        """Promote jobs that became due longer ago, left by a clock that was set or by a slow transaction."""
        began = monotonic()
        older, younger = self._ages.part
        try:
            moved = await self._connection.run(transitions.promote(older, younger), LOOK_BACK_TIMEOUT)
        except DatabaseUnavailable as error:
            if not exceeded_time(error):
                raise
            self._look_back.failed(monotonic())
            self._ages.failed()
            message = f"the search for jobs overdue by {younger:.0f} s or more exceeded its time limit"
            emit(logging.WARNING, "promotion.slow", message)
            return 0
        now = monotonic()
        self._look_back.done(now, now - began, ORDINARY_SCAN)
        if moved:
            self._look_back.ask()
            self._on_promoted()
        else:
            self._ages.done(now - began)
        return moved

    async def _expire_sessions(self) -> None:
        for session, host, pid in await self._connection.run(sessions.expire()):
            emit(
                logging.ERROR,
                "session.dead",
                f"session {session} ({host}, pid {pid}) is dead: its lease expired; its jobs will be ready again",
                session=session,
            )


def _jitter() -> float:
    return random.uniform(0.001, JITTER)  # noqa: S311 - jitter


async def rescue(connection: ServiceConnection, *, everywhere: bool = False) -> int:
    """Make the jobs of sessions that are not alive ready again; return how many."""
    total = 0
    while saved := await connection.run(sessions.rescue(everywhere=everywhere), MAINTENANCE_TIMEOUT):
        total += len(saved)
    if total:
        emit(logging.WARNING, "jobs.rescued", f"{total} jobs of dead sessions are ready again", jobs=total)
    return total


async def _rescue_everywhere(connection: ServiceConnection) -> bool:
    await rescue(connection, everywhere=True)
    return False


# A separate duty and not part of the promoter, because it is slow if the index has many entries of dead rows.
RESCUE_EVERYWHERE = MaintenanceDuty(
    "rescue", FULL_RESCUE_EVERY, [MaintenanceStep("rescue everywhere", _rescue_everywhere)]
)
