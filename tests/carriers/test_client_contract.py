"""The contract of CarrierClient, on a real JetStream server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import count

import pytest

from sereno import CarrierUnavailable, JetStream
from sereno.carriers.contract import CarriedMessage, CarrierClient, CarrierState
from sereno.carriers.local_server import LocalNats
from sereno.errors import CarrierFull
from tests.facts import auntil

QUEUE = "clicks"
WAIT = 20.0


@pytest.fixture
async def client(jetstream: JetStream) -> AsyncIterator[CarrierClient]:
    connected = await jetstream.connect()
    yield connected
    await connected.close()


async def next_message(client: CarrierClient, queue: str = QUEUE) -> CarriedMessage:
    (message,) = await client.fetch(queue, 1, WAIT)
    return message


async def becomes(client: CarrierClient, fact: Callable[[CarrierState], bool]) -> None:
    """Wait until the state of the queue is so: an acknowledgement is not confirmed by the server."""
    async with asyncio.timeout(WAIT):
        for _ in count():
            if fact(await client.state(QUEUE)):
                return


async def test_a_message_is_published_once_and_acknowledged(client: CarrierClient) -> None:
    assert await client.acknowledged(QUEUE) == 0
    await client.publish(QUEUE, b"first", "d1")
    await client.publish(QUEUE, b"first again", "d1")
    await client.publish(QUEUE, b"second", "d2")
    before = await client.state(QUEUE)
    assert (before.pending_messages, before.held_messages, before.redelivered_messages) == (2, 0, 0)
    assert (before.replicas, before.current_replicas) == (1, 1)
    assert before.bytes > 0
    assert before.oldest is not None

    first, second = await next_message(client), await next_message(client)
    assert (first.body, first.deliveries, second.body) == (b"first", 1, b"second")
    assert first.position < second.position
    assert (await client.state(QUEUE)).held_messages == 2
    await first.acknowledge()
    await second.acknowledge()
    await becomes(client, lambda state: not state.held_messages)
    assert await client.acknowledged(QUEUE) == second.position
    after = await client.state(QUEUE)
    assert (after.pending_messages, after.held_messages, after.oldest) == (0, 0, None)


async def test_a_message_that_is_given_back_is_delivered_again_with_its_progress(client: CarrierClient) -> None:
    await client.publish(QUEUE, b"body", "d1")
    first = await next_message(client)
    assert await first.progress() is None
    await first.extend()
    await first.store_progress(b"[1]")
    await first.store_progress(b"[1,2]")
    await first.give_back()
    again = await next_message(client)
    assert (again.position, again.deliveries, again.body) == (first.position, 2, b"body")
    assert await again.progress() == b"[1,2]"
    assert (await client.state(QUEUE)).redelivered_messages == 1
    await again.acknowledge()
    assert await again.progress() is None


async def test_a_fetch_without_messages_returns_none_of_them(client: CarrierClient) -> None:
    assert await client.fetch(QUEUE, 5, 0.2) == []
    await client.publish(QUEUE, b"late", "d1")
    assert [message.body for message in await client.fetch(QUEUE, 5, WAIT)] == [b"late"]


async def test_queues_and_prefixes_are_apart(client: CarrierClient, jetstream: JetStream) -> None:
    """Names that NATS does not allow in a subject are queues like others."""
    names = ["clicks", "a.b", "a b", "ä>*", "x" * 100]
    for name in names:
        await client.publish(name, name.encode(), "d1")
    other = await replace(jetstream, prefix=f"{jetstream.prefix}-other").connect()
    assert await other.fetch("clicks", 1, 0.2) == []
    await other.close()
    for name in names:
        assert (await next_message(client, name)).body == name.encode()


async def test_a_full_stream_refuses_and_accepts_again(jetstream: JetStream) -> None:
    client = await replace(jetstream, max_bytes=2000).connect()
    await client.publish(QUEUE, b"x" * 1500, "d1")
    with pytest.raises(CarrierFull, match="queue clicks: its stream is full: raise max_bytes, or start workers"):
        await client.publish(QUEUE, b"y" * 1500, "d2")
    await (await next_message(client)).acknowledge()
    await becomes(client, lambda state: not state.bytes)
    await client.publish(QUEUE, b"y" * 1500, "d3")
    assert (await next_message(client)).body == b"y" * 1500
    await client.close()


@pytest.mark.slow
async def test_a_message_of_a_client_that_died_is_delivered_again(jetstream: JetStream) -> None:
    """A client without a word for ACK_WAIT has lost the message."""
    first, second = await jetstream.connect(), await jetstream.connect()
    await first.publish(QUEUE, b"body", "d1")
    lost = await next_message(first)
    await first.close()
    (again,) = await second.fetch(QUEUE, 1, 60.0)
    assert (again.position, again.deliveries) == (lost.position, 2)
    await second.close()


@pytest.mark.slow
async def test_a_server_that_is_away_raises_and_is_used_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = LocalNats(tmp_path_factory.mktemp("away"))
    server.start()
    carrier = JetStream(server.url)
    client = await carrier.connect()
    await client.publish(QUEUE, b"kept", "d1")
    server.kill(0)
    with pytest.raises(CarrierUnavailable, match="did not answer"):
        await client.publish(QUEUE, b"lost", "d2")
    with pytest.raises(CarrierUnavailable, match="check that the servers run"):
        await carrier.connect()
    server.start()
    await auntil(lambda: client.is_connected)
    assert (await next_message(client)).body == b"kept"
    await client.close()
    server.stop()
