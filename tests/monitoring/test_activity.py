"""Attempts by worker, and arrivals and ends by queue, from bounded index scans."""

import psycopg
import pytest

from sereno.database import partitions
from sereno.database.statement import run
from sereno.jobs import transitions
from sereno.jobs.queries import minute_stats
from sereno.monitoring import activity, storage_queries
from sereno.monitoring.queue_flow import flow
from sereno.monitoring.storage import stored_days
from sereno.telemetry.metrics import MetricTally
from tests.database.plans import nodes, plan
from tests.facts import advance
from tests.jobs.job_steps import decided, end, new, session, take


def test_attempts_are_listed_by_worker(connection: psycopg.Connection) -> None:
    run(connection, transitions.enqueue([new() for _ in range(4)]))
    owner = session(connection)
    first, second, third = take(connection, owner, 3)
    end(connection, owner, [first], decided())
    end(connection, owner, [second], decided(ValueError("no")))
    found = {row.job: row for row in run(connection, activity.work(300, 100))}
    assert {number: row.outcome for number, row in found.items()} == {
        first.id: "succeeded",
        second.id: "retry",
        third.id: "running",
    }
    assert {row.session for row in found.values()} == {owner}
    assert {row.task for row in found.values()} == {"work"}
    assert found[third.id].finished_at is None
    assert len(run(connection, activity.work(300, 2))) == 2
    advance(connection, 600)
    assert [row.outcome for row in run(connection, activity.work(300, 100))] == ["running"]


@pytest.mark.slow
def test_ended_attempts_are_found_by_index_scans(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome) "
        "select n, 1, 1, sereno.now(), sereno.now(), 'retry' from generate_series(1, 10000) as n"
    )
    connection.execute(
        "insert into sereno.jobs (task, state, ready_seq) "
        "select 'work', 'ready', nextval('sereno.ready_seq') from generate_series(1, 10000)"
    )
    connection.execute("analyze sereno.attempts, sereno.jobs")
    top = plan(connection, "monitoring/activity", "work", {"seconds": 300, "most": 100, "window": 5000})
    scans = {(node["Node Type"], node.get("Relation Name")) for node in nodes(top)}
    assert not scans & {("Seq Scan", "attempts"), ("Seq Scan", "jobs")}
    top = plan(connection, "monitoring/activity", "arrived", {"seconds": 300, "bound": 1000})
    assert ("Seq Scan", "jobs") not in {(node["Node Type"], node.get("Relation Name")) for node in nodes(top)}


def test_time_to_empty_follows_from_drain_and_arrival(connection: psycopg.Connection) -> None:
    run(connection, transitions.enqueue([new() for _ in range(120)]))
    advance(connection, 1200)
    assert run(connection, flow()).queues[0].seconds_to_empty is None
    seen = MetricTally()
    for _ in range(60):
        seen.job("default", "work", "succeeded", 0.1, 0.1, None)
    run(connection, minute_stats.add(seen))
    session(connection)
    (found,) = run(connection, flow()).queues
    assert (found.arrival, found.is_unserved, found.line.ready.value) == (0, False, 120)
    assert 10 <= found.drain <= 12
    assert found.seconds_to_empty is not None
    assert 590 < found.seconds_to_empty < 730
    run(connection, transitions.enqueue([new() for _ in range(55)]))
    (found,) = run(connection, flow()).queues
    assert (found.arrival, found.seconds_to_empty) == (11, None), "as much comes as goes"
    run(connection, transitions.enqueue([new() for _ in range(25)]))
    (found,) = run(connection, flow()).queues
    assert (found.arrival, found.arrived.exact, found.seconds_to_empty) == (16, True, None)


def test_a_count_beyond_the_bound_is_marked_as_inexact(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.jobs (task, state, ready_seq) "
        "select 'work', 'ready', nextval('sereno.ready_seq') from generate_series(1, 10001)"
    )
    assert not run(connection, activity.arrived(300))["default"].exact


def test_table_sizes_and_history_partitions_are_listed(connection: psycopg.Connection) -> None:
    tables = {table.name: table for table in run(connection, storage_queries.tables())}
    assert {"jobs", "history_done", "history_dead", "fires", "logs"} <= set(tables)
    assert not [name for name in tables if name[-8:].isdecimal()]
    assert tables["jobs"].bytes > 0
    today = run(connection, storage_queries.today())
    for ago in (0, 3, 31, 40):
        connection.execute("select sereno.make_history_partition(%s::date - %s)", [today, ago])
    found = run(connection, stored_days(30))
    assert [(found.today - each.day).days for each in found.days] == [40, 31, 3, 0]
    assert [each.is_overdue for each in found.days] == [True, True, False, False]
    # A worker drops the same ones.
    dropped = [name[-8:] for name in run(connection, partitions.old_partitions("history", 30))]
    assert dropped == [f"{each.day:%Y%m%d}" for each in found.days if each.is_overdue]
    assert [(each.leaves - each.day).days for each in found.days] == [31] * 4
    assert not any(each.is_overdue for each in run(connection, stored_days(10**9)).days)
