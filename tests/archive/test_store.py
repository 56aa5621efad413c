"""Old rows are moved from their table to a batch in one transaction; young, live and refused rows stay."""

from threading import Thread

import psycopg
import pytest

from sereno.archive import store as archive
from sereno.database import partitions
from sereno.database.statement import run
from tests.archive.archive_steps import (
    DAY,
    add_deliveries,
    add_event,
    add_everything,
    add_fires,
    add_jobs,
    add_logs,
    everything,
)
from tests.archive.store_steps import AGE, MOST, NOWHERE, batches, measure, today
from tests.facts import advance, one, until
from tests.jobs.job_steps import Connection, do, waits_for_a_lock

# Daily partitions


def test_a_partition_is_moved_whole_and_its_attempts_follow(connection: Connection) -> None:
    add_jobs(connection, 1, 10)
    before, day = everything(connection, NOWHERE), today(connection)
    advance(connection, 40 * DAY)
    batch = do(connection, archive.move_day("jobs", day))
    assert batch is not None
    assert batches(connection) == [("jobs", 10)]
    assert everything(connection, NOWHERE) == before
    assert do(connection, archive.without_children()) == [batch]
    assert do(connection, archive.move_children(batch, MOST)) == (20, True)
    assert do(connection, archive.without_children()) == []
    assert batches(connection) == [("jobs", 10), ("attempts", 20)]
    assert everything(connection, NOWHERE) == before
    assert do(connection, archive.move_children(batch, MOST)) == (0, True)
    assert batches(connection) == [("jobs", 10), ("attempts", 20)]


def test_attempts_are_moved_in_pages_that_continue_after_the_last(connection: Connection) -> None:
    """Ten jobs of two attempts each, and one job with more than a page of them."""
    add_jobs(connection, 1, 10)
    connection.execute(
        "insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome) "
        "select 4, 100 + n, 1, sereno.now(), sereno.now(), 'retry' from generate_series(1, 5) as n"
    )
    before, day = everything(connection, NOWHERE), today(connection)
    advance(connection, 40 * DAY)
    batch = do(connection, archive.move_day("jobs", day))
    assert batch is not None
    pages = []
    while batch in do(connection, archive.without_children()):
        pages.append(do(connection, archive.move_children(batch, 5)))
        assert everything(connection, NOWHERE) == before
    assert pages == [(4, False), (2, False), (7, False), (4, False), (4, False), (4, True)]
    assert one(connection, "select count(*) from sereno.attempts") == 0


def test_a_missing_or_empty_partition_makes_no_batch(connection: Connection) -> None:
    day = today(connection)
    advance(connection, 40 * DAY)
    assert do(connection, archive.move_day("jobs", day)) is None
    assert do(connection, archive.move_day("jobs", day)) is None
    assert batches(connection) == []
    assert one(connection, "select to_regclass('sereno.' || %s) is null", day)
    assert one(connection, "select count(*) from pg_tables where schemaname = 'sereno_archive'") == 0


def test_only_daily_partitions_can_be_moved(connection: Connection, subtests: pytest.Subtests) -> None:
    injection = "history_done_20260101; drop table sereno.jobs"
    for name in ("jobs", "history_dead", "history_done_default", injection, "", "audit"):
        with subtests.test(name=name):
            with pytest.raises(psycopg.errors.RaiseException, match="is not a day"):
                do(connection, archive.move_day("jobs", name))
            with pytest.raises(psycopg.errors.RaiseException, match="is not a day"):
                run(connection, archive.move_day("logs", "logs_20260101"))  # type: ignore[arg-type]


def test_a_partition_of_fires_is_moved(connection: Connection) -> None:
    add_fires(connection, 10)
    before, day = everything(connection, NOWHERE), today(connection, "fires")
    assert do(connection, archive.move_day("fires", day)) is not None
    assert batches(connection) == [("fires", 10)]
    assert do(connection, archive.without_children()) == []
    assert everything(connection, NOWHERE) == before


