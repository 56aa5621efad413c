"""Fault test of limits: processes are killed, PostgreSQL crashes, the network is cut and frozen.

No limit is ever exceeded, no order is broken, and afterwards every slot is free. All of that is checked with the logs
of the handlers.
"""

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.statement import run
from sereno.jobs.job import NewJob
from sereno.monitoring.verify import verify
from tests.acceptance.conftest import ROOT, WorkerProcess
from tests.facts import one, until
from tests.faults import limited_app
from tests.faults.handler_log import Run, disorder, excess, longest_delay, peak, read
from tests.faults.proxy import Proxy
from tests.faults.server import restart
from tests.faults.watch import Watch

# Seconds. Times are rounded floating-point numbers.
ROUNDED = 0.001


class LimitedWorker(WorkerProcess):
    """`sereno worker` with the application of this test."""

    def __init__(self, url: str, log: Path) -> None:
        self.log = log
        self.output = log.with_suffix(f".{len(list(log.parent.glob('*.output')))}.output")
        arguments = ["tests.faults.limited_app:app", "--processes", "2", "--queue", "wide=5", "--queue", "narrow=3"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sereno", "worker", *arguments],
                cwd=ROOT,
                env={
                    **os.environ,
                    "SERENO_DATABASE_URL": url,
                    "SERENO_LOG_FORMAT": "json",
                    "SERENO_HEARTBEAT": "0.5",
                    "SERENO_LEASE": "3",
                    "TEST_LOG": str(log),
                    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


@pytest.fixture
def start(log: Path, own_server: tuple[EmbeddedPostgres, Path]) -> Iterator[Callable[..., LimitedWorker]]:
    """Return a function that starts workers; those that are left are killed afterwards."""
    started: list[LimitedWorker] = []

    def start_one(url: str = own_server[0].url, *, wait: bool = True) -> LimitedWorker:
        started.append(LimitedWorker(url, log))
        if wait:
            started[-1].wait_started()
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        # Shown by pytest when the test failed.
        sys.stdout.write(process.log_text())


def jobs(first: int, count: int) -> Iterator[NewJob]:
    """Yield `count` jobs of each kind, mixed, with repeated keys."""
    app = limited_app
    for n in range(first, first + count):
        yield app.two_at_once.job(f"a{n % 2}", n)
        yield app.in_order.job(f"o{n % 3}", n)
        yield app.in_turn.job(f"c{n % 10 // 7}", n)
        yield app.plain.job(n)
        yield app.under_the_limit_of_its_queue.job(n)
        if n % 2:
            yield app.calls_the_provider.job(n)
        else:
            yield app.calls_the_provider_too.job(n)


class Storm:
    """The faults. Before each fault there are new jobs, and each fault hits running jobs."""

    def __init__(self, start: Callable[..., LimitedWorker], url: str, count: int) -> None:
        self.start = start
        self.url = url
        self.count = count
        self.made: list[int] = []
        self.rng = random.Random(11)
        self.client = Sereno(url)
        self.watch = Watch(url)
        self.workers = [start(wait=False) for _ in range(2)]
        for worker in self.workers:
            worker.wait_started()

    def enqueue(self) -> None:
        self.made += [job.id for job in self.client.enqueue_many(list(jobs(len(self.made), self.count)))]

    def under_way(self, workers: Sequence[LimitedWorker]) -> list[int]:
        """Return the processes that run a job now; none while the database is away."""

        def query(connection: psycopg.Connection) -> list[int]:
            rows = connection.execute(
                "select distinct pid from sereno.jobs join sereno.sessions on sessions.id = session_id "
                "where jobs.state = 'running' and pid = any(%s)",
                [[pid for worker in workers for pid in worker.children()]],
            )
            return [row[0] for row in rows]

        return self.watch.ask(query, otherwise=[])

    def finished(self) -> int:
        return self.watch.ask(lambda connection: int(one(connection, "select count(*) from sereno.history")), 0)

    def victims(self) -> list[tuple[int, LimitedWorker]]:
        """Return the processes that run a job, each with its worker; one that has just ended belongs to none."""
        found = self.under_way(self.workers)
        return [(process, worker) for worker in self.workers for process in worker.children() if process in found]

    def kill_one(self) -> None:
        """Kill a process that runs a job, or its whole worker."""
        wanted = self.finished() + self.rng.randint(0, 2 * self.count)
        self.enqueue()
        until(lambda: self.finished() >= wanted, timeout=90)
        process, victim = self.rng.choice(until(self.victims, timeout=90))
        if self.rng.random() < 0.6:
            os.kill(process, signal.SIGKILL)
            return
        victim.kill()
        self.workers.remove(victim)
        self.workers.append(self.start(wait=False))

    def disturb_the_network(self) -> None:
        """Cut off a worker, freeze its connections, and kill it."""
        with Proxy.before(self.url) as proxy:
            worker = self.start(proxy.url)
            for disturb in (proxy.cut, proxy.freeze, worker.kill):
                self.enqueue()
                until(lambda: self.under_way([worker]), timeout=90)
                disturb()
                proxy.heal()


@pytest.mark.parametrize(("count", "rounds", "kills"), [(4, 1, 6), pytest.param(60, 12, 8, marks=pytest.mark.storm)])
def test_limits_and_orders_hold_under_faults(
    start: Callable[..., LimitedWorker],
    own_server: tuple[EmbeddedPostgres, Path],
    log: Path,
    count: int,
    rounds: int,
    kills: int,
) -> None:
    server, directory = own_server
    storm = Storm(start, server.url, count)
    for _ in range(rounds):
        for _ in range(kills // 2):
            storm.kill_one()
        storm.disturb_the_network()
        storm.enqueue()
        restart(server, directory)
        for _ in range(kills - kills // 2):
            storm.kill_one()
    until(lambda: storm.finished() == len(storm.made), timeout=900)
    storm.client.close()
    storm.watch.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        assert_nothing_left(connection)
        for worker in storm.workers:
            assert worker.end() == 0
        assert_sound(connection)
        runs = read(log, connection)
    # The faults hit running handlers, and every job ran.
    assert len([each for each in runs if each.was_killed]) >= rounds * kills // 2
    assert {each.job for each in runs} == set(storm.made)
    assert_limits_held(runs)
    assert_orders_held(runs)


def assert_nothing_left(connection: psycopg.Connection) -> None:
    """Check that no job is left, and that no lane or limiter counts one."""
    assert one(connection, "select count(*) from sereno.jobs") == 0
    held = (
        "select count(*) from sereno.limiters, unnest(held) as id join sereno.jobs using (id) where state = 'running'"
    )
    assert one(connection, held) == 0
    until(lambda: one(connection, "select count(*) from sereno.lanes where has_work") == 0)
    until(lambda: one(connection, "select count(*) from sereno.lane_wakes") == 0)


def assert_sound(connection: psycopg.Connection) -> None:
    with connection.transaction():
        found = run(connection, verify(lease=3.0, window=None))
    assert [check for check in found if check.violations] == []


def by_key(runs: list[Run], task: str) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for each in runs:
        if each.task == task:
            found[each.key].append(each)
    return found


def assert_limits_held(runs: list[Run]) -> None:
    peaks = {key: peak(found) for key, found in by_key(runs, "two_at_once").items()}
    assert max(peaks.values()) == limited_app.SLOTS_OF_AN_ACCOUNT, peaks
    assert peak(each for each in runs if each.queue == "narrow") <= limited_app.SLOTS_OF_THE_QUEUE
    rated = [each for each in runs if each.task in {"calls_the_provider", "calls_the_provider_too"}]
    rate = (limited_app.STARTS_A_SECOND, limited_app.BURST)
    assert excess([each.claimed for each in rated], *rate) <= ROUNDED
    # A handler starts some time after its claim, so two may start closer together than they were claimed: by the
    # longest time from a claim to a start. An isolated process starts slowly; its claims were counted above.
    in_workers = [each for each in rated if not each.alone]
    assert excess([each.begin / 1e9 for each in in_workers], *rate) <= longest_delay(in_workers) + ROUNDED


def assert_orders_held(runs: list[Run]) -> None:
    for found in by_key(runs, "in_order").values():
        assert disorder(found) == []
