"""The scheduler: sleeps until a schedule is due, ticks, and sleeps again.

Any number of schedulers may run: every row is locked while it fires, and a fire is unique. One of them leads under a
lease, so that the others can sleep; a follower that sees the leader fall behind ticks as well. NOTIFY wakes the
scheduler when a schedule becomes due earlier than its next planned wake-up.
"""

import asyncio
import logging
import math
import os
import random
import secrets
import socket
from time import monotonic

import psycopg

from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.schedules import leader_lease, tick
from sereno.schedules.firing import SECOND
from sereno.schedules.maintenance import fires_duty
from sereno.schedules.replanner import Replanner
from sereno.schedules.ticker import BATCH, Ticker, TickResult, is_a_rows_fault
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.telemetry.metrics import SchedulerFigures
from sereno.telemetry.service import Service
from sereno.worker.claiming.floor import LookBack, ScanReach, exceeded_time
from sereno.worker.claiming.listener import Listener
from sereno.worker.maintenance.duties import Maintenance, maintenance_connection

# Lease of the leader in seconds: after this time, another scheduler replaces a leader that is gone.
LEASE = 20.0
# Longest sleep in seconds, less jitter of up to 20 %.
REST = 7.0
# Rows in consecutive full passes before a second connection helps; the load of an ordinary second stays below it.
LARGE_BACKLOG = 2 * BATCH
# Sleep in seconds from which on the second connection is closed.
LONG_REST = 1.0
# Sleep in seconds while a schedule waits for a run to end.
REST_AWAITING = 0.5
# Seconds that the leader must be behind before a follower ticks as well.
OVERDUE = 2.0
# Sleep in seconds when every due row is locked by another transaction.
LOCKED_REST = 0.1
# How far the floor stays behind the present: open transactions may still commit schedules below it.
MARGIN = 5 * SECOND
# Cost in seconds of a full scan on a healthy table.
ORDINARY_SCAN = 0.005
TICK_TIMEOUT = 60.0
# How far below its floor a look-back starts after a scan from zero exceeded its time limit.
FIRST_REACH = 3600 * SECOND
# A pass that timed out is retried with 1/SMALLER of its rows; each pass after it takes LARGER times as many.
SMALLER, LARGER = 8, 2
# Seconds between checks for schedules that wait for a run that no longer exists.
HEAL_EVERY = 60.0