@pytest.mark.slow
def test_a_partition_that_is_read_waits_and_writers_continue(connection: Connection, database_url: str) -> None:
    add_jobs(connection, 1, 3)
    advance(connection, 40 * DAY)
    (name,) = do(connection, partitions.old_partitions("history", 39))
    refused: list[BaseException] = []

    def leave() -> None:
        with psycopg.connect(database_url, autocommit=True) as mover:
            try:
                run(mover, archive.move_day("jobs", name))
            except psycopg.errors.LockNotAvailable as error:
                refused.append(error)

    with psycopg.connect(database_url) as reader:
        reader.execute("select count(*) from sereno.history")
        mover = Thread(target=leave)
        mover.start()
        until(lambda: refused or waits_for_a_lock(connection))
        # A worker that finishes a job waits no longer than the mover does.
        add_jobs(connection, 101, 1)
        mover.join()
        assert len(refused) == 1
    assert batches(connection) == []
    assert do(connection, archive.move_day("jobs", name)) is not None


def test_concurrent_moves_of_a_partition_make_one_batch(connection: Connection, database_url: str) -> None:
    add_jobs(connection, 1, 3)
    before, day = everything(connection, NOWHERE), today(connection)
    moved_batches: list[int | None] = []

    def leave() -> None:
        with psycopg.connect(database_url, autocommit=True) as other:
            try:
                moved_batches.append(run(other, archive.move_day("jobs", day)))
            except psycopg.errors.LockNotAvailable:
                # On a busy machine the lock may time out: it is moved later, as if it were being read.
                moved_batches.append(None)

    movers = [Thread(target=leave) for _ in range(4)]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join()
    assert sorted(moved_batches, key=str) == [*[batch for batch in moved_batches if batch], None, None, None]
    assert batches(connection) == [("jobs", 3)]
    assert everything(connection, NOWHERE) == before


# Rows


@pytest.mark.slow
def test_old_rows_are_moved_and_young_ones_stay(connection: Connection) -> None:
    add_everything(connection)
    old = everything(connection, NOWHERE)
    advance(connection, 60 * DAY)
    add_jobs(connection, 9001, 2, "dead")
    add_logs(connection, 2)
    young = everything(connection, NOWHERE) - old
    for part, count in (("dead", 4), ("jobs", 3), ("deliveries", 3), ("events", 2), ("logs", 20)):
        assert do(connection, archive.move_rows(part, AGE, MOST)) == count, part  # type: ignore[arg-type]
        assert do(connection, archive.move_rows(part, AGE, MOST)) == 0, part  # type: ignore[arg-type]
        assert everything(connection, NOWHERE) == old + young
    # A fire in the default partition is as old as the moment at which it fired.
    assert do(connection, archive.move_rows("fires", AGE, MOST)) == 3
    assert batches(connection) == [
        ("jobs", 4), ("attempts", 8), ("jobs", 3), ("attempts", 6), ("deliveries", 3), ("receipts", 6), ("events", 2),
        ("logs", 20), ("fires", 3),
    ]  # fmt: skip
    assert one(connection, "select count(*) from sereno.logs") == 2
    assert one(connection, "select count(*) from sereno.history_dead") == 2
    assert one(connection, "select count(*) from sereno.message_ids") == 0


def test_rows_are_moved_in_batches_of_a_size(connection: Connection) -> None:
    add_logs(connection, 25)
    before = everything(connection, NOWHERE)
    advance(connection, 60 * DAY)
    sizes = [do(connection, archive.move_rows("logs", AGE, 10)) for _ in range(4)]
    assert sizes == [10, 10, 5, 0]
    assert batches(connection) == [("logs", 10), ("logs", 10), ("logs", 5)]
    assert everything(connection, NOWHERE) == before


