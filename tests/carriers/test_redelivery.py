"""Messages that are delivered again, published again or come from other clients: what runs, and how often."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from nats.js import api

from sereno import Context, JetStream, Sereno
from sereno.carriers import store
from sereno.carriers.jetstream import CONSUMER, JetStreamClient
from sereno.carriers.message import decode
from sereno.worker.carried.held_message import HeldMessage
from sereno.worker.carried.held_messages import HeldMessages
from tests.carriers.carrier_steps import FIRST_ID, QUEUE, body, client_of, row
from tests.facts import auntil, one
from tests.jobs.job_steps import add, do, line, session, take

pytestmark = pytest.mark.asyncio


@contextmanager
def clicking(url: str, carrier: JetStream, seconds: float = 0.0) -> Iterator[tuple[Sereno, Counter[int]]]:
    """Return an application that counts the clicks it ran."""
    app = Sereno(url)
    app.queue(QUEUE, carrier=carrier)
    seen: Counter[int] = Counter()

    @app.task(queue=QUEUE, history=False)
    async def click(number: int) -> None:
        await asyncio.sleep(seconds)
        seen[number] += 1

    yield app, seen
    app.close()


async def acknowledged(client: JetStreamClient, position: int = 1) -> None:
    """Wait until the messages up to this position are acknowledged."""
    async with asyncio.timeout(30):
        while await client.acknowledged(QUEUE) < position:
            pass


async def test_only_jobs_without_an_outcome_run_again(database_url: str, jetstream: JetStream) -> None:
    client = await client_of(jetstream)
    await client.publish(QUEUE, body(range(6)), "a")
    (message,) = await client.fetch(QUEUE, 1, 5.0)
    with line(database_url) as connection:
        do(connection, store.store(session(connection), [row(FIRST_ID + 5, message.position, queue=QUEUE)]))
        await message.store_progress(b"[%d, %d]" % (FIRST_ID, FIRST_ID + 1))
        await message.give_back()
        with clicking(database_url, jetstream) as (app, seen):
            async with app.working():
                await acknowledged(client)
        connection.execute("delete from sereno.jobs")
    await client.close()
    assert seen == {2: 1, 3: 1, 4: 1}


@pytest.mark.slow
async def test_a_message_that_returns_to_its_holder_runs_once(database_url: str, jetstream: JetStream) -> None:
    client = await client_of(jetstream)
    config = api.ConsumerConfig(durable_name=CONSUMER, ack_policy=api.AckPolicy.EXPLICIT, ack_wait=1.0, max_deliver=-1)
    await client._js.add_consumer(client._stream(QUEUE), config)
    await client.publish(QUEUE, body(range(3)), "a")
    with clicking(database_url, jetstream, seconds=2.5) as (app, seen):
        async with app.working():
            await acknowledged(client)
            assert len(seen) == 3, "it was acknowledged before its jobs had ended"
    await client.close()
    assert seen == {0: 1, 1: 1, 2: 1}


async def test_a_message_that_was_published_before_the_worker_died_runs_once(
    database_url: str, jetstream: JetStream
) -> None:
    client = await client_of(jetstream)
    with clicking(database_url, jetstream) as (app, seen), line(database_url) as connection:
        dead = session(connection, queues={QUEUE: 1}, tasks=["click"])
        add(connection, 1, "click", queue=QUEUE)
        connection.execute("""update sereno.jobs set args = '{"number": 1}'""")
        (job,) = take(connection, dead, queue=QUEUE, tasks=["click"])
        batch, _ = do(connection, store.carry(dead, QUEUE, [job.id]))
        assert batch is not None
        await client.publish(QUEUE, batch.body, f"r{batch.id}")
        connection.execute("update sereno.sessions set state = 'dead', ended_at = sereno.now() where id = %s", [dead])
        async with app.working():
            await auntil(lambda: one(connection, "select count(*) from sereno.relay_batches") == 0)
            await acknowledged(client)
            state = await client.state(QUEUE)
    await client.close()
    assert seen == {1: 1}
    assert (state.pending_messages, state.held_messages) == (0, 0)


@pytest.mark.slow
async def test_a_share_of_zero_keeps_jobs_in_postgresql(database_url: str, jetstream: JetStream) -> None:
    client = await client_of(jetstream)
    with clicking(database_url, jetstream) as (app, seen), line(database_url) as connection:
        do(connection, store.set_share(QUEUE, 0))
        async with app.working() as worker:
            await auntil(lambda: worker.carried._relay is not None and worker.carried._relay.rounds > 0)
            click = app.registry.find("click")
            connection.execute(
                "select sereno.enqueue(%s, jsonb_build_object('number', n), queue => %s) "
                "from generate_series(1, 300) as n",
                [click.name, QUEUE],
            )
            await auntil(lambda: len(seen) == 300)
        found = await client._js.stream_info(client._stream(QUEUE))
    await client.close()
    assert set(seen.values()) == {1}
    assert found.state.last_seq == 0, "nothing was published"


async def test_a_share_of_ten_publishes_one_id_in_ten(
    database_url: str, jetstream: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: set[int] = set()
    carry = store.carry

    def recorded(session: int, queue: str, ids: Collection[int]) -> Any:
        moved.update(ids)
        return carry(session, queue, ids)

    monkeypatch.setattr(store, "carry", recorded)
    with clicking(database_url, jetstream) as (app, seen), line(database_url) as connection:
        do(connection, store.set_share(QUEUE, 10))
        async with app.working() as worker:
            await auntil(lambda: worker.carried._relay is not None and worker.carried._relay.rounds > 0)
            connection.execute(
                "select sereno.enqueue('click', jsonb_build_object('number', n), queue => %s) "
                "from generate_series(1, 300) as n",
                [QUEUE],
            )
            await auntil(lambda: len(seen) == 300)
    assert moved
    assert {number % 100 for number in moved} <= set(range(10))


HOSTILE = {
    "not JSON": b"\xff\xfe",
    "another version": b'[2,"clicks",1,[1],["click"],[{}],null]',
    "text for a number": b'[1,"clicks",1,["1"],["click"],[{}],null]',
    "a negative id": b'[1,"clicks",1,[-5],["click"],[{}],null]',
    "a large id": b'[1,"clicks",1,[18446744073709551615],["click"],[{}],null]',
    "a time that is none": b'[1,"clicks",1e300,[9],["click"],[{}],null]',
    "a name with a NUL": b'[1,"clicks",1,[9],["cl\\u0000ick"],[{}],null]',
    "fields of another job": b'[1,"clicks",1,[9],["click"],[{}],[[7]]]',
    "lists that do not match": b'[1,"clicks",1,[9,10],["click"],[{}],null]',
    "many jobs": b'[1,"clicks",1,[%s],["click"],[%s],null]'
    % (b",".join(b"%d" % n for n in range(1, 20_002)), b",".join([b"{}"] * 20_001)),
}
# A valid batch, and arguments or fields that PostgreSQL refuses.
REFUSED = {
    "a NUL in arguments": b'[1,"clicks",1,[%d],["unknown"],[{"x":"\\u0000"}],null]' % (FIRST_ID + 50),
    "a priority of 99": b'[1,"clicks",1,[%d],["unknown"],[{}],[[0,99]]]' % (FIRST_ID + 51),
    "arguments that are no object": b'[1,"clicks",1,[%d],["unknown"],[5],null]' % (FIRST_ID + 52),
}


@pytest.mark.slow
async def test_messages_of_other_clients_stop_nothing(database_url: str, jetstream: JetStream) -> None:
    client = await client_of(jetstream)
    with clicking(database_url, jetstream) as (app, seen), line(database_url) as connection:
        (innocent,) = add(connection, 1, "work")
        for name, data in {**HOSTILE, **REFUSED}.items():
            await client.publish(QUEUE, data, name)
        # The id of a job that is in PostgreSQL, whose task is unknown: it wants to come home.
        await client.publish(QUEUE, b'[1,"other",1,[%d],["unknown"],[{}],null]' % innocent, "innocent")
        await client.publish(QUEUE, body([1, 2]), "a")
        async with app.working():
            await acknowledged(client, len(HOSTILE) + len(REFUSED) + 2)
        dead = connection.execute("select task, reason from sereno.history where state = 'dead'").fetchall()
        left = connection.execute("select id, state from sereno.jobs where task = 'work'").fetchall()
    await client.close()
    assert seen == {1: 1, 2: 1}
    assert sum(task == store.UNDECODABLE for task, _ in dead) == len(HOSTILE)
    assert left == [(innocent, "ready")]


@pytest.mark.slow
async def test_a_transaction_of_two_deliveries_is_committed_once(database_url: str, jetstream: JetStream) -> None:
    """The same job in two messages, as after a publication that was repeated too late."""
    app = Sereno(database_url)
    app.queue(QUEUE, carrier=jetstream)
    runs: Counter[int] = Counter()

    @app.task(queue=QUEUE, history=False)
    async def click(ctx: Context, number: int) -> None:
        runs[number] += 1
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects values (%s)", [number])

    client = await client_of(jetstream)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table effects (number integer)")
        for name in ("a", "b"):
            await client.publish(QUEUE, body([7]), name)
        async with app.working():
            await acknowledged(client, 2)
        await app.aclose()
        assert connection.execute("select number from effects").fetchall() == [(7,)]
    await client.close()
    assert runs[7] >= 1


async def test_a_message_at_the_position_of_a_lost_one_is_not_taken_for_it(jetstream: JetStream) -> None:
    """A carrier that has lost its disks begins with the same positions again, as a new stream does."""
    messages = HeldMessages()
    for first, is_finished in ((FIRST_ID, False), (FIRST_ID + 10, True), (FIRST_ID + 20, True)):
        # The server may give a stream of the same name the files of the one that was just deleted.
        client = await client_of(JetStream(jetstream.servers, prefix=f"{jetstream.prefix}-{first}"))
        await client.publish(QUEUE, body([0], first=first), f"m{first}")
        (message,) = await client.fetch(QUEUE, 1, 5.0)
        await message.give_back()
        (message,) = await client.fetch(QUEUE, 1, 5.0)
        held = HeldMessage(message, decode(message.body))
        assert (message.position, message.deliveries) == (1, 2)
        assert not messages.recognises(held)
        messages.hold(held)
        assert messages.recognises(HeldMessage(message, held.batch))
        if is_finished:
            messages.done(first)
        await client.close()
