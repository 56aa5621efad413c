"""What the fault tests of carried queues share: a cluster of NATS, the journal of handlers, and the end of a run."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import psycopg
from nats.js import api

from sereno import JetStream
from sereno.carriers.contract import CarrierState
from sereno.carriers.jetstream import CONSUMER, MOST_HELD, JetStreamClient, connect
from sereno.carriers.local_server import LocalNats
from sereno.errors import CarrierUnavailable
from tests.facts import one, until, until_at_rest

T = TypeVar("T")

QUEUE = "clicks"
# Seconds after which a message is delivered again in tests: longer than a worker takes to report, shorter than usual.
SHORT_WAIT = 12.0
LIVE = "select (select count(*) from sereno.jobs) + (select count(*) from sereno.relay_batches)"


class CarrierWorld:
    """A cluster that carries the queue `clicks`, with what a test asks of it."""

    def __init__(
        self, nats: LocalNats, replicas: int = 1, prefix: str = "sereno", max_bytes: int | None = None
    ) -> None:
        self.nats = nats
        self.carrier = JetStream(nats.url, replicas=replicas, prefix=prefix, max_bytes=max_bytes)

    @property
    def carriers(self) -> dict[str, str]:
        """The setting `carriers` of the workers and of producers."""
        hosts = self.nats.url.replace("nats://", "")
        limit = f"&max_bytes={self.carrier.max_bytes}" if self.carrier.max_bytes else ""
        options = f"replicas={self.carrier.replicas}&prefix={self.carrier.prefix}&direct=true{limit}"
        return {QUEUE: f"jetstream://{hosts}?{options}"}

    @property
    def setting(self) -> str:
        """The same as an environment variable."""
        return json.dumps(self.carriers)

    def ask(self, question: Callable[[JetStreamClient], "asyncio.Future[T]"]) -> T:
        """Return the result of a question to the cluster, once it answers."""
        found: list[T] = []

        async def once() -> None:
            client = await connect(self.carrier)
            try:
                found.append(await question(client))
            finally:
                await client.close()

        def answers() -> bool:
            try:
                asyncio.run(once())
            except CarrierUnavailable:
                return False
            return True

        until(answers, 90.0)
        return found[0]

    def prepare(self, ack_wait: float = SHORT_WAIT) -> None:
        """Create the streams, with a shorter time until a message is delivered again."""

        async def act(client: JetStreamClient) -> None:
            await client.state(QUEUE)
            config = api.ConsumerConfig(
                durable_name=CONSUMER,
                ack_policy=api.AckPolicy.EXPLICIT,
                ack_wait=ack_wait,
                max_deliver=-1,
                max_ack_pending=MOST_HELD,
            )
            await client._js.add_consumer(client._stream(QUEUE), config)

        self.ask(act)  # type: ignore[arg-type]

    def state(self) -> CarrierState:
        return self.ask(lambda client: client.state(QUEUE))  # type: ignore[arg-type,return-value]

    @property
    def is_empty(self) -> bool:
        state = self.state()
        return state.pending_messages == 0 and state.held_messages == 0

    def wait_until_done(self, connection: psycopg.Connection, log: Path) -> None:
        """Wait until neither the stream nor PostgreSQL has a job; fail if nothing happens for long."""
        until_at_rest(
            lambda: self.is_empty and one(connection, LIVE) == 0,
            lambda: (log.stat().st_size, one(connection, LIVE)),
        )


def words(log: Path, word: str) -> Counter[int]:
    """Return how often the journal has this word, by the number of the job."""
    return Counter(number for kind, number in _lines(log) if kind == word)


def _lines(log: Path) -> Iterable[tuple[str, int]]:
    for line in log.read_text().splitlines():
        kind, number, *_ = line.split()
        yield kind, int(number)


def processes(log: Path) -> set[str]:
    """Return the processes that have noted something."""
    return {line.split()[-1] for line in log.read_text().splitlines()}
