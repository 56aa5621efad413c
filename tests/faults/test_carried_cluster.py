"""Fault tests of carried queues on a cluster of three nodes that store every message: nothing accepted is lost.

A producer and a worker are at work during each fault. The journal of the handlers is compared with what was accepted.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from sereno import Sereno
from sereno.carriers.local_server import LocalNats
from sereno.errors import CarrierUnavailable
from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import until
from tests.faults.carried_app import declare
from tests.faults.carrier_world import QUEUE, CarrierWorld, words

pytestmark = pytest.mark.slow

APP = "tests.faults.carried_app:app"
# Seconds. An election and a message that is delivered again take a while.
PATIENCE = 120.0
# Seconds: longer than a cluster takes to notice that a node does not answer.
CUT = 12.0
# Jobs of one call, and seconds between two calls.
CHUNK, EVERY = 20, 0.02


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNats]:
    """Return a cluster that the tests of this module share."""
    nats = LocalNats(tmp_path_factory.mktemp("cluster"), nodes=3)
    nats.start()
    yield nats
    nats.stop()


@pytest.fixture
def world(nats: LocalNats) -> CarrierWorld:
    world = CarrierWorld(nats, replicas=3, prefix=f"t-{uuid.uuid4().hex[:8]}")
    world.prepare()
    return world


class Producer(threading.Thread):
    """Publishes jobs until it is stopped, and notes which were accepted."""

    def __init__(self, tasks: SimpleNamespace) -> None:
        super().__init__(daemon=True)
        self._tasks = tasks
        self._is_stopped = threading.Event()
        self._next = 0
        self.accepted: set[int] = set()
        self.refused = 0

    def run(self) -> None:
        while not self._is_stopped.wait(EVERY):
            numbers = range(self._next, self._next + CHUNK)
            self._next += CHUNK
            try:
                self._tasks.app.enqueue_many([_job(self._tasks, n) for n in numbers])
            except CarrierUnavailable:
                self.refused += CHUNK
            else:
                self.accepted.update(numbers)

    def stop(self) -> None:
        self._is_stopped.set()
        self.join()

    def goes_on(self, jobs: int = 400) -> None:
        """Wait until more jobs were accepted."""
        wanted = len(self.accepted) + jobs
        until(lambda: len(self.accepted) >= wanted, PATIENCE)


def _job(tasks: SimpleNamespace, n: int) -> object:
    return tasks.fail.job(n) if n % 40 == 7 else tasks.click.job(n, 0.01)


def lose_a_node(nats: LocalNats, producer: Producer) -> None:
    nats.kill(0)
    producer.goes_on()
    nats.start_node(0)
    nats.wait_for(0)


def cut_off_a_node(nats: LocalNats, producer: Producer) -> None:
    nats.pause(1)
    time.sleep(CUT)
    producer.goes_on()
    nats.resume(1)


def restart_all(nats: LocalNats, producer: Producer) -> None:
    del producer
    for node in range(3):
        nats.kill(node)
    nats.start()


def empty_a_disk(nats: LocalNats, producer: Producer) -> None:
    nats.kill(2)
    nats.empty(2)
    producer.goes_on()
    nats.start_node(2)
    nats.wait_for(2)


@pytest.mark.parametrize("fault", [lose_a_node, cut_off_a_node, restart_all, empty_a_disk])
@pytest.mark.timeout(400)
def test_a_cluster_loses_nothing_that_it_accepted(
    worker: Callable[..., WorkerProcess],
    connection: psycopg.Connection,
    database_url: str,
    world: CarrierWorld,
    log: Path,
    fault: Callable[[LocalNats, Producer], None],
) -> None:
    tasks = declare(Sereno(database_url, carriers=world.carriers))
    worker("--queue", f"{QUEUE}=20", app=APP, SERENO_CARRIERS=world.setting)
    producer = Producer(tasks)
    producer.start()
    producer.goes_on()
    fault(world.nats, producer)
    producer.goes_on()
    producer.stop()
    world.wait_until_done(connection, log)
    until(lambda: world.state().current_replicas == 3, PATIENCE)
    failing = {n for n in producer.accepted if n % 40 == 7}
    rows = connection.execute("select (args ->> 'n')::int from sereno.history where state = 'dead'").fetchall()
    assert producer.accepted - failing <= words(log, "done").keys()
    assert failing <= {n for (n,) in rows}
    assert_sound(connection)
    tasks.app.close()


@pytest.mark.timeout(400)
def test_a_cluster_without_a_majority(
    worker: Callable[..., WorkerProcess],
    connection: psycopg.Connection,
    database_url: str,
    world: CarrierWorld,
    log: Path,
) -> None:
    tasks = declare(Sereno(database_url, carriers=world.carriers))
    running = worker("--queue", f"{QUEUE}=20", app=APP, SERENO_CARRIERS=world.setting)
    tasks.app.enqueue_many([tasks.click.job(n) for n in range(100)])
    until(lambda: len(words(log, "done")) == 100, PATIENCE)
    for node in (0, 1):
        world.nats.kill(node)
    with pytest.raises(CarrierUnavailable):
        tasks.click.enqueue(1000)
    until(lambda: '"relay.stopped"' in running.log_text(), PATIENCE)
    tasks.app.enqueue_many([tasks.click.job(n) for n in range(200, 300)], connection=connection)
    until(lambda: words(log, "done").keys() >= set(range(200, 300)), PATIENCE)
    for node in (0, 1):
        world.nats.start_node(node)
    for node in (0, 1):
        world.nats.wait_for(node)
    world.state()
    tasks.click.enqueue(2000)
    until(lambda: 2000 in words(log, "done"), PATIENCE)
    world.wait_until_done(connection, log)
    assert_sound(connection)
    tasks.app.close()
