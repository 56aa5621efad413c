"""Publishes jobs directly to the carrier of their queue, for sync and async code.

One thread with an event loop serves a process. Jobs that are enqueued one by one while a message is on its way share
the next one, so that many callers do not cost many messages.
"""

import asyncio
import os
import random
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from sereno.carriers.contract import Carrier, CarrierClient
from sereno.carriers.message import encode
from sereno.carriers.store import next_ids, shares
from sereno.database.database import Database
from sereno.errors import CarrierFull, CarrierUnavailable, DatabaseUnavailable, InvalidArguments
from sereno.jobs.enqueue import astore, span_of, store
from sereno.jobs.job import EnqueuedJob, NewJob
from sereno.jobs.task import Registry
from sereno.telemetry import tracing

T = TypeVar("T")

# Jobs, and bytes of arguments, in one message.
JOBS_IN_MESSAGE = 500
BYTES_IN_MESSAGE = 256 * 1024
# Messages on their way at the same time.
IN_FLIGHT = 8
# Seconds for which a message is tried again; a cluster elects a new leader in less. And the pause between two tries.
PUBLISH_FOR, PUBLISH_AGAIN = 10.0, 0.25
# Seconds for which each message is tried, however long others have failed: the carrier may be back, and its client not.
LEAST_PUBLISH_FOR = 2.0
# Seconds after which the share of the carrier is read again.
SHARES_EVERY = 10.0
ALL = 100


class Publisher:
    """Publishes the jobs of one application."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self._database = database
        self._registry = registry
        self._lock = threading.Lock()
        self._blocks: deque[Iterator[int]] = deque()
        self._left = 0
        self._shares: dict[str, int] = {}
        self._shares_read_at = float("-inf")
        self._thread: PublisherThread | None = None
        self._process = os.getpid()
        self._chance = random.Random()  # noqa: S311 - a share of jobs, not secrets

    def publish(self, jobs: Sequence[NewJob]) -> list[EnqueuedJob]:
        """Publish jobs; return when the carrier has replicated them."""
        with span_of(jobs):
            return self._publish(jobs if tracing.active is None else tracing.active.with_trace(jobs))

    def _publish(self, jobs: Sequence[NewJob]) -> list[EnqueuedJob]:
        self._check_process()
        if self._needs_shares():
            with suppress(DatabaseUnavailable):
                self._shares = dict(self._database.run_one(shares()))
        while (split := self._split(jobs)) is None:
            self._add_block(self._database.run_one(next_ids()))
        carried, stored = split
        sent = self._send(carried)
        made = store(self._database, stored) if stored else []
        for future in sent:
            future.result()
        return self._in_order(jobs, carried, made)

    async def apublish(self, jobs: Sequence[NewJob]) -> list[EnqueuedJob]:
        """`publish` for async code."""
        with span_of(jobs):
            return await self._apublish(jobs if tracing.active is None else tracing.active.with_trace(jobs))

    async def _apublish(self, jobs: Sequence[NewJob]) -> list[EnqueuedJob]:
        self._check_process()
        if self._needs_shares():
            with suppress(DatabaseUnavailable):
                self._shares = dict(await self._database.arun_one(shares()))
        while (split := self._split(jobs)) is None:
            self._add_block(await self._database.arun_one(next_ids()))
        carried, stored = split
        sent = self._send(carried)
        made = await astore(self._database, stored) if stored else []
        await asyncio.gather(*map(asyncio.wrap_future, sent))
        return self._in_order(jobs, carried, made)

    def close(self) -> None:
        """Close the connections to carriers."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def _check_process(self) -> None:
        """Forget what a fork has copied: its ids would be used twice."""
        if self._process != os.getpid():
            self._lock = threading.Lock()
            self._blocks.clear()
            self._left = 0
            self._thread = None
            self._process = os.getpid()

    def _add_block(self, ids: range) -> None:
        with self._lock:
            self._blocks.append(iter(ids))
            self._left += len(ids)

    def _needs_shares(self) -> bool:
        now = time.monotonic()
        if now < self._shares_read_at + SHARES_EVERY:
            return False
        self._shares_read_at = now
        return True

    def _split(self, jobs: Sequence[NewJob]) -> tuple[dict[int, tuple[int, NewJob]], list[NewJob]] | None:
        """Return the jobs for carriers, with their ids by index, and the jobs of PostgreSQL; None without ids."""
        carried: dict[int, tuple[int, NewJob]] = {}
        stored: list[NewJob] = []
        with self._lock:
            if self._left < len(jobs):
                return None
            for index, job in enumerate(jobs):
                share = self._shares.get(job.options.queue or "", ALL)
                if share == ALL or self._chance.random() * ALL < share:
                    carried[index] = (self._next_id(), job)
                else:
                    stored.append(job)
        return carried, stored

    def _next_id(self) -> int:
        while True:
            for job_id in self._blocks[0]:
                self._left -= 1
                return job_id
            self._blocks.popleft()

    def _in_order(
        self, jobs: Sequence[NewJob], carried: dict[int, tuple[int, NewJob]], made: Sequence[EnqueuedJob]
    ) -> list[EnqueuedJob]:
        rest = iter(made)
        return [
            EnqueuedJob(carried[index][0], job.task) if index in carried else next(rest)
            for index, job in enumerate(jobs)
        ]

    def _send(self, carried: dict[int, tuple[int, NewJob]]) -> list["Future[None]"]:
        thread = self._running_thread()
        by_queue: dict[str, list[tuple[int, NewJob]]] = {}
        for job_id, job in carried.values():
            by_queue.setdefault(job.options.queue or "", []).append((job_id, job))
        sent: list[Future[None]] = []
        for queue, items in by_queue.items():
            carrier = self._registry.carried[queue].carrier
            if len(items) == 1:
                sent.append(thread.add(carrier, queue, *items[0]))
            else:
                for chunk in _chunks(items):
                    body = encode(queue, [job_id for job_id, _ in chunk], [job for _, job in chunk], time.time())
                    sent.append(thread.call(thread.publish(carrier, queue, body, f"d{chunk[0][0]}")))
        return sent

    def _running_thread(self) -> "PublisherThread":
        with self._lock:
            if self._thread is None:
                self._thread = PublisherThread()
            return self._thread


