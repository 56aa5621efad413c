"""Conditions on a view reach the indexes of the tables: the cost of a query follows what it finds."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.database.plans import nodes
from tests.facts import one

ROWS = 5000
# A table or partition with fewer rows is not worth an index.
FEW = 1000
FILLED = """
insert into sereno.jobs (task, state, ready_seq, run_at, created_at)
select 'work', 'scheduled', n, sereno.now() + n * interval '1 minute', sereno.now() from generate_series(1, ROWS) as n;
select sereno.make_history_partition((current_date - n)) from generate_series(1, 5) as n;
insert into sereno.history (id, session_id, state, task, queue, priority, args, run_at, created_at, started_at,
                            finished_at, attempt, failures, crashes, snoozes, releases)
select 1000000 + n, 1, case when n % 50 = 0 then 'dead' else 'succeeded' end, 'work', 'default', 5, '{}', at, at, at,
       at, 2, 1, 0, 0, 0
from generate_series(1, ROWS) as n, lateral (select sereno.now() - n * interval '20 seconds' as at) as moment;
insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome)
select 1000000 + n, 1, 1, sereno.now(), sereno.now(), 'retry' from generate_series(1, ROWS) as n;
insert into sereno.events (type, subject, payload, channels)
select 'news', 's' || n, '{}', '{pager}' from generate_series(1, ROWS) as n;
insert into sereno.recipients (key) select 'r' || n from generate_series(1, ROWS) as n;
insert into sereno.addresses (recipient_id, channel, address) select id, 'pager', key from sereno.recipients;
insert into sereno.deliveries (event_id, recipient_id, channel, due_at)
select e.id, r.id, 'pager', sereno.now() from sereno.events e
join sereno.recipients r on r.key = 'r' || right(e.subject, -1);
insert into sereno.receipts (channel, receipt_id, delivery_id, outcome)
select 'pager', id, id, 'delivered' from sereno.deliveries;
insert into sereno.schedules (key, rule, task) select 'k' || n, '{}', 'work' from generate_series(1, ROWS) as n;
insert into sereno.fires (planned_at, schedule_id, fired_at)
select sereno.now() - id * interval '10 seconds', id, sereno.now() from sereno.schedules;
insert into sereno.sessions (host, pid, version, queues, tasks, lease_until, state)
select 'h', n, '0', '{}', '{}', sereno.now(), 'closed' from generate_series(1, ROWS) as n;
"""
READS = (
    "select * from sereno.jobs_v1 where id = 1000050",
    "select * from sereno.jobs_v1 where id = any('{5,1000050}')",
    "select * from sereno.jobs_v1 order by id desc limit 50",
    "select * from sereno.jobs_v1 where state = 'dead' order by finished_at desc limit 50",
    "select count(*) from sereno.jobs_v1 where state = 'scheduled' and run_at < sereno.now()",
    "select * from sereno.attempts_v1 where job_id = 1000050",
    "select * from sereno.sessions_v1 where id = 7",
    "select * from sereno.schedules_v1 where key = 'k7'",
    "select * from sereno.schedules_v1 where next_run_at < sereno.now()",
    "select * from sereno.fires_v1 where planned_at > sereno.now() - interval '20 seconds'",
    "select * from sereno.events_v1 where subject = 's7'",
    "select * from sereno.deliveries_v1 where id = 7",
    "select * from sereno.deliveries_v1 where subject = 's7'",
    "select * from sereno.deliveries_v1 where recipient_id = 7",
    "select * from sereno.deliveries_v1 where event_id = 7",
    "select * from sereno.deliveries_v1 order by id desc limit 50",
    "select * from sereno.receipts_v1 where delivery_id = 7",
    "select * from sereno.recipients_v1 where id = 7",
    "select * from sereno.addresses_v1 where recipient_id = 7",
)


@pytest.fixture(scope="module")
def filled(shared_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared_database_url, autocommit=True) as connection:
        connection.execute(FILLED.replace("ROWS", str(ROWS)).encode())
        connection.execute("analyze")
        yield connection


@pytest.mark.slow
def test_no_query_by_an_indexed_column_reads_a_table_as_a_whole(
    filled: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for query in READS:
        with subtests.test(query):
            assert _scanned(filled, query) == []


@pytest.mark.slow
def test_finished_jobs_of_a_time_are_read_from_its_days_only(filled: psycopg.Connection) -> None:
    day = one(filled, "select to_char((sereno.now() - interval '1 hour') at time zone 'UTC', 'YYYYMMDD')")
    count = "select count(*) from sereno.jobs_v1"
    everything = _read(filled, count)
    last_hour = _read(filled, f"{count} where state = 'succeeded' and finished_at > sereno.now() - interval '1 hour'")
    assert {"jobs", "history_dead"} < everything
    assert len([name for name in everything if name[-8:] < day]) > 3
    assert last_hour
    assert {name for name in last_hour if not name.startswith("history_done_") or name[-8:] < day} == set()


def test_tables_of_columns_that_are_not_read_are_not_in_the_plan(filled: psycopg.Connection) -> None:
    names = _read(filled, "select id, state from sereno.jobs_v1 where id = 5")
    assert {name for name in names if not name.startswith("history_")} == {"jobs"}
    assert _read(filled, "select id, state from sereno.deliveries_v1 where id = 5") == {"deliveries"}


def test_the_state_of_a_delivery_reaches_its_table(filled: psycopg.Connection) -> None:
    """A partial index on the state can serve it: the condition is on the column itself."""
    query = "select * from sereno.deliveries_v1 where state = 'dead' order by id desc limit 50"
    with filled.transaction(force_rollback=True):
        filled.execute("create index only_here on sereno.deliveries (id) where state = 'dead'")
        filled.execute("update sereno.deliveries set state = 'dead' where id % 1000 = 0")
        filled.execute("analyze sereno.deliveries")
        assert _scanned(filled, query) == []
        assert "only_here" in {node.get("Index Name") for node in nodes(_plan(filled, query))}


def _plan(connection: psycopg.Connection, query: str) -> dict[str, Any]:
    row = connection.execute(f"explain (analyze, format json) {query}".encode()).fetchone()
    assert row is not None
    top: dict[str, Any] = row[0][0]["Plan"]
    return top


def _read(connection: psycopg.Connection, query: str) -> set[str]:
    return {node["Relation Name"] for node in nodes(_plan(connection, query)) if "Relation Name" in node}


def _scanned(connection: psycopg.Connection, query: str) -> list[str]:
    """Return the tables with many rows that the query reads as a whole."""
    return [
        node["Relation Name"]
        for node in nodes(_plan(connection, query))
        if node["Node Type"] == "Seq Scan"
        and node["Actual Loops"] > 0
        and node["Actual Rows"] + node.get("Rows Removed by Filter", 0) > FEW
    ]
