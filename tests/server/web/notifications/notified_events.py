"""Events, recipients and deliveries for the tests of the pages of notifications."""

import asyncio
from dataclasses import dataclass, field

import psycopg

from sereno import Sereno
from sereno.channels.contract import IN_APP
from sereno.channels.outcome import Failed
from tests.notifications.conftest import Pager, Tender

HOSTILE = '<img src=x onerror="alert(1)">\'{{ 7*7 }}'
ADDRESS = "pager-of-ana-7777"


@dataclass
class NotifiedEvents:
    """An event for recipients without a tenant, and one for the tenant "r42" only."""

    event: int = 0
    theirs: int = 0
    deliveries: dict[str, int] = field(default_factory=dict)


def notify(app: Sereno, connection: psycopg.Connection) -> NotifiedEvents:
    pager = Pager()
    pager.outcomes = {"pager-that-fails": Failed("too_big", f"ana@shop.example {HOSTILE}")}
    published = app.event("tender.published", Tender, channels=[pager, IN_APP], category="tenders")
    app.event("alarm", Tender, channels=[pager], critical=True)
    app.event("digest", Tender, channels=[pager], opt_in=True, category="tenders")
    app.recipients.upsert("ana", {"pager": ADDRESS}, zone="Europe/Riga", data={"email": "ana@shop.example"})
    app.recipients.upsert("fails", {"pager": "pager-that-fails"})
    app.recipients.upsert("off", {"pager": "pager-of-off"})
    app.recipients.prefer("off", event="tender.published", wanted=False)
    app.recipients.upsert(HOSTILE, {"pager": "pager-of-r42"}, tenant="r42")
    made = NotifiedEvents()
    tender = Tender("T1 ana@shop.example")
    made.event = published.notify(tender, to=["ana", "fails", "off"], subject=HOSTILE)
    made.theirs = published.notify(Tender("T2"), to=HOSTILE, subject="s2", tenant="r42")
    asyncio.run(_send(app, made))
    rows = connection.execute(
        "select r.key || ' ' || d.channel, d.id "
        "from sereno.deliveries d join sereno.recipients r on r.id = recipient_id"
    )
    made.deliveries = dict(rows.fetchall())
    return made


async def _send(app: Sereno, made: NotifiedEvents) -> None:
    """Send due deliveries directly, because no worker runs."""
    for number in (made.event, made.theirs):
        await app.notifications.fanout.fan_out(number)
    await app.notifications.sender.deliver(1, "pager", "", -2)
    await app.database.aclose()
