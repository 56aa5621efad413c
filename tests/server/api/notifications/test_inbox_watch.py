"""A change of an inbox while its stream is busy is not lost."""

import asyncio
from typing import Any

import pytest

from sereno.database.statement import Operation
from sereno.notifications.recipients.rows import InboxState
from sereno.server.api.notifications import inbox_stream, inbox_watch
from sereno.server.api.notifications.inbox import InboxOwner
from sereno.server.api.notifications.inbox_watch import InboxWatch
from tests.facts import auntil


class Inbox:
    """A fake reader of inboxes whose result the test sets."""

    def __init__(self) -> None:
        self.state = InboxState(1, 1)
        self.queries = 0

    async def read(self, operation: Operation[Any], *, seconds: float = 1.0) -> Any:  # noqa: ARG002 - the test sets the result
        self.queries += 1
        return [self.state]


async def test_a_change_during_authentication_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_watch, "BEAT_SECONDS", 0.001)
    # Authenticate at every change, and at no other time.
    monkeypatch.setattr(inbox_stream, "TRUST_SECONDS", -1.0)
    monkeypatch.setattr(inbox_stream, "_timeout", lambda _: 30.0)
    inbox = Inbox()
    watch = InboxWatch(inbox)

    async def is_still_authorized() -> bool:
        """Return after the inbox has changed and was read again."""
        inbox.state = InboxState(2, 2)
        before = inbox.queries
        await auntil(lambda: inbox.queries > before + 1)
        return True

    events = inbox_stream._events(watch, InboxOwner("ada", "a"), is_still_authorized)
    async with asyncio.timeout(30):
        assert b"retry" in await anext(events)
        assert b'"newest":1' in await anext(events)
        assert b'"newest":2' in await anext(events)
    await watch.end()
