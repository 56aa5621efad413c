"""Reports the state of a session to the database, and reads its status and cancellations in return.

With every heartbeat the session publishes its claim floors and its jobs that have not started, and reads whether it is
still alive and which of its jobs are to be cancelled; it also adds the statistics of finished jobs. Every second the
newest progress of running jobs is written, with the chunks that they emit; while they do, four times a second. After a
claim whose reply was lost, and once a minute anyway, the list of held jobs is compared with the database.
"""

import logging
import math
from collections.abc import Callable
from time import monotonic

from sereno.database.connect import ServiceConnection
from sereno.database.statement import Operation
from sereno.jobs.queries import error_groups, minute_stats
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.telemetry.metrics import MetricTally
from sereno.telemetry.service import Service
from sereno.worker.claiming.claimer import Claimer
from sereno.worker.claiming.floor import Floors
from sereno.worker.executor import Executor
from sereno.worker.sessions import report

# Seconds between two writes of progress, and between two comparisons of held jobs with the database.
PROGRESS_EVERY = 1.0
# Seconds between two writes while jobs emit chunks, which people read as they arrive.
CHUNKS_EVERY = 0.25
COMPARE_EVERY = 60.0
# Seconds from a lost reply to the comparison, which ignores claims of the last five seconds: a reply may be in flight.
COMPARE_AFTER_LOSS = 6.0
# Seconds after which a claimed job that has not started is reported as waiting, within another second: if this session
# dies, the job is released without a crash being counted. Under steady load, jobs start sooner.
WAITING_AFTER = 1.0


class SessionStats(Service):
    """Reports floors, held jobs, progress and statistics of one session."""

    def __init__(
        self,
        connection: ServiceConnection,
        session: int,
        claimer: Claimer,
        executor: Executor,
        floors: Floors,
        take_figures: Callable[[], MetricTally],
        settings: Settings,
    ) -> None:
        super().__init__("session stats")
        self._connection = connection
        self._session = session
        self._claimer = claimer
        self._executor = executor
        self._floors = floors
        self._take_figures = take_figures
        self._figures = MetricTally()
        self._beat = settings.heartbeat
        self._next_beat = monotonic() + self._beat
        self._next_comparison = monotonic() + COMPARE_EVERY
        self.reported_at = -math.inf
        self.lost = False
        self._waiting: set[int] = set()

    async def run_once(self) -> float:
        has_chunks = await self._executor.flush_progress()
        now = monotonic()
        if now >= self._next_beat:
            self._log_ended_jobs()
            self._next_beat = now + self._beat
            await self._report()
            await self.write_figures()
        elif not self._waiting.issuperset(self._claimer.waiting_since(now - WAITING_AFTER)):
            await self._report()
        if now >= self._next_comparison or self._a_reply_was_lost(now):
            self._next_comparison = now + COMPARE_EVERY
            await self._claimer.reconcile()
        return CHUNKS_EVERY if has_chunks else PROGRESS_EVERY

    def _a_reply_was_lost(self, now: float) -> bool:
        lost_at = self._claimer.reply_lost_at
        return lost_at is not None and now > lost_at + COMPARE_AFTER_LOSS

    def _log_ended_jobs(self) -> None:
        """Log the number of jobs that ended; single successes are only logged at debug level."""
        ended, self._executor.ended_jobs = self._executor.ended_jobs, 0
        if ended:
            emit(
                logging.INFO,
                "worker.ran",
                f"jobs that ended in the last {self._beat:g} s: {ended}",
                session=self._session,
            )

    async def write_figures(self) -> None:
        """Add the finished jobs to the minute statistics; what cannot be written now is written the next time."""
        self._figures.add(self._take_figures())
        if not self._figures.finished:
            return
        # Reset before the write, because a worker that stops may call this while the heartbeat is writing.
        figures, self._figures = self._figures, MetricTally()
        try:
            await self._connection.run(_add(figures), atomic=True)
        except BaseException:
            self._figures.add(figures)
            raise

    async def _report(self) -> None:
        waiting = set(self._claimer.waiting_since(monotonic() - WAITING_AFTER))
        state, cancelled = await self._connection.run(
            report(self._session, self._floors.published(), self._claimer.held, waiting)
        )
        self._waiting = waiting
        self.reported_at = monotonic()
        if state != "alive":
            self.lost = True
            return
        for job in cancelled:
            self._executor.cancel(job)


def _add(figures: MetricTally) -> Operation[None]:
    """Write the tables in the same order in every worker, so that two workers cannot deadlock."""
    yield from minute_stats.add(figures)
    yield from error_groups.add(figures)
