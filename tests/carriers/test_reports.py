"""The state of carried queues as workers report it, and as every process reads it."""

import asyncio

import psycopg
import pytest

from sereno import JetStream, Sereno
from sereno.carriers.message import encode
from sereno.carriers.reports import estimated_jobs
from sereno.jobs.queries.carriers import AWAY, STALE, list_carriers
from sereno.jobs.queries.queues import list_queues
from tests.carriers.report_steps import CLICKS, add_batch, line, report, report_failure, state
from tests.facts import advance, auntil
from tests.jobs.job_steps import do, new


def test_a_report_is_read_without_credentials(connection: psycopg.Connection) -> None:
    report(connection, pending_messages=7, held_messages=2, redelivered_messages=1, bytes=500, oldest=30.0)
    found = line(connection)
    assert (found.state, found.kind, found.address, found.share) == ("up", "jetstream", "a:4222,b:4222", 100)
    assert (found.messages, found.redelivered_messages, found.replicas, found.leader) == (9, 1, 3, "a")
    assert found.oldest_seconds is not None
    assert found.oldest_seconds >= 30.0
    assert "secret" not in repr(found)
    (queue,) = do(connection, list_queues())
    assert (queue.queue, queue.workers) == ("clicks", 0)
    assert queue.carrier is not None
    assert queue.carrier.messages == 9


def test_a_carrier_is_away_when_no_worker_reaches_it(connection: psycopg.Connection) -> None:
    report(connection, pending_messages=7)
    report_failure(connection)
    # Another worker has just reached it.
    assert line(connection).state == "up"
    advance(connection, AWAY + 1)
    report_failure(connection)
    found = line(connection)
    assert (found.state, found.pending_messages) == ("away", 7)
    assert found.error == "jetstream at a:4222 did not answer"
    report(connection, pending_messages=6)
    found = line(connection)
    assert (found.state, found.error, found.pending_messages) == ("up", None, 6)


def test_a_carrier_that_was_never_reached_is_away(connection: psycopg.Connection) -> None:
    report_failure(connection)
    assert line(connection).state == "away"


def test_a_carrier_is_unknown_when_no_worker_reports(connection: psycopg.Connection) -> None:
    report(connection, pending_messages=7)
    advance(connection, STALE + 1)
    assert line(connection).state == "unknown"
    advance(connection, 2 * 86400)
    assert line(connection).pending_messages == 7


def test_a_queue_that_is_carried_no_more_disappears(connection: psycopg.Connection) -> None:
    report(connection)
    advance(connection, 86400 + 1)
    assert do(connection, list_carriers()) == []
    assert do(connection, list_queues()) == []
    advance(connection, 7 * 86400)
    report(connection, type(CLICKS)("other", CLICKS.carrier))
    rows = connection.execute("select queue from sereno.carrier_states").fetchall()
    assert rows == [("other",)]


def test_messages_to_publish_are_counted(connection: psycopg.Connection) -> None:
    report(connection)
    add_batch(connection, 1, 2, 3)
    add_batch(connection, 4)
    found = line(connection)
    assert (found.relay_messages, found.relay_jobs, found.relay_oldest_seconds is not None) == (2, 4, True)


def test_reports_of_many_workers_are_written_once(connection: psycopg.Connection) -> None:
    report(connection, pending_messages=1)
    report(connection, pending_messages=2)
    assert line(connection).pending_messages == 1
    advance(connection, 5)
    report(connection, pending_messages=3)
    assert line(connection).pending_messages == 3


def body(jobs: int) -> bytes:
    return encode("clicks", list(range(1, jobs + 1)), [new("click", b'{"number":1}', queue="clicks")] * jobs, 1.0)


def test_pending_jobs_are_counted_or_estimated(subtests: pytest.Subtests) -> None:
    for messages, samples, least, most in (
        (0, (), 0, 0),
        (1, (body(30),), 30, 30),
        (2, (body(30), body(1)), 31, 31),
        (100, (body(500), body(500)), 45_000, 55_000),
        (100, (body(1), body(1)), 90, 110),
        (5, (b"not a batch",), 5, 5),
        (5, (), 5, 5),
    ):
        with subtests.test(messages=messages, samples=len(samples)):
            size = sum(len(each) + 100 for each in samples) * messages // max(1, len(samples))
            found = estimated_jobs(state(pending_messages=messages, bytes=size, samples=samples))
            assert least <= found <= most


@pytest.mark.asyncio
async def test_a_worker_reports_its_carried_queue(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    started = asyncio.Event()
    go_on = asyncio.Event()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        started.set()
        await go_on.wait()

    with psycopg.connect(database_url, autocommit=True) as connection:
        await app.aenqueue_many([click.job(number) for number in range(750)])
        async with app.working({"clicks": 1}) as worker:
            await started.wait()
            worker.carried.reports.wake()
            await auntil(lambda: do(connection, list_carriers()) != [])
            found = line(connection)
            assert (found.state, found.direct, found.messages, found.pending_jobs) == ("up", True, 2, 750)
            assert found.oldest_seconds is not None
            assert found.bytes > 0
            assert worker.gauges().carriers["clicks"].jobs == 750
            go_on.set()
    await app.aclose()
