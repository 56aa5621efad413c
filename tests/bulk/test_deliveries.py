"""A bulk operation requeues deliveries that failed."""

import psycopg
import pytest

from sereno import Sereno
from sereno.bulk import operations as bulk
from sereno.channels.outcome import Failed
from sereno.errors import ConfigurationError, Refused
from sereno.jobs import bulk as store
from sereno.jobs.filters import DeliveryFilter
from tests.bulk.bulk_steps import ended_bulk
from tests.facts import auntil, one
from tests.notifications.conftest import Pager, Tender


async def _failed_deliveries(app: Sereno, pager: Pager, *recipients: str) -> list[int]:
    """Return the ids of deliveries that failed."""
    published = app.event("tender.published", Tender, channels=[pager])
    for key in recipients:
        pager.outcomes[key] = Failed("too_big")
        await app.recipients.aupsert(key, {"pager": key})
    event = await published.anotify(Tender("T1"), to=list(recipients))
    await app.notifications.fanout.fan_out(event)
    await app.notifications.sender.deliver(1, "pager", "", -2)
    rows = await app.database.arun(store.count_deliveries(DeliveryFilter(states=["failed"])))
    assert rows.value == len(recipients)
    return [message.delivery for message in pager.sent]


async def test_deliveries_are_requeued(app: Sereno, connection: psycopg.Connection) -> None:
    pager = Pager()
    first, second, third = sorted(await _failed_deliveries(app, pager, "ann", "bob", "eve"))
    pager.outcomes.clear()
    with pytest.raises(Refused, match="confirm"):
        await app.database.arun(bulk.begin_requeue(DeliveryFilter(channel="pager")))
    with pytest.raises(ConfigurationError, match="no recipient"):
        await app.database.arun(bulk.begin_requeue(DeliveryFilter(recipient="unknown"), yes=True))
    wanted = DeliveryFilter(states=["failed", "sent"], channel="pager", type="tender.published")
    made = await app.database.arun(bulk.begin_requeue(wanted, ids=[first, second], actor="ann"))
    assert (made.action, made.wanted["ids"], made.wanted["states"]) == ("delivery.requeue", [first, second], ["failed"])
    # It has changed since the request, so it is excluded.
    connection.execute("update sereno.deliveries set changed_at = sereno.now() where id = %s", [second])
    sent = "select count(*) from sereno.deliveries where state = 'sent'"
    async with app.working({"default": 1, "notifications": 1}):
        assert (await ended_bulk(app, made.id)).done == 1
        await auntil(lambda: one(connection, sent) == 1)
        rest = await app.database.arun(bulk.begin_requeue(DeliveryFilter(type="tender.published"), yes=True))
        assert (await ended_bulk(app, rest.id)).done == 2
        await auntil(lambda: one(connection, sent) == 3)
    assert [message.delivery for message in pager.sent][3:] == [first, second, third]
    audited = connection.execute(
        "select subject, detail->'ids', (detail->>'operation')::bigint from sereno.audit "
        "where action = 'delivery.requeue' order by id"
    ).fetchall()
    assert audited == [(f"delivery {first}", [first], made.id), ("2 deliveries", [second, third], rest.id)]


@pytest.mark.slow
async def test_a_worker_of_another_application_does_not_send_deliveries(
    app: Sereno, database_url: str, connection: psycopg.Connection
) -> None:
    await _failed_deliveries(app, Pager(), "ann")
    made = await app.database.arun(bulk.begin_requeue(DeliveryFilter(channel="pager"), yes=True))
    send_jobs = one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'")
    other = Sereno(database_url)

    @other.task
    def anything() -> None: ...

    async with other.working({"default": 1}):
        assert (await ended_bulk(app, made.id)).done == 1
    await other.aclose()
    assert one(connection, "select count(*) from sereno.batches where purpose = 'send' and job_id is null") == 1
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'") == send_jobs
