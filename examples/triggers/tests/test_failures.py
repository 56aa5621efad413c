"""A procedure that fails: retried with backoff, disabled at the end, and enabled again."""

from datetime import timedelta

import pytest

from sereno import Every, Once
from sereno.testing.kit import Kit
from triggers.app import app, call
from triggers.tests.conftest import RunSql, command, job_of, jobs_of

pytestmark = pytest.mark.slow

KEY = "triggers.settle"
# Of a trigger that does not say otherwise.
MAX_RETRIES = 5


@pytest.fixture
def failing(kit: Kit) -> None:
    """A trigger every ten minutes that always fails: there is no price."""
    app.schedules.upsert(KEY, job_of("settle_month", month="2026-10-01"), Every("10m"), disable_after=1)


def fail_to_the_end(kit: Kit, run_sql: RunSql) -> list[timedelta]:
    """Run until no retry is left; return the delays between failure and retry."""
    waits: list[timedelta] = []
    kit.travel("10m")
    kit.drain()
    while waiting := jobs_of(kit, "settle_month", state="scheduled"):
        ((failed_at,),) = run_sql("select max(finished_at) from sereno.attempts")
        waits.append(waiting[0].run_at - failed_at)
        kit.travel_to_next()
        kit.drain()
    # The scheduler sees the dead letter at its next tick.
    kit.drain()
    return waits


@pytest.mark.slow
@pytest.mark.quick
def test_a_trigger_is_disabled_after_the_last_retry(kit: Kit, run_sql: RunSql, failing: None) -> None:
    waits = fail_to_the_end(kit, run_sql)
    # Jitter adds up to a tenth, so that runs that failed together are not retried together; it never shortens a delay.
    minutes = [wait.total_seconds() / 60 for wait in waits]
    assert len(minutes) == MAX_RETRIES
    assert all(2**number <= wait <= 2**number * 1.1 for number, wait in enumerate(minutes))
    (dead,) = jobs_of(kit, "settle_month")
    assert (dead.state, dead.attempt, dead.reason) == ("dead", 1 + MAX_RETRIES, f"failed {1 + MAX_RETRIES} times")
    row = app.schedules.get(KEY)
    assert row.state == "disabled"
    assert "there is no price for 2026-10 yet" in (row.note or "")
    kit.travel("1d")
    kit.drain()
    assert len(jobs_of(kit, "settle_month")) == 1
    assert run_sql("select * from triggers.settlements") == []


def test_an_enabled_trigger_counts_its_failures_from_zero(kit: Kit, run_sql: RunSql, failing: None) -> None:
    fail_to_the_end(kit, run_sql)
    run_sql("insert into triggers.prices values ('2026-10-01', 48)")
    assert app.schedules.resume(KEY) == 1
    # A scheduler plans it: from now on.
    kit.drain()
    kit.travel("10m")
    kit.drain()
    _, mended = jobs_of(kit, "settle_month")
    assert mended.state == "succeeded"
    assert len(run_sql("select * from triggers.settlements")) == 1
    run_sql("delete from triggers.settlements; delete from triggers.prices")
    assert len(fail_to_the_end(kit, run_sql)) == MAX_RETRIES


def test_a_dead_run_can_be_retried(kit: Kit, run_sql: RunSql) -> None:
    """A trigger that fires once has no next run: the dead letter is retained and can be retried."""
    app.schedules.upsert(KEY, job_of("settle_month", month="2026-10-01"), Once(kit.now() + timedelta(minutes=10)))
    fail_to_the_end(kit, run_sql)
    run_sql("insert into triggers.prices values ('2026-10-01', 48)")
    (dead,) = jobs_of(kit, "settle_month", state="dead")
    assert command("job", "retry", str(dead.id)).returncode == 0
    kit.drain()
    assert kit.job(dead.id).state == "succeeded"
    assert run_sql("select job from triggers.settlements") == [(dead.id,)]


def test_every_attempt_and_every_skipped_instant_is_in_the_history(kit: Kit, run_sql: RunSql, failing: None) -> None:
    fail_to_the_end(kit, run_sql)
    runs = run_sql(
        "select Attempt, Status, ErrorMessage like '%%no price%%' from triggers.event_trigger_runs "
        "where TriggerName = %s and Attempt is not null order by Attempt",
        KEY,
    )
    assert runs == [(number, "Failed", True) for number in range(1, 2 + MAX_RETRIES)]
    # Instants that came while it waited for a retry are recorded as skipped.
    skipped = run_sql("select distinct Status, ErrorMessage from triggers.event_trigger_runs where Attempt is null")
    assert skipped == [("Skipped", "overlap")]


def test_a_trigger_has_retries_a_backoff_and_a_timeout_of_its_own(kit: Kit, run_sql: RunSql) -> None:
    """The same procedure, by two rows; and a call that is stopped earlier than the allow-list would."""
    settle = ("triggers", "settle_month", "{key}", {"month": "2026-10-01"})
    app.schedules.upsert("triggers.never", call.job(*settle, max_retries=0), Every("1d"))
    app.schedules.upsert("triggers.once", call.job(*settle, max_retries=1, backoff_seconds=1800), Every("1d"))
    run_sql("insert into triggers.tanks values ('norte', 'a', true)")
    count = call.job("triggers", "recount_tanks", "norte", {"plant": "norte"}, max_retries=0, timeout_seconds=0.3)
    app.schedules.upsert("triggers.recount", count, Every("1d"))
    kit.travel("1d")
    dead = {job.args["procedure"]: job for job in kit.drain().failed}
    assert dead.keys() == {"settle_month", "recount_tanks"}
    assert dead["settle_month"].reason == "failed 1 times"
    timeouts = "select ErrorMessage from triggers.event_trigger_runs where ProcedureName = 'recount_tanks'"
    ((why,),) = run_sql(timeouts)
    assert why.startswith("canceling statement due to statement timeout")
    (waiting,) = jobs_of(kit, "settle_month", state="scheduled")
    ((failed_at,),) = run_sql("select max(finished_at) from sereno.attempts")
    assert timedelta(minutes=30) <= waiting.run_at - failed_at <= timedelta(minutes=33)
    kit.travel_to_next()
    kit.drain()
    assert kit.job(waiting.id).reason == "failed 2 times"
