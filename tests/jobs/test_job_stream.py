"""Chunks that a job emits are stored once, in order, by the attempt that holds the job."""

import json
from threading import Thread
from typing import Any

import msgspec
import psycopg
import pytest

from sereno.errors import InvalidArguments
from sereno.jobs import transitions
from sereno.jobs.attempt import ReleasedAttempt
from sereno.jobs.chunks import LARGEST_BATCH, LARGEST_CHUNK, ChunkBatch, batches, encoded
from sereno.jobs.job_stream import (
    PAGE,
    JobView,
    Position,
    chunks_after,
    forget_ended,
    job_views,
    last_chunks,
    write_chunks,
)
from sereno.jobs.settlement import SettleResult, report_progress, settle
from tests.facts import one, until
from tests.jobs.job_steps import (
    Connection,
    add,
    advance,
    decided,
    do,
    end,
    line,
    session,
    take,
    take_one,
    waits_for_a_lock,
)


def chunks(job: int, attempt: int, number: int, *values: Any) -> ChunkBatch:
    """Return a batch whose last chunk has this number."""
    return ChunkBatch(job, attempt, number, msgspec.Raw(json.dumps(values).encode()))


def stored_chunks(connection: Connection) -> list[tuple[int, int, Any]]:
    rows = connection.execute("select attempt, number, chunks from sereno.job_chunks order by 1, 2").fetchall()
    return [(attempt, number, values) for attempt, number, values in rows]


def view(connection: Connection, job: int, position: Position | None = None) -> JobView:
    (found,) = do(connection, job_views([(job, position or Position())]))
    assert found is not None
    return found


def values(found: JobView) -> list[Any]:
    return [msgspec.json.decode(chunk.value) for chunk in found.chunks]


def test_only_the_attempt_that_holds_the_job_writes_chunks(connection: Connection) -> None:
    add(connection)
    owner, other = session(connection), session(connection)
    job = take_one(connection, owner)
    assert do(connection, write_chunks(owner, [chunks(job.id, 1, 2, "a", "b")])) == {job.id}
    assert do(connection, write_chunks(other, [chunks(job.id, 1, 3, "c")])) == set()
    assert do(connection, write_chunks(owner, [chunks(job.id, 2, 3, "c")])) == set()
    # A repeated write after a lost reply changes nothing.
    assert do(connection, write_chunks(owner, [chunks(job.id, 1, 2, "a", "b")])) == {job.id}
    assert stored_chunks(connection) == [(1, 2, ["a", "b"])]
    end(connection, owner, [job], decided())
    assert do(connection, write_chunks(owner, [chunks(job.id, 1, 3, "c")])) == set()
    assert stored_chunks(connection) == [(1, 2, ["a", "b"])]


def test_a_new_attempt_replaces_the_chunks_of_the_one_before(connection: Connection) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    do(connection, write_chunks(owner, [chunks(job.id, 1, 2, "a", "b")]))
    end(connection, owner, [job], decided(ReleasedAttempt("shutdown")))
    # Until then they are shown.
    assert (view(connection, job.id).attempt, view(connection, job.id).last) == (1, 2)
    again = take_one(connection, owner)
    # Readers of the second attempt do not get the chunks of the first.
    assert (view(connection, job.id).attempt, values(view(connection, job.id))) == (2, [])
    do(connection, write_chunks(owner, [chunks(again.id, 2, 1, "c")]))
    assert stored_chunks(connection) == [(2, 1, ["c"])]
    do(connection, write_chunks(owner, [chunks(again.id, 2, 2, "d")]))
    found = view(connection, job.id, Position(1, 2))
    assert (found.attempt, found.last, values(found)) == (2, 2, ["c", "d"])


def test_the_settlement_stores_the_last_chunks_with_the_outcome(connection: Connection) -> None:
    add(connection, 2)
    owner = session(connection)
    first, second = take(connection, owner)
    items = [
        SettleResult(
            job.id, job.attempt, 0.5, decided(), side_rows=True, chunks=[chunks(job.id, job.attempt, 1, job.id)]
        )
        for job in (first, second)
    ]
    with connection.transaction():
        assert do(connection, settle("succeed", owner, items)) == {first.id, second.id}
    for job in (first, second):
        found = view(connection, job.id)
        assert (found.state, found.is_ended, values(found)) == ("succeeded", True, [job.id])


def test_a_write_and_the_settlement_of_the_same_chunks_do_not_deadlock(
    connection: Connection, database_url: str
) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    batch = chunks(job.id, 1, 1, "a")
    item = SettleResult(job.id, 1, 0.5, decided(), side_rows=True, chunks=[batch, chunks(job.id, 1, 2, "b")])
    failures: list[psycopg.Error] = []

    def flush() -> None:
        try:
            with line(database_url) as own:
                do(own, write_chunks(owner, [batch]))
        except psycopg.Error as error:
            failures.append(error)

    with line(database_url) as settler:
        with settler.transaction():
            statements = settle("succeed", owner, [item])
            written = next(statements)
            settler.execute(written.text("sereno"), written.params)
            thread = Thread(target=flush)
            thread.start()
            until(lambda: waits_for_a_lock(connection))
            do(settler, settle("succeed", owner, [item]))
        thread.join()
    assert failures == []
    assert values(view(connection, job.id)) == ["a", "b"]


