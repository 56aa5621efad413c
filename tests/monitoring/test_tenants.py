"""Tenants: the share of each in the total work, by hour, and the state of one."""

import psycopg
import pytest

from sereno import Limit, Sereno
from sereno.database.statement import run
from sereno.errors import InvalidArguments
from sereno.jobs import pauses
from sereno.jobs.limits import weights
from sereno.jobs.limits.store import declare
from sereno.jobs.queries import error_groups, minute_stats
from sereno.monitoring import tenants
from sereno.telemetry.metrics import MetricTally
from tests.facts import advance


def worked(connection: psycopg.Connection, *jobs: tuple[str | None, str, float]) -> None:
    tally = MetricTally()
    for tenant, outcome, seconds in jobs:
        tally.job("default", "work", outcome, 0.1, seconds, tenant)
    run(connection, minute_stats.add(tally))


def test_the_share_is_of_all_work(connection: psycopg.Connection) -> None:
    worked(connection, ("ann", "succeeded", 6.0), ("ann", "dead", 2.0), ("bob", "succeeded", 1.0), (None, "dead", 1.0))
    found = run(connection, tenants.list_tenants())
    assert [(each.tenant, each.ended, each.failed, each.share) for each in found] == [
        ("ann", 2, 1, 0.8),
        ("bob", 1, 0, 0.1),
    ]
    assert [each.tenant for each in run(connection, tenants.list_tenants(part="O"))] == ["bob"]
    assert run(connection, tenants.list_tenants(part="_")) == []
    advance(connection, 2 * 86400)
    assert run(connection, tenants.list_tenants()) == []


def test_hours_cover_the_tenants_with_most_work(connection: psycopg.Connection) -> None:
    worked(connection, ("ann", "succeeded", 6.0), ("bob", "succeeded", 3.0))
    advance(connection, 3600)
    worked(connection, ("ann", "succeeded", 1.0), (None, "succeeded", 4.0))
    found = run(connection, tenants.hours(most=1))
    assert [(each.tenant, each.seconds) for each in found] == [("ann", 6.0), (None, 9.0), ("ann", 1.0), (None, 5.0)]
    assert [each.at.minute for each in found] == [0, 0, 0, 0]


def test_details_of_one_tenant(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(concurrency=Limit(2, key="{tenant}", name="two"))
    def work() -> None: ...

    run(connection, declare(app.registry, "shop"))
    for tenant in ("ann", "ann", "bob"):
        work.using(tenant=tenant).enqueue()
    run(connection, weights.weigh("ann", 3, actor="test"))
    run(connection, pauses.pause("tenant", "ann", note="late", actor="maria"))
    found = run(connection, tenants.show("ann"))
    assert (found.standing.paused_by, found.standing.note, found.standing.weight) == ("maria", "late", 3.0)
    assert (found.states, found.figures) == ({"ready": 2}, None)
    assert [(limiter.name, limiter.numbers, limiter.taken) for limiter in found.limiters] == [("two", {"slots": 2}, 0)]
    assert [line.weight for line in run(connection, tenants.list_tenants())] == [3.0]
    unknown = run(connection, tenants.show("zed"))
    assert (unknown.standing.paused_at, unknown.states, unknown.limiters) == (None, {}, found.limiters)


def test_tenants_of_a_failure_are_counted(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.error_hours (fingerprint, hour, tenant, count) "
        "select 'a', date_trunc('hour', sereno.now(), 'UTC') - h * interval '1 hour', t, 1 "
        "from generate_series(0, 3) as h, unnest(array['', 'ann', 'bob']) as t"
    )
    assert run(connection, error_groups.breadth(["a", "b"], 86400)) == {"a": 2, "b": 0}


def test_a_span_beyond_the_retention_is_refused(connection: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for since in [0, -1, 8 * 86400.0, float("nan"), float("inf")]:
        with subtests.test(since=since):
            for operation in (tenants.list_tenants, tenants.hours):
                with pytest.raises(InvalidArguments):
                    run(connection, operation(since=since))
            with pytest.raises(InvalidArguments):
                run(connection, tenants.show("ann", since=since))
