"""Attempts are retained as long as their job, and dropped by daily partitions without reading other data."""

from collections.abc import Iterator

import psycopg
import pytest

from sereno import Dead, Retry
from sereno.database import partitions
from sereno.jobs import attempt_partitions, transitions
from tests.database.plans import accesses, nodes, plan
from tests.facts import one
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
    take_one,
    tries,
)

DAY = 86400
KEEP = 30
JOB_IDS = "select array_agg(distinct job_id order by job_id) from sereno.attempts"
READ = "seq_tup_read + idx_tup_fetch"
WRITTEN = "n_tup_ins + n_tup_upd + n_tup_del"


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


def fail(connection: Connection, task: str = "work") -> int:
    """Create a job that failed once and is ready again."""
    (id_,) = add(connection, task=task)
    owner = session(connection)
    end(connection, owner, [take_one(connection, owner, [task])], decided(Retry(after=0)))
    return id_


def finish(connection: Connection, task: str = "work", ending: Dead | None = None) -> None:
    owner = session(connection)
    end(connection, owner, [take_one(connection, owner, [task])], decided(ending))


def pass_days(connection: Connection, count: int) -> None:
    """Advance the clock day by day and create the partitions of each day, as a worker does."""
    for _ in range(count):
        advance(connection, DAY)
        for table in ("history", "attempts"):
            do(connection, partitions.make_partitions(table))


def drop_history(connection: Connection) -> list[str]:
    names = do(connection, partitions.old_partitions("history", KEEP))
    for name in names:
        do(connection, partitions.drop_partition("history", name))
    return names


def day_of(connection: Connection, parent: str = "attempts") -> str:
    day: str = one(connection, "select to_char(sereno.now() at time zone 'UTC', 'YYYYMMDD')")
    return f"{parent}_{day}"


def attempt_columns(connection: Connection, job_id: int) -> list[tuple[object, ...]]:
    """Return all columns of attempts except the partition key."""
    return connection.execute(
        "select number, session_id, started_at, finished_at, outcome, reason, error_type, error_message, traceback, "
        "fingerprint from sereno.attempts where job_id = %s order by number",
        [job_id],
    ).fetchall()


def rows_counted(connection: Connection, expression: str, table: str) -> int:
    """Return the rows read or written by this transaction and by statistics not reported yet."""
    figures = f"select {expression} from pg_stat_xact_user_tables where relid = %s::regclass"
    return int(one(connection, figures, f"sereno.{table}") or 0)


@pytest.mark.slow
def test_attempts_of_existing_jobs_outlive_their_partition(connection: Connection) -> None:
    expired, dead, later, live = (fail(connection, task) for task in ("expired", "dead", "later", "live"))
    finish(connection, "expired")
    finish(connection, "dead", Dead("no"))
    pass_days(connection, 5)
    finish(connection, "later")
    pass_days(connection, 25)
    before = attempt_columns(connection, dead), attempt_columns(connection, later), attempt_columns(connection, live)
    assert drop_history(connection) == []
    pass_days(connection, 1)
    assert len(drop_history(connection)) == 1
    assert len(drop_attempts(connection, KEEP)) == 1
    assert one(connection, JOB_IDS) == [dead, later, live]
    assert (
        attempt_columns(connection, dead),
        attempt_columns(connection, later),
        attempt_columns(connection, live),
    ) == before
    # Attempts of a job that finished later are stored in the partition of that day, and dropped with it.
    pass_days(connection, 5)
    assert len(drop_history(connection)) == len(drop_attempts(connection, KEEP)) == 5
    assert one(connection, JOB_IDS) == [dead, live]
    pass_days(connection, KEEP + 1)
    drop_history(connection)
    drop_attempts(connection, KEEP)
    assert one(connection, JOB_IDS) == [dead, live]
    assert (attempt_columns(connection, dead), attempt_columns(connection, live)) == (before[0], before[2])
    assert expired not in one(connection, JOB_IDS)


