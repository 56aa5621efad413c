"""Statistics of notifications: counted from state changes, without scanning deliveries."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sereno import Digest, Sereno, in_app
from sereno.channels.contract import Callback
from sereno.channels.outcome import Failed, Invalid, Receipt, Retryable, Unknown
from sereno.database.statement import run
from sereno.jobs.queries import minute_stats
from sereno.notifications.deliveries import stats_queries
from sereno.notifications.deliveries.figures import Funnel, channel_health, funnel
from sereno.notifications.deliveries.stats import MOST_CODES, OTHER, DeliveryChange, DeliveryTally
from tests.facts import advance, auntil, one, ten_past
from tests.notifications.conftest import Pager, Tender


@pytest.fixture
def app(database_url: str) -> Iterator[Sereno]:
    """An application that writes its statistics after a short delay."""
    made = Sereno(database_url, heartbeat=0.2)
    yield made
    made.close()


async def send(app: Sereno, event: int) -> None:
    """Fan out and send without a worker."""
    await app.notifications.fanout.fan_out(event)
    await app.notifications.sender.deliver(1, "pager", "", -2)


async def read_funnel(app: Sereno, **wanted: Any) -> Funnel:
    await app.notifications.close()
    return await app.database.arun(funnel(**wanted))


async def test_the_funnel_counts_deliveries_from_matched_to_read(
    app: Sereno, pager: Pager, connection: psycopg.Connection
) -> None:
    published = app.event("tender.published", Tender, channels=[pager, in_app])
    pager.outcomes = {"a2": Invalid("DeviceNotRegistered"), "a3": Retryable("http_429"), "a4": Failed("too_big")}
    for number in range(1, 5):
        await app.recipients.aupsert(f"u{number}", {"pager": f"a{number}"}, tenant="t" if number < 3 else "s")
    await app.recipients.aupsert("nowhere", tenant="t")
    await app.recipients.aprefer("u1", event="tender.published", channel="in_app", wanted=False, tenant="t")
    await send(app, await published.anotify(Tender("T1"), to=["u1", "u2", "nowhere"], tenant="t"))
    await send(app, await published.anotify(Tender("T1"), to=["u3", "u4"], tenant="s"))
    await app.notifications.sender.deliver(1, "in_app", "", -2)
    counts = await read_funnel(app)
    assert (counts.matched, counts.eligible, counts.sent, counts.accepted, counts.delivered) == (
        10,
        8,
        8,
        5,
        4,
    )
    assert counts.skipped == {"preference off": 1, "no active address": 1}
    assert (counts.skipped_total, counts.failed, counts.failures) == (2, 2, {"failed": 1, "invalid": 1})
    of_pager = await read_funnel(app, channel="pager")
    assert (of_pager.matched, of_pager.eligible, of_pager.sent, of_pager.accepted) == (5, 4, 4, 1)
    assert (await read_funnel(app, event="nothing")).matched == 0
    theirs = await read_funnel(app, tenant="t")
    assert (theirs.matched, theirs.eligible, theirs.skipped_total, theirs.sent, theirs.failed) == (6, 4, 2, 4, 1)
    # The counts equal the rows.
    assert counts.matched == one(connection, "select count(*) from sereno.deliveries")
    assert counts.skipped_total == one(connection, "select count(*) from sereno.deliveries where state = 'skipped'")
    (health,) = await app.database.arun(channel_health(channel="pager"))
    assert (health.sent, health.accepted, health.throttled, health.failed) == (4, 1, 1, 2)
    assert health.codes == {"DeviceNotRegistered": 1, "http_429": 1, "too_big": 1}
    assert (health.state, health.receipts, health.receipt_median) == ("working", 0, None)
    # The second attempt is another message, but not another delivery.
    pager.outcomes = {}
    advance(connection, 90)
    await app.notifications.sender.deliver(1, "pager", "", -2)
    again = await read_funnel(app, channel="pager")
    assert (again.sent, again.accepted) == (4, 2)
    assert (await app.database.arun(channel_health(channel="pager")))[0].sent == 5


async def test_receipts_are_counted_once(app: Sereno, pager: Pager, connection: psycopg.Connection) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    for number in range(3):
        await app.recipients.aupsert(f"u{number}", {"pager": f"a{number}"})
    await send(app, await published.anotify(Tender("T1"), to=["u0", "u1", "u2"]))
    advance(connection, 20)
    ids = [f"p{message.delivery}" for message in pager.sent]
    pager.receipts_to_return = [
        Receipt(provider_id=ids[0], outcome="read", id="r0"),
        Receipt(provider_id=ids[1], outcome="delivered", id="r1"),
        Receipt(provider_id=ids[2], outcome="bounced", code="gone", id="r2"),
    ]
    for _ in range(2):
        await app.notifications.callback("pager", Callback(body=b"", headers={}, query={}, url=""))
    # The process writes the statistics by itself.
    await auntil(lambda: one(connection, "select count from sereno.delivery_hours where state = 'read'") == 1)
    counts = await read_funnel(app)
    assert (counts.accepted, counts.delivered, counts.read, counts.failures) == (
        3,
        2,
        1,
        {"bounced": 1},
    )
    (health,) = await app.database.arun(channel_health())
    assert (health.receipts, health.codes) == (2, {"gone": 1})
    assert health.receipt_median is not None
    assert 10 < health.receipt_median <= 30


async def test_deliveries_dropped_before_sending_are_counted_by_reason(
    app: Sereno, pager: Pager, connection: psycopg.Connection
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    for name in ("a", "b"):
        await app.recipients.aupsert(name, {"pager": name})
    event = await published.anotify(Tender("T1"), to=["a", "b"])
    # It must not expire before it is fanned out, however slow the machine is.
    brief = await published.anotify(Tender("T2"), to="b", ttl="10m")
    await app.notifications.fanout.fan_out(event)
    await app.notifications.fanout.fan_out(brief)
    await app.recipients.aprefer("a", event="tender.published", wanted=False)
    advance(connection, 660)
    await app.notifications.sender.deliver(1, "pager", "", -2)
    counts = await read_funnel(app)
    assert (counts.matched, counts.eligible, counts.sent, counts.accepted) == (3, 3, 1, 1)
    assert (counts.skipped, counts.failures) == ({"preference off": 1}, {"expired": 1})


@pytest.mark.slow
async def test_collected_deliveries_are_skipped_and_unknown_outcomes_are_counted(
    app: Sereno, pager: Pager, connection: psycopg.Connection
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], digest=Digest("15m"))
    await app.recipients.aupsert("a", {"pager": "a"})
    pager.outcomes = {"a": Unknown("timeout")}
    async with app.working():
        for code in ("T1", "T2", "T3"):
            await published.anotify(Tender(code), to="a")
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries") == 3)
        advance(connection, 16 * 60)
        await auntil(lambda: bool(pager.sent))
    counts = await read_funnel(app)
    assert (counts.matched, counts.eligible, counts.skipped) == (3, 3, {"covered by delivery": 2})
    (health,) = await app.database.arun(channel_health())
    assert (health.sent, health.unknown, health.codes) == (1, 1, {"timeout": 1})


async def test_a_paused_channel_is_listed_without_sent_messages(app: Sereno, connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.channel_pauses (channel, account, reason) values ('sms', 't', 'http_401: no')"
    )
    (health,) = await app.database.arun(channel_health())
    assert (health.channel, health.account, health.state, health.paused_why) == ("sms", "t", "paused", "http_401: no")
    assert (health.sent, health.steps, health.codes) == (0, [], {})


@pytest.mark.slow
async def test_close_waits_for_a_write_that_is_running(
    app: Sereno, pager: Pager, connection: psycopg.Connection, database_url: str
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await app.recipients.aupsert("a", {"pager": "a"})
    waiting = (
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and query like '%%delivery_hours%%'"
    )
    with psycopg.connect(database_url) as other:
        other.execute("lock table sereno.delivery_hours in share mode")
        await send(app, await published.anotify(Tender("T1"), to="a"))
        await auntil(lambda: one(connection, waiting))
        closing = asyncio.create_task(app.notifications.close())
        done, _ = await asyncio.wait({closing}, timeout=0.2)
        assert not done
    await closing
    assert (await app.database.arun(funnel())).accepted == 1


@pytest.mark.slow
async def test_counts_are_retained_when_a_write_fails(
    app: Sereno, pager: Pager, connection: psycopg.Connection
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await app.recipients.aupsert("a", {"pager": "a"})
    connection.execute("alter table sereno.delivery_hours rename to away")
    await send(app, await published.anotify(Tender("T1"), to="a"))
    await app.notifications.close()
    connection.execute("alter table sereno.away rename to delivery_hours")
    await auntil(lambda: one(connection, "select count(*) from sereno.delivery_hours where state = 'sent'") == 1)
    assert (await read_funnel(app)).accepted == 1
    assert one(connection, "select sum(sent) from sereno.channel_minutes") == 1


def test_concurrent_writers_add_up_and_old_rows_are_deleted(connection: psycopg.Connection) -> None:
    # Ten minutes past the hour, so that both write into the same hour.
    ten_past(connection)
    for _ in range(2):
        tally = DeliveryTally()
        tally.count_created(
            [
                DeliveryChange("pager", "e", "t", "pending", None, 5),
                DeliveryChange("pager", "e", "t", "skipped", "condition", 2),
            ]
        )
        tally.channel("pager", "").receipt(0.2)
        run(connection, stats_queries.add(tally))
    assert {(line.state, line.reason): line.count for line in run(connection, stats_queries.hours(60, step=3600))} == {
        ("matched", ""): 14,
        ("pending", ""): 10,
        ("skipped", "condition"): 4,
    }
    (of_tenant,) = run(connection, stats_queries.tenant_hours(60, step=3600, tenant="t"))
    assert (of_tenant.matched, of_tenant.eligible, of_tenant.skipped) == (14, 10, 4)
    (channel,) = run(connection, stats_queries.channels(60, step=60, most=10))
    assert sum(channel.receipts) == 2
    tables = ("delivery_hours", "delivery_tenant_hours", "channel_minutes", "channel_codes")
    for days, left in ((9, [3, 1, 0, 0]), (93, [0, 0, 0, 0])):
        advance(connection, days * 86400)
        run(connection, minute_stats.forget())
        assert [one(connection, f"select count(*) from sereno.{table}") for table in tables] == left


def test_unknown_codes_and_reasons_do_not_create_unbounded_rows() -> None:
    tally = DeliveryTally()
    figures = tally.channel("pager", "")
    for number in range(1000):
        figures.trouble(f"code {number} " + "x" * 500)
        tally.count([DeliveryChange("pager", "e", "", "skipped", f"covered by delivery {number}", 1)])
        tally.count([DeliveryChange("pager", "e", "", "skipped", f"something {number}", 1)])
    assert len(figures.codes) == MOST_CODES + 1
    assert (sum(figures.codes.values()), max(map(len, figures.codes))) == (1000, 60)
    assert set(tally.states) == {
        ("e", "pager", "skipped", "covered by delivery"),
        ("e", "pager", "skipped", OTHER),
    }
