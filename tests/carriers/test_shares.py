"""The share of new jobs that the carrier gets: none, some, all; and messages that are no jobs."""

from collections import Counter

import psycopg
import pytest

from sereno import JetStream, Sereno
from sereno.carriers.store import UNDECODABLE, set_share
from tests.facts import auntil, one

JOBS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 10, 100])
async def test_the_carrier_gets_its_share(
    database_url: str, connection: psycopg.Connection, jetstream: JetStream, share: int
) -> None:
    """Of direct jobs and of stored ones. Every job runs once, wherever it goes."""
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream)
    seen: Counter[int] = Counter()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen[number] += 1

    app.database.run(set_share("clicks", share))
    direct = click.using(direct=True)
    jobs = app.enqueue_many([direct.job(number) for number in range(JOBS)])
    app.enqueue_many([click.job(number) for number in range(JOBS, 2 * JOBS)])
    published = sum(job.id >= 10**15 for job in jobs)
    async with app.working():
        await auntil(lambda: len(seen) == 2 * JOBS)
    client = await jetstream.connect()
    positions = await client.acknowledged("clicks")
    await client.close()
    await app.aclose()

    assert set(seen.values()) == {1}
    assert one(connection, "select count(*) from sereno.jobs") == 0
    if share == 0:
        assert (published, positions) == (0, 0)
    elif share == 100:
        assert published == JOBS
        assert positions > 2
    else:
        assert 0.03 * JOBS < published < 0.3 * JOBS
        assert positions > 1


@pytest.mark.slow
async def test_a_share_of_none_leaves_the_stream_to_the_workers(database_url: str, jetstream: JetStream) -> None:
    """Back to PostgreSQL: what the stream has still runs."""
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    seen: list[int] = []

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen.append(number)

    app.enqueue_many([click.job(number) for number in range(10)])
    app.database.run(set_share("clicks", 0))
    later = Sereno(database_url)
    later.queue("clicks", carrier=jetstream, direct=True)
    stored = later.task(name="click", queue="clicks", history=False)(click.definition.function).enqueue(10)
    assert stored.id < 10**15
    async with app.working():
        await auntil(lambda: len(seen) == 11)
    await app.aclose()
    await later.aclose()
    assert sorted(seen) == list(range(11))


async def test_a_message_that_is_no_batch_becomes_a_dead_job(
    database_url: str, connection: psycopg.Connection, jetstream: JetStream
) -> None:
    """Once, with its bytes; the jobs behind it run."""
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    connection.autocommit = True
    seen: list[int] = []

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen.append(number)

    client = await jetstream.connect()
    await client.publish("clicks", b"\x00not a batch", "m1")
    click.enqueue(1)
    async with app.working():
        await auntil(lambda: seen and one(connection, "select count(*) from sereno.history"))
        await auntil(lambda: one(connection, "select count(*) from sereno.history"))
    left = await client.fetch("clicks", 1, 0.2)
    await client.close()
    await app.aclose()
    found = connection.execute("select task, state, queue, args, reason from sereno.history").fetchall()
    assert [(row[0], row[1], row[2], row[3]) for row in found] == [
        (UNDECODABLE, "dead", "clicks", {"message": "AG5vdCBhIGJhdGNo"})
    ]
    assert found[0][4].startswith("the message is not a batch of jobs")
    assert left == []
