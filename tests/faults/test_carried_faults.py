"""Fault tests of carried queues with one NATS server: workers are killed or suspended, PostgreSQL or NATS is away.

Each test ends with the journal that the handlers wrote, and with all invariants.
"""

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from sereno import Sereno
from sereno.carriers.local_server import LocalNats
from sereno.database.embedded import EmbeddedPostgres
from sereno.errors import CarrierFull, CarrierUnavailable
from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import one, until
from tests.faults.carried_app import declare
from tests.faults.carrier_world import QUEUE, CarrierWorld, processes, words

pytestmark = pytest.mark.slow

APP = "tests.faults.carried_app:app"
# Seconds. A message of a killed worker is delivered again after a while.
PATIENCE = 90.0
StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CarrierWorld]:
    """Return a queue that is carried by a server of the test."""
    nats = LocalNats(tmp_path / "nats")
    nats.start()
    world = CarrierWorld(nats, prefix=f"t-{uuid.uuid4().hex[:8]}")
    world.prepare()
    yield world
    nats.stop()


@pytest.fixture
def start(worker: StartWorker, world: CarrierWorld) -> StartWorker:
    """Return a function that starts workers of the carried queue."""

    def started(slots: int = 10, **more: object) -> WorkerProcess:
        return worker("--queue", f"{QUEUE}={slots}", app=APP, SERENO_CARRIERS=world.setting, **more)

    return started


@pytest.fixture
def tasks(database_url: str, world: CarrierWorld) -> Iterator[SimpleNamespace]:
    """Return the tasks of a producer."""
    tasks = declare(Sereno(database_url, carriers=world.carriers))
    yield tasks
    tasks.app.close()


def effects(connection: psycopg.Connection) -> None:
    connection.execute("create table effects (job_id bigint not null, n bigint not null)")


def test_a_killed_worker_runs_only_what_had_no_outcome_again(
    start: StartWorker, connection: psycopg.Connection, tasks: SimpleNamespace, world: CarrierWorld, log: Path
) -> None:
    first = start()
    tasks.app.enqueue_many([tasks.click.job(n, 0.1) for n in range(400)])
    until(lambda: len(words(log, "done")) >= 100)
    recorded = words(log, "done").keys()
    # Ten slots run a hundred jobs in a second; progress is stored twice a second.
    until(lambda: len(words(log, "done")) >= len(recorded) + 200)
    first.kill()
    start(slots=50)
    until(lambda: len(words(log, "done")) == 400, PATIENCE)
    world.wait_until_done(connection, log)
    again = {n for n, count in words(log, "done").items() if count > 1}
    assert not again & recorded
    assert_sound(connection)


def test_a_transaction_is_committed_once_although_two_workers_run_the_message(
    start: StartWorker, connection: psycopg.Connection, tasks: SimpleNamespace, world: CarrierWorld, log: Path
) -> None:
    effects(connection)
    first = start(slots=3)
    tasks.app.enqueue_many([tasks.write.job(n, 2.0) for n in range(3)])
    until(lambda: len(words(log, "began")) == 3)
    paused = first.children()
    for process in paused:
        os.kill(process, signal.SIGSTOP)
    start(slots=3)
    until(lambda: len(words(log, "done")) == 3, PATIENCE)
    for process in paused:
        os.kill(process, signal.SIGCONT)
    until(lambda: "LeaseLost" in first.log_text() or "job.fenced" in first.log_text(), PATIENCE)
    world.wait_until_done(connection, log)
    assert sorted(connection.execute("select n from effects").fetchall()) == [(0,), (1,), (2,)]
    assert_sound(connection)


def test_a_handler_may_run_longer_than_the_carrier_waits(
    start: StartWorker, connection: psycopg.Connection, tasks: SimpleNamespace, world: CarrierWorld, log: Path
) -> None:
    start(slots=2)
    start(slots=2)
    tasks.app.enqueue_many([tasks.block.job(n, 30.0) for n in range(2)])
    until(lambda: len(words(log, "done")) == 2, PATIENCE)
    world.wait_until_done(connection, log)
    assert words(log, "began") == {0: 1, 1: 1}
    assert_sound(connection)


def test_an_idle_worker_gets_jobs_of_a_message_that_another_one_holds(
    start: StartWorker, connection: psycopg.Connection, tasks: SimpleNamespace, world: CarrierWorld, log: Path
) -> None:
    start(slots=2)
    start(slots=2)
    tasks.app.enqueue_many([tasks.click.job(n, 1.0) for n in range(60)])
    until(lambda: len(processes(log)) == 2, PATIENCE)
    until(lambda: len(words(log, "done")) == 60, PATIENCE)
    world.wait_until_done(connection, log)
    assert set(words(log, "done").values()) == {1}
    assert_sound(connection)


