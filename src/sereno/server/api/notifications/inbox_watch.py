"""Watched inboxes: one query a second for all of them together, however many there are."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from sereno.notifications.recipients.inbox_queries import inbox_states
from sereno.notifications.recipients.rows import InboxState
from sereno.server.shared.authenticator import CURRENT_SHARE
from sereno.server.shared.busy import BUSY
from sereno.server.shared.cache import OperationReader
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.stream_quota import StreamLimits, StreamQuota

BEAT_SECONDS = 1.0
# Streams of one server, and of one inbox: a user with ten windows must not use up the quota of all others.
MOST_WATCHERS = 1000
MOST_OF_ONE = 20
# Streams of one tenant: at least four tenants fit. Recipients without a tenant may use all.
MOST_OF_TENANT = 250

# Tenant and key.
Name = tuple[str | None, str]


@dataclass(eq=False)
class WatchedInbox:
    """One watched inbox. `number` grows with every change; 0 before the first query."""

    watchers: int = 0
    number: int = 0
    state: InboxState | None = None
    is_ended: bool = False
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def next(self, after: int, seconds: float) -> tuple[int, InboxState] | None:
        """Return the number and state after the next change; None on a timeout, or when the feed has ended."""
        try:
            async with asyncio.timeout(seconds), self.moved:
                await self.moved.wait_for(lambda: self.is_ended or self.number > after)
        except TimeoutError:
            return None
        return None if self.is_ended or self.state is None else (self.number, self.state)

    async def change(self, state: InboxState | None, *, is_ended: bool = False) -> None:
        """Store a new state and wake those who wait."""
        async with self.moved:
            self.number, self.state, self.is_ended = self.number + 1, state, is_ended
            self.moved.notify_all()


class InboxWatch:
    """Queries the watched inboxes once a second while there are any."""

    def __init__(self, reader: OperationReader) -> None:
        self._reader = reader
        self._boxes: dict[Name, WatchedInbox] = {}
        self._places = StreamQuota()
        self._task: asyncio.Task[None] | None = None
        self._is_ended = False

    def check_place(self, name: Name) -> None:
        """503 when the limit of streams is reached."""
        limits = StreamLimits(MOST_WATCHERS, MOST_OF_ONE, MOST_OF_TENANT, MOST_WATCHERS)
        if self._is_ended or not self._places.has_capacity(name, name[0], limits):
            detail = "too many open streams of inboxes: try again later, and poll /inbox/unread meanwhile"
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "30"})

    @contextmanager
    def watching(self, name: Name) -> Iterator[WatchedInbox]:
        """Watch an inbox for as long as the block runs."""
        self.check_place(name)
        box = self._boxes.setdefault(name, WatchedInbox())
        box.watchers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            with self._places.hold(name, name[0]):
                yield box
        finally:
            box.watchers -= 1
            if not box.watchers:
                del self._boxes[name]

    async def end(self) -> None:
        """End all streams."""
        self._is_ended = True
        for box in list(self._boxes.values()):
            await box.change(None, is_ended=True)

    async def _run(self) -> None:
        # The query counts for the server, and not for the first client.
        CURRENT_SHARE.set(None)
        while self._boxes and not self._is_ended:
            await self._query()
            await asyncio.sleep(BEAT_SECONDS)

    async def _query(self) -> None:
        boxes = dict(self._boxes)
        try:
            states = await self._reader.read(inbox_states(list(boxes)))
        except BUSY:
            # The previous state stays until a query succeeds.
            return
        for box, state in zip(boxes.values(), states, strict=True):
            if state != box.state and not self._is_ended:
                await box.change(state)
