"""The relay: messages that wait for their carrier, or are too large for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sereno import Context, JetStream, Sereno
from sereno.carriers import store
from sereno.carriers.local_server import LocalNats
from sereno.jobs.pauses import pause, resume
from sereno.worker.carried import lasting_position
from sereno.worker.carried import relay as relay_module
from tests.carriers.carrier_steps import QUEUE, client_of
from tests.facts import advance, auntil, one
from tests.jobs.job_steps import add, do, line, session, take

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


class SmallMessages(LocalNats):
    """A server that accepts messages of at most 20,000 bytes."""

    def _config(self, node: int, home: Path) -> str:
        return super()._config(node, home) + "max_payload: 20000\n"


@pytest.fixture
def own_nats(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalNats]:
    """Return a server of the test, which it may pause."""
    nats: LocalNats = getattr(request, "param", LocalNats)(tmp_path / "nats")
    nats.start()
    yield nats
    nats.stop()


async def test_a_message_stays_in_postgresql_until_its_carrier_has_stored_it(
    database_url: str, own_nats: LocalNats
) -> None:
    nats = own_nats
    app = Sereno(database_url)
    app.queue("clicks", carrier=JetStream(nats.url))
    seen: set[int] = set()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen.add(number)

    with line(database_url) as connection:
        async with app.working() as worker:
            await auntil(lambda: worker.carried._relay is not None and worker.carried._relay.rounds > 0)
            # It answers nothing from now on, and the relay does not know yet.
            nats.pause(0)
            await click.aenqueue(1)
            await auntil(lambda: one(connection, "select jobs from sereno.relay_batches") == 1)
            relay = worker.carried._relay
            assert relay is not None
            await auntil(lambda: relay._failing)
            assert one(connection, "select count(*) from sereno.relay_batches") == 1
            assert not seen
            nats.resume(0)
            await auntil(lambda: seen == {1})
            await auntil(lambda: one(connection, "select count(*) from sereno.relay_batches") == 0)
    await app.aclose()


@pytest.mark.parametrize("own_nats", [SmallMessages], indirect=True)
async def test_jobs_that_are_too_large_for_one_message_are_split_or_run_from_postgresql(
    database_url: str, own_nats: LocalNats
) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=JetStream(own_nats.url))
    seen: set[int] = set()

    @app.task(queue="clicks", history=False)
    async def click(number: int, text: str) -> None:
        assert text
        seen.add(number)

    with line(database_url) as connection:
        async with app.working() as worker:
            await auntil(lambda: worker.carried._relay is not None and worker.carried._relay._shares["clicks"])
            jobs = [click.job(n, "x" * (30_000 if n == 7 else 3_000)) for n in range(40)]
            await app.aenqueue_many(jobs)
            await auntil(lambda: seen == set(range(40)))
            await auntil(lambda: one(connection, "select count(*) from sereno.relay_batches") == 0)
    await app.aclose()


async def test_a_transaction_commits_once_although_the_servers_forgot_its_message(
    database_url: str, own_nats: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message was published, its acknowledgement was lost, and its job has run. Minutes later it is published again.

    The servers were restarted in between: they know the ids of messages that they still have.
    """
    monkeypatch.setattr(relay_module, "LOOK_EVERY", 0.2)
    monkeypatch.setattr(lasting_position, "LASTS_AFTER", 0.4)
    app = Sereno(database_url)
    carrier = JetStream(own_nats.url)
    app.queue(QUEUE, carrier=carrier)
    runs: list[int] = []

    @app.task(queue=QUEUE, history=False)
    async def click(ctx: Context) -> None:
        runs.append(ctx.job_id)
        async with ctx.transaction() as connection:
            await connection.execute("insert into clicks values (1)")

    with line(database_url) as connection:
        connection.execute("create table clicks (n int)")
        publisher = session(connection, queues={QUEUE: 1}, tasks=["click"])
        add(connection, 1, "click", queue=QUEUE)
        (job,) = take(connection, publisher, queue=QUEUE, tasks=["click"])
        batch, _ = do(connection, store.carry(publisher, QUEUE, [job.id]))
        assert batch is not None
        client = await client_of(carrier)
        assert await client.publish(QUEUE, batch.body, f"r{batch.id}") == 1
        async with app.working():
            await auntil(lambda: one(connection, "select count(*) from clicks") == 1)
        assert await client.acknowledged(QUEUE) == 1
        await client.close()

        own_nats.kill(0)
        own_nats.start()
        advance(connection, store.KEEP_STORED + 60)
        connection.execute("update sereno.sessions set state = 'dead', ended_at = sereno.now()")
        do(connection, pause("queue", QUEUE))
        async with app.working() as worker:
            await auntil(lambda: one(connection, "select count(*) from sereno.relay_batches") == 0)
            relay = worker.carried._relay
            assert relay is not None
            seen = relay.rounds
            await auntil(lambda: relay.rounds > seen + 2)
            assert do(connection, store.stored([job.id])) == {job.id}
            do(connection, resume("queue", QUEUE))
            worker.carried.reports.wake()
            await auntil(lambda: one(connection, "select count(*) from sereno.carried_jobs") == 0)
        client = await client_of(carrier)
        assert await client.acknowledged(QUEUE) == 2, "it was stored twice"
        await client.close()
        assert one(connection, "select count(*) from clicks") == 1
    await app.aclose()
    assert len(runs) == 2
