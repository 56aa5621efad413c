"""The nodes of a cluster that have an up-to-date copy of a carried queue are counted."""

import asyncio

import pytest

from sereno import JetStream
from sereno.carriers.contract import CarrierState
from sereno.carriers.local_server import LocalNats
from sereno.errors import CarrierUnavailable

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

# Seconds until a cluster has noticed that a node came or went.
NOTICED = 60.0
MESSAGES = 50


async def _state(carrier: JetStream, replicas: int) -> CarrierState:
    """Return the first state with this many current replicas."""
    client = await carrier.connect()
    try:
        async with asyncio.timeout(NOTICED):
            while True:
                try:
                    found = await client.state("clicks")
                    if found.current_replicas == replicas:
                        return found
                except CarrierUnavailable:
                    pass
                await asyncio.sleep(0.1)
    finally:
        await client.close()


async def test_a_node_with_an_empty_disk_hides_no_message(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It answers before it has copied the messages: for some seconds the queue looked empty."""
    cluster = LocalNats(tmp_path_factory.mktemp("cluster"), nodes=3)
    cluster.start()
    carrier = JetStream(cluster.url, replicas=3)
    try:
        leader = (await _state(carrier, 3)).leader
        node = next(node for node in range(3) if str(leader).endswith(str(node)))
        publisher = await carrier.connect()
        for number in range(MESSAGES):
            await publisher.publish("clicks", b"[]", f"m{number}")
        await publisher.close()
        cluster.kill(node)
        cluster.empty(node)
        await _state(carrier, 2)
        cluster.start_node(node)
        cluster.wait_for(node)
        # Of all nodes, this one is asked.
        assert await _counts(JetStream(f"nats://127.0.0.1:{cluster.ports[node]}", replicas=3)) == {MESSAGES}
    finally:
        cluster.stop()


async def _counts(carrier: JetStream) -> set[int]:
    """Return every count of messages that was seen until all replicas are current."""
    counts: set[int] = set()
    async with asyncio.timeout(NOTICED):
        while True:
            try:
                client = await carrier.connect()
            except CarrierUnavailable:
                continue
            try:
                while True:
                    found = await client.state("clicks")
                    counts.add(found.pending_messages)
                    if found.current_replicas == found.replicas:
                        return counts
            except CarrierUnavailable:
                continue
            finally:
                await client.close()


async def test_a_lost_node_is_missing_among_the_replicas(tmp_path_factory: pytest.TempPathFactory) -> None:
    cluster = LocalNats(tmp_path_factory.mktemp("cluster"), nodes=3)
    cluster.start()
    carrier = JetStream(cluster.url, replicas=3)
    try:
        whole = await _state(carrier, 3)
        assert whole.leader is not None
        lost = next(node for node in range(3) if not whole.leader.endswith(str(node)))
        cluster.kill(lost)
        found = await _state(carrier, 2)
        assert (found.replicas, found.leader) == (3, whole.leader)
        cluster.start_node(lost)
        assert (await _state(carrier, 3)).replicas == 3
    finally:
        cluster.stop()
