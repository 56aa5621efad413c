"""A worker: registers a session, claims jobs, runs them, and settles their outcomes.

claimer ──▶ executor ──▶ settler          promoter: makes due jobs ready, rescues jobs of dead sessions
   ▲            │                         maintenance: slow duties, each on its own connection
   └── a slot is free                     listener: receives NOTIFY
                                          session stats: reports floors, waiting jobs and statistics
"""

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from time import monotonic

from sereno.database.connect import ServiceConnection
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, DatabaseUnavailable
from sereno.jobs.bulk import adopt
from sereno.jobs.job import PRIORITIES, ClaimedJob
from sereno.jobs.task import Registry
from sereno.jobs.task_rows import declare_code
from sereno.telemetry.log_events import emit
from sereno.telemetry.metrics import Gauges, MetricTally
from sereno.worker import bulk_task as bulk
from sereno.worker.carried.queues import CarriedQueues
from sereno.worker.claiming.claimer import Claimer
from sereno.worker.claiming.floor import Floors
from sereno.worker.claiming.listener import Listener, with_id
from sereno.worker.claiming.slots import QueueSlots
from sereno.worker.event_loop import wait_at_most
from sereno.worker.executor import Executor
from sereno.worker.heartbeat import Heartbeat, LeaseHolder, boot_clock
from sereno.worker.hooks import HookCaller
from sereno.worker.isolation.pool import IsolationPool
from sereno.worker.isolation.slots import IsolationSlots
from sereno.worker.log_writer import LogWriter
from sereno.worker.maintenance import housekeeping
from sereno.worker.maintenance.duties import Maintenance, MaintenanceDuty, maintenance_connection
from sereno.worker.maintenance.promoter import RESCUE_EVERYWHERE, Promoter
from sereno.worker.maintenance.vacuum import Vacuum
from sereno.worker.registration import register_worker
from sereno.worker.session_check import SessionCheck
from sereno.worker.session_stats import SessionStats
from sereno.worker.sessions import finish
from sereno.worker.settler import Settler
from sereno.worker.tallies import Tallies, gauges_of

# Seconds between two checks of deadlines and of the lease, while jobs run and while none do.
WATCH_EVERY = 0.25
WATCH_WHEN_IDLE = 1.0
# Seconds that cancelled handlers may take to end after the grace period, and that the last outcomes may take.
CANCEL_TIMEOUT = 5.0
# Seconds between two tries to register again.
REGISTER_AGAIN = 1.0


