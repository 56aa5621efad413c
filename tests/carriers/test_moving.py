"""A queue moves to its carrier by a share of its jobs, and back; a worker reports a carrier that dies."""

import asyncio
from collections import Counter
from functools import partial

import psycopg
import pytest

from sereno import JetStream, Sereno
from sereno.carriers.local_server import LocalNats
from sereno.carriers.operations import set_share
from sereno.jobs.queries.carriers import AWAY, list_carriers
from sereno.monitoring.verify import verify
from sereno.telemetry.exposition import exposition
from sereno.telemetry.metrics import Gauges, MetricTally
from sereno.worker.carried import relay
from tests.carriers.report_steps import line
from tests.facts import advance, auntil
from tests.jobs.job_steps import do

pytestmark = pytest.mark.slow


def _has_all(seen: Counter[int], numbers: range) -> bool:
    return all(number in seen for number in numbers)


@pytest.mark.asyncio
async def test_a_queue_moves_there_and_back_and_nothing_is_lost(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream)
    seen: Counter[int] = Counter()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen[number] += 1

    with psycopg.connect(database_url, autocommit=True) as connection:
        published = []
        for step, share in enumerate((0, 10, 100, 0)):
            do(connection, set_share("clicks", share, declared=["clicks"]))
            numbers = range(1000 * step, 1000 * step + 1000)
            app.enqueue_many([click.job(number) for number in numbers])
            async with app.working({"clicks": 50}) as worker:
                await auntil(partial(_has_all, seen, numbers))
                client = await worker.carried._client(jetstream)
                state = await client.state("clicks")
                published.append((await client.acknowledged("clicks")) + state.pending_messages + state.held_messages)
                worker.carried.reports.wake()
                await auntil(lambda: do(connection, list_carriers()) != [])
        # Nothing was published without a share, something with ten per cent, more with all, and nothing after that.
        assert published[0] == 0
        assert 0 < published[1] < published[2] == published[3]
        assert set(seen.values()) == {1}
        assert len(seen) == 4000
        assert all(result.holds for result in app.database.run(verify(lease=30.0)))
        async with app.working({"clicks": 50}):
            await auntil(lambda: line(connection).is_retired)
    await app.aclose()


@pytest.mark.asyncio
async def test_a_dead_carrier_is_reported_until_it_answers_again(
    database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = LocalNats(tmp_path_factory.mktemp("dying"))
    server.start()
    app = Sereno(database_url)
    app.queue("clicks", carrier=JetStream(server.url))
    seen: Counter[int] = Counter()
    blocked = asyncio.Event()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        await blocked.wait()
        seen[number] += 1

    try:
        with psycopg.connect(database_url, autocommit=True) as connection:
            async with app.working({"clicks": 1}) as worker:
                await auntil(lambda: do(connection, list_carriers()) != [])
                assert line(connection).state == "up"
                server.kill(0)
                await auntil(lambda: line(connection).error is not None)
                advance(connection, AWAY + 1)
                worker.carried.reports.wake()
                await auntil(lambda: line(connection).state == "away")
                text = exposition(MetricTally(), [worker.gauges(), Gauges()], "0").decode()
                assert 'sereno_carrier_up{queue="clicks"} 0.0' in text
                assert "sereno_carrier_bytes{" not in text
                # Jobs run from PostgreSQL meanwhile.
                app.enqueue_many([click.job(number) for number in range(5)])
                blocked.set()
                await auntil(lambda: len(seen) == 5)
                server.start_node(0)
                server.wait_for(0)
                await auntil(lambda: line(connection).error is None)
                assert line(connection).state == "up"
                text = exposition(MetricTally(), [Gauges(), worker.gauges()], "0").decode()
                assert 'sereno_carrier_replicas{queue="clicks",state="current"} 1.0' in text
    finally:
        server.stop()
    await app.aclose()


@pytest.mark.asyncio
async def test_a_carrier_that_hangs_is_given_up(
    database_url: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = LocalNats(tmp_path_factory.mktemp("hanging"))
    server.start()
    app = Sereno(database_url)
    app.queue("clicks", carrier=JetStream(server.url))
    seen: Counter[int] = Counter()
    # The worker shall notice that the carrier hangs when it publishes, not by a look at it before.
    monkeypatch.setattr(relay, "LOOK_EVERY", 3600.0)
    monkeypatch.setattr(relay, "TRUSTED", 3600.0)

    @app.task(queue="clicks")
    async def click(number: int) -> None:
        seen[number] += 1

    try:
        with psycopg.connect(database_url, autocommit=True) as connection:
            async with app.working({"clicks": 10}) as worker:
                await auntil(lambda: worker.carried._relay is not None and "clicks" in worker.carried._relay._reached)
                server.pause(0)
                enqueued = [click.enqueue(number).id for number in range(5)]
                await auntil(lambda: line(connection).relay_jobs > 0)
                monkeypatch.undo()
                change = do(connection, set_share("clicks", 0, recover=True))
                assert change.recovered > 0
                await auntil(lambda: len(seen) == len(enqueued))
                # The server may have received the message: then its jobs run again, and have one outcome.
                server.resume(0)
                await auntil(lambda: line(connection).is_retired)
            rows = connection.execute("select count(*), count(distinct id) from sereno.history").fetchall()
            assert rows == [(len(enqueued), len(enqueued))]
            assert all(result.holds for result in app.database.run(verify(lease=30.0)))
    finally:
        server.stop()
    await app.aclose()
