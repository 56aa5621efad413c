"""Publishes jobs that were enqueued in PostgreSQL to the carrier of their queue.

A claimed job is either run or published. One statement moves jobs out of `sereno.jobs` into a message in
`sereno.relay_batches`; the message is deleted when the carrier has stored it. If this worker dies in between,
another one publishes the same message under the same id. The carrier may store it twice then, and is asked where: it
is known for longer which of its jobs were stored.

While the carrier is away, jobs run from PostgreSQL as in any other queue.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

from sereno.carriers import store
from sereno.carriers.contract import CarrierClient
from sereno.carriers.message import decode
from sereno.carriers.store import RelayBatch
from sereno.database.connect import ServiceConnection
from sereno.errors import CarrierUnavailable
from sereno.jobs.job import ClaimedJob
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service
from sereno.worker.carried.lasting_position import LastingPosition
from sereno.worker.claiming.claimer import Claimer
from sereno.worker.claiming.slots import QueueSlots
from sereno.worker.settler import Settler

# Jobs, and bytes of arguments, in one message.
JOBS_IN_MESSAGE = 500
BYTES_IN_MESSAGE = 256 * 1024
# Jobs that wait to be published at most, for each queue.
MOST_WAITING = 1000
# Seconds between two looks at the shares, at messages of dead workers and at acknowledged positions.
LOOK_EVERY = 5.0
# Seconds after such a look for which messages still count as this session's.
TRUSTED = 15.0
# Seconds after a failure until a message is published again.
RETRY = 1.0
ALL = 100


class Relay(Service):
    """Publishes the jobs of one session. `connect`: returns the client of each carried queue."""

    def __init__(
        self,
        connection: ServiceConnection,
        session: int,
        settler: Settler,
        claimer: Claimer,
        queues: Mapping[str, QueueSlots],
        connect: Mapping[str, Callable[[], Awaitable[CarrierClient]]],
    ) -> None:
        super().__init__("relay")
        self._connection = connection
        self._session = session
        self._settler = settler
        self._claimer = claimer
        self._queues = queues
        self._connect = connect
        self._waiting: dict[str, list[ClaimedJob]] = {name: [] for name in connect}
        # Messages in PostgreSQL that this session has to publish.
        self._batches: list[RelayBatch] = []
        # Those that a carrier may have stored already: a try had no answer, or they are from another session.
        self._tried: set[int] = set()
        self._shares: dict[str, int] = dict.fromkeys(connect, 0)
        self._failing: set[str] = set()
        # What the largest message of the carrier has taught: jobs in a message, and jobs that do not fit into one.
        self._most_jobs: dict[str, int] = dict.fromkeys(connect, JOBS_IN_MESSAGE)
        self._too_large: set[int] = set()
        # Queues whose carrier has answered, and not failed since: jobs in a message would wait for it.
        self._reached: set[str] = set()
        self._looked_at = float("-inf")
        self._acknowledged = {name: LastingPosition() for name in connect}

    def takes(self, job: ClaimedJob) -> bool:
        """Take a claimed job to publish it; False if it has to run here."""
        share = self._shares.get(job.queue, 0)
        if not share or job.attempt > 1 or job.id % ALL >= share or len(job.args) > BYTES_IN_MESSAGE:
            return False
        if job.fire is not None or job.link is not None or not self._is_open(job.queue) or job.id in self._too_large:
            return False
        self._waiting[job.queue].append(job)
        self.wake()
        return True

    def release_rest(self, queue: QueueSlots) -> None:
        """Release jobs that were claimed for the relay and stay in PostgreSQL: other workers may have a slot."""
        for job in queue.take_unrelayed() if queue.relay_room else ():
            queue.relay_rests_until = monotonic() + LOOK_EVERY
            self._settler.release(job, "the job was claimed for the carrier of its queue, and stays in PostgreSQL")

    def _is_open(self, queue: str) -> bool:
        return queue in self._reached and len(self._waiting[queue]) < MOST_WAITING

    async def run_once(self) -> float:
        if monotonic() > self._looked_at + LOOK_EVERY:
            await self._look()
        for queue, waiting in self._waiting.items():
            if queue in self._failing:
                self._run_here(queue)
            while waiting:
                await self._carry(queue, _first(waiting, self._most_jobs[queue]))
        for batch in list(self._batches):
            await self._publish(batch)
        for name in self._waiting:
            slots = self._queues[name]
            full = self._shares[name] == ALL and self._is_open(name) and not self._batches
            slots.relay_room = JOBS_IN_MESSAGE if full and monotonic() >= slots.relay_rests_until else 0
        return RETRY if self._batches else max(0.0, self._looked_at + LOOK_EVERY - monotonic())

    async def _look(self) -> None:
        self._looked_at = monotonic()
        known = await self._connection.run(store.shares())
        self._shares = {name: known.get(name, ALL) for name in self._waiting}
        mine = {batch.id for batch in self._batches}
        if mine:
            # An operator may have given up the carrier: the jobs of these messages run from PostgreSQL then.
            left = await self._connection.run(store.unpublished(self._session, mine))
            self._batches = [batch for batch in self._batches if batch.id in left]
            self._tried &= left
        found = await self._connection.run(store.take_batches(self._session, list(self._waiting)))
        taken = [batch for batch in found if batch.id not in mine]
        self._batches += taken
        self._tried.update(batch.id for batch in taken)
        for queue in self._waiting:
            try:
                client = await self._connect[queue]()
                position = self._acknowledged[queue].add(await client.acknowledged(queue), monotonic())
            except CarrierUnavailable as error:
                self._fail(queue, error)
            else:
                self._failing.discard(queue)
                self._reached.add(queue)
                if position:
                    await self._connection.run(store.forget_stored(queue, position))

    async def _carry(self, queue: str, jobs: list[ClaimedJob]) -> None:
        """Move jobs into a message. Those that need PostgreSQL run here."""
        batch, kept = await self._connection.run(store.carry(self._session, queue, [job.id for job in jobs]))
        del self._waiting[queue][: len(jobs)]
        if batch is not None:
            self._batches.append(batch)
        for job in jobs:
            if job.id in kept:
                self._claimer.take_stored(job)
            else:
                self._claimer.held.pop(job.id, None)
        self.release_rest(self._queues[queue])

    async def _publish(self, batch: RelayBatch) -> None:
        if monotonic() > self._looked_at + TRUSTED:
            # This process may have been suspended, and another worker have taken over.
            return
        is_repeated = batch.id in self._tried
        try:
            client = await self._connect[batch.queue]()
            if len(batch.body) > client.largest_message:
                await self._return(batch)
                return
            self._tried.add(batch.id)
            position = await client.publish(batch.queue, batch.body, f"r{batch.id}")
        except CarrierUnavailable as error:
            self._fail(batch.queue, error)
            return
        self._failing.discard(batch.queue)
        self._reached.add(batch.queue)
        await self._connection.run(store.published(batch, position, is_repeated=is_repeated))
        self._tried.discard(batch.id)
        self._batches.remove(batch)

    async def _return(self, batch: RelayBatch) -> None:
        """Make the jobs of a message ready again that its carrier would refuse; the next ones have fewer."""
        ids = decode(batch.body).ids
        if len(ids) == 1:
            self._too_large.update(ids)
        self._most_jobs[batch.queue] = max(1, len(ids) // 2)
        await self._connection.run(store.return_batches(batch.queue, batch.id))
        self._batches.remove(batch)
        self._claimer.wake()

    def _fail(self, queue: str, error: CarrierUnavailable) -> None:
        if queue not in self._failing:
            message = f"jobs of queue {queue} are not published, and run from PostgreSQL meanwhile: {error}"
            emit(logging.WARNING, "relay.stopped", message, queue=queue)
        self._reached.discard(queue)
        self._failing.add(queue)

    def _run_here(self, queue: str) -> None:
        """Run jobs from PostgreSQL that were not moved into a message."""
        waiting = self._waiting[queue]
        for job in waiting:
            self._claimer.take_stored(job)
        waiting.clear()
        self.release_rest(self._queues[queue])

    async def stop(self) -> None:
        """Stop. Jobs that were not moved into a message run in another worker."""
        await super().stop()
        for queue in self._waiting:
            self._run_here(queue)


def _first(waiting: list[ClaimedJob], most: int) -> list[ClaimedJob]:
    """Return the first jobs, as many as fit into a message."""
    jobs: list[ClaimedJob] = []
    size = 0
    for job in waiting[:most]:
        size += len(job.args)
        if jobs and size > BYTES_IN_MESSAGE:
            break
        jobs.append(job)
    return jobs
