"""Watched jobs: one query each half second for all of them together, however many streams there are."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from sereno.jobs.job_stream import Chunk, JobView, Position, job_views
from sereno.server.shared.authenticator import CURRENT_SHARE
from sereno.server.shared.busy import BUSY
from sereno.server.shared.cache import OperationReader
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.stream_quota import StreamLimits, StreamQuota

BEAT_SECONDS = 0.5
# Seconds between two queries while streams open.
GATHER_SECONDS = 0.05
# Streams of one server, and of one job or API token: one busy page must not use up the quota of all others.
MOST_WATCHERS = 1000
MOST_OF_ONE = 50
# Streams of one tenant: at least four tenants fit. Jobs without a tenant may use all.
MOST_OF_TENANT = 250
# Bytes of the newest chunks of one job that are held for its streams. A stream that is behind them reads by itself.
RECENT_BYTES = 64 * 1024
# Seconds until the first query about a job counts as failed.
FIRST_SECONDS = 15.0
START = Position()


@dataclass(eq=False)
class WatchedJob:
    """One watched job. `number` grows with every change; 0 before the first query.

    `recent`: the newest chunks, consecutive. `position`: the last chunk that was read.
    """

    watchers: int = 0
    number: int = 0
    view: JobView | None = None
    position: Position = START
    recent: Sequence[Chunk] = ()
    is_ended: bool = False
    opened_at: float = field(default_factory=time.monotonic)
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def is_unused(self) -> bool:
        """Return whether no stream watches it. One that has just opened looks its job up before it watches it."""
        return not self.watchers and self.number > 0 and time.monotonic() > self.opened_at + 2 * BEAT_SECONDS

    async def next(self, after: int, seconds: float) -> tuple[int, JobView | None] | None:
        """Return the number and the view after the next change; None on a timeout, or when the feed has ended."""
        try:
            async with asyncio.timeout(seconds), self.moved:
                await self.moved.wait_for(lambda: self.is_ended or self.number > after)
        except TimeoutError:
            return None
        return None if self.is_ended else (self.number, self.view)

    def after(self, position: Position) -> list[Chunk]:
        """Return the recent chunks after a position; empty if there are others between them."""
        if self.position.attempt != position.attempt or not self.recent:
            return []
        if self.recent[0].number > position.number + 1:
            return []
        return [chunk for chunk in self.recent if chunk.number > position.number]

    async def change(self, view: JobView | None) -> None:
        """Store what a query returned, and wake the streams if it is new."""
        if view is not None:
            self._take(view)
        async with self.moved:
            if self.number == 0 or _shown(view) != _shown(self.view):
                self.number, self.view = self.number + 1, view
                self.moved.notify_all()

    async def end(self) -> None:
        async with self.moved:
            self.is_ended = True
            self.moved.notify_all()

    def _take(self, view: JobView) -> None:
        known = self.recent if view.attempt == self.position.attempt else ()
        recent = [*known, *view.chunks]
        if recent and recent[-1].number < view.last:
            # More than one page: each stream reads the rest by itself, from where it is.
            recent = []
        size = sum(len(chunk.value) for chunk in recent)
        start = 0
        while size > RECENT_BYTES:
            size -= len(recent[start].value)
            start += 1
        self.recent, self.position = recent[start:], Position(view.attempt, view.last)


class JobWatch:
    """Queries the watched jobs while there are any."""

    def __init__(self, reader: OperationReader) -> None:
        self._reader = reader
        self._jobs: dict[int, WatchedJob] = {}
        self._places = StreamQuota()
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._is_ended = False

    def check_place(self, one: str, tenant: str | None) -> None:
        """503 when the limit of streams is reached. `one`: the job or the API token."""
        limits = StreamLimits(MOST_WATCHERS, MOST_OF_ONE, MOST_OF_TENANT, MOST_WATCHERS)
        if self._is_ended or not self._places.has_capacity(one, tenant, limits):
            detail = "too many open streams of jobs: try again later, and poll without text/event-stream meanwhile"
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "30"})

    async def view(self, job_id: int) -> JobView | None:
        """Return the job, by the next query about all watched jobs; None if there is none."""
        found = await self._watched(job_id).next(0, FIRST_SECONDS)
        if found is None:
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer", {"Retry-After": "5"})
        return found[1]

    @contextmanager
    def watching(self, job_id: int, one: str, tenant: str | None) -> Iterator[WatchedJob]:
        """Watch a job for as long as the block runs."""
        self.check_place(one, tenant)
        job = self._watched(job_id)
        job.watchers += 1
        try:
            with self._places.hold(one, tenant):
                yield job
        finally:
            job.watchers -= 1

    async def end(self) -> None:
        """End all streams."""
        self._is_ended = True
        self._wanted.set()
        for job in list(self._jobs.values()):
            await job.end()

    def _watched(self, job_id: int) -> WatchedJob:
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = WatchedJob(is_ended=self._is_ended)
            self._wanted.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return job

    async def _run(self) -> None:
        # The query counts for the server, and not for the first client.
        CURRENT_SHARE.set(None)
        while self._jobs and not self._is_ended:
            self._wanted.clear()
            await self._query()
            await self._rest()
            self._jobs = {job_id: job for job_id, job in self._jobs.items() if not job.is_unused}

    async def _rest(self) -> None:
        """Wait for the next round; new jobs are looked up together, after a moment."""
        await asyncio.sleep(GATHER_SECONDS)
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                await self._wanted.wait()
        except TimeoutError:
            pass

    async def _query(self) -> None:
        jobs = dict(self._jobs)
        try:
            views = await self._reader.read(job_views([(job_id, job.position) for job_id, job in jobs.items()]))
        except BUSY:
            # The previous views stay until a query succeeds.
            return
        for job, view in zip(jobs.values(), views, strict=True):
            await job.change(view)


def _shown(view: JobView | None) -> tuple[object, ...] | None:
    """Return what streams show of a view, without its chunks."""
    return None if view is None else (view.state, view.attempt, view.fraction, view.note, view.last)
