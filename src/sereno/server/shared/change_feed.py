"""The feed of changes: one query a second for all listeners together, however many there are."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from sereno.access.identity import Principal
from sereno.monitoring.snapshot import SystemSnapshot, snapshot
from sereno.server.shared.authenticator import CURRENT_SHARE
from sereno.server.shared.busy import BUSY
from sereno.server.shared.cache import OperationReader
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.stream_quota import StreamLimits, StreamQuota

BEAT_SECONDS = 1.0
# Open streams of one server: in all, per listener, per tenant with all its tokens, and of all tenants together.
MOST_LISTENERS, MOST_OF_ONE, MOST_OF_TENANT, MOST_OF_TENANTS = 1000, 100, 100, 800


@dataclass(frozen=True, slots=True)
class DatabaseChange:
    """`number` grows with every change. `is_available`: false while the database is unavailable."""

    number: int
    seen: SystemSnapshot | None
    is_available: bool = True


class ChangeFeed:
    """Queries the snapshot once a second while there are listeners."""

    def __init__(self, reader: OperationReader) -> None:
        self._reader = reader
        self._beat = DatabaseChange(0, None)
        self._moved = asyncio.Condition()
        self._places = StreamQuota()
        self._task: asyncio.Task[None] | None = None
        self.is_ended = False

    def check_place(self, who: Principal) -> None:
        """503 when the limit of listeners is reached."""
        limits = StreamLimits(MOST_LISTENERS, MOST_OF_ONE, MOST_OF_TENANT, MOST_OF_TENANTS)
        if not self._places.has_capacity(who.actor, who.tenant, limits):
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, "too many open streams", {"Retry-After": "30"})

    @contextmanager
    def listening(self, who: Principal) -> Iterator[None]:
        """Count a listener for as long as the block runs."""
        self.check_place(who)
        with self._places.hold(who.actor, who.tenant):
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run())
            yield

    async def next(self, after: int, seconds: float) -> DatabaseChange | None:
        """Return the newest change after `after`; None on a timeout, or when the feed has ended."""
        try:
            async with asyncio.timeout(seconds), self._moved:
                await self._moved.wait_for(lambda: self.is_ended or self._beat.number > after)
        except TimeoutError:
            return None
        return None if self.is_ended else self._beat

    async def end(self) -> None:
        """End the feed for all listeners."""
        self.is_ended = True
        async with self._moved:
            self._moved.notify_all()

    async def _run(self) -> None:
        # The query counts for the server, and not for the first listener.
        CURRENT_SHARE.set(None)
        while self._places.total and not self.is_ended:
            try:
                seen = await self._reader.read(snapshot())
            except BUSY:
                seen = None
            if self._beat.number == 0 or seen != self._beat.seen:
                async with self._moved:
                    self._beat = DatabaseChange(self._beat.number + 1, seen, seen is not None)
                    self._moved.notify_all()
            await asyncio.sleep(BEAT_SECONDS)