def test_a_slow_consumer(
    start: StartWorker, connection: psycopg.Connection, tasks: SimpleNamespace, world: CarrierWorld, log: Path
) -> None:
    """Direct enqueue does not wait for it: messages stay in the stream, for it or for the next worker."""
    start(slots=1)
    tasks.block.enqueue(0, 15.0)
    until(lambda: 0 in words(log, "began"))
    for first in range(1, 5001, 500):
        tasks.app.enqueue_many([tasks.click.job(n) for n in range(first, first + 500)])
    assert 0 not in words(log, "done")
    state = world.state()
    assert state.pending_messages > 0
    assert state.pending_messages + state.held_messages == 11
    start(slots=50)
    until(lambda: len(words(log, "done")) == 5001, PATIENCE)
    world.wait_until_done(connection, log)
    assert set(words(log, "done").values()) == {1}
    assert_sound(connection)


def test_the_carrier_is_away(
    start: StartWorker, connection: psycopg.Connection, tasks: SimpleNamespace, world: CarrierWorld, log: Path
) -> None:
    running = start()
    tasks.app.enqueue_many([tasks.click.job(n, 0.2) for n in range(100)])
    until(lambda: words(log, "done"))
    world.nats.kill(0)
    with pytest.raises(CarrierUnavailable):
        tasks.click.enqueue(1000)
    until(lambda: '"carrier.unavailable"' in running.log_text())
    with connection.transaction():
        tasks.app.enqueue_many([tasks.click.job(n) for n in range(100, 200)], connection=connection)
    until(lambda: words(log, "done").keys() >= set(range(100, 200)), PATIENCE)
    world.nats.start()
    until(lambda: words(log, "done").keys() >= set(range(200)), PATIENCE)
    tasks.click.enqueue(2000)
    until(lambda: 2000 in words(log, "done"), PATIENCE)
    world.wait_until_done(connection, log)
    assert_sound(connection)


def _is_accepted(tasks: SimpleNamespace, numbers: range) -> bool:
    """Publish jobs; return False if the stream is full."""
    try:
        tasks.app.enqueue_many([tasks.click.job(n) for n in numbers])
    except CarrierFull:
        return False
    return True


def test_a_full_stream(
    worker: StartWorker, connection: psycopg.Connection, database_url: str, world: CarrierWorld, log: Path
) -> None:
    small = CarrierWorld(world.nats, prefix=f"{world.carrier.prefix}-small", max_bytes=50_000)
    small.prepare()
    tasks = declare(Sereno(database_url, carriers=small.carriers))
    accepted = 0
    while _is_accepted(tasks, range(accepted, accepted + 10)):
        accepted += 10
        assert accepted < 10_000, "the stream is never full"
    assert accepted
    tasks.app.enqueue_many([tasks.click.job(n) for n in range(100_000, 100_100)], connection=connection)
    worker("--queue", f"{QUEUE}=10", app=APP, SERENO_CARRIERS=small.setting)
    wanted = {*range(accepted), *range(100_000, 100_100)}
    until(lambda: words(log, "done").keys() >= wanted, PATIENCE)
    tasks.click.enqueue(200_000)
    until(lambda: 200_000 in words(log, "done"), PATIENCE)
    tasks.app.close()
    small.wait_until_done(connection, log)
    assert_sound(connection)


def test_postgresql_is_away_for_longer_than_a_lease(
    own_server: tuple[EmbeddedPostgres, Path], worker: StartWorker, world: CarrierWorld, log: Path
) -> None:
    server, directory = own_server
    tasks = declare(Sereno(server.url, carriers=world.carriers))
    running = worker("--queue", f"{QUEUE}=10", url=server.url, app=APP, SERENO_CARRIERS=world.setting)
    tasks.app.enqueue_many([tasks.click.job(n, 0.05) for n in range(100)])
    until(lambda: words(log, "done"))
    pid = int((directory / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    until(lambda: '"session.lost"' in running.log_text(), PATIENCE)
    tasks.app.enqueue_many([tasks.click.job(n) for n in range(1000, 1200)])
    tasks.app.enqueue_many([tasks.fail.job(n) for n in range(2000, 2010)])
    until(lambda: words(log, "done").keys() >= {*range(100), *range(1000, 1200)}, PATIENCE)
    until(lambda: len(words(log, "failed")) == 10, PATIENCE)
    server.stop()
    server.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        until(lambda: one(connection, "select count(*) from sereno.history where state = 'dead'") == 10, PATIENCE)
        world.wait_until_done(connection, log)
        assert words(log, "failed") == dict.fromkeys(range(2000, 2010), 1)
        assert running.end() == 0
        assert_sound(connection)
    tasks.app.close()
