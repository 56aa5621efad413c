"""A change of an inbox while its stream is busy is not lost."""

import asyncio
from typing import Any

import pytest

from sereno.database.statement import Operation
from sereno.notifications.recipients.inboxes import InboxState
from sereno.server.api.notifications import inbox_stream, inbox_watch
from sereno.server.api.notifications.inbox import InboxOwner
from sereno.server.api.notifications.inbox_watch import InboxWatch
from tests.facts import auntil


class Inbox:
    """The result of a query of the inbox, as the test sets it."""

    def __init__(self) -> None:
        self.standing = InboxState(1, 1)
        self.looks = 0

    async def read(self, operation: Operation[Any], *, seconds: float = 1.0) -> Any:  # noqa: ARG002 - whatever is asked
        self.looks += 1
        return [self.standing]


async def test_a_change_during_authentication_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_watch, "BEAT_SECONDS", 0.001)
    # Authenticate at every change, and at nothing else.
    monkeypatch.setattr(inbox_stream, "TRUST_SECONDS", -1.0)
    monkeypatch.setattr(inbox_stream, "_patience", lambda _: 30.0)
    inbox = Inbox()
    watch = InboxWatch(inbox)

    async def is_still_theirs() -> bool:
        """Slow, and meanwhile the inbox changes."""
        inbox.standing = InboxState(2, 2)
        seen = inbox.looks
        await auntil(lambda: inbox.looks > seen + 1)
        return True

    told = inbox_stream._events(watch, InboxOwner("ada", "a"), is_still_theirs)
    async with asyncio.timeout(30):
        assert b"retry" in await anext(told)
        assert b'"newest":1' in await anext(told)
        assert b'"newest":2' in await anext(told)
    await watch.end()