@pytest.mark.parametrize("state", ["pending", "sending"])
def test_unsent_deliveries_stay(connection: Connection, state: str) -> None:
    event = add_event(connection)
    add_deliveries(connection, event, state)
    add_event(connection, matched=False)
    advance(connection, 60 * DAY)
    assert do(connection, archive.move_rows("deliveries", AGE, MOST)) == 0
    assert do(connection, archive.move_rows("events", AGE, MOST)) == 0
    assert one(connection, "select count(*) from sereno.message_ids") == 3


def test_restored_rows_are_not_moved(connection: Connection) -> None:
    add_logs(connection, 3)
    add_fires(connection, 2, ahead="20 days")
    advance(connection, 60 * DAY)
    restored = one(connection, "select min(id) from sereno.logs")
    for kind, key in (
        ("logs", "id"),
        ("fires", "(extract(epoch from planned_at) * 1000000)::bigint || chr(9) || schedule_id"),
    ):
        table = "fires_default" if kind == "fires" else kind
        connection.execute(
            "insert into sereno.restored (kind, key, batch_id, digest, until) "
            f"select '{kind}', {key}, 1, 'x', sereno.now() from sereno.{table} order by 1, 2 limit 1".encode()
        )
    assert do(connection, archive.move_rows("logs", AGE, MOST)) == 2
    assert do(connection, archive.move_rows("fires", AGE, MOST)) == 1
    assert one(connection, "select id from sereno.logs") == restored


def test_locked_rows_are_skipped(connection: Connection, database_url: str) -> None:
    add_jobs(connection, 1, 5, "dead")
    advance(connection, 60 * DAY)
    with psycopg.connect(database_url) as operator:
        operator.execute("select from sereno.history_dead where id = 3 for update")
        assert do(connection, archive.move_rows("dead", AGE, MOST)) == 4
        assert do(connection, archive.move_rows("dead", AGE, MOST)) == 0
        operator.rollback()
    assert do(connection, archive.move_rows("dead", AGE, MOST)) == 1
    assert batches(connection) == [("jobs", 4), ("attempts", 8), ("jobs", 1), ("attempts", 2)]


def test_two_movers_share_the_rows(connection: Connection, database_url: str) -> None:
    add_logs(connection, 500)
    before = everything(connection, NOWHERE)
    advance(connection, 60 * DAY)

    def leave() -> None:
        with psycopg.connect(database_url, autocommit=True) as other:
            while run(other, archive.move_rows("logs", AGE, 50)):
                pass

    movers = [Thread(target=leave) for _ in range(3)]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join()
    while do(connection, archive.move_rows("logs", AGE, 50)):
        pass
    assert sum(rows for _, rows in batches(connection)) == 500
    assert everything(connection, NOWHERE) == before


def test_a_transaction_that_fails_moves_nothing(connection: Connection) -> None:
    add_everything(connection)
    before = everything(connection, NOWHERE)
    advance(connection, 60 * DAY)
    with connection.transaction(force_rollback=True):
        assert do(connection, archive.move_rows("deliveries", AGE, MOST)) == 3
    assert batches(connection) == []
    assert everything(connection, NOWHERE) == before


def test_unknown_tables_are_refused(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match="is not archived by rows"):
        do(connection, archive.move_rows("audit", AGE, MOST))  # type: ignore[arg-type]


# Files


def test_files_are_planned_once(connection: Connection) -> None:
    add_logs(connection, 5)
    advance(connection, 60 * DAY)
    do(connection, archive.move_rows("logs", AGE, MOST))
    ((batch, kind),) = do(connection, archive.open_batches())
    assert kind == "logs"
    do(connection, archive.plan(batch, 100))
    do(connection, archive.plan(batch, 1))
    do(connection, archive.plan(batch + 1, 1))
    assert do(connection, archive.open_files()) == [(batch, 1)]


