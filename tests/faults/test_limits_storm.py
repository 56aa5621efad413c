"""Fault test of limits: processes are killed, PostgreSQL crashes, the network is cut and frozen.

No limit is ever exceeded, no order is broken, and afterwards every slot is free. All of that is checked with the logs
of the handlers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.database.embedded import EmbeddedPostgres
from sereno.jobs.job import NewJob
from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import one, until
from tests.faults import limited_app
from tests.faults.handler_log import Run, disorder, excess, longest_delay, peak, read
from tests.faults.proxy import Proxy
from tests.faults.worker_faults import WorkerFaults

# Seconds. Times are rounded floating-point numbers.
ROUNDED = 0.001


ARGUMENTS = ("--processes", "2", "--queue", "wide=3", "--queue", "narrow=2")


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


class LimitsStorm(WorkerFaults):
    """Jobs of every kind, `count` of each kind at a time."""

    def __init__(self, start: Callable[..., WorkerProcess], url: str, log: Path, count: int) -> None:
        super().__init__(start, url, seed=11)
        self.log = log
        self.count = count
        self.made: list[int] = []
        self.client = Sereno(url)

    def enqueue(self) -> None:
        self.made += [job.id for job in self.client.enqueue_many(list(jobs(len(self.made), self.count)))]

    def add_work(self) -> None:
        """Enqueue jobs, and wait until some of them have finished: the next fault comes at any moment."""
        wanted = self.finished() + self.rng.randint(0, 2 * self.count)
        self.enqueue()
        self.wait(lambda: self.finished() >= wanted)

    def at_work(self, workers: Sequence[WorkerProcess]) -> list[int]:
        """Return the processes that run a handler now; enqueue jobs while all workers have nothing to do."""

        def query(connection: psycopg.Connection) -> list[int]:
            rows = connection.execute(
                "select distinct pid from sereno.jobs join sereno.sessions on sessions.id = session_id "
                "where jobs.state = 'running' and pid = any(%s)",
                [[pid for worker in workers for pid in worker.children()]],
            ).fetchall()
            if not rows and not one(connection, "select count(*) from sereno.jobs"):
                self.enqueue()
            return [pid for (pid,) in rows if self.runs_a_handler(pid)]

        return self.watch.ask(query, otherwise=[])

    def runs_a_handler(self, pid: int) -> bool:
        """Return whether a handler of this process has begun and not ended; a claimed job may still wait."""
        events = Path(f"{self.log}.{pid}.events")
        text = events.read_text() if events.exists() else ""
        return text.count('"event": "begin"') > text.count('"event": "end"')

    def finished(self) -> int:
        return self.watch.ask(lambda connection: int(one(connection, "select count(*) from sereno.history")), 0)


@pytest.mark.parametrize(
    ("count", "rounds", "kills"),
    [pytest.param(4, 1, 2, marks=pytest.mark.slow), pytest.param(60, 12, 8, marks=pytest.mark.storm)],
)
@pytest.mark.timeout(3600)
def test_limits_and_orders_hold_under_faults(
    worker: Callable[..., WorkerProcess],
    own_server: tuple[EmbeddedPostgres, Path],
    log: Path,
    count: int,
    rounds: int,
    kills: int,
) -> None:
    server, directory = own_server
    start = partial(worker, *ARGUMENTS, app="tests.faults.limited_app:app")
    storm = LimitsStorm(start, server.url, log, count)
    for _ in range(rounds):
        storm.kill(range(kills // 2))
        with Proxy.before(server.url) as proxy:
            storm.disturb_the_network(proxy, start(url=proxy.url))
        storm.enqueue()
        storm.crash(server, directory)
        storm.kill(range(kills // 2, kills))
    until(lambda: storm.finished() == len(storm.made), timeout=900)
    storm.client.close()
    storm.watch.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        assert_nothing_left(connection)
        for left in storm.workers:
            assert left.end() == 0
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
