"""What a session says of itself, and what it is told in return.

With every heartbeat: the claim floors, the jobs held; in return, whether it is still alive and which of its jobs are to
be cancelled. After a claim whose reply was lost, and once a minute anyway, the list of held jobs is compared with the
database. Between, the newest progress of running jobs is written. With the heartbeat go the figures of what has ended.
"""

import logging
import math
from collections.abc import Callable
from time import monotonic

from sereno.database.connect import Line
from sereno.database.statement import Operation
from sereno.jobs import error_groups, minute_stats
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.telemetry.metrics import Tally
from sereno.telemetry.service import Service
from sereno.worker.claimer import Claimer
from sereno.worker.executor import Executor
from sereno.worker.floor import Floors
from sereno.worker.sessions import report

PROGRESS_EVERY = 1.0
COMPARE_EVERY = 60.0
# The comparison passes over claims of the last five seconds, whose reply may still be under way.
SETTLED_DOWN = 6.0
# Jobs that were claimed this long ago and have not begun are told of within a second: should this session die, they go
# back without charge. Those of a steady stream begin sooner.
WAITS = 1.0


class SessionStats(Service):
    """The session's voice."""

    def __init__(
        self,
        line: Line,
        session: int,
        claimer: Claimer,
        executor: Executor,
        floors: Floors,
        take_figures: Callable[[], Tally],
        settings: Settings,
    ) -> None:
        super().__init__("reporter")
        self._line = line
        self._session = session
        self._claimer = claimer
        self._executor = executor
        self._floors = floors
        self._take_figures = take_figures
        self._figures = Tally()
        self._beat = settings.heartbeat
        self._next_beat = monotonic() + self._beat
        self._next_comparison = monotonic() + COMPARE_EVERY
        self.reported_at = -math.inf
        self.lost = False
        self._waiting: set[int] = set()

    async def run_once(self) -> float:
        await self._executor.flush_progress()
        now = monotonic()
        if now >= self._next_beat:
            self._tell_what_ran()
            self._next_beat = now + self._beat
            await self._report()
            await self.write_figures()
        elif not self._waiting.issuperset(self._claimer.waiting_since(now - WAITS)):
            await self._report()
        if now >= self._next_comparison or self._a_reply_was_lost(now):
            self._next_comparison = now + COMPARE_EVERY
            await self._claimer.reconcile()
        return PROGRESS_EVERY

    def _a_reply_was_lost(self, now: float) -> bool:
        lost_at = self._claimer.reply_lost_at
        return lost_at is not None and now > lost_at + SETTLED_DOWN

    def _tell_what_ran(self) -> None:
        """Successes are logged one by one only at debug; this says that there are any."""
        ended, self._executor.ended_jobs = self._executor.ended_jobs, 0
        if ended:
            emit(
                logging.INFO,
                "worker.ran",
                f"jobs that ended in the last {self._beat:g} s: {ended}",
                session=self._session,
            )

    async def write_figures(self) -> None:
        """What has ended, added to the minute; what could not be written is written the next time."""
        self._figures.add(self._take_figures())
        if not self._figures.finished:
            return
        # Taken before it is written: a worker that ends asks for this while the heartbeat is at it.
        figures, self._figures = self._figures, Tally()
        try:
            await self._line.run(_add(figures), atomic=True)
        except BaseException:
            self._figures.add(figures)
            raise

    async def _report(self) -> None:
        waiting = set(self._claimer.waiting_since(monotonic() - WAITS))
        state, cancelled = await self._line.run(
            report(self._session, self._floors.published(), self._claimer.held, waiting)
        )
        self._waiting = waiting
        self.reported_at = monotonic()
        if state != "alive":
            self.lost = True
            return
        for job in cancelled:
            self._executor.cancel(job)


def _add(figures: Tally) -> Operation[None]:
    """One table after the other, the same way in every worker, so that two never wait for each other in a ring."""
    yield from minute_stats.add(figures)
    yield from error_groups.add(figures)
