"""Fault tests of jobs: processes are killed, PostgreSQL crashes, the network is cut. No job is lost or repeated.

Each test waits until all jobs have ended, then checks what the handlers wrote, and then the invariants.
"""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import psycopg
import pytest

from sereno.database.embedded import EmbeddedPostgres
from tests.acceptance.conftest import WorkerProcess, assert_sound, lines
from tests.facts import one, until, until_at_rest
from tests.faults.proxy import Proxy
from tests.faults.server import restart

Start = Callable[..., WorkerProcess]


def enqueue(connection: psycopg.Connection, numbers: range) -> None:
    connection.execute(
        "select sereno.enqueue('counted', jsonb_build_object('n', n), queue => 'work') "
        "from generate_series(%s::int, %s) as n",
        [numbers[0], numbers[-1]],
    )


def done(connection: psycopg.Connection) -> int:
    """Return the number of succeeded jobs."""
    return int(one(connection, "select count(*) from sereno.history where state = 'succeeded'"))


def progress(connection: psycopg.Connection) -> object:
    """Return figures that change while a worker makes progress: jobs ended, attempts started, sessions opened."""
    return (
        done(connection),
        one(connection, "select sum(attempt) from sereno.jobs"),
        one(connection, "select count(*) from sereno.sessions"),
    )


def no_suspects(connection: psycopg.Connection) -> bool:
    """Return whether no job has crashed yet: the third crash of a job would make it dead."""
    return bool(one(connection, "select count(*) = 0 from sereno.jobs where crashes > 0"))


def at_work(connection: psycopg.Connection, worker: WorkerProcess, add_work: Callable[[], None]) -> list[int]:
    """Return its processes that run a job now; add work if there is none, because other workers have done it all."""
    rows = connection.execute(
        "select distinct pid from sereno.jobs join sereno.sessions on sessions.id = session_id "
        "where jobs.state = 'running' and pid = any(%s)",
        [worker.children()],
    ).fetchall()
    if not rows and not one(connection, "select count(*) from sereno.jobs"):
        add_work()
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [pytest.param(100, 3, marks=pytest.mark.quick), pytest.param(800, 60, marks=pytest.mark.storm)],
)
@pytest.mark.timeout(3600)
def test_killed_workers_lose_no_job_and_every_effect_happens_once(
    worker: Start, connection: psycopg.Connection, jobs: int, kills: int
) -> None:
    """Before each kill there are new jobs, and it hits a process that runs some: that process, or its whole worker."""
    connection.execute("create table effects (n bigint)")
    rng = random.Random(7)
    first = count(step=jobs)

    def add_work() -> None:
        begin = next(first)
        enqueue(connection, range(begin, begin + jobs))

    arguments = ("--processes", "2", "--queue", "work=2")
    workers = [worker(*arguments, wait=False) for _ in range(2)]
    for starting in workers:
        starting.wait_started()
    for number in range(kills):
        until_at_rest(lambda: no_suspects(connection), lambda: progress(connection))
        victim = rng.choice(workers)
        victim.wait_started()
        add_work()
        process = rng.choice(until(lambda: at_work(connection, victim, add_work), timeout=90))  # noqa: B023
        if number % 3 != 1:
            os.kill(process, signal.SIGKILL)
        else:
            victim.kill()
            workers.remove(victim)
            workers.append(worker(*arguments, wait=False))
    wanted = next(first)
    until_at_rest(lambda: done(connection) == wanted, lambda: progress(connection))
    assert one(connection, "select count(*) from effects") == wanted
    assert one(connection, "select count(distinct n) from effects") == wanted
    assert one(connection, "select count(*) from sereno.attempts where outcome = 'crash'") > 0, "no kill hit a job"
    for left in workers:
        assert left.end() == 0
    assert one(connection, "select count(*) from sereno.jobs") == 0
    assert_sound(connection)


class Producer(threading.Thread):
    """Enqueues one job after the other; only acknowledged jobs count as accepted."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._stopping = threading.Event()
        self.accepted: list[int] = []
        self.interruptions = 0

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=2) as connection:
                    while not self._stopping.is_set():
                        number += 1
                        connection.execute(
                            "select sereno.enqueue('counted', jsonb_build_object('n', %s::bigint), queue => 'work')",
                            [number],
                        )
                        self.accepted.append(number)
            except psycopg.OperationalError:
                self.interruptions += 1
                self._stopping.wait(0.05)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.parametrize(
    "restarts", [pytest.param(2, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.storm)]
)
@pytest.mark.timeout(3600)
def test_a_crashed_database_loses_no_accepted_job_and_repeats_no_effect(
    worker: Start, own_server: tuple[EmbeddedPostgres, Path], restarts: int
) -> None:
    server, directory = own_server
    process = worker("--processes", "2", "--queue", "work=10", url=server.url)
    producer = Producer(server.url)

    def accept_more() -> None:
        wanted = len(producer.accepted) + 100
        until_at_rest(lambda: len(producer.accepted) >= wanted, lambda: len(producer.accepted))

    producer.start()
    try:
        accept_more()
        for _ in range(restarts):
            restart(server, directory)
            accept_more()
    finally:
        producer.stop()
    assert producer.interruptions >= restarts
    with psycopg.connect(server.url, autocommit=True) as connection:
        until_at_rest(lambda: one(connection, "select count(*) from sereno.jobs") == 0, lambda: progress(connection))
        effects = [row[0] for row in connection.execute("select n from effects")]
        assert set(producer.accepted) <= set(effects)
        assert len(effects) == len(set(effects))
        assert process.end() == 0
        assert_sound(connection)


@pytest.mark.parametrize("rounds", [pytest.param(1, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.storm)])
def test_a_worker_recovers_from_a_cut_or_frozen_network(
    worker: Start, database_url: str, connection: psycopg.Connection, log: Path, rounds: int
) -> None:
    with Proxy.before(database_url) as proxy:
        process = worker("--queue", "default=10", url=proxy.url, SERENO_LEASE="5", SERENO_HEARTBEAT="1")
        done = 0
        for disturb in (proxy.cut, proxy.freeze, proxy.cut) * rounds:
            connection.execute(
                "select sereno.enqueue('quick', jsonb_build_object('n', n)) from generate_series(1, 50) as n"
            )
            done += 50
            disturb()
            until(lambda: one(connection, "select count(*) from sereno.history") == done, timeout=90)  # noqa: B023
        assert process.end() == 0
    runs = Counter(line[0] for line in lines(log, "quick"))
    assert all(count >= 3 for count in runs.values())
    assert_sound(connection)