class Worker:
    """Runs jobs until it is stopped."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        queues: Mapping[str, int],
        *,
        service: str = "app",
        lease_holder: type | None = None,
        declare_more: Callable[[], Operation[None]] | None = None,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        if not len(registry):
            raise ConfigurationError("this application has no tasks: define one with @app.task, then start a worker")
        bulk.register(registry, database)
        self.database = database
        self.registry = registry
        self.settings = database.settings
        self._tallies = Tallies()
        self.tally = self._tallies.current
        self._service = service
        self._declare_more = declare_more
        self._on_close = on_close
        self.session = 0
        self.lost = False
        self._make_lease_holder = lease_holder or Heartbeat
        self.queues = {
            name: QueueSlots(name, slots, max((task.batch for task in registry if task.queue == name), default=0))
            for name, slots in queues.items()
        }
        self._executors: list[Executor] = []
        self.has_carried_queues = any(name in registry.carried for name in queues)
        self.registered = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self, *, hurry: bool = False) -> None:
        """Begin to stop: running jobs may finish within the grace period; with `hurry` they are released at once."""
        self._stopping.set()
        if hurry:
            self._hurry.set()

    async def run(self, *, renew: bool = True) -> None:
        """Work until stopped. With `renew`, a lost session is replaced by a new one; a supervisor does that itself."""
        self.database.reserve_connections(sum(queue.slots for queue in self.queues.values()))
        async with LogWriter(self.database.url, self.settings):
            slots = {name: queue.slots for name, queue in self.queues.items() if name in self.registry.carried}
            async with CarriedQueues(self.database, self.registry, slots, self.tally, self._hurry) as self.carried:
                while True:
                    await self._run_session()
                    if not (self.lost and renew) or self._stopping.is_set():
                        return

    async def _run_session(self) -> None:
        """Run one session: register, work, drain, close."""
        self.lost = False
        self.queues = {name: queue.fresh() for name, queue in self.queues.items()}
        try:
            published = await self._register()
        except BaseException:
            await self._close_lines()
            raise
        self._assemble(published)
        try:
            await self._work()
            if not self.lost:
                await self._drain()
        finally:
            await self._close()

    @property
    def is_stuck(self) -> bool:
        """Whether a handler ignores its deadline."""
        return any(executor.stuck for executor in self._executors)

    @property
    def is_ready(self) -> bool:
        """Whether the worker has claimed, polled or reported recently."""
        if self._stopping.is_set() or not self.registered.is_set() or self.claimer.polled_at == -math.inf:
            return False
        # A worker whose slots are all busy does not claim; its reports then show that it still reaches the database.
        active_at = max(self.claimer.polled_at, self._stats.reported_at)
        return monotonic() - active_at < max(3 * self.settings.heartbeat, 4 * self.settings.poll)

    def take_tally(self) -> MetricTally:
        """Return the counts since the last call, for the metrics endpoint."""
        return self._tallies.take_unserved(self._executors)

    def gauges(self) -> Gauges:
        return gauges_of(self.queues, self.carried.reports.gauges if self._executors else {})

    async def _register(self) -> Mapping[str, int]:
        """Register a new session and return the floors that other sessions have published.

        At the first start an unreachable database raises; a worker that had a session waits until it is back.
        """
        settings, url = self.settings, self.database.url
        self._claim_line = ServiceConnection(url, settings, "claimer")
        self._settle_line = ServiceConnection(url, settings, "settler")
        self._upkeep_connection = ServiceConnection(url, settings, "upkeep")
        while True:
            # The lease counts from before the call, because the reply may be late.
            self._registered_at = boot_clock()
            try:
                self.session, published = await self._upkeep_connection.run(
                    register_worker(self.registry, {name: queue.slots for name, queue in self.queues.items()}, settings)
                )
                await self._upkeep_connection.run(declare_code(self.registry, self._service))
                await self._upkeep_connection.run(adopt(list(self.queues)))
                if self._declare_more is not None:
                    await self._upkeep_connection.run(self._declare_more())
            except DatabaseUnavailable:
                if not self.session or self._stopping.is_set():
                    raise
                await wait_at_most(self._stopping, REGISTER_AGAIN)
            else:
                self._session_check = SessionCheck(self.session)
                self._session_check.watch(self._upkeep_connection, self._claim_line, self._settle_line)
                return published

    def _assemble(self, published: Mapping[str, int]) -> None:
        settings, url = self.settings, self.database.url
        hooks = HookCaller(self.registry.hooks) if self.registry.hooks else None
        self._settler = Settler(
            self._settle_line, self.session, self.tally, self._on_settled, self._on_rescheduled, hooks
        )
        self._isolation = IsolationPool(self.database, self.registry, self._settler.announce)
        self.executor = Executor(
            self.database,
            self.session,
            self._settler,
            self.tally,
            self._on_end,
            self._isolation,
            threads=sum(queue.slots for queue in self.queues.values()),
            registry=self.registry,
            resources=self.carried.resources,
        )
        self._executors = [self.executor, self.carried.executor]
        pairs = {f"{name}:{priority}" for name in self.queues for priority in PRIORITIES}
        self.floors = Floors({pair: floor for pair, floor in published.items() if pair in pairs})
        self.claimer = Claimer(
            self._claim_line,
            self._upkeep_connection,
            self.session,
            self.registry,
            self.queues,
            self.executor,
            IsolationSlots(settings.isolated_processes),
            self._settler,
            self.floors,
            self.tally,
            settings.poll,
            listens=Listener.is_wanted(settings),
        )
        self._promoter = Promoter(self._upkeep_connection, self.claimer.wake, self.queues)
        # Maintenance has its own connections, so that a lock it waits for delays no job.
        self._vacuum = Vacuum(ServiceConnection(url, settings, "vacuum"), settings)
        self._maintenance = (
            self._vacuum,
            self._maintain("rescuer", [RESCUE_EVERYWHERE]),
            self._maintain("housekeeping", housekeeping.duties(settings)),
        )
        self._stats = SessionStats(
            self._upkeep_connection,
            self.session,
            self.claimer,
            self.executor,
            self.floors,
            lambda: self._tallies.take_unwritten(self._executors),
            settings,
        )
        self._settler.on_continued = self.claimer.wake
        self._listener = Listener(url, settings, self._on_notify(), self._on_connected)
        self.lease_holder: LeaseHolder = self._make_lease_holder(url, settings, self.session, self._registered_at)
        self.registered.set()

    def _on_notify(self) -> dict[str, Callable[[str], None]]:
        return {
            "ready": self._on_ready,
            "due": self._promoter.on_due,
            "cancel": with_id(self._on_cancel),
            "linked": with_id(self._on_linked),
            "clock": lambda _: self._promoter.clock_was_set(),
        }

    def _maintain(self, name: str, duties: Sequence[MaintenanceDuty]) -> Maintenance:
        return Maintenance(name, maintenance_connection(self.database.url, self.settings, name), duties)

    async def _work(self) -> None:
        slots = ", ".join(f"{name}={queue.slots}" for name, queue in self.queues.items())
        emit(logging.INFO, "worker.started", f"worker started: {slots}", session=self.session, pid=os.getpid())
        self.lease_holder.start()
        self._settler.start()
        self._promoter.start()
        for service in self._maintenance:
            service.start()
        self._stats.start()
        self._listener.start()
        self.claimer.start()
        self.carried.begin_session(self.session, self._settler, self.claimer, self.queues)
        while not self._stopping.is_set() and not self.is_stuck:
            self.executor.watch()
            self._isolation.trim()
            if self._lease_is_lost():
                self._stop_lost()
                return
            await wait_at_most(self._stopping, WATCH_EVERY if self.executor.running else WATCH_WHEN_IDLE)

    def earliest_deadline(self) -> float | None:
        """Return the seconds until the first deadline of a running job; None if no running job has a deadline."""
        found = [executor.earliest_deadline() for executor in self._executors]
        return min((each for each in found if each is not None), default=None)

    async def _drain(self) -> None:
        """Stop claiming, release jobs that have not started, wait for running ones, then release those as well."""
        emit(logging.INFO, "worker.stopping", "worker stopping: it claims no new jobs", session=self.session)
        await self.claimer.stop()
        await self._listener.stop()
        await self.carried.end_relay()
        carried = asyncio.create_task(self.carried.drain())
        self._release_buffered()
        bulk.release(self.executor.running.values())
        self.executor.request_stop()
        end = monotonic() + self.settings.grace
        while self.executor.running and monotonic() < end and not self._hurry.is_set() and not self._only_stuck():
            self.executor.watch()
            if self._lease_is_lost():
                self._stop_lost()
                return
            await wait_at_most(self._hurry, 0.05)
        self.executor.release_all("the worker stopped")
        await self.executor.ended(CANCEL_TIMEOUT)
        self._release_rest()
        await carried
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await self.carried.outcomes.flushed()
                await self._settler.flushed()
                await self.claimer.reconcile(older_than=0.0)
                await self.claimer.lanes.hand_over(at_once=True)
                await self._stats.write_figures()
        except (TimeoutError, DatabaseUnavailable):
            emit(logging.ERROR, "worker.unflushed", "some outcomes could not be stored: those jobs will run again")

    def _only_stuck(self) -> bool:
        return all(running.is_abandoned for running in self.executor.running.values())

    def _release_buffered(self) -> None:
        for queue in self.queues.values():
            for job in queue.take_all():
                self._settler.release(job, "the worker stopped before the job started")

    def _release_rest(self) -> None:
        """Release the jobs of handlers that ignored their cancellation; fencing rejects their later writes."""
        for running in {id(r): r for r in self.executor.running.values()}.values():
            for job in running.jobs:
                self._settler.release(job, "the worker stopped while the handler still ran", started=True)

    async def _close(self) -> None:
        await self.carried.end_session()
        services = (self.claimer, self._promoter, *self._maintenance, self._stats, self._listener, self._settler)
        if self.lost:
            # Nothing more is written. The services stop in parallel, because on an unresponsive connection each one
            # waits for its own timeout.
            await asyncio.gather(*(service.stop() for service in services))
        for service in services:
            await service.stop()
        self.lease_holder.stop()
        await self._isolation.close()
        if not self.lost:
            try:
                await self._upkeep_connection.run(finish([self.session], "closed"), timeout=3.0)
            except DatabaseUnavailable:
                emit(logging.WARNING, "worker.unclosed", "the session could not be closed: its lease will expire")
        await self._close_lines()
        # Last, because resources may take seconds to close.
        await self.executor.close()
        if self._on_close is not None:
            await self._on_close()
        await self.database.aclose()
        emit(logging.INFO, "worker.stopped", "worker stopped", session=self.session)

    async def _close_lines(self) -> None:
        for line in (self._claim_line, self._settle_line, self._upkeep_connection):
            await line.close()

    def _lease_is_lost(self) -> bool:
        lost = self.lease_holder.lost or self._stats.lost or self._session_check.is_lost
        return lost or boot_clock() > self.lease_holder.lease_end

    def _stop_lost(self) -> None:
        """Stop every handler and write nothing more: other workers have the jobs of this session now, or soon will."""
        self.lost = True
        emit(logging.ERROR, "session.lost", "the lease was lost: every handler is stopped", session=self.session)
        self.executor.release_all("the lease was lost")

    def _on_settled(self, attempts: Mapping[int, int], gone: Collection[int]) -> None:
        """Handle settled attempts by job; `gone`: jobs that are done for good."""
        self._vacuum.settled(len(attempts))
        if self.claimer.settled(attempts, gone) and not self._stopping.is_set():
            self.claimer.wake()

    def _on_rescheduled(self) -> None:
        self._promoter.wake()

    def _on_end(self, jobs: Sequence[ClaimedJob]) -> None:
        slots = self.queues[jobs[0].queue]
        slots.ended(len(jobs), limited=jobs[0].limited)
        if slots.has_slot_groups and not self.executor.stuck:
            for job in jobs:
                slots.step_up(job)
        was_isolated = self.claimer.isolated.end(jobs[0].id)
        if not self._stopping.is_set():
            self.claimer.fill(slots)
            if was_isolated:
                self.claimer.isolated_ended()
            if slots.beside is not None:
                self.carried.fill(slots.name)

    def _on_linked(self, job_id: int) -> None:
        if not self.executor.link(job_id):
            # It ended before this was known here, or another worker has it: look.
            self._promoter.wake()

    def _on_cancel(self, job_id: int) -> None:
        for executor in self._executors:
            executor.cancel(job_id)

    def _on_ready(self, queue: str) -> None:
        if queue in self.queues:
            self.claimer.notified()
        elif not queue:
            self.claimer.wake()

    def _on_connected(self) -> None:
        self._promoter.clock_was_set()
        self.claimer.wake()
