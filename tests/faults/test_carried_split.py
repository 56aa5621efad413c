"""Fault tests of carried queues on a split network: a server is cut off from the others, and clients reach all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from sereno import JetStream, Sereno
from sereno.carriers.jetstream import CONSUMER, JetStreamClient, connect
from sereno.errors import CarrierUnavailable
from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import until
from tests.faults.carried_app import declare
from tests.faults.carrier_producer import PATIENCE, Producer
from tests.faults.carrier_world import QUEUE, CarrierWorld, words
from tests.faults.split_cluster import NODES, SplitCluster

pytestmark = pytest.mark.slow

APP = "tests.faults.carried_app:app"
# Seconds: longer than a majority takes to elect its leaders on a busy machine.
ANSWERED = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SplitCluster]:
    cluster = SplitCluster(tmp_path / "cluster")
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.mark.timeout(600)
def test_nothing_is_lost_while_each_server_is_cut_off_in_turn(
    worker: Callable[..., WorkerProcess],
    connection: psycopg.Connection,
    database_url: str,
    cluster: SplitCluster,
    log: Path,
) -> None:
    """Whichever servers the worker and the producer are connected to, they leave them for the majority."""
    connection.execute("create table effects (job_id bigint not null, n bigint not null)")
    world = CarrierWorld(cluster, replicas=3)
    world.prepare()
    tasks = declare(Sereno(database_url, carriers=world.carriers))
    worker("--queue", f"{QUEUE}=20", app=APP, SERENO_CARRIERS=world.setting)
    producer = Producer(tasks)
    producer.start()
    producer.goes_on()
    for node in range(NODES):
        cluster.isolate(node)
        producer.goes_on()
        done = len(words(log, "done"))
        until(lambda done=done: len(words(log, "done")) >= done + 200, PATIENCE)  # type: ignore[misc]
        cluster.heal()
        until(lambda: world.state().current_replicas == NODES, PATIENCE)
    producer.goes_on()
    producer.stop()
    world.wait_until_done(connection, log)
    producer.assert_nothing_lost(connection, log)
    assert_sound(connection)
    tasks.app.close()


@asynccontextmanager
async def _client(address: str) -> AsyncIterator[JetStreamClient]:
    client = await connect(JetStream(address, replicas=3))
    try:
        yield client
    finally:
        await client.close()


async def _until_done(act: Callable[[], Awaitable[object]]) -> None:
    """Repeat a request until the cluster has answered."""
    async with asyncio.timeout(ANSWERED):
        while True:
            try:
                await act()
            except CarrierUnavailable:
                await asyncio.sleep(0.1)
            else:
                return


def _port(client: JetStreamClient) -> int:
    url = client._client.connected_url
    assert url is not None
    assert url.port is not None
    return int(url.port)


@pytest.mark.asyncio
async def test_a_client_leaves_a_server_that_is_cut_off(cluster: SplitCluster) -> None:
    found: list[bytes] = []
    async with _client(cluster.url) as client:

        async def fetch() -> None:
            found.extend(message.body for message in await client.fetch(QUEUE, 1, 2.0))

        await _until_done(lambda: client.publish(QUEUE, b"before", "a"))
        port = _port(client)
        cluster.isolate(cluster.ports.index(port))
        await _until_done(lambda: client.publish(QUEUE, b"during", "b"))
        assert _port(client) != port
        async with asyncio.timeout(ANSWERED):
            # Its consumer elects a leader of its own.
            while len(found) < 2:
                await _until_done(fetch)
    assert sorted(found) == [b"before", b"during"]


@pytest.mark.asyncio
async def test_a_report_counts_only_if_the_majority_knows_of_it(cluster: SplitCluster) -> None:
    """A worker that is connected to one server must not believe that it holds what others get meanwhile."""
    async with _client(cluster.url) as everywhere:
        await _until_done(lambda: everywhere.publish(QUEUE, b"held", "a"))
        info = await everywhere._js.consumer_info(everywhere._stream(QUEUE), CONSUMER)
    assert info.cluster is not None
    assert info.cluster.leader is not None
    follower = (int(info.cluster.leader[-1]) + 1) % NODES
    async with _client(f"nats://127.0.0.1:{cluster.ports[follower]}") as client:
        (message,) = await client.fetch(QUEUE, 1, 20.0)
        await message.extend()
        cluster.isolate(follower)
        with pytest.raises(CarrierUnavailable):
            await message.extend()
        cluster.heal()
        await _until_done(message.extend)
