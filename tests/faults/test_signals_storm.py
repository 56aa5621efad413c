"""Fault test of signals: workers are killed while jobs wait and signals are sent. Every job gets its signal, once."""

import os
import random
import signal
import threading
from collections.abc import Callable
from itertools import count

import psycopg
import pytest

from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import one, until, until_at_rest
from tests.faults.test_storm import at_work, done, no_suspects, progress

APP = "tests.faults.signals_app:app"
LEVELS = (psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ)


class Sender(threading.Thread):
    """Sends the signals of jobs in any order and at any moment; half of them in transactions with an old snapshot."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._rng = random.Random(3)
        self._wanted: list[int] = []
        self._has_work = threading.Semaphore(0)
        self._is_stopping = False

    def add(self, numbers: range) -> None:
        shuffled = list(numbers)
        self._rng.shuffle(shuffled)
        self._wanted += shuffled
        self._has_work.release(len(shuffled))

    def run(self) -> None:
        with psycopg.connect(self._url) as connection:
            while True:
                self._has_work.acquire()
                if self._is_stopping and not self._wanted:
                    return
                number = self._wanted.pop()
                connection.isolation_level = self._rng.choice(LEVELS)
                connection.execute("select count(*) from sereno.signal_waits")
                connection.execute("select sereno.signal(%s, %s::text::jsonb)", [f"paid:{number}", str(number * 7)])
                connection.commit()

    def stop(self) -> None:
        self._is_stopping = True
        self._has_work.release()
        self.join()


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [pytest.param(40, 3, marks=pytest.mark.slow), pytest.param(200, 60, marks=pytest.mark.storm)],
)
@pytest.mark.timeout(3600)
def test_killed_workers_lose_no_signal(
    worker: Callable[..., WorkerProcess], connection: psycopg.Connection, database_url: str, jobs: int, kills: int
) -> None:
    connection.execute("create table effects (n bigint, amount bigint)")
    rng, first, sender = random.Random(7), count(step=jobs), Sender(database_url)

    def add_work() -> None:
        begin = next(first)
        connection.execute(
            "select sereno.enqueue('order', jsonb_build_object('n', n), queue => 'work') "
            "from generate_series(%s::int, %s) as n",
            [begin, begin + jobs - 1],
        )
        sender.add(range(begin, begin + jobs))

    arguments = ("--processes", "2", "--queue", "work=4")
    workers = [worker(*arguments, wait=False, app=APP) for _ in range(2)]
    for starting in workers:
        starting.wait_started()
    sender.start()
    try:
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
                workers.append(worker(*arguments, wait=False, app=APP))
    finally:
        sender.stop()
    wanted = next(first)
    until_at_rest(lambda: done(connection) == wanted, lambda: progress(connection))
    assert one(connection, "select count(*) from effects") == wanted
    assert one(connection, "select count(distinct n) from effects where amount = n * 7") == wanted
    assert one(connection, "select sum(snoozes) from sereno.history") > 0, "no job has waited"
    for left in workers:
        assert left.end() == 0
    assert one(connection, "select count(*) from sereno.signal_waits") == 0
    assert_sound(connection)
