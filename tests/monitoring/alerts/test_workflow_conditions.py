"""Jobs that wait for dead ones, groups without progress, and requirements that no live worker meets are found."""

from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs import group_store, transitions
from sereno.jobs.attempt import SUCCEEDED
from sereno.jobs.group_store import EnqueuedGroup, NewGroup
from sereno.monitoring.alerts.condition import AlertCondition
from sereno.monitoring.alerts.current_conditions import current_conditions
from sereno.monitoring.alerts.workflow_conditions import DEAD_AWAITED, GROUP_STALLED
from tests.facts import advance
from tests.jobs.job_steps import Connection, add, decided, do, end, new, session, take
from tests.jobs.test_requirements import NEW, capable, demanding

DAYS = 86400.0 * 30
DEAD = decided(ValueError("no"), failures=99)


@pytest.fixture
def owner(connection: Connection) -> int:
    return session(connection, lease=DAYS)


def conditions(app: Sereno, kind: str, tenant: str | None = None) -> list[AlertCondition]:
    found = app.database.run(current_conditions(app.settings, tenant=tenant))
    return [each for each in found if each.kind == kind]


def group(connection: Connection, size: int = 2, **options: Any) -> EnqueuedGroup:
    with connection.transaction():
        return do(
            connection, group_store.enqueue_group(NewGroup([new(**options) for _ in range(size)], new(), name="import"))
        )


def test_jobs_that_wait_long_for_a_dead_one_are_found(app: Sereno, connection: psycopg.Connection, owner: int) -> None:
    first, unawaited = add(connection, 2, tenant="r42")
    for _ in range(2):
        add(connection, after=[first])
    end(connection, owner, take(connection, owner), DEAD)
    assert conditions(app, "dependency.dead") == []
    advance(connection, DEAD_AWAITED + 1)
    (each,) = conditions(app, "dependency.dead")
    assert (each.subject, each.level, each.values["count"]) == (str(first), "warn", 2)
    assert each.words == f"Jobs wait for the job {first} of the task work, dead for more than 10 m: 2."
    assert each.remedy == f"sereno job retry {first}"
    assert len(conditions(app, "dependency.dead", "r42")) == 1
    assert conditions(app, "dependency.dead", "r7") == []
    do(connection, transitions.requeue([first, unawaited]))
    assert conditions(app, "dependency.dead") == []


def test_a_group_that_waits_for_a_dead_job_is_found(app: Sereno, connection: psycopg.Connection, owner: int) -> None:
    group(connection)
    first, second = take(connection, owner)
    end(connection, owner, [first], DEAD)
    end(connection, owner, [second], SUCCEEDED)
    advance(connection, DEAD_AWAITED + 1)
    (each,) = conditions(app, "dependency.dead")
    assert (each.subject, each.values["count"]) == (str(first.id), 1)


def test_a_group_without_progress_is_found_unless_a_job_runs_or_is_scheduled(
    app: Sereno, connection: psycopg.Connection, owner: int
) -> None:
    made = group(connection, 3)
    advance(connection, GROUP_STALLED - 60)
    assert conditions(app, "group.stalled") == []
    advance(connection, GROUP_STALLED + 1)
    (each,) = conditions(app, "group.stalled")
    assert (each.subject, each.level, each.values["count"]) == (str(made.id), "warn", 3)
    assert f"The group {made.id} (import) has 3 open jobs" in each.words
    assert each.remedy == f"sereno group show {made.id}"
    assert conditions(app, "group.stalled", "r7") == []
    jobs = take(connection, owner, 1)
    assert conditions(app, "group.stalled") == []
    end(connection, owner, jobs, SUCCEEDED)
    assert conditions(app, "group.stalled") == []
    advance(connection, 3 * GROUP_STALLED)
    (each,) = conditions(app, "group.stalled")
    assert each.values["count"] == 2
    connection.execute("delete from sereno.jobs")
    group(connection, delay=DAYS)
    advance(connection, 5 * GROUP_STALLED)
    assert conditions(app, "group.stalled") == []


def test_requirements_that_no_live_worker_meets_are_found(app: Sereno, connection: psycopg.Connection) -> None:
    demanding(connection)
    assert conditions(app, "requirement.unmet") == []
    capable(connection, None)
    (each,) = conditions(app, "requirement.unmet")
    assert (each.level, each.subject) == ("bad", "work in default: version 2")
    assert each.words == "Jobs of work in the queue default require what no live worker has: version 2."
    demanding(connection, b'{"version":2,"key":"2026b"}')
    assert [each.values["requires"] for each in conditions(app, "requirement.unmet")] == [
        "version 2",
        "version 2, key 2026b",
    ]
    capable(connection, {**NEW, "keys": ["2026b"]})
    assert conditions(app, "requirement.unmet") == []
