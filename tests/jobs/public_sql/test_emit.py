"""`sereno.emit` stores the chunks of a running job in order, once, for the session that holds it."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.facts import one
from tests.jobs.job_steps import Connection, add
from tests.jobs.public_sql.sql_worker import Claimed, SqlWorker, outcome, snapshot
from tests.jobs.public_sql.test_fence import closes, dies, is_deleted, is_rescued, is_taken_over, lease_expires
from tests.jobs.test_job_stream import stored_chunks, values, view


def emit(caller: SqlWorker, job: Claimed, *chunks: Any, first: int | None = None) -> int | None:
    given = [caller.session, job.id, job.attempt, json.dumps(chunks), first]
    number: int | None = caller.query("select sereno.emit(%s, %s, %s, %s, %s)", given)[0][0]
    return number


@pytest.fixture
def caller(connection: Connection) -> SqlWorker:
    add(connection)
    return SqlWorker(connection)


def test_chunks_are_numbered_and_seen_by_readers(connection: Connection, caller: SqlWorker) -> None:
    (job,) = caller.claim()
    assert emit(caller, job, "a", {"b": 1}) == 2
    assert emit(caller, job, None) == 3
    seen = view(connection, job.id)
    assert (values(seen), seen.last) == (["a", {"b": 1}, None], 3)


def test_a_call_can_be_repeated_and_leaves_no_gap(connection: Connection, caller: SqlWorker) -> None:
    (job,) = caller.claim()
    for _ in range(3):
        assert emit(caller, job, "a", "b", first=1) == 2
    assert emit(caller, job, "c", first=3) == 3
    assert emit(caller, job, "a", "b", first=1) == 2
    assert stored_chunks(connection) == [(1, 2, ["a", "b"]), (1, 3, ["c"])]
    for first in (2, 5, 0, -1):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="its next chunk has the number 4"):
            emit(caller, job, "x", "y", first=first)
    assert len(stored_chunks(connection)) == 2


def test_a_later_attempt_replaces_the_chunks_of_an_earlier_one(connection: Connection, caller: SqlWorker) -> None:
    (job,) = caller.claim()
    emit(caller, job, "old")
    caller.settle(outcome(job, "retry", delay=0))
    (again,) = caller.claim()
    assert emit(caller, job, "late") is None
    assert emit(caller, again, "new", first=1) == 1
    assert stored_chunks(connection) == [(2, 1, ["new"])]
    assert one(connection, "select bytes from sereno.job_streams") == len('["new"]')


@pytest.mark.slow
@pytest.mark.parametrize(
    "loses",
    [dies, is_rescued, is_taken_over, is_deleted, lease_expires, closes],
    ids=lambda act: act.__name__,
)
def test_a_session_without_a_lease_emits_nothing(
    connection: Connection, caller: SqlWorker, loses: Callable[[Connection, SqlWorker], None]
) -> None:
    (job,) = caller.claim()
    emit(caller, job, "a")
    loses(connection, caller)
    before = snapshot(connection)
    assert emit(caller, job, "b") is None
    assert snapshot(connection) == before


def test_a_session_of_another_worker_emits_nothing(connection: Connection, caller: SqlWorker) -> None:
    (job,) = caller.claim()
    assert emit(SqlWorker(connection), job, "b") is None
    assert stored_chunks(connection) == []


def test_chunks_are_bounded(connection: Connection, caller: SqlWorker) -> None:
    (job,) = caller.claim()
    for wrong in ([], ["x" * 65536]):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 64 KiB together"):
            emit(caller, job, *wrong)
    for given in ("null", "{}", '"a"', None):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="chunks are a list"):
            caller.query("select sereno.emit(%s, %s, %s, %s)", [caller.session, job.id, job.attempt, given])
    for _ in range(64):
        emit(caller, job, "x" * 65000)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="10000 chunks with 4 MiB together"):
        emit(caller, job, "x" * 65000)
    assert one(connection, "select count(*) from sereno.job_chunks") == 64


def test_an_attempt_emits_at_most_ten_thousand_chunks(caller: SqlWorker) -> None:
    (job,) = caller.claim()
    assert emit(caller, job, *[1] * 9999) == 9999
    assert emit(caller, job, 1) == 10_000
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="10000 chunks"):
        emit(caller, job, 1)
