"""The cost of an invariant grows with the rows that it reads, not with their product."""

import psycopg

from tests.database.plans import nodes, plan


def test_attempts_and_finished_jobs_are_not_compared_pair_by_pair(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.history (id, session_id, finished_at, started_at, run_at, created_at, attempt, failures, "
        "crashes, snoozes, releases, priority, state, queue, task, args) "
        "select g, 1, sereno.now(), sereno.now(), sereno.now(), sereno.now(), 2, 1, 0, 0, 0, 5, 'succeeded', 'work', "
        "'work', '{}' from generate_series(1, 20000) g"
    )
    connection.execute(
        "insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome) "
        "select g, 1, 1, sereno.now(), sereno.now(), 'retry' from generate_series(1, 20000, 10) g"
    )
    # As autovacuum does: partitions only, not the table that they belong to.
    leaves = connection.execute(
        "select oid::regclass::text from pg_class where relkind = 'r' and relispartition "
        "and relnamespace = 'sereno'::regnamespace and relname ~ '^(history|attempts)_'"
    ).fetchall()
    for (leaf,) in leaves:
        connection.execute(f"analyze {leaf}".encode())
    params = {"window": 100_000, "grace": 40.0, "crash_limit": 3}
    top = plan(connection, "monitoring/invariants", "attempts_of_finished_jobs", params)
    assert [node for node in nodes(top) if node["Node Type"] == "Nested Loop" and "Join Filter" in node] == []
