"""A procedure that fails: retried with backoff, disabled at the end, and enabled again."""

from datetime import timedelta

import pytest

from sereno import Every, Once
from sereno.testing.kit import Kit
from triggers.app import MAX_RETRIES, app, settle_month
from triggers.tests.conftest import Ask, command

KEY = "triggers.settle"


@pytest.fixture
def failing(kit: Kit) -> None:
    """A trigger every ten minutes that always fails: there is no price."""
    app.schedules.upsert(KEY, settle_month.job(month="2026-10-01"), Every("10m"), disable_after=1)


def fail_to_the_end(kit: Kit, ask: Ask) -> list[timedelta]:
    """Run until no retry is left; return the delays between failure and retry."""
    waits: list[timedelta] = []
    kit.travel("10m")
    kit.drain()
    while waiting := kit.jobs(settle_month, state="scheduled"):
        ((failed_at,),) = ask("select max(finished_at) from sereno.attempts")
        waits.append(waiting[0].run_at - failed_at)
        kit.travel_to_next()
        kit.drain()
    # The scheduler sees the dead letter at its next tick.
    kit.drain()
    return waits


def test_it_is_disabled_after_the_last_retry(kit: Kit, ask: Ask, failing: None) -> None:
    waits = fail_to_the_end(kit, ask)
    # Up to a tenth is added, so that many that failed together do not come back together; nothing is taken away.
    minutes = [wait.total_seconds() / 60 for wait in waits]
    assert len(minutes) == MAX_RETRIES
    assert all(2**number <= wait <= 2**number * 1.1 for number, wait in enumerate(minutes))
    (dead,) = kit.jobs(settle_month)
    assert (dead.state, dead.attempt, dead.reason) == ("dead", 1 + MAX_RETRIES, f"failed {1 + MAX_RETRIES} times")
    row = app.schedules.get(KEY)
    assert row.state == "disabled"
    assert "there is no price for 2026-10 yet" in (row.note or "")
    kit.travel("1d")
    kit.drain()
    assert len(kit.jobs(settle_month)) == 1
    assert ask("select * from triggers.settlements") == []


def test_it_is_enabled_again_and_counts_its_failures_afresh(kit: Kit, ask: Ask, failing: None) -> None:
    fail_to_the_end(kit, ask)
    ask("insert into triggers.prices values ('2026-10-01', 48)")
    assert app.schedules.resume(KEY) == 1
    # A scheduler plans it: from now on.
    kit.drain()
    kit.travel("10m")
    kit.drain()
    _, mended = kit.jobs(settle_month)
    assert mended.state == "succeeded"
    assert len(ask("select * from triggers.settlements")) == 1
    ask("delete from triggers.settlements; delete from triggers.prices")
    assert len(fail_to_the_end(kit, ask)) == MAX_RETRIES


def test_a_dead_run_can_be_retried(kit: Kit, ask: Ask) -> None:
    """Of a trigger that fires once there is no next time: the dead letter is retained and can be retried."""
    app.schedules.upsert(KEY, settle_month.job(month="2026-10-01"), Once(kit.now() + timedelta(minutes=10)))
    fail_to_the_end(kit, ask)
    ask("insert into triggers.prices values ('2026-10-01', 48)")
    (dead,) = kit.jobs(settle_month, state="dead")
    assert command("job", "retry", str(dead.id)).returncode == 0
    kit.drain()
    assert kit.job(dead.id).state == "succeeded"
    assert ask("select job from triggers.settlements") == [(dead.id,)]


def test_every_attempt_and_every_skipped_instant_is_in_the_history(kit: Kit, ask: Ask, failing: None) -> None:
    fail_to_the_end(kit, ask)
    runs = ask(
        "select attempt, status, error like '%%no price%%' from triggers.event_trigger_runs "
        "where trigger = %s and attempt is not null order by attempt",
        KEY,
    )
    assert runs == [*((number, "retry", True) for number in range(1, 1 + MAX_RETRIES)), (1 + MAX_RETRIES, "dead", True)]
    # Instants that came while it waited for a retry are recorded as skipped.
    skipped = ask("select distinct status, error from triggers.event_trigger_runs where attempt is null")
    assert skipped == [("skipped", "overlap")]
