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
from tests.facts import PATIENCE, one
from tests.jobs.job_steps import Connection, add, decided, do, line, session, settled, take

ROUNDS = 12
SIZE = 200

Act = Callable[[Connection, int, list[ClaimedJob]], object]


def succeeds(connection: Connection, owner: int, batch: list[ClaimedJob]) -> object:
    return do(connection, settle("succeed", owner, [settled(job, decided()) for job in batch]))


def comes_back(ending: Retry | ReleasedAttempt) -> Act:
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


CROWDS: dict[str, list[Act]] = {
    "settle and settle": [succeeds, comes_back(Retry()), comes_back(ReleasedAttempt("x"))],
    "settle and rescue": [succeeds, comes_back(ReleasedAttempt("x")), rescues, reconciles],
    "settle and operators": [succeeds, comes_back(Retry()), cancels, deletes, requeues],
}


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)
def test_opposite_orders_never_deadlock(database_url: str, crowd: list[Act]) -> None:
    """Every operation uses the same jobs, half of them in reverse order; PostgreSQL would report a deadlock."""
    limiter = Barrier(len(crowd) + 1)
    turn: list[tuple[int, list[ClaimedJob]]] = []

    def call(number: int, act: Act) -> None:
        with line(database_url) as own:
            own.execute("set deadlock_timeout = '20ms'")
            try:
                for _ in range(ROUNDS):
                    limiter.wait(PATIENCE)
                    owner, batch = turn[-1]
                    act(own, owner, batch if number % 2 else batch[::-1])
                    limiter.wait(PATIENCE)
            except psycopg.Error:
                limiter.abort()
                raise

    with line(database_url) as connection, ThreadPoolExecutor(len(crowd)) as threads:
        calls = [threads.submit(call, number, act) for number, act in enumerate(crowd)]
        with suppress(BrokenBarrierError):
            for _ in range(ROUNDS):
                connection.execute("delete from sereno.jobs")
                add(connection, SIZE)
                owner = session(connection)
                turn.append((owner, take(connection, owner, SIZE)))
                limiter.wait(PATIENCE)
                limiter.wait(PATIENCE)
        errors = [error for finished in calls if (error := finished.exception()) is not None]
        assert [error for error in errors if not isinstance(error, BrokenBarrierError)] == []
        assert len(turn) == ROUNDS
        assert one(connection, "select deadlocks from pg_stat_database where datname = current_database()") == 0