def test_a_batch_is_dropped_only_when_all_its_rows_are_in_files(connection: Connection) -> None:
    add_logs(connection, 5)
    advance(connection, 60 * DAY)
    do(connection, archive.move_rows("logs", AGE, MOST))
    ((batch, _),) = do(connection, archive.open_batches())
    assert do(connection, archive.settle_batch(batch, 0)) is False, "the batch has no files"
    do(connection, archive.plan(batch, 100))
    assert do(connection, archive.settle_batch(batch, 0)) is False, "its file is not verified"
    measured = measure(connection, batch)
    assert do(connection, archive.verified(batch, 1, "x")) is False, "nothing was uploaded"
    assert do(connection, archive.uploaded(batch, 1, measured, "name", "sum", 10))
    assert do(connection, archive.verified(batch, 1, "another")) is False
    assert do(connection, archive.drop_batch(batch)) is False
    assert do(connection, archive.verified(batch, 1, "sum"))
    assert do(connection, archive.uploaded(batch, 1, measured, "other", "other", 10)) is False, (
        "a verified file is not changed"
    )
    assert do(connection, archive.not_written(batch, 1, "too late")) is False
    assert do(connection, archive.drop_batch(batch)) is False, "the batch is not settled"
    assert do(connection, archive.settle_batch(batch, 60))
    assert do(connection, archive.settle_batch(batch, 0)) is False, "its grace has begun"
    assert do(connection, archive.droppable()) == []
    assert do(connection, archive.drop_batch(batch)) is False
    advance(connection, 61)
    assert do(connection, archive.droppable()) == [batch]
    do(connection, archive.failed(batch, 1, "it is broken"))
    with pytest.raises(psycopg.errors.DataError, match="do not hold"):
        do(connection, archive.drop_batch(batch))
    assert do(connection, archive.reopen(batch, 1))
    assert do(connection, archive.droppable()) == []
    assert do(connection, archive.verified(batch, 1, "sum"))
    assert do(connection, archive.settle_batch(batch, 0))
    assert do(connection, archive.drop_batch(batch))
    assert do(connection, archive.drop_batch(batch)) is False
    assert do(connection, archive.reopen(batch, 1)) is False
    assert do(connection, archive.describe(batch, 1)) is None


def test_a_batch_is_not_settled_before_its_children_are_moved(connection: Connection) -> None:
    """Its table is needed to find them."""
    add_jobs(connection, 1, 2, "dead")
    advance(connection, 60 * DAY)
    do(connection, archive.move_rows("dead", AGE, 2))
    (batch,) = do(connection, archive.without_children())
    do(connection, archive.plan(batch, 100))
    assert do(connection, archive.uploaded(batch, 1, measure(connection, batch), "name", "sum", 10))
    assert do(connection, archive.verified(batch, 1, "sum"))
    assert do(connection, archive.settle_batch(batch, 0)) is False
    assert do(connection, archive.move_children(batch, MOST)) == (2, True)
    assert do(connection, archive.settle_batch(batch, 0))


def test_a_file_that_was_found_broken_meanwhile_is_not_verified_again(connection: Connection) -> None:
    """Two verifiers: the first read the file before it was damaged, and is the last to write."""
    add_logs(connection, 5)
    advance(connection, 60 * DAY)
    do(connection, archive.move_rows("logs", AGE, MOST))
    ((batch, _),) = do(connection, archive.open_batches())
    do(connection, archive.plan(batch, 100))
    assert do(connection, archive.uploaded(batch, 1, measure(connection, batch), "name", "sum", 10))
    assert do(connection, archive.verified(batch, 1, "sum"))
    before = do(connection, archive.tries(batch, 1))
    assert do(connection, archive.verified(batch, 1, "sum", since=before))
    do(connection, archive.failed(batch, 1, "its checksum differs"))
    assert do(connection, archive.reopen(batch, 1))
    assert do(connection, archive.verified(batch, 1, "sum", since=before)) is False
    assert do(connection, archive.open_files()) == [(batch, 1)]
    assert do(connection, archive.verified(batch, 1, "sum", since=do(connection, archive.tries(batch, 1))))
    assert do(connection, archive.tries(batch, 99)) == 0
