"""Waits for jobs to finish: one thread and one connection per process, whatever the number of waiters.

Settlements notify while a process waits (`sereno.waiters`). A notification is only a hint: unfinished jobs are also
looked up every few seconds.
"""

import asyncio
import logging
import os
import select
import socket
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import msgspec
import psycopg

from sereno.database.connect import BROKEN, open_sync
from sereno.database.database import Database
from sereno.database.statement import Operation, Statement, queries, run
from sereno.duration import Duration, seconds
from sereno.errors import DatabaseUnavailable, JobNotFound
from sereno.jobs.carried import FIRST_DIRECT_ID
from sereno.telemetry.log_events import emit

_sql = queries("jobs/finished")

# Seconds: for how long an announcement counts, between two of them, between two looks at all jobs with and without
# notifications, how long the connection stays open when nothing waits, and between two tries to connect.
ANNOUNCED_FOR, ANNOUNCE_EVERY = 60.0, 20.0
LOOK_EVERY, LOOK_EVERY_WITHOUT_NOTIFY = 2.5, 0.5
LINGER = 5.0
RECONNECT_AFTER = 0.5
# Jobs looked up by one statement.
MOST_IDS = 5000
_INDEXES_ONLY = "set enable_seqscan = off; set statement_timeout = 15000"


class FinishedJob(msgspec.Struct, frozen=True, gc=False):
    """The end of a job. `state`: succeeded, dead or cancelled. `result`: as JSON; None if it has none."""

    id: int
    task: str
    state: str
    result: str | None = None
    reason: str | None = None
    error_type: str | None = None
    error_message: str | None = None


