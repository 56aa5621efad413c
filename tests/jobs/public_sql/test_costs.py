"""The cost of the public functions depends on the rows that they change, not on the size of tables."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from sereno.jobs.limits.limit import Limit
from sereno.worker import sessions
from tests.databases import DatabasePool
from tests.facts import advance, one, until
from tests.jobs.job_steps import Connection, add, do, line, row
from tests.jobs.limits.lane_steps import keys, put, set_limit
from tests.jobs.public_sql.sql_worker import SqlWorker, outcome


def test_claims_start_at_their_floor_until_the_next_look_back(connection: Connection) -> None:
    late, early = add(connection, 2)
    worker = SqlWorker(connection, lease="1 hour")
    floor = row(connection, early)["ready_seq"]
    connection.execute(
        "update sereno.sessions set floors = jsonb_build_object('default:5', %s::bigint), "
        "look_back_at = sereno.now() + interval '30 seconds'",
        [floor],
    )
    assert [job.id for job in worker.claim()] == [early]
    assert worker.claim() == []
    advance(connection, 31)
    assert [job.id for job in worker.claim()] == [late]


def test_a_slow_claim_stores_where_the_next_one_may_start(connection: Connection) -> None:
    ids = add(connection, 3)
    worker = SqlWorker(connection)
    lowest = row(connection, ids[0])["ready_seq"]
    learn = "select sereno.learn_floors(%s, %s, %s, %s, %s::interval)"
    before = one(connection, "select sereno.now()")
    connection.execute(learn, [worker.session, ids, True, True, "1 second"])
    assert one(connection, "select (floors ->> 'default:5')::bigint from sereno.sessions") == lowest
    look_back_at = one(connection, "select look_back_at from sereno.sessions")
    assert before <= look_back_at - timedelta(seconds=20) <= one(connection, "select sereno.now()")
    # It reached the floor: the lowest job above is the new floor. With only older jobs the floor stays.
    connection.execute(learn, [worker.session, ids[1:], False, True, "1 second"])
    assert one(connection, "select (floors ->> 'default:5')::bigint from sereno.sessions") == lowest + 1
    connection.execute(learn, [worker.session, ids[:1], False, False, "1 second"])
    assert one(connection, "select (floors ->> 'default:5')::bigint from sereno.sessions") == lowest + 1
    connection.execute(learn, [worker.session, ids[:1], False, True, "1 second"])
    assert one(connection, "select (floors ->> 'default:5')::bigint from sereno.sessions") == lowest
    # A Python worker can read these floors when it starts.
    do(connection, sessions.register(host="h", pid=1, version="0", queues={"default": 1}, tasks=["work"], lease=30))


@pytest.mark.slow
def test_the_cost_of_claims_by_sql_is_constant_under_a_pinned_snapshot(database_url: str) -> None:
    with (
        psycopg.connect(database_url, autocommit=True) as connection,
        line(database_url) as pinning,
        pinning.transaction(),
    ):
        add(connection, 12_000)
        worker = SqlWorker(connection, lease="1 hour")
        pinning.execute("set transaction isolation level repeatable read")
        pinning.execute("select count(*) from sereno.jobs")
        for _ in range(20):
            worker.settle(*(outcome(job, history=False) for job in worker.claim(500)))
        connection.execute("update sereno.sessions set look_back_at = sereno.now() + interval '30 s'")
        assert entries(worker) < 2000
        connection.execute("update sereno.sessions set look_back_at = null")
        assert entries(worker) > 10_000, "a claim without a floor should be expensive here"


def entries(worker: SqlWorker) -> int:
    """Return the entries of the index of ready rows that a claim reads; the claim is rolled back."""
    read = "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'jobs_ready'"
    worker.query("select pg_stat_force_next_flush()")
    before = one(worker.connection, read)
    with worker.connection.transaction(force_rollback=True):
        assert len(worker.claim(100)) == 100
    worker.query("select pg_stat_force_next_flush()")
    return int(one(worker.connection, read) - before)


@pytest.fixture(scope="module")
def large(databases: DatabasePool, template: str) -> Iterator[Connection]:
    """Create many jobs of every kind without statistics, as after a bulk enqueue; return a plain connection."""
    with databases.copy(template) as url, psycopg.connect(url, autocommit=True) as opened:
        opened.execute("alter table sereno.jobs set (autovacuum_enabled = off)")
        set_limit(opened, "each", Limit(1))
        opened.execute(
            "insert into sereno.jobs (task, state, ready_seq) "
            "select 'work', 'ready', nextval('sereno.ready_seq') from generate_series(1, 30000)"
        )
        opened.execute(
            "insert into sereno.jobs (task, state, run_at) select 'work', 'scheduled', "
            "sereno.now() + interval '1 day' from generate_series(1, 5000)"
        )
        put(opened, keys(("each", "a")), 2000)
        opened.execute(
            "insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes, "
            "releases, priority, state, queue, task, args) select -n, sereno.now(), sereno.now(), sereno.now(), "
            "1, 0, 0, 0, 0, 5, 'dead', 'default', 'work', '{}' from generate_series(1, 5000) as n"
        )
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("call", ["claim", "settle", "beat", "close"])
def test_a_call_reads_few_rows_of_large_tables(large: Connection, call: str) -> None:
    """Checked by server statistics: no sequential scan of jobs, and few rows read by index."""
    worker = SqlWorker(large)
    # These claims read all wake-ups, so that the measured call does not.
    held = [job for _ in range(5) for job in worker.claim(10)]
    actions: dict[str, Callable[[], Any]] = {
        "claim": lambda: worker.claim(10),
        "settle": lambda: worker.settle(
            *(outcome(job, name) for job, name in zip(held, ["succeeded", "retry", "dead"] * 3, strict=False))
        ),
        "beat": lambda: worker.beat([job.id for job in held]),
        "close": worker.close,
    }
    large.execute("select pg_stat_force_next_flush()")
    with large.transaction(force_rollback=True):
        actions[call]()
        read = large.execute(
            "select relname, seq_tup_read, idx_tup_fetch from pg_stat_xact_user_tables where schemaname = 'sereno' "
            "and (relname in ('jobs', 'attempts') or relname like 'history%%')"
        ).fetchall()
    assert {name: rows for name, rows, _ in read if rows} == {}
    assert {name: rows for name, _, rows in read if (rows or 0) > 1500} == {}
    until(lambda: worker.close() == 0)
