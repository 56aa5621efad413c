"""Concurrent enqueues: the unique index decides which is first, without deadlocks."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest

from sereno import Sereno, Task
from sereno.jobs.handle import Job
from tests.facts import one

Work = Task[[int], None]
CALLERS = 20


@pytest.fixture
def work(app: Sereno) -> Work:
    @app.task
    def work(number: int) -> None: ...

    return work


def all_at_once(
    url: str, callers: int, action: Callable[[psycopg.Connection, int], list[Job[Any]]]
) -> list[list[Job[Any]]]:
    """Run each caller on its own connection, all started together."""
    barrier = Barrier(callers)

    def call(number: int) -> list[Job[Any]]:
        with psycopg.connect(url) as connection:
            barrier.wait()
            made = action(connection, number)
            connection.commit()
            return made

    with ThreadPoolExecutor(callers) as threads:
        return list(threads.map(call, range(callers)))


@pytest.mark.slow
@pytest.mark.parametrize("unique_for", ["live", "1h", "forever"])
def test_twenty_concurrent_callers_with_one_key_create_one_job(
    work: Work, database_url: str, connection: psycopg.Connection, unique_for: str
) -> None:
    keyed = work.using(unique_key="k", unique_for=unique_for)

    made = all_at_once(database_url, CALLERS, lambda callers, number: [keyed.using(callers).enqueue(number)])

    assert sum(job.created for jobs in made for job in jobs) == 1
    assert len({job.id for jobs in made for job in jobs}) == 1
    assert one(connection, "select count(*) from sereno.jobs") == 1


def test_a_rolled_back_caller_leaves_the_key_to_the_next(work: Work, database_url: str) -> None:
    keyed = work.using(unique_key="k")

    def act(callers: psycopg.Connection, number: int) -> list[Job[Any]]:
        job = keyed.using(callers).enqueue(number)
        if number % 2:
            callers.rollback()
            return []
        return [job]

    made = all_at_once(database_url, CALLERS, act)
    assert sum(job.created for jobs in made for job in jobs) == 1


@pytest.mark.slow
@pytest.mark.parametrize("unique_for", ["live", "forever"])
def test_opposite_orders_of_keys_do_not_deadlock(app: Sereno, work: Work, database_url: str, unique_for: str) -> None:
    keys = [f"k{number}" for number in range(50)]
    rounds = 10

    def act(callers: psycopg.Connection, number: int) -> list[Job[Any]]:
        made: list[Job[Any]] = []
        for number_of_round in range(rounds):
            order = keys if (number + number_of_round) % 2 else keys[::-1]
            jobs = [
                work.using(unique_key=f"{number_of_round} {key}", unique_for=unique_for).job(number) for key in order
            ]
            made += app.enqueue_many(jobs, callers)
            callers.commit()
        return made

    made = all_at_once(database_url, 6, act)
    assert sum(job.created for jobs in made for job in jobs) == rounds * len(keys)
