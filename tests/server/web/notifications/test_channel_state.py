"""The state of a channel agrees with the failures beside it."""

import asyncio
import re

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.outcome import Failed
from tests.facts import auntil, one, until
from tests.notifications.conftest import Pager, Tender
from tests.server.web.html_reader import Read

RECIPIENTS = 12


@pytest.mark.slow
def test_a_channel_that_mostly_fails_is_not_shown_as_working(
    app: Sereno, read: Read, connection: psycopg.Connection
) -> None:
    pager = Pager()
    published = app.event("tender.published", Tender, channels=[pager])

    async def send(code: str) -> None:
        async with app.working():
            await published.anotify(Tender(code))
            await auntil(lambda: one(connection, "select count(*) from sereno.events where matched_at is null") == 0)
            pending = "select count(*) from sereno.deliveries where state in ('pending', 'sending')"
            await auntil(lambda: one(connection, pending) == 0)
        await app.aclose()

    for number in range(RECIPIENTS):
        app.recipients.upsert(f"user:{number}", {"pager": f"a{number}"})
    asyncio.run(send("T1"))
    assert {*states(read("channels").text)} == {"working"}
    pager.outcomes = {f"a{number}": Failed("refused") for number in range(RECIPIENTS)}
    asyncio.run(send("T2"))
    asyncio.run(send("T3"))
    # Figures are up to ten seconds old.
    for page in ("channels", "notifications"):
        until(lambda: "failing" in states(read(page).text))  # noqa: B023


def states(page: str) -> list[str]:
    """Return the states of the channels on a page."""
    return re.findall(r'class="pill s-(working|failing|paused)"', page)