class Scheduler(Service):
    """Fires due schedules until it is stopped."""

    def __init__(self, url: str, settings: Settings) -> None:
        super().__init__("scheduler")
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.figures = SchedulerFigures()
        self._connection = ServiceConnection(url, settings, "scheduler")
        # Open only while one connection is not enough.
        self._second_line = ServiceConnection(url, settings, "scheduler")
        handlers = {"schedule": lambda _: self.wake(), "clock": lambda _: self._clock_was_set()}
        self._listener = Listener(url, settings, handlers, self._clock_was_set)
        # Services that run next to the ticks, wherever this scheduler runs.
        self._attached: list[Service] = []
        # Runs next to the ticks, so that nothing due waits for it.
        beside = maintenance_connection(url, settings, "scheduler housekeeping")
        self._housekeeping = Maintenance("scheduler housekeeping", beside, [fires_duty(settings)])
        self._ticker, self._second_ticker = Ticker(), Ticker()
        self._fence: int | None = None
        self._floor = self._ended_up_to = 0
        self._look_back = LookBack()
        self._reach = ScanReach(FIRST_REACH)
        self._last = leader_lease.LastTick()
        # Whether a schedule waits for a run to end, as of the last full scan.
        self._awaits = False
        self._healed_at = -math.inf
        # Where the current round of healing continues; None: no round is under way.
        self._healed_up_to: int | None = None
        self._replanner: Replanner | None = None
        self._batch = BATCH
        # Number of rows left to fire one by one, because a row of their batch could not be written.
        self._single = 0

    def attach(self, service: Service) -> None:
        """Start and stop the service together with this scheduler."""
        self._attached.append(service)

    @property
    def leads(self) -> bool:
        return self._fence is not None

    def start(self) -> None:
        self._listener.start()
        for service in self._attached:
            service.start()
        self._housekeeping.start()
        super().start()

    async def stop(self) -> None:
        for service in self._attached:
            await service.stop()
        await self._housekeeping.stop()
        await super().stop()
        await self._listener.stop()
        if self._fence is not None:
            try:
                await self._connection.run(leader_lease.resign(self.holder), timeout=3.0)
            except DatabaseUnavailable:
                emit(logging.WARNING, "scheduler.unresigned", "the scheduler's lease was not released: it will expire")
        await self._connection.close()
        await self._second_line.close()

    async def run_once(self) -> float:
        """Renew the lease, count ended runs, fire what is due, and return the seconds to wait."""
        self.figures.leads = self.leads
        if self._fence is None:
            return await self._follow()
        began = monotonic()
        everything = self._look_back.begins(began)
        floor = self._reach.start(self._floor) if everything else self._floor
        ended = 0 if everything and self._reach.is_unlimited else self._ended_up_to
        rest = REST * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        seen = await self._scan(self._fence, rest, floor, ended, everything=everything)
        self._last = leader_lease.LastTick()
        if everything:
            self._end_full_scan(began, seen)
        if not seen.leads:
            emit(logging.WARNING, "scheduler.deposed", f"scheduler {self.holder}: another scheduler leads now")
            self._fence = None
            return 0.0
        freed = await self._count_ended(seen, ended)
        if freed or (seen.next_due is not None and seen.next_due <= 0):
            # Nothing was taken although something is due: another transaction is changing those rows.
            rest = 0.0 if await self._ticks(floor, check_held=freed) else LOCKED_REST
        elif not everything:
            # Below the floor may be rows that a slow transaction committed late, or that were locked.
            rest = min(rest, self._look_back.due_in(monotonic()))
        # Maintenance comes after what is due, one page at a time.
        return 0.0 if await self._maintain() else await self._rest_until(rest, seen)

    def _end_full_scan(self, began: float, seen: leader_lease.DueSchedules) -> None:
        now = monotonic()
        self._look_back.done(now, now - began, ORDINARY_SCAN)
        self._reach.done(self._floor)
        self._awaits = seen.awaits

    async def _count_ended(self, seen: leader_lease.DueSchedules, ended: int) -> bool:
        """Count the runs that ended; return whether a held schedule may fire now."""
        if not seen.ends:
            return seen.free
        try:
            return await self._end_runs(ended) or seen.free
        except psycopg.Error as error:
            # Whatever is wrong with these rows, what is due is still fired.
            emit(logging.ERROR, "scheduler.count_failed", f"runs that ended could not be counted: {error}", error=error)
            return seen.free

    async def _scan(
        self, fence: int, rest: float, floor: int, ended: int, *, everything: bool
    ) -> leader_lease.DueSchedules:
        query = leader_lease.due(
            self.holder,
            fence,
            lease=LEASE,
            rest=rest,
            floor=floor,
            ended=ended,
            everything=everything,
            last=self._last,
        )
        try:
            return await self._connection.run(query)
        except DatabaseUnavailable as error:
            if everything and exceeded_time(error):
                self._look_back.failed(monotonic())
                self._reach.failed()
            raise

    def _clock_was_set(self) -> None:
        """Wake up and scan below the floor: a clock set back (perhaps while not listening) makes rows there due."""
        self._look_back.ask()
        self.wake()

    async def _rest_until(self, rest: float, seen: leader_lease.DueSchedules) -> float:
        if self._awaits:
            rest = min(rest, REST_AWAITING)
        if seen.next_due is not None and seen.next_due > 0:
            rest = min(rest, seen.next_due + 0.0005)
        if rest > LONG_REST:
            await self._second_line.close()
        return rest

    async def _maintain(self) -> bool:
        """Run one page of maintenance. Return whether more is left."""
        if self._replanner is not None and await self._replanner.page(self._connection):
            self._replanner = None
        if self._healed_up_to is not None or monotonic() - self._healed_at > HEAL_EVERY:
            self._healed_up_to = await self._heal(self._healed_up_to or 0)
        return self._replanner is not None or self._healed_up_to is not None

    async def _follow(self) -> float:
        lead = await self._connection.run(leader_lease.lead(self.holder, LEASE, OVERDUE))
        if lead.fence is None:
            if lead.overdue:
                await self._ticks(0, check_held=False)
            return REST * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        emit(logging.INFO, "scheduler.leads", f"scheduler {self.holder} leads", fence=lead.fence)
        self._fence = lead.fence
        self._replanner = Replanner.after(lead.zones, lead.fence)
        self._healed_at, self._healed_up_to = -math.inf, None
        return 0.0

    async def _end_runs(self, after: int) -> bool:
        """Count ended runs, for a third of a lease at most: runs may end faster than they are counted.

        Return whether a held fire can go now.
        """
        end = monotonic() + LEASE / 3
        freed, full = False, True
        while full and monotonic() < end and not self.stopping:
            ended = await self._connection.run(tick.end_runs(after), TICK_TIMEOUT)
            full = ended.examined >= tick.PAGE_OF_ENDS
            after = ended.reached or after
            freed = freed or ended.freed > 0
            for key, note in ended.disabled:
                emit(logging.ERROR, "schedule.disabled", f"schedule {key}: {note}", schedule=key)
        self._ended_up_to = after
        return freed

    async def _ticks(self, floor: int, *, check_held: bool) -> int:
        """Tick until nothing is due, for a third of a lease at most. Return the number of rows handled.

        A large backlog is shared with a second connection: one connection uses only one processor of the server.
        """
        began = monotonic()
        end = began + LEASE / 3
        total = TickResult()
        second: asyncio.Task[bool] | None = None
        begin, full = floor, True
        try:
            while full and monotonic() < end and not self.stopping:
                limit = 1 if self._single else self._batch
                done = await self._tick(floor, limit, check_held=check_held)
                if done is None:
                    continue
                self._single = max(0, self._single - 1)
                full = done.taken >= limit or done.more
                self._batch = min(BATCH, self._batch * LARGER)
                # The rest of a full pass is at or after where it stopped; locked rows are found by the next full scan.
                floor = done.reached if full else max(floor, done.now - MARGIN)
                total.add(done)
                self._count(done)
                if full and total.taken >= LARGE_BACKLOG and second is None:
                    second = asyncio.create_task(self._second(floor, end, total), name="sereno scheduler's second")
            if second is not None and not await second:
                floor = begin
        finally:
            if second is not None:
                second.cancel()
                await asyncio.wait([second])
        self._floor = floor
        self.figures.late = total.latest
        self._last = leader_lease.LastTick(total.now or None, monotonic() - began, total.fires)
        emit(
            logging.INFO if total.fires or total.skips else logging.DEBUG,
            "scheduler.tick",
            f"tick: fired {total.fires}, skipped {total.skips}, took {(monotonic() - began) * 1000:.0f} ms, "
            f"the latest was {total.latest * 1000:.0f} ms late",
            fires=total.fires,
            skips=total.skips,
        )
        return total.taken - total.left

    async def _second(self, floor: int, end: float, total: TickResult) -> bool:
        """Tick on the second connection as long as its passes are full.

        Return False if a pass failed: the first connection then handles its rows and finds the cause.
        """
        full = True
        try:
            while full and monotonic() < end and not self.stopping:
                work = self._second_ticker.tick(floor, BATCH, check_held=False)
                done = await self._second_line.run(work, TICK_TIMEOUT, atomic=True)
                full = done.taken >= BATCH or done.more
                floor = done.reached
                total.add(done)
                self._count(done)
        except Exception:  # noqa: BLE001 - the first connection meets the same error and reports it
            return False
        return True

    async def _tick(self, floor: int, limit: int, *, check_held: bool) -> TickResult | None:
        """Run one pass. Return None if a row could not be written: its rows are then fired one by one."""
        try:
            return await self._connection.run(
                self._ticker.tick(floor, limit, check_held=check_held), TICK_TIMEOUT, atomic=True
            )
        except DatabaseUnavailable as error:
            if exceeded_time(error):
                self._batch = max(1, limit // SMALLER)
            raise
        except Exception as error:
            emit(logging.ERROR, "scheduler.refused", f"a schedule could not be fired: {error}", error=error)
            if self._fence is not None:
                await self._connection.run(leader_lease.note_error(self.holder, self._fence, str(error)))
            if not is_a_rows_fault(error) or not self._ticker.taken:
                raise
            if limit > 1:
                self._single = len(self._ticker.taken) + 1
                return None
            for key, why in await self._connection.run(tick.park(self._ticker.refused(error))):
                self._parked(key, why)
            return None

    def _count(self, done: TickResult) -> None:
        self.figures.ticks += 1
        self.figures.fires += done.fires
        self.figures.skips += done.skips
        for key, why in done.parked:
            self._parked(key, why)

    def _parked(self, key: str, why: str) -> None:
        self.figures.parked += 1
        emit(logging.ERROR, "schedule.parked", f"schedule {key} is parked: {why}", schedule=key)

    async def _heal(self, after: int) -> int | None:
        """Heal a page of waiting schedules. Return where the next page begins, None after the last."""
        reached, keys = await self._connection.run(tick.heal(after))
        for key in keys:
            emit(
                logging.WARNING,
                "schedule.healed",
                f"schedule {key} waited for a run that no longer exists: it continues",
                schedule=key,
            )
        if reached is None:
            self._healed_at = monotonic()
        return reached
