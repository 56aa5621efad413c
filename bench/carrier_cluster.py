"""Three NATS servers on loopback, and a setting that lets them carry the queue of the benchmarks."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.server import HOME
from bench.tasks import QUEUE
from bench.workers import BenchmarkFailed
from sereno import JetStream
from sereno.carriers.contract import CarrierState
from sereno.carriers.local_server import LocalNats
from sereno.errors import CarrierUnavailable

NODES = 3
VARIABLE = "SERENO_CARRIERS"
# Seconds until the cluster has elected its leader, and between two tries.
SECONDS_TO_START, SECONDS_BETWEEN_TRIES = 30.0, 0.2


@dataclass(frozen=True)
class CarriedDefault:
    """The default queue, carried under a prefix of its own, so that every round begins with an empty stream."""

    servers: str
    prefix: str

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let applications of this process, and workers that it starts, use the carrier."""
        hosts = self.servers.replace("nats://", "")
        url = f"jetstream://{hosts}?replicas={NODES}&prefix={self.prefix}&direct=true"
        os.environ[VARIABLE] = f'{{"{QUEUE}": "{url}"}}'
        try:
            yield
        finally:
            del os.environ[VARIABLE]

    def is_empty(self) -> bool:
        """Return whether every message was acknowledged."""
        state = asyncio.run(self._state())
        return not state.pending_messages and not state.held_messages

    async def _state(self) -> CarrierState:
        client = await JetStream(self.servers, replicas=NODES, prefix=self.prefix).connect()
        try:
            return await client.state(QUEUE)
        finally:
            await client.close()


class Cluster:
    """A running cluster."""

    def __init__(self, nats: LocalNats) -> None:
        self._nats = nats
        self._rounds = 0

    def next(self) -> CarriedDefault:
        self._rounds += 1
        return CarriedDefault(self._nats.url, f"bench-{self._rounds}")

    def wait_until_ready(self) -> None:
        end = time.monotonic() + SECONDS_TO_START
        while True:
            try:
                self.next().is_empty()
            except CarrierUnavailable as error:
                if time.monotonic() > end:
                    raise BenchmarkFailed(f"the NATS cluster did not start: {error}") from None
                time.sleep(SECONDS_BETWEEN_TRIES)
            else:
                return


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster with empty disks, and stop it at the end."""
    directory = HOME / "nats"
    shutil.rmtree(directory, ignore_errors=True)
    nats = LocalNats(directory, nodes=NODES)
    try:
        nats.start()
        running = Cluster(nats)
        running.wait_until_ready()
        yield running
    finally:
        nats.stop()
        shutil.rmtree(directory, ignore_errors=True)