class PublisherThread:
    """An event loop in a thread, with the connections to carriers."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._clients: dict[Carrier, asyncio.Task[CarrierClient]] = {}
        self._waiting: dict[str, list[tuple[int, NewJob, Future[None]]]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._publishing: set[asyncio.Task[Any]] = set()
        # By the monotonic clock, the first and the last of the failures since a carrier has accepted a message.
        self._failing: dict[Carrier, tuple[float, float]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="sereno publisher", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def add(self, carrier: Carrier, queue: str, job_id: int, job: NewJob) -> "Future[None]":
        """Publish one job, in one message with others that wait at the same time."""
        done: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._add, carrier, queue, (job_id, job, done))
        return done

    def _add(self, carrier: Carrier, queue: str, item: tuple[int, NewJob, "Future[None]"]) -> None:
        self._waiting.setdefault(queue, []).append(item)
        if queue not in self._senders:
            self._senders[queue] = self._loop.create_task(self._send_waiting(carrier, queue))

    async def _send_waiting(self, carrier: Carrier, queue: str) -> None:
        try:
            while waiting := self._waiting.pop(queue, []):
                # From here on a caller that is cancelled no longer cancels the future.
                for chunk in _chunks([item for item in waiting if item[2].set_running_or_notify_cancel()]):
                    await self._send_chunk(carrier, queue, chunk)
        finally:
            # At once: a job that is added before the next turn of the loop needs a new sender.
            del self._senders[queue]

    async def _send_chunk(self, carrier: Carrier, queue: str, chunk: list[tuple[int, NewJob, "Future[None]"]]) -> None:
        body = encode(queue, [item[0] for item in chunk], [item[1] for item in chunk], time.time())
        try:
            await self.publish(carrier, queue, body, f"d{chunk[0][0]}")
        except BaseException as error:  # noqa: BLE001 - raised in the callers, each of which waits for its job
            for *_, done in chunk:
                done.set_exception(error)
        else:
            for *_, done in chunk:
                done.set_result(None)

    async def publish(self, carrier: Carrier, queue: str, body: bytes, message_id: str) -> None:
        """Publish a message. It is tried again for some seconds, under the same id: then it is stored only once."""
        task = asyncio.current_task()
        assert task is not None
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)
        async with self._in_flight:
            began = time.monotonic()
            while True:
                try:
                    client = await self._client(carrier)
                    _check_size(queue, body, client.largest_message)
                    await client.publish(queue, body, message_id)
                except CarrierFull:
                    raise
                except CarrierUnavailable:
                    # Others have tried as long: those that wait behind them do not wait for as long again.
                    end = min(began, self._failing_since(carrier)) + PUBLISH_FOR
                    if time.monotonic() + PUBLISH_AGAIN > max(end, began + LEAST_PUBLISH_FOR):
                        raise
                    await asyncio.sleep(PUBLISH_AGAIN)
                else:
                    self._failing.pop(carrier, None)
                    return

    def _failing_since(self, carrier: Carrier) -> float:
        """Note a failure; return when the first of those that followed each other was."""
        now = time.monotonic()
        first, last = self._failing.get(carrier, (now, now))
        if now - last > PUBLISH_FOR:
            first = now
        self._failing[carrier] = (first, now)
        return first

    async def _client(self, carrier: Carrier) -> CarrierClient:
        task = self._clients.get(carrier)
        if task is None or (task.done() and (task.exception() is not None or task.result().is_closed)):
            task = self._clients[carrier] = self._loop.create_task(carrier.connect())
        client = await asyncio.shield(task)
        if not client.is_connected:
            raise CarrierUnavailable(f"{carrier.kind} at {carrier.description} is not reachable")
        return client

    def close(self) -> None:
        if self.process != os.getpid():
            return
        self.call(self._close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for sender in list(self._senders.values()):
            await asyncio.wait([sender])
        # Other messages of a call that has failed already.
        for publishing in list(self._publishing):
            publishing.cancel()
        await asyncio.gather(*self._publishing, return_exceptions=True)
        for task in self._clients.values():
            with suppress(CarrierUnavailable):
                await (await task).close()


Item = TypeVar("Item", bound=tuple[Any, ...])


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the items, each with a job at index 1, in parts that fit into a message."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        length = len(item[1].args)
        if chunk and (len(chunk) >= JOBS_IN_MESSAGE or size + length > BYTES_IN_MESSAGE):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk


def _check_size(queue: str, body: bytes, largest: int) -> None:
    if len(body) > largest:
        raise InvalidArguments(
            f"queue {queue}: a job of {len(body):,} bytes does not fit into a message of its carrier, at most "
            f"{largest:,} bytes: raise max_payload of the servers, or enqueue it without direct=True"
        )