def test_a_view_has_state_progress_and_chunks_after_a_position(connection: Connection) -> None:
    (running, waiting) = add(connection, 2, tenant="a")
    owner = session(connection)
    job = take_one(connection, owner)
    assert job.id == running
    do(connection, report_progress(owner, running, 1, 0.5, "half"))
    do(connection, write_chunks(owner, [chunks(running, 1, 2, "a", "b"), chunks(running, 1, 3, "c")]))
    found, other, unknown = do(
        connection, job_views([(running, Position(1, 2)), (waiting, Position()), (10**9, Position())])
    )
    assert found is not None
    assert (found.state, found.attempt, found.tenant, found.fraction, found.note) == ("running", 1, "a", 0.5, "half")
    assert (found.last, [(chunk.number, chunk.value) for chunk in found.chunks]) == (3, [(3, b'"c"')])
    assert other is not None
    assert (other.state, other.attempt, other.fraction, other.last, other.chunks) == ("ready", 0, None, 0, [])
    assert unknown is None
    # A position inside of a batch.
    assert [chunk.number for chunk in do(connection, chunks_after(running, Position(1, 1)))] == [2, 3]


def test_a_success_without_history_is_shown_by_its_chunks(connection: Connection) -> None:
    add(connection, 2)
    owner = session(connection)
    job, silent = take(connection, owner)
    do(connection, write_chunks(owner, [chunks(job.id, 1, 1, "a")]))
    end(connection, owner, [job, silent], decided(), keep_history=False)
    found = view(connection, job.id)
    assert (found.state, found.attempt, values(found)) == ("succeeded", 1, ["a"])
    assert do(connection, job_views([(silent.id, Position())])) == [None]


def test_a_view_has_at_most_a_page_of_chunks(connection: Connection) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    do(connection, write_chunks(owner, [chunks(job.id, 1, n, n) for n in range(1, PAGE + 5)]))
    found = view(connection, job.id)
    assert (len(found.chunks), found.last) == (PAGE, PAGE + 4)
    assert len(do(connection, chunks_after(job.id, Position(1, PAGE)))) == 4
    assert do(connection, last_chunks(job.id, 3)) == [PAGE + 2, PAGE + 3, PAGE + 4]
    assert do(connection, last_chunks(job.id, 50)) == list(range(1, PAGE + 5))


def test_chunks_are_deleted_some_minutes_after_the_end(connection: Connection) -> None:
    add(connection, 2)
    owner = session(connection)
    ended, running = take(connection, owner)
    do(connection, write_chunks(owner, [chunks(ended.id, 1, 1, "a"), chunks(running.id, 1, 1, "b")]))
    end(connection, owner, [ended], decided())
    advance(connection, 3600)
    # The minutes count from when maintenance sees the end.
    do(connection, forget_ended(600))
    assert one(connection, "select count(*) from sereno.job_chunks") == 2
    advance(connection, 601)
    do(connection, forget_ended(600))
    assert connection.execute("select job_id from sereno.job_chunks").fetchall() == [(running.id,)]
    assert connection.execute("select job_id, ended_at from sereno.job_streams").fetchall() == [(running.id, None)]


def test_chunks_of_a_requeued_job_stay(connection: Connection) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    do(connection, write_chunks(owner, [chunks(job.id, 1, 1, "a")]))
    end(connection, owner, [job], decided())
    do(connection, forget_ended(600))
    do(connection, transitions.requeue([job.id]))
    advance(connection, 601)
    do(connection, forget_ended(600))
    assert view(connection, job.id).last == 1
    assert one(connection, "select ended_at from sereno.job_streams") is None


def test_a_deleted_job_leaves_no_chunks(connection: Connection) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    do(connection, write_chunks(owner, [chunks(job.id, 1, 1, "a")]))
    end(connection, owner, [job], decided())
    do(connection, transitions.delete([job.id]))
    for table in ("job_chunks", "job_streams"):
        assert one(connection, f"select count(*) from sereno.{table}") == 0


def test_chunks_that_cannot_be_stored_are_refused_or_cleaned(subtests: pytest.Subtests) -> None:
    deep: Any = "end"
    for _ in range(99):
        deep = [deep]
    cleaned = {
        "a\x00b": "a\ufffdb",
        "\ud83d": "?",
        "<script>alert(1)</script>": "<script>alert(1)</script>",
    }
    for given, expected in cleaned.items():
        with subtests.test(given=ascii(given)):
            assert msgspec.json.decode(encoded(1, {"text": [given]})) == {"text": [expected]}
    assert encoded(1, deep)
    refused = {
        "too large": "x" * 10_000_000,
        "a little too large": "x" * LARGEST_CHUNK,
        "too deep": [deep],
        "no JSON": object(),
        "not a number": float("nan"),
        "a set of objects": {object()},
    }
    for name, chunk in refused.items():
        with subtests.test(name), pytest.raises(InvalidArguments, match=r"job 7: ctx.emit got a chunk that cannot"):
            encoded(7, chunk)


def test_batches_are_bounded_and_numbered_by_their_last_chunk() -> None:
    half = b'"' + b"x" * (LARGEST_BATCH // 2 - 2) + b'"'
    found = batches(7, 2, 13, [half, half, b"1", b"2"])
    assert [(batch.number, len(msgspec.json.decode(batch.chunks))) for batch in found] == [(11, 2), (13, 2)]
    assert batches(7, 2, 13, []) == []
