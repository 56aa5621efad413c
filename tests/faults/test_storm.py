"""Storms: processes killed, PostgreSQL restarted in immediate mode, the network cut. Nothing lost, nothing doubled.

Every storm ends with a quiet time, then an independent check of what handlers wrote, then the invariants.
"""

import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sereno.operations.verify import verify
from sereno.store.embedded import EmbeddedPostgres
from sereno.store.migrate import migrate
from sereno.store.statement import run
from tests.acceptance.conftest import WorkerProcess, lines
from tests.facts import one, until
from tests.faults.proxy import Proxy

Start = Callable[..., WorkerProcess]
JOBS = int(os.environ.get("SERENO_TEST_STORM_JOBS", "2000"))


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedPostgres, Path]]:
    """A server of the test's own, with fsync on, to be treated badly."""
    directory = Path(tempfile.mkdtemp(prefix="sereno-storm-"))
    directory.chmod(0o755)
    server = EmbeddedPostgres(directory)
    with server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            migrate(connection)
            connection.execute("create table effects (n bigint)")
        yield server, directory
    shutil.rmtree(directory)


def assert_sound(connection: psycopg.Connection) -> None:
    with connection.transaction():
        found = run(connection, verify(lease=3.0, window=None))
    assert [check for check in found if check.violations] == []


def fill(connection: psycopg.Connection, count: int) -> None:
    connection.execute(
        "select sereno.enqueue('counted', jsonb_build_object('n', n), queue => 'work') from generate_series(1, %s) n",
        [count],
    )


def wait_until_done(url: str, count: int) -> None:
    def done() -> bool:
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
                return bool(one(connection, "select count(*) from sereno.history where state = 'succeeded'") == count)
        except psycopg.OperationalError:
            return False

    until(done, patience=90)


def test_killed_workers_lose_nothing_and_every_effect_happens_once(
    worker: Start, database_url: str, connection: psycopg.Connection
) -> None:
    connection.execute("create table effects (n bigint)")
    chance = random.Random(7)
    workers = [worker("--processes", "2", "--queue", "work=10") for _ in range(2)]
    fill(connection, JOBS)
    for _ in range(6):
        before = one(connection, "select count(*) from sereno.history")
        victim = chance.choice(workers)
        children = victim.children()
        if children and chance.random() < 0.7:
            os.kill(chance.choice(children), signal.SIGKILL)
        else:
            victim.kill()
            workers.remove(victim)
            workers.append(worker("--processes", "2", "--queue", "work=10"))
        if before == JOBS:
            break
        until(lambda: one(connection, "select count(*) from sereno.history") > min(before, JOBS - 1))  # noqa: B023
    wait_until_done(database_url, JOBS)
    assert one(connection, "select count(*) from effects") == JOBS
    assert one(connection, "select count(distinct n) from effects") == JOBS
    for left in workers:
        assert left.end() == 0
    assert one(connection, "select count(*) from sereno.jobs") == 0
    assert_sound(connection)


def test_a_restarted_database_loses_nothing(worker: Start, own_server: tuple[EmbeddedPostgres, Path]) -> None:
    server, directory = own_server
    process = worker("--processes", "2", "--queue", "work=10", url=server.url)
    accepted: list[int] = []
    stop = threading.Event()

    def produce() -> None:
        """Enqueue one after the other; only what was acknowledged counts as accepted."""
        number = 0
        while not stop.is_set():
            try:
                with psycopg.connect(server.url, autocommit=True, connect_timeout=2) as connection:
                    while not stop.is_set():
                        number += 1
                        connection.execute(
                            "select sereno.enqueue('counted', jsonb_build_object('n', %s::bigint), queue => 'work')",
                            [number],
                        )
                        accepted.append(number)
            except psycopg.OperationalError:
                time.sleep(0.05)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for round_number in range(1, 4):
            until(lambda: len(accepted) >= 200 * round_number)  # noqa: B023
            pid = int((next(directory.rglob("postmaster.pid"))).read_text().split()[0])
            os.kill(pid, signal.SIGQUIT)
            until(lambda: not Path(f"/proc/{pid}").exists())  # noqa: B023
            with EmbeddedPostgres(directory):
                wanted = len(accepted) + 50
                until(lambda: len(accepted) >= wanted)  # noqa: B023
                stop_after = round_number == 3
                if stop_after:
                    stop.set()
                    producer.join()
                    with psycopg.connect(server.url, autocommit=True) as connection:
                        until(lambda: one(connection, "select count(*) from sereno.jobs") == 0, patience=90)
                        seen = {row[0] for row in connection.execute("select n from effects")}
                        assert set(accepted) <= seen
                        assert one(connection, "select count(*) - count(distinct n) from effects") == 0
                        assert_sound(connection)
                    assert process.end() == 0
                else:
                    # Still in use by the worker's connections; the next restart finds it running.
                    continue
    finally:
        stop.set()
        producer.join()


def test_a_cut_network_heals(worker: Start, database_url: str, connection: psycopg.Connection, log: Path) -> None:
    with Proxy.before(database_url) as proxy:
        process = worker("--queue", "default=10", url=proxy.url, SERENO_LEASE="5", SERENO_HEARTBEAT="1")
        done = 0
        for trouble in (proxy.cut, proxy.freeze, proxy.cut):
            for n in range(50):
                connection.execute("select sereno.enqueue('quick', jsonb_build_object('n', %s::int))", [n])
            done += 50
            trouble()
            proxy.heal()
            until(lambda: one(connection, "select count(*) from sereno.history") == done, patience=90)  # noqa: B023
        assert process.end() == 0
    runs = Counter(line[0] for line in lines(log, "quick"))
    assert all(count >= 3 for count in runs.values())
    assert_sound(connection)
