"""Finished jobs are dropped by daily partitions; dead letters stay until an operator deletes them."""

from collections.abc import Iterator
from threading import Thread

import psycopg
import pytest

from sereno import Dead, Retry
from sereno.database import partitions
from sereno.jobs import history
from tests.facts import one, until
from tests.jobs.job_steps import (
    Connection,
    add,
    advance,
    decided,
    do,
    drop_attempts,
    end,
    line,
    session,
    take,
    take_one,
    waits_for_a_lock,
)

DAY = 86400


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


def partitions_of(connection: Connection) -> list[str]:
    found = connection.execute(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'sereno.history_done'::regclass order by 1"
    )
    return [name for (name,) in found]


def partition_of(connection: Connection, job_id: int) -> str:
    """Return the partition of a finished job."""
    return str(one(connection, "select tableoid::regclass::text from sereno.history where id = %s", job_id))


def finish(connection: Connection, ending: Dead | None = None) -> int:
    """Create a job that failed once and then ended."""
    (id_,) = add(connection)
    owner = session(connection)
    end(connection, owner, [take_one(connection, owner)], decided(Retry(after=0)))
    end(connection, owner, [take_one(connection, owner)], decided(ending))
    return id_


def today(connection: Connection) -> str:
    day = one(connection, "select to_char(sereno.now() at time zone 'UTC', 'YYYYMMDD')")
    return f"sereno.history_done_{day}"


def test_partitions_are_created_a_week_ahead_and_only_once(connection: Connection) -> None:
    assert len(partitions_of(connection)) == 9, "today, a week, and the default partition"
    assert do(connection, partitions.make_partitions("history")) == 0
    advance(connection, 3 * DAY)
    assert do(connection, partitions.make_partitions("history")) == 3
    assert len(partitions_of(connection)) == 12


def test_finished_jobs_are_in_daily_partitions_and_dead_letters_in_their_own(connection: Connection) -> None:
    assert partition_of(connection, finish(connection)) == today(connection)
    assert partition_of(connection, finish(connection, Dead("no"))) == "sereno.history_dead"


def test_rows_without_a_partition_are_stored_and_moved_later(connection: Connection) -> None:
    advance(connection, 20 * DAY)
    id_ = finish(connection)
    assert partition_of(connection, id_) == "sereno.history_done_default"
    assert do(connection, partitions.make_partitions("history")) == 8
    assert partition_of(connection, id_) == today(connection)
    assert one(connection, "select count(*) from sereno.history") == 1


def test_old_partitions_are_dropped_with_their_attempts_and_dead_letters_stay(connection: Connection) -> None:
    old, dead = finish(connection), finish(connection, Dead("no"))
    advance(connection, 6 * DAY)
    young = finish(connection)
    advance(connection, 25 * DAY)
    do(connection, partitions.make_partitions("history"))
    assert do(connection, partitions.old_partitions("history", 31)) == []
    names = do(connection, partitions.old_partitions("history", 30))
    assert [f"sereno.{name}" for name in names] == [partition_of(connection, old)]
    for name in names:
        do(connection, partitions.drop_partition("history", name))
    drop_attempts(connection, 30)
    assert one(connection, "select array_agg(id order by id) from sereno.history") == [dead, young]
    assert one(connection, "select array_agg(job_id order by job_id) from sereno.attempts") == [dead, young]


def test_dead_letters_are_deleted_only_with_a_retention_and_only_old_ones(connection: Connection) -> None:
    old = finish(connection, Dead("no"))
    advance(connection, 10 * DAY)
    young = finish(connection, Dead("no"))
    assert do(connection, history.forget_dead(11)) == 0
    assert do(connection, history.forget_dead(9)) == 1
    assert one(connection, "select array_agg(id) from sereno.history") == [young]
    assert one(connection, "select count(*) from sereno.attempts where job_id = %s", old) == 0


def test_only_a_daily_partition_of_history_can_be_dropped(connection: Connection) -> None:
    for name in ("jobs", "history_done", "history_done_default", "history_done_20260101; drop table sereno.jobs"):
        with pytest.raises(psycopg.errors.RaiseException):
            do(connection, partitions.drop_partition("history", name))


def test_two_workers_create_the_same_partition_once(connection: Connection, database_url: str) -> None:
    advance(connection, 30 * DAY)
    made: list[int] = []

    def make() -> None:
        with line(database_url) as own:
            made.append(do(own, partitions.make_partitions("history")))

    threads = [Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [0, 8]


@pytest.mark.slow
def test_a_long_read_of_history_delays_the_drop_but_no_settlement(connection: Connection, database_url: str) -> None:
    finish(connection)
    name = today(connection).removeprefix("sereno.")
    add(connection)
    owner = session(connection)
    held = take(connection, owner)
    refused: list[BaseException] = []

    def drop() -> None:
        with line(database_url) as own:
            try:
                do(own, partitions.drop_partition("history", name))
            except psycopg.errors.LockNotAvailable as error:
                refused.append(error)

    with line(database_url) as reader, reader.transaction():
        reader.execute("select count(*) from sereno.history")
        thread = Thread(target=drop)
        thread.start()
        until(lambda: refused or waits_for_a_lock(connection))
        assert len(end(connection, owner, held, decided())) == 1
        thread.join()
    assert len(refused) == 1
    assert one(connection, "select count(*) from sereno.history") == 2
