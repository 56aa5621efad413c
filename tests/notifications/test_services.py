"""Two services on one database: each sends what its own code declares, in a queue of its own."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.outcome import Failed, Receipt, Retryable
from sereno.errors import ConfigurationError
from sereno.notifications.event_handle import Event
from tests.facts import advance, auntil, one
from tests.notifications.conftest import Pager, Tender


@dataclass
class Service:
    """A service with one event, whose channel has the same name as that of the other service."""

    app: Sereno
    pager: Pager
    published: Event[Tender]


def service(database_url: str, name: str) -> Service:
    app, pager = Sereno(database_url, notifications_queue=name, service=name), Pager()
    return Service(app, pager, app.event(f"{name}.published", Tender, channels=[pager]))


@pytest.fixture
def shop(database_url: str) -> Iterator[Service]:
    made = service(database_url, "shop")
    yield made
    made.app.close()


@pytest.fixture
def press(database_url: str) -> Iterator[Service]:
    made = service(database_url, "press")
    yield made
    made.app.close()


def send_jobs(connection: psycopg.Connection) -> set[tuple[str, str]]:
    rows = connection.execute("select task, queue from sereno.jobs where task like 'sereno.%'").fetchall()
    return {(task.removeprefix("sereno."), queue) for task, queue in rows}


@pytest.mark.slow
async def test_deliveries_wait_for_a_worker_of_their_service(
    shop: Service, press: Service, connection: psycopg.Connection
) -> None:
    await shop.app.recipients.aupsert("user:7", {"pager": "a7"})
    await press.published.anotify(Tender("P1"), to="user:7")
    async with shop.app.working():
        await shop.published.anotify(Tender("S1"), to="user:7")
        await auntil(lambda: len(shop.pager.sent) == 1)
        assert one(connection, "select attempt from sereno.jobs where queue = 'press'") == 0
        async with press.app.working():
            for number in range(20):
                await shop.published.anotify(Tender(f"S{number}"), to="user:7")
                await press.published.anotify(Tender(f"P{number}"), to="user:7")
            await auntil(lambda: len(shop.pager.sent) == 21 and len(press.pager.sent) == 21)
            await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where state <> 'sent'") == 0)
    assert {message.event for message in shop.pager.sent} == {"shop.published"}
    assert {message.event for message in press.pager.sent} == {"press.published"}
    assert one(connection, "select max(attempts) from sereno.deliveries") == 1
    assert one(connection, "select count(*) from sereno.deliveries where reason is not null") == 0


@pytest.mark.slow
async def test_everything_that_follows_stays_in_the_queue_of_the_service(
    shop: Service, press: Service, connection: psycopg.Connection
) -> None:
    await press.app.recipients.aupsert("user:7", {"pager": "a7"})
    press.pager.outcomes = {"a7": Retryable("busy")}
    async with press.app.working():
        connection.execute("select sereno.notify('press.published', '{\"code\": \"P1\"}', array['user:7'])")
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where reason is not null") == 1)
        press.pager.outcomes = {"a7": Failed("refused")}
        advance(connection, 61)
        await auntil(lambda: one(connection, "select state from sereno.deliveries") == "failed")
    connection.execute("delete from sereno.jobs")
    # Another service requeues it: the job is for the workers of the service that declared the event.
    delivery = one(connection, "select id from sereno.deliveries")
    assert await shop.app.notifications.arequeue([delivery]) == [delivery]
    assert send_jobs(connection) == {("deliver", "press")}
    connection.execute("delete from sereno.jobs")
    connection.execute("insert into sereno.channel_pauses (channel, account, reason) values ('pager', '', 'down')")
    await shop.app.notifications.aresume("pager")
    assert send_jobs(connection) == {("deliver", "press")}
    # Only a sweep of its own service replaces a lost job.
    connection.execute("delete from sereno.jobs")
    advance(connection, 120)
    await shop.app.notifications.sweeper.sweep()
    assert send_jobs(connection) == set()
    await press.app.notifications.sweeper.sweep()
    assert send_jobs(connection) == {("deliver", "press")}
    assert one(connection, "select distinct queue from sereno.batches") == "press"


@pytest.mark.slow
async def test_a_receipt_that_another_service_receives_retries_in_the_queue_of_the_first(
    shop: Service, press: Service, connection: psycopg.Connection
) -> None:
    await press.app.recipients.aupsert("user:7", {"pager": "a7"})
    async with press.app.working():
        await press.published.anotify(Tender("P1"), to="user:7")
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where state = 'sent'") == 1)
    connection.execute("delete from sereno.jobs")
    sent = one(connection, "select provider_id from sereno.deliveries")
    assert (
        await shop.app.notifications.receipts.apply(
            "pager", "", [Receipt(provider_id=sent, outcome="retry", code="busy")]
        )
        == 1
    )
    assert send_jobs(connection) == {("deliver", "press")}
    assert one(connection, "select queue from sereno.batches where purpose = 'send'") == "press"


@pytest.mark.slow
async def test_a_lost_fan_out_is_replaced_by_its_own_service(
    shop: Service, press: Service, connection: psycopg.Connection
) -> None:
    async with press.app.working():
        pass  # stores the event types
    await press.published.anotify(Tender("P1"), to="user:7", trace="request 7")
    connection.execute("delete from sereno.jobs")
    advance(connection, 120)
    await shop.app.notifications.sweeper.sweep()
    assert send_jobs(connection) == set()
    await press.app.notifications.sweeper.sweep()
    assert send_jobs(connection) == {("fan_out", "press")}
    assert one(connection, "select trace from sereno.jobs where task = 'sereno.fan_out'") == "request 7"


def test_a_bad_name_of_the_queue_is_refused_with_the_setting(database_url: str) -> None:
    for bad in ("", "x" * 1000):
        with pytest.raises(ConfigurationError, match="notifications_queue"):
            Sereno(database_url, notifications_queue=bad)
