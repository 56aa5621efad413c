"""Fault tests of carried queues on a cluster of three nodes that store every message: nothing accepted is lost.

A producer and a worker are at work during each fault. The journal of the handlers is compared with what was accepted.
"""

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
from tests.faults.carrier_producer import PATIENCE, Producer
from tests.faults.carrier_world import QUEUE, CarrierWorld, words

pytestmark = pytest.mark.slow

APP = "tests.faults.carried_app:app"
# Seconds: longer than a cluster takes to notice that a node does not answer.
CUT = 12.0


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
    connection.execute("create table effects (job_id bigint not null, n bigint not null)")
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
    producer.assert_nothing_lost(connection, log)
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
    # The nodes are there again, but may still elect a leader of the stream.
    until(lambda: _is_accepted(tasks, 2000), PATIENCE)
    until(lambda: 2000 in words(log, "done"), PATIENCE)
    world.wait_until_done(connection, log)
    assert_sound(connection)
    tasks.app.close()


def _is_accepted(tasks: SimpleNamespace, number: int) -> bool:
    try:
        tasks.click.enqueue(number)
    except CarrierUnavailable:
        return False
    return True
