"""Rows are locked in one order, so that batches in opposite orders never deadlock."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import psycopg
import pytest

from sereno import Retry
from sereno.jobs import transitions
from sereno.jobs.attempt import ReleasedAttempt
from sereno.jobs.job import ClaimedJob
from sereno.jobs.settlement import Way, settle
from sereno.worker import sessions
from tests.facts import TIMEOUT, one
from tests.jobs.job_steps import Connection, add, decided, do, line, session, settled, take

pytestmark = pytest.mark.slow

ROUNDS = 12
SIZE = 200

Act = Callable[[Connection, int, list[ClaimedJob]], object]


def succeeds(connection: Connection, owner: int, batch: list[ClaimedJob]) -> object:
    return do(connection, settle("succeed", owner, [settled(job, decided()) for job in batch]))


def reschedules(ending: Retry | ReleasedAttempt) -> Act:
    def act(connection: Connection, owner: int, batch: list[ClaimedJob]) -> object:
        way: Way = "reschedule"
        return do(connection, settle(way, owner, [settled(job, decided(ending)) for job in batch]))

    return act


def cancels(connection: Connection, owner: int, batch: list[ClaimedJob]) -> object:
    return do(connection, transitions.cancel([job.id for job in batch], "x"))


def deletes(connection: Connection, owner: int, batch: list[ClaimedJob]) -> object:
    return do(connection, transitions.delete([job.id for job in batch]))


def requeues(connection: Connection, owner: int, batch: list[ClaimedJob]) -> object:
    return do(connection, transitions.requeue([job.id for job in batch]))


def rescues(connection: Connection, owner: int, batch: list[ClaimedJob]) -> object:
    do(connection, sessions.finish([owner], "dead"))
    return do(connection, sessions.rescue(everywhere=True))


def reconciles(connection: Connection, owner: int, batch: list[ClaimedJob]) -> object:
    return do(connection, transitions.release_unlisted(owner, [], 0.0))


COMBINATIONS: dict[str, list[Act]] = {
    "settle and settle": [succeeds, reschedules(Retry()), reschedules(ReleasedAttempt("x"))],
    "settle and rescue": [succeeds, reschedules(ReleasedAttempt("x")), rescues, reconciles],
    "settle and operators": [succeeds, reschedules(Retry()), cancels, deletes, requeues],
}


@pytest.mark.parametrize("operations", COMBINATIONS.values(), ids=COMBINATIONS)
def test_opposite_orders_never_deadlock(database_url: str, operations: list[Act]) -> None:
    """Every operation uses the same jobs, half of them in reverse order; PostgreSQL would report a deadlock."""
    barrier = Barrier(len(operations) + 1)
    batches: list[tuple[int, list[ClaimedJob]]] = []

    def call(number: int, act: Act) -> None:
        with line(database_url) as own:
            own.execute("set deadlock_timeout = '20ms'")
            try:
                for _ in range(ROUNDS):
                    barrier.wait(TIMEOUT)
                    owner, batch = batches[-1]
                    act(own, owner, batch if number % 2 else batch[::-1])
                    barrier.wait(TIMEOUT)
            except psycopg.Error:
                barrier.abort()
                raise

    with line(database_url) as connection, ThreadPoolExecutor(len(operations)) as threads:
        calls = [threads.submit(call, number, act) for number, act in enumerate(operations)]
        with suppress(BrokenBarrierError):
            for _ in range(ROUNDS):
                connection.execute("delete from sereno.jobs")
                add(connection, SIZE)
                owner = session(connection)
                batches.append((owner, take(connection, owner, SIZE)))
                barrier.wait(TIMEOUT)
                barrier.wait(TIMEOUT)
        errors = [error for finished in calls if (error := finished.exception()) is not None]
        assert [error for error in errors if not isinstance(error, BrokenBarrierError)] == []
        assert len(batches) == ROUNDS
        assert one(connection, "select deadlocks from pg_stat_database where datname = current_database()") == 0