@pytest.mark.slow
def test_carrying_attempts_reads_only_its_partition_and_deletes_nothing(connection: Connection) -> None:
    old = day_of(connection)
    for _ in range(20):
        fail(connection)
        finish(connection)
    pass_days(connection, 5)
    other = day_of(connection)
    for _ in range(20):
        fail(connection)
        finish(connection)
    pass_days(connection, 26)
    assert len(drop_history(connection)) == 1
    with connection.transaction():
        before = [
            rows_counted(connection, READ, old),
            rows_counted(connection, READ, other),
            rows_counted(connection, WRITTEN, old),
        ]
        assert not do(connection, attempt_partitions.carry_attempts(old))
        after = [
            rows_counted(connection, READ, old),
            rows_counted(connection, READ, other),
            rows_counted(connection, WRITTEN, old),
        ]
        assert [now - then for now, then in zip(after, before, strict=True)] == [20, 0, 0]
        do(connection, partitions.drop_partition("attempts", old))
    assert one(connection, "select count(*) from sereno.attempts") == 20


def test_a_page_reads_its_partition_and_the_jobs_by_index(connection: Connection) -> None:
    for _ in range(20):
        fail(connection)
    begins = one(connection, "select date_trunc('day', sereno.now(), 'UTC')")
    name = day_of(connection)
    day = {"name": name, "begins": begins, "ends": begins.replace(hour=23, minute=59), "most": 2000}
    top = plan(connection, "jobs/attempt_partitions", "carry", day)
    for table in ("jobs", "history_dead", name, day_of(connection, "history_done")):
        found = accesses(top, table)
        assert found, table
        assert all(access.bounded and access.how.startswith("Index") for access in found), (table, found)
    assert not [node for node in nodes(top) if node["Node Type"] == "Seq Scan" and "history" in node["Relation Name"]]


@pytest.mark.slow
def test_an_interrupted_carry_continues_where_it_stopped(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_partitions, "PAGE_SIZE", 10)
    old = day_of(connection)
    for _ in range(25):
        fail(connection)
        finish(connection)
    pass_days(connection, 31)
    drop_history(connection)
    assert do(connection, attempt_partitions.carry_attempts(old))
    # As another worker would, an hour later.
    with connection.transaction():
        before = rows_counted(connection, READ, old)
        assert do(connection, attempt_partitions.carry_attempts(old))
        assert not do(connection, attempt_partitions.carry_attempts(old))
        assert rows_counted(connection, READ, old) - before == 15


@pytest.mark.slow
def test_a_partition_of_attempts_is_dropped_after_that_of_history(connection: Connection) -> None:
    old = day_of(connection)
    fail(connection)
    finish(connection)
    pass_days(connection, 31)
    assert do(connection, partitions.old_partitions("attempts", KEEP)) == []
    with pytest.raises(psycopg.errors.ObjectInUse):
        do(connection, partitions.drop_partition("attempts", old))
    assert len(drop_history(connection)) == 1
    assert do(connection, partitions.old_partitions("attempts", KEEP)) == [old]


def test_only_a_daily_partition_of_attempts_can_be_dropped(connection: Connection, subtests: pytest.Subtests) -> None:
    for name in ["jobs", "attempts", "attempts_default", "attempts_20260101; drop table sereno.jobs"]:
        with subtests.test(name=name), pytest.raises(psycopg.errors.RaiseException):
            do(connection, partitions.drop_partition("attempts", name))


@pytest.mark.parametrize("archived", [False, True])
def test_attempts_in_the_default_partition_are_moved_or_deleted(connection: Connection, archived: bool) -> None:
    advance(connection, 20 * DAY)
    expired, live = fail(connection, "expired"), fail(connection, "live")
    connection.execute("delete from sereno.jobs where id = %s", [expired])
    assert one(connection, "select count(*) from sereno.attempts_default") == 2
    advance(connection, 40 * DAY)
    do(connection, partitions.make_partitions("attempts"))
    assert not do(connection, attempt_partitions.carry_strays(KEEP, archived=archived))
    assert one(connection, "select count(*) from sereno.attempts_default") == 0
    assert one(connection, JOB_IDS) == ([expired, live] if archived else [live])


def test_a_job_cancelled_while_it_waited_has_each_attempt_number_once(connection: Connection) -> None:
    id_ = fail(connection)
    pass_days(connection, 2)
    do(connection, transitions.cancel([id_], "no more"))
    do(connection, transitions.requeue([id_]))
    assert tries(connection, id_) == [(1, "retry")]
