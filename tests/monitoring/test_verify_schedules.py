"""Each invariant of schedules is violated once and reported."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from sereno import Every, Once
from sereno.schedules import tick
from tests.database.plans import nodes, plan
from tests.facts import advance, one
from tests.jobs.job_steps import do, line
from tests.manual_worker import ManualWorker
from tests.monitoring.verify_steps import broken, broken_inside, undone

Connection = psycopg.Connection[Any]


def leads(connection: Connection, seconds: float = 3600) -> None:
    """Insert a scheduler that has led for this long, with a valid lease."""
    connection.execute(
        "insert into sereno.leases (name, holder, since, until) "
        "values ('scheduler', 'here', sereno.now() - make_interval(secs => %s), sereno.now() + interval '1 minute')",
        [seconds],
    )


@pytest.fixture
def fired(manual: ManualWorker) -> tuple[int, int]:
    """Return the id of a schedule that has fired once, and the id of its job."""
    greet = manual.app.new_job("greet", b'{"name": "Ada"}')
    made = manual.app.schedules.upsert("k", greet, Every("1h"))
    advance(manual.connection, 3601)
    assert manual.app.schedules.tick().fires == 1
    return made.id, one(manual.connection, "select id from sereno.jobs")


@pytest.mark.slow
def test_schedules_in_use_violate_nothing(manual: ManualWorker) -> None:
    greet = manual.app.new_job("greet", b'{"name": "Ada"}')
    schedules = manual.app.schedules
    for overlap in ("skip", "allow", "queue_one", "cancel_previous"):
        schedules.upsert(overlap, greet, Every("1h"), overlap=overlap)
    schedules.upsert("end", greet, Every("1h", count_from="end"))
    schedules.upsert("once", greet, Once(one(manual.connection, "select sereno.now()") + timedelta(hours=1)))
    schedules.upsert("paused", greet, Every("1h"))
    schedules.pause("paused")
    manual.connection.execute("select sereno.schedule('parked', 'greet', '{}', cron => '61 * * * *')")
    leads(manual.connection)
    for _ in range(4):
        advance(manual.connection, 3601)
        schedules.tick()
        assert broken(manual.app, None) == {}
    schedules.run("skip")
    manual.connection.execute("select sereno.schedule('new', 'greet', '{}', every => interval '1 hour')")
    with line(manual.app.url) as own:
        do(own, tick.end_runs())
    assert broken(manual.app, None) == {}


@pytest.mark.slow
def test_two_jobs_for_one_fire_are_reported(manual: ManualWorker, fired: tuple[int, int]) -> None:
    _, job = fired
    manual.connection.execute(
        "insert into sereno.jobs (task, state, ready_seq, schedule_id, planned_at, created_at) "
        "select task, 'ready', 1, schedule_id, planned_at, created_at from sereno.jobs"
    )
    assert broken(manual.app) == {"one_job_per_fire": [job]}, "two live jobs"
    manual.connection.execute(
        "insert into sereno.history (id, task, state, finished_at, run_at, created_at, attempt, failures, crashes, "
        "snoozes, releases, priority, queue, args, schedule_id, planned_at) "
        "select id, task, 'cancelled', sereno.now(), run_at, created_at, 0, 0, 0, 0, 0, 5, queue, args, "
        "schedule_id, planned_at from sereno.jobs where id = %s",
        [job],
    )
    manual.connection.execute("delete from sereno.jobs where id = %s", [job])
    assert broken(manual.app) == {"one_job_per_fire": [job]}, "one of them is finished"


def test_a_fire_without_job_and_reason_is_reported(manual: ManualWorker, fired: tuple[int, int]) -> None:
    schedule, _ = fired
    manual.connection.execute("update sereno.fires set job_id = null")
    assert broken(manual.app) == {"fires_accounted": [schedule]}
    manual.connection.execute("update sereno.fires set reason = 'overlap'")
    assert broken(manual.app) == {}


def test_a_fire_whose_job_was_deleted_is_valid(manual: ManualWorker, fired: tuple[int, int]) -> None:
    manual.connection.execute("delete from sereno.jobs")
    assert broken(manual.app) == {}


@pytest.mark.slow
def test_a_job_without_its_fire_is_reported(manual: ManualWorker, fired: tuple[int, int]) -> None:
    _, job = fired
    manual.connection.execute("delete from sereno.fires")
    assert broken(manual.app) == {"jobs_have_fires": [job]}
    # After a day, fires may have been forgotten.
    advance(manual.connection, 86400)
    assert broken(manual.app) == {}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["end", "held"])
def test_an_enabled_schedule_without_next_run_and_active_run_is_reported(manual: ManualWorker, what: str) -> None:
    greet = manual.app.new_job("greet", b'{"name": "Ada"}')
    rule = Every("1h", count_from="end" if what == "end" else "plan")
    made = manual.app.schedules.upsert("k", greet, rule, overlap="queue_one")
    for _ in range(2):
        advance(manual.connection, 3601)
        manual.app.schedules.tick()
    row = manual.app.schedules.get("k")
    assert row.held_at is not None if what == "held" else row.next_run_at is None
    assert broken(manual.app) == {}
    manual.connection.execute("delete from sereno.jobs")
    assert broken(manual.app) == {"schedules_go_on": [made.id]}
    manual.connection.execute(
        "insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at) "
        "values (%s, 1, 'dead', sereno.now())",
        [made.id],
    )
    assert broken(manual.app) == {}, "the end of its run is not processed yet"
    manual.connection.execute("truncate sereno.schedule_ends")
    manual.app.schedules.pause("k")
    assert broken(manual.app) == {}, "it is paused"


@pytest.mark.slow
def test_a_stopped_schedule_that_is_due_is_reported(
    manual: ManualWorker, fired: tuple[int, int], subtests: pytest.Subtests
) -> None:
    manual.connection.execute("alter table sereno.schedules drop constraint schedules_next")
    for state in ("paused", "disabled", "parked", "finished"):
        with subtests.test(state=state), undone(manual.connection):
            manual.connection.execute("update sereno.schedules set state = %s", [state])
            assert broken_inside(manual.connection) == {"stopped_schedules": [fired[0]]}


@pytest.mark.slow
def test_an_overdue_schedule_is_reported_while_a_scheduler_leads(manual: ManualWorker, fired: tuple[int, int]) -> None:
    schedule, _ = fired
    advance(manual.connection, 3600 + 61)
    assert broken(manual.app) == {}, "without a leader nothing is overdue"
    leads(manual.connection)
    assert broken(manual.app) == {"schedules_on_time": [schedule]}
    manual.connection.execute("update sereno.leases set since = sereno.now() - interval '10 seconds'")
    assert broken(manual.app) == {}, "a new leader has time to catch up"
    manual.connection.execute("update sereno.leases set since = sereno.now() - interval '1 hour'")
    with psycopg.connect(manual.app.url) as other:
        other.execute("select from sereno.schedules for update")
        assert broken(manual.app) == {}, "a transaction is changing it"
    assert broken(manual.app) == {"schedules_on_time": [schedule]}, "the lock was released"


@pytest.mark.slow
def test_no_query_scans_all_schedules(connection: Connection) -> None:
    connection.execute(
        "insert into sereno.schedules (key, rule, task, next_run_at) "
        "select 'k' || n, '{}', 'work', sereno.now() + n * interval '1 second' from generate_series(1, 10000) as n"
    )
    connection.execute("analyze sereno.schedules")
    for name in ("schedules_go_on", "stopped_schedules", "schedules_on_time"):
        top = plan(connection, "monitoring/invariants", name, {"window": 1000, "grace": 1.0, "crash_limit": 3})
        scans = [node["Node Type"] for node in nodes(top) if node.get("Relation Name") == "schedules"]
        assert scans
        assert "Seq Scan" not in scans, name
