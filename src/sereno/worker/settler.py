"""Writes the outcomes of attempts in batches: when enough are waiting, after 5 ms, or at once if a task requires it.

A batch stays in memory until the database has confirmed it. After a lost reply it is written again. An outcome that was
neither applied now nor before is fenced: counted, logged and dropped, because another worker has the job now. An
outcome that cannot be stored is found by halving its batch, and its job is settled as dead; the rest is unaffected.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from time import monotonic

from sereno.database.connect import ServiceConnection
from sereno.error_text import describe, storable
from sereno.errors import DatabaseUnavailable
from sereno.jobs.attempt import Settlement, Throttle
from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits.store import throttle
from sereno.jobs.settlement import SettleResult, Way, settle, settled_before
from sereno.telemetry.log_events import emit
from sereno.telemetry.metrics import MetricTally
from sereno.telemetry.service import Service
from sereno.worker.hooks import HookCaller
from sereno.worker.sessions import announce

# Waiting outcomes that are written at once, and seconds after which fewer are written.
FLUSH_COUNT = 500
FLUSH_AFTER = 0.005
# Outcomes in one statement at most; and waiting outcomes above which no more jobs are claimed.
LARGEST_BATCH = 1000
MOST_WAITING = 2000
# Seconds until an outcome that cannot be stored even as dead is tried again; doubled each time.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class Settler(Service):
    """Writes the outcomes of attempts."""

    def __init__(
        self,
        connection: ServiceConnection,
        session: int,
        tally: MetricTally,
        on_settled: Callable[[Mapping[int, int], Collection[int]], None],
        on_rescheduled: Callable[[], None],
        hooks: HookCaller | None = None,
    ) -> None:
        super().__init__("settler")
        self._connection = connection
        self._session = session
        self._tally = tally
        self._on_settled = on_settled
        self._on_rescheduled = on_rescheduled
        # Called after settlements that may have made other jobs ready.
        self.on_continued: Callable[[], None] | None = None
        self.hooks = hooks
        self._waiting: list[SettleResult] = []
        # Outcomes that could not be stored, not even as dead; they are tried again later, apart from the others.
        self._refused: list[SettleResult] = []
        self._refused_until = 0.0
        self._refused_pause = FIRST_PAUSE
        self._throttles: list[tuple[int, int, Throttle]] = []
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._hurry = False
        self._in_doubt = False

    def start(self) -> None:
        super().start()
        if self.hooks is not None:
            self.hooks.start()

    async def stop(self) -> None:
        await super().stop()
        if self.hooks is not None:
            await self.hooks.stop()

    def add(self, item: SettleResult, *, at_once: bool = False) -> None:
        waiting = self._waiting
        waiting.append(item)
        if item.settlement.throttle is not None:
            at_once = True
            self._throttles.append((item.id, item.attempt, item.settlement.throttle))
        if at_once or len(waiting) >= FLUSH_COUNT:
            self._hurry = True
            self.wake()
        elif len(waiting) == 1:
            self._quiet.clear()
            self.wake()

    def release(self, job: ClaimedJob, reason: str, *, started: bool = False, delay: float = 0.0) -> None:
        """Make the job ready again for any worker, at once or after `delay` seconds."""
        self.add(
            SettleResult(job.id, job.attempt, 0.0, Settlement("release", delay=delay, reason=reason, started=started))
        )

    async def announce(self, suspects: Mapping[int, int]) -> bool:
        """Store which suspects run alone here; return False if the session is no longer alive."""
        return await self._connection.run(announce(self._session, suspects))

    def throttle(self, job_id: int, attempt: int, wanted: Throttle) -> None:
        """Close a limit for all workers, at once."""
        self._throttles.append((job_id, attempt, wanted))
        self._hurry = True
        self.wake()

    @property
    def is_behind(self) -> bool:
        return len(self._waiting) + len(self._refused) >= MOST_WAITING

    def confirm(self, job: ClaimedJob) -> None:
        """Note that the handler's own transaction has settled the job."""
        self._on_settled({job.id: job.attempt}, ())
        if self.hooks is not None:
            self.hooks.succeeded(job)

    async def flushed(self) -> None:
        """Wait until no outcome is waiting to be written."""
        self._hurry = True
        self.wake()
        await self._quiet.wait()

    async def run_once(self) -> float:
        if self._waiting and not self._hurry:
            await self._gather()
        self._hurry = False
        if self._refused and monotonic() >= self._refused_until:
            self._waiting.extend(self._refused)
            self._refused.clear()
            self._refused_pause = min(LONGEST_PAUSE, 2 * self._refused_pause)
        # Limits are closed before the outcome of the same job is written: their keys are read from the running job.
        await self._close_limits()
        await self._flush()
        if not self._waiting:
            self._quiet.set()
            return max(0.0, self._refused_until - monotonic()) if self._refused else 60.0
        return 0.0 if len(self._waiting) >= FLUSH_COUNT else FLUSH_AFTER

    async def _gather(self) -> None:
        """Wait a few milliseconds for more outcomes, unless a batch is complete."""
        self._awake.clear()
        try:
            async with asyncio.timeout(FLUSH_AFTER):
                await self._awake.wait()
        except TimeoutError:
            pass

    async def _close_limits(self) -> None:
        while self._throttles:
            job_id, attempt, wanted = self._throttles[0]
            try:
                closed = await self._connection.run(throttle(self._session, job_id, attempt, *wanted))
            except DatabaseUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - a bad request of one job must not block the others
                self._throttles.pop(0)
                name = storable(getattr(wanted, "limit", wanted), 60)
                message = f"job {job_id}: the limit {name!r} could not be closed: {describe(error)}"
                emit(logging.ERROR, "limit.unclosed", message, job_id=job_id)
                continue
            self._throttles.pop(0)
            for limit, key in closed:
                emit(
                    logging.WARNING,
                    "limit.closed",
                    f"job {job_id} closed the limit {limit} for {wanted.seconds:g} s"
                    + (f" for {key!r}" if key else ""),
                    job_id=job_id,
                    limit=limit,
                    key=key,
                )
            if wanted.limit is not None and not closed:
                emit(
                    logging.ERROR,
                    "limit.unknown",
                    f"job {job_id} tried to close the limit {wanted.limit}, which does not exist",
                    job_id=job_id,
                    limit=wanted.limit,
                )

    async def _flush(self) -> None:
        batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
        ways: dict[Way, list[SettleResult]] = {}
        for item in batch:
            ways.setdefault(item.way, []).append(item)
        while ways:
            way, items = next(iter(ways.items()))
            try:
                applied = await self._settle(way, items)
            except BaseException:
                # The batch is unconfirmed: it is written again, and outcomes that were applied are recognised then.
                self._in_doubt = True
                self._waiting[:0] = [item for left in ways.values() for item in left]
                raise
            del ways[way]
            refused = {item.id for item in self._refused}
            self._on_settled(
                {item.id: item.attempt for item in items if item.id not in refused},
                applied if way in ("succeed", "forget") else (),
            )
            if way == "reschedule":
                self._on_rescheduled()
            if self.on_continued is not None and any(item.has_continued for item in items):
                self.on_continued()
        self._in_doubt = False
        if not self._refused:
            self._refused_pause = FIRST_PAUSE

    async def _settle(self, way: Way, items: list[SettleResult]) -> set[int]:
        """Settle these outcomes; return the ids of the jobs that still belonged to this session."""
        try:
            applied = await self._write(way, items)
        except DatabaseUnavailable:
            # It is unknown whether the statement was applied.
            raise
        except Exception as error:  # noqa: BLE001 - building, encoding or storing failed: one of the rows is bad
            await self._settle_apart(way, items, error)
            return set()
        fenced: set[int] = set()
        if len(applied) < len(items):
            fenced = await self._fenced(way, [item for item in items if item.id not in applied])
        if self.hooks is not None:
            self.hooks.settled(items, fenced)
        return applied

    async def _write(self, way: Way, items: list[SettleResult]) -> set[int]:
        """Write one batch: one statement, or several in a transaction if steps, progress or links belong to it."""
        return await self._connection.run(
            settle(way, self._session, items, claims_next=self.on_continued is not None),
            atomic=any(item.has_more_rows for item in items),
        )

    async def _settle_apart(self, way: Way, items: list[SettleResult], error: Exception) -> None:
        """Find the row that fails a batch by halving it; that job is settled as dead, with the error as reason."""
        if len(items) > 1:
            middle = len(items) // 2
            await self._settle(way, items[:middle])
            await self._settle(way, items[middle:])
            return
        item, text = items[0], describe(error)
        emit(logging.ERROR, "job.unsettled", f"job {item.id}: its outcome could not be stored: {text}", job_id=item.id)
        dead = Settlement("dead", reason="its outcome could not be stored", error=text)
        plain = SettleResult(item.id, item.attempt, 0.0, dead, side_rows=item.side_rows, link=item.link)
        try:
            applied = await self._write("bury", [plain])
        except DatabaseUnavailable:
            raise
        except Exception as refusal:  # noqa: BLE001 - a trigger or a missing privilege must not block the others
            self._retry_later(item, refusal)
        else:
            item.has_continued = plain.has_continued
            if self.hooks is not None:
                self.hooks.settled([plain], {plain.id} - applied)

    def _retry_later(self, item: SettleResult, refusal: Exception) -> None:
        self._refused.append(item)
        self._refused_until = monotonic() + self._refused_pause
        emit(
            logging.ERROR,
            "job.dead_letter_failed",
            f"job {item.id} could not be settled as dead either, and is tried again later: {describe(refusal)}",
            job_id=item.id,
        )

    async def _fenced(self, way: Way, missing: list[SettleResult]) -> set[int]:
        """Log settlements that were refused, and return their jobs; those that an earlier try applied are none."""
        if self._in_doubt:
            settled = await self._connection.run(settled_before(self._session, missing))
            # A success without history leaves no row to recognise it by: after a lost reply it counts as applied.
            missing = [item for item in missing if item.id not in settled and way != "forget"]
        for item in missing:
            self._tally.fenced += 1
            emit(
                logging.WARNING,
                "job.fenced",
                f"job {item.id}: attempt {item.attempt} no longer belongs to this session, its result is dropped",
                job_id=item.id,
                attempt=item.attempt,
                session=self._session,
            )
        return {item.id for item in missing}