class FinishListener:
    """Completes a future for each wait. The thread starts with the first wait and ends some seconds after the last."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._waits: dict[int, list[Future[FinishedJob]]] = {}
        # Waits whose jobs were not looked up yet.
        self._new: set[int] = set()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._wake: socket.socket | None = None
        self._is_closed = False

    @contextmanager
    def waiting(self, ids: Collection[int]) -> Iterator[list["Future[FinishedJob]"]]:
        """Yield a future for each job; waits that are not complete at the end of the block are given up."""
        futures: list[Future[FinishedJob]] = [Future() for _ in ids]
        with self._lock:
            for job_id, future in zip(ids, futures, strict=True):
                self._waits.setdefault(job_id, []).append(future)
            self._new.update(ids)
            self._start()
        try:
            yield futures
        finally:
            with self._lock:
                for job_id, future in zip(ids, futures, strict=True):
                    self._forget(job_id, future)

    def close(self) -> None:
        """End the thread; waits that remain raise an error. One that begins meanwhile is not affected."""
        with self._lock:
            self._is_closed = True
            left, self._waits = self._waits, {}
            self._new.clear()
            thread = self._thread
            self._wake_up()
        for job_id, futures in left.items():
            for future in futures:
                if future.set_running_or_notify_cancel():
                    future.set_exception(_closed(job_id))
        if thread is not None and self._process == os.getpid():
            thread.join(timeout=LINGER)

    def _forget(self, job_id: int, future: "Future[FinishedJob]") -> None:
        waits = self._waits.get(job_id, [])
        if future in waits:
            waits.remove(future)
        if not waits:
            self._waits.pop(job_id, None)
            self._new.discard(job_id)

    def _start(self) -> None:
        # A thread that is about to end, because of `close`, continues with this wait.
        self._is_closed = False
        if self._thread is None or self._process != os.getpid():
            # A forked process inherits the object, but not the thread.
            self._process = os.getpid()
            ours, self._wake = socket.socketpair()
            ours.setblocking(False)
            self._wake.setblocking(False)
            self._thread = threading.Thread(target=self._run, args=(ours,), name="sereno waiter", daemon=True)
            self._thread.start()
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None:
            with suppress(BlockingIOError):
                self._wake.send(b"w")

    def _run(self, woken: socket.socket) -> None:
        failures = 0
        with woken:
            while not self._has_ended():
                try:
                    with open_sync(self._database.url, self._database.settings, "waiter") as connection:
                        connection.execute(_INDEXES_ONLY)
                        _Round(self, connection, woken).run()
                    failures = 0
                except BROKEN as error:
                    failures += 1
                    if failures == 1:
                        emit(logging.WARNING, "waiter.lost", f"waiting for jobs: {error}; connecting again")
                    select.select([woken], [], [], RECONNECT_AFTER)

    def _has_ended(self) -> bool:
        with self._lock:
            if self._waits and not self._is_closed:
                return False
            self._thread = None
            if self._wake is not None:
                self._wake.close()
                self._wake = None
            return True

    def take(self, notified: Collection[int], *, everything: bool) -> list[int]:
        """Return the jobs to look up now: those that were notified and those that are new, or all."""
        with self._lock:
            wanted = set(self._waits) if everything else self._new | self._waits.keys() & notified
            self._new.clear()
            return sorted(wanted)

    @property
    def is_idle(self) -> bool:
        return not self._waits

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def complete(self, jobs: Sequence[FinishedJob]) -> None:
        # A job that a carrier has is in no table: it is found after its outcome.
        known = [job for job in jobs if job.state or (job.id < FIRST_DIRECT_ID and not self._database.has_carriers())]
        with self._lock:
            ended = [(job, future) for job in known for future in self._waits.pop(job.id, [])]
        for job, future in ended:
            if future.set_running_or_notify_cancel():
                if job.state:
                    future.set_result(job)
                else:
                    future.set_exception(_not_found(job.id))


class _Round:
    """The use of one connection, until it breaks or nothing has waited for a while."""

    def __init__(self, listener: FinishListener, connection: psycopg.Connection[Any], woken: socket.socket) -> None:
        self._listener = listener
        self._connection = connection
        self._woken = woken
        self._settings = listener._database.settings  # noqa: SLF001 - a part of the listener
        self._listens = self._settings.notify and not self._settings.transaction_pooler
        self._look_every = LOOK_EVERY if self._listens else LOOK_EVERY_WITHOUT_NOTIFY
        self._announced: int | None = None
        self._announce_at = 0.0

    def run(self) -> None:
        if self._listens:
            self._connection.execute(f'listen "{self._settings.schema}.finished"')
        look_at = used_at = monotonic()
        notified: set[int] = set()
        while not self._listener.is_closed:
            now = monotonic()
            if self._listener.is_idle:
                if now > used_at + LINGER:
                    break
            else:
                used_at = now
                self._announce(now)
            ids = self._listener.take(notified, everything=now >= look_at)
            if now >= look_at:
                look_at = now + self._look_every
            for start in range(0, len(ids), MOST_IDS):
                self._listener.complete(self._do(finished_jobs(ids[start : start + MOST_IDS])))
            notified = self._received(max(0.0, min(look_at, used_at + LINGER) - monotonic()))
        if self._announced is not None:
            self._do(_withdraw(self._announced))

    def _received(self, timeout: float) -> set[int]:
        """Wait for a notification or a new wait; return the finished jobs that were notified."""
        # What arrived together with the reply of a statement is not seen by select.
        found = self._notified()
        if not found:
            select.select([self._connection.fileno(), self._woken.fileno()], [], [], timeout)
            with suppress(BlockingIOError):
                self._woken.recv(4096)
            found = self._notified()
        return found

    def _notified(self) -> set[int]:
        return {int(number) for notice in self._connection.notifies(timeout=0) for number in notice.payload.split(",")}

    def _announce(self, now: float) -> None:
        if not self._listens or now < self._announce_at:
            return
        if self._announced is None or not self._do(_renew(self._announced)):
            self._announced = self._do(_announce())
        self._announce_at = now + ANNOUNCE_EVERY

    def _do(self, operation: Operation[Any]) -> Any:
        return run(self._connection, operation, self._settings.schema)


def finished_jobs(ids: Sequence[int]) -> Operation[list[FinishedJob]]:
    """Return those of the jobs that are not live. One that is in no table has no state."""
    rows = yield Statement(_sql["finished"], {"ids": list(ids)})
    return [FinishedJob(row[0], row[1] or "", row[2] or "", *row[3:]) for row in rows]


def _announce() -> Operation[int]:
    rows = yield Statement(_sql["announce"], {"seconds": ANNOUNCED_FOR})
    return int(rows[0][0])


def _renew(row_id: int) -> Operation[bool]:
    rows = yield Statement(_sql["renew"], {"id": row_id, "seconds": ANNOUNCED_FOR})
    return bool(rows)


def _withdraw(row_id: int) -> Operation[None]:
    yield Statement(_sql["withdraw"], {"id": row_id})


def _not_found(job_id: int) -> JobNotFound:
    return JobNotFound(
        f"job {job_id} does not exist: its transaction is not committed, it was deleted, "
        "or it succeeded and its task has history=False"
    )


def _closed(job_id: int) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the application was closed while job {job_id} was waited for: wait again")


_creating = threading.Lock()


def _listener_of(database: Database) -> FinishListener:
    with _creating:
        found = database.finish_listener
        if not isinstance(found, FinishListener):
            found = database.finish_listener = FinishListener(database)
            database.on_close.append(found.close)
        return found


def wait(database: Database, ids: Sequence[int], timeout: Duration | None) -> list[FinishedJob]:
    """Return the ends of the jobs, in the same order. Raises TimeoutError if one takes longer."""
    end = None if timeout is None else monotonic() + seconds(timeout)
    with _listener_of(database).waiting(ids) as futures:
        try:
            return [future.result(None if end is None else max(0.0, end - monotonic())) for future in futures]
        except TimeoutError:
            raise _late(ids, futures, timeout) from None


async def wait_async(database: Database, ids: Sequence[int], timeout: Duration | None) -> list[FinishedJob]:
    """`wait` for async code."""
    with _listener_of(database).waiting(ids) as futures:
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                return [await asyncio.wrap_future(future) for future in futures]
        except TimeoutError:
            raise _late(ids, futures, timeout) from None


def _late(ids: Sequence[int], futures: Sequence["Future[FinishedJob]"], timeout: Duration | None) -> TimeoutError:
    late = [job_id for job_id, future in zip(ids, futures, strict=True) if not future.done() or future.cancelled()]
    which = f"job {late[0]} has" if len(late) == 1 else f"{len(late)} of {len(ids)} jobs have"
    example = late[0] if late else ids[0]
    return TimeoutError(f"{which} not finished within {timeout}; `sereno why {example}` says what it waits for")
