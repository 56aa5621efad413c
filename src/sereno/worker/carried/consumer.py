"""Fetches the messages of one carried queue, as many as there are free slots, and starts their jobs."""

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from math import ceil
from time import monotonic

from sereno.carriers.contract import CarriedMessage, CarrierClient
from sereno.carriers.message import UndecodableMessage, claimed_jobs, decode
from sereno.carriers.publisher import JOBS_IN_MESSAGE
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
# Seconds that a job may wait for a slot of this worker while no message waits for a worker; and between two looks.
SHARE_AFTER = 5.0
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
        # Before the first message: as many as there can be, so that a worker does not take what others could run.
        self._jobs_in_message = float(JOBS_IN_MESSAGE)
        self._is_away = False
        self._resting = False
        self._is_fetching = False
        self._shared_at = float("-inf")

    async def stop(self) -> None:
        """Stop. A request for messages is not waited for: the client gives back what it has received."""
        if self._is_fetching and self._loop_task is not None:
            self.stopping = True
            self._loop_task.cancel()
        await super().stop()

    def job_ended(self) -> None:
        """Fetch more if the buffer runs low."""
        if self._resting and self._slots.runs_low():
            self._resting = False
            self.wake()

    async def run_once(self) -> float:
        self._slots.measure()
        room = self._slots.free()
        is_paused = self._pauses.has_queue(self._slots.name)
        is_busy = room <= 0 or self._outcomes.is_behind or is_paused
        try:
            client = await self._connect()
            most = 0 if is_busy else max(1, ceil(room / max(1.0, self._jobs_in_message)))
            # A busy worker takes what it has requested before: no other worker gets it meanwhile.
            self._is_fetching = True
            messages = await client.fetch(self._slots.name, most, 0.0 if is_busy else WAIT)
            self._is_fetching = False
            for message in messages:
                await self._take(message)
            await self._share(client)
        except CarrierUnavailable as error:
            self._is_fetching = False
            if not self._is_away:
                emit(logging.ERROR, "carrier.unavailable", str(error), queue=self._slots.name)
            self._is_away = True
            return RETRY
        if self._is_away:
            emit(logging.INFO, "carrier.available", f"queue {self._slots.name}: its carrier answers again")
            self._is_away = False
        self._resting = is_busy
        return BUSY if is_busy else 0.0

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
        if message.deliveries > 1:
            if self._outcomes.messages.recognises(held):
                return
            await self._leave_out(held)
        self._outcomes.messages.hold(held)
        jobs = claimed_jobs(batch, time.time())
        if len(held.left) < len(jobs):
            jobs = [job for job in jobs if job.id in held.left]
        if message.deliveries >= HOME_AFTER:
            self._outcomes.bring_home(jobs, f"its message was delivered {message.deliveries} times")
            return
        self._buffer(jobs)

    async def _share(self, client: CarrierClient) -> None:
        """Bring jobs home that have waited long for a slot here, if no message waits: other workers may be idle.

        They could be published again, in smaller messages. But then two messages would have the same job, and
        `ctx.transaction()` would no longer be exactly once. The few jobs of slow handlers cost PostgreSQL little.
        """
        now = monotonic()
        buffer = self._slots.buffer
        if not buffer or self._outcomes.home is None or now < self._shared_at + SHARE_AFTER:
            return
        if buffer[0].seen > now - SHARE_AFTER:
            return
        self._shared_at = now
        if (await client.state(self._slots.name)).pending_messages:
            return
        late = [job for job in buffer if job.seen <= now - SHARE_AFTER]
        self._slots.buffer = deque(job for job in buffer if job.seen > now - SHARE_AFTER)
        self._outcomes.bring_home(late, "it has waited for a slot, and other workers may have one")

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
        to_store: list[ClaimedJob] = []
        for job in jobs:
            job.seen = now
            definition = self._registry.get(job.task)
            if definition is None:
                unknown.append(job)
            elif (reason := self._pauses.reason(job)) is not None:
                # PostgreSQL keeps it until the pause ends.
                self._outcomes.bring_home([job], reason)
            elif definition.isolate or definition.is_demanding or definition.needs_row:
                to_store.append(job)
            else:
                self._slots.buffer.append(job)
        if unknown:
            self._outcomes.bring_home(unknown, f"this worker has no task {unknown[0].task}")
        if to_store:
            self._outcomes.bring_home(to_store, None)
        self._start_jobs(self._slots)
