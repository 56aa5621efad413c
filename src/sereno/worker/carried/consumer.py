"""Fetches the messages of one carried queue, as many as there are free slots, and starts their jobs."""

import logging
import time
from collections.abc import Awaitable, Callable
from math import ceil
from time import monotonic

from sereno.carriers.contract import CarriedMessage, CarrierClient
from sereno.carriers.message import UndecodableMessage, claimed_jobs, decode
from sereno.carriers.store import stored
from sereno.database.connect import ServiceConnection
from sereno.errors import CarrierUnavailable, DatabaseUnavailable
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import Registry
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service
from sereno.worker.carried.held_message import HeldMessage
from sereno.worker.carried.outcomes import CarriedOutcomes
from sereno.worker.carried.pauses import CurrentPauses
from sereno.worker.claiming.slots import QueueSlots

# Seconds for which one request waits for messages, and until the next look while all slots are busy.
WAIT, BUSY = 2.0, 0.5
# Seconds between two tries to reach the carrier.
RETRY = 1.0
# A message that is delivered this often comes home: its jobs may be what ends the workers.
HOME_AFTER = 3
# How fast the average number of jobs in a message follows new messages.
SMOOTHING = 0.2


class Consumer(Service):
    """Fetches the messages of one queue. `start_jobs`: starts the buffered jobs of the queue."""

    def __init__(
        self,
        slots: QueueSlots,
        connect: Callable[[], Awaitable[CarrierClient]],
        registry: Registry,
        outcomes: CarriedOutcomes,
        connection: ServiceConnection,
        start_jobs: Callable[[QueueSlots], None],
        pauses: CurrentPauses,
    ) -> None:
        super().__init__(f"consumer of {slots.name}")
        self._slots = slots
        self._connect = connect
        self._registry = registry
        self._outcomes = outcomes
        self._connection = connection
        self._start_jobs = start_jobs
        self._pauses = pauses
        self._jobs_in_message = 1.0
        self._is_away = False
        self._resting = False

    def job_ended(self) -> None:
        """Fetch more if the buffer runs low."""
        if self._resting and self._slots.runs_low():
            self._resting = False
            self.wake()

    async def run_once(self) -> float:
        self._slots.measure()
        room = self._slots.free()
        if room <= 0 or self._outcomes.is_behind or self._pauses.has_queue(self._slots.name):
            self._resting = True
            return BUSY
        try:
            client = await self._connect()
            most = max(1, ceil(room / max(1.0, self._jobs_in_message)))
            messages = await client.fetch(self._slots.name, most, WAIT)
            for message in messages:
                await self._take(message)
        except CarrierUnavailable as error:
            if not self._is_away:
                emit(logging.ERROR, "carrier.unavailable", str(error), queue=self._slots.name)
            self._is_away = True
            return RETRY
        if self._is_away:
            emit(logging.INFO, "carrier.available", f"queue {self._slots.name}: its carrier answers again")
            self._is_away = False
        return 0.0

    async def _take(self, message: CarriedMessage) -> None:
        """Start the jobs of a message."""
        try:
            batch = decode(message.body)
        except UndecodableMessage as error:
            self._outcomes.park(self._slots.name, message, str(error))
            return
        batch.queue = self._slots.name
        self._jobs_in_message += SMOOTHING * (len(batch.ids) - self._jobs_in_message)
        held = HeldMessage(message, batch)
        jobs = claimed_jobs(batch, time.time())
        if message.deliveries > 1:
            await self._leave_out(held)
            jobs = [job for job in jobs if job.id in held.left]
        self._outcomes.hold(held)
        if message.deliveries >= HOME_AFTER:
            self._outcomes.bring_home(jobs, f"its message was delivered {message.deliveries} times")
            return
        self._buffer(jobs)

    async def _leave_out(self, held: HeldMessage) -> None:
        """Leave out the jobs that had an outcome in an earlier delivery of the message."""
        held.leave_out(await held.message.progress())
        try:
            held.left -= await self._connection.run(stored(held.left))
        except DatabaseUnavailable:
            # They run again; what they would store is refused then.
            return

    def _buffer(self, jobs: list[ClaimedJob]) -> None:
        """Buffer jobs that can run here. The others come home: PostgreSQL finds a worker for them."""
        now = monotonic()
        unknown: list[ClaimedJob] = []
        isolated: list[ClaimedJob] = []
        for job in jobs:
            job.seen = now
            definition = self._registry.get(job.task)
            if definition is None:
                unknown.append(job)
            elif (reason := self._pauses.reason(job)) is not None:
                # PostgreSQL keeps it until the pause ends.
                self._outcomes.bring_home([job], reason)
            elif definition.isolate or definition.is_demanding:
                isolated.append(job)
            else:
                self._slots.buffer.append(job)
        if unknown:
            self._outcomes.bring_home(unknown, f"this worker has no task {unknown[0].task}")
        if isolated:
            self._outcomes.bring_home(isolated, None)
        self._start_jobs(self._slots)
