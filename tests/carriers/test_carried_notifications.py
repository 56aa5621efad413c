"""Notifications in a carried queue: their jobs are stored in PostgreSQL before they run."""

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from sereno import JetStream, Sereno
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Outcome
from tests.facts import auntil, one
from tests.notifications.conftest import Pager, Tender

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

QUEUE = "notifications"


class SlowPager(Pager):
    """A provider that does not answer before `answer` is set. `called`: addresses, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []
        self.answer = asyncio.Event()

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        self.called += [message.address for message in batch]
        await self.answer.wait()
        return await super().send(batch, exchange)


async def test_a_batch_that_is_being_sent_is_not_taken_for_lost(
    database_url: str, connection: psycopg.Connection, jetstream: JetStream
) -> None:
    """A second job of the same channel looks for batches of jobs that no longer run."""
    app = Sereno(database_url)
    app.queue(QUEUE, carrier=jetstream, direct=True)
    pager = SlowPager()
    published = app.event("tender.published", Tender, channels=[pager])
    for key in "abc":
        await app.recipients.aupsert(key, {"pager": key})
    async with app.working():
        for expected in (["a", "b", "c"], ["a", "b", "c"] * 2):
            await published.anotify(Tender(str(len(expected))), subject=str(len(expected)))
            await auntil(lambda expected=expected: sorted(pager.called) == sorted(expected))  # type: ignore[misc]
        pager.answer.set()
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where state = 'sent'") == 6)
    await app.aclose()
    assert len(pager.sent) == 6
    assert one(connection, "select max(attempts) from sereno.deliveries") == 1
