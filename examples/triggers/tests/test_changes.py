"""Triggers are added, changed, paused and removed while the worker runs: rows, not code."""

import pytest

from sereno import Cron, Every, InvalidSchedule
from sereno.testing.kit import Kit
from triggers.app import app, refresh_stock
from triggers.demo import APP
from triggers.tests.conftest import PATIENCE, RunSql, command, real_worker

pytestmark = pytest.mark.slow


def trigger(*words: str) -> None:
    """Run `sereno schedule …`."""
    result = command("schedule", *words)
    assert result.returncode == 0, result.stderr


def test_a_trigger_is_added_changed_paused_and_removed_without_a_deployment(kit: Kit, run_sql: RunSql) -> None:
    with real_worker(kit) as worker:
        worker.until(lambda: run_sql("select 1 from sereno.sessions where state = 'alive'"), PATIENCE)
        add = ("add", "triggers.stock:sur", "--task", "triggers.refresh_stock", "-a", APP)
        every = ("--every", "1s", "--count-from", "clock")
        trigger(*add, *every, "--args", '{"plant": "sur"}', "--disable-after", "3")
        worker.until(lambda: run_sql("select 1 from triggers.stock where plant = 'sur'"), PATIENCE)
        trigger(*add, *every, "--args", '{"plant": "este"}', "--disable-after", "3")
        worker.until(lambda: run_sql("select 1 from triggers.stock where plant = 'este'"), PATIENCE)
        trigger("pause", "triggers.stock:sur", "--note", "the tank is cleaned")
        paused = app.schedules.get("triggers.stock:sur")
        assert (paused.state, paused.next_run_at, paused.note) == ("paused", None, "the tank is cleaned")
        trigger("resume", "triggers.stock:sur")
        worker.until(lambda: app.schedules.get("triggers.stock:sur").fired > paused.fired, PATIENCE)
        trigger("delete", "triggers.stock:sur")
    assert run_sql("select 1 from sereno.schedules where key = 'triggers.stock:sur'") == []
    # The actions are in the audit log, and the runs stay in the history.
    actions = {action for (action,) in run_sql("select action from sereno.audit where action like 'schedule.%%'")}
    assert {"schedule.pause", "schedule.resume", "schedule.delete"} <= actions
    assert run_sql("select 1 from sereno.history where task = 'triggers.refresh_stock' and state = 'succeeded'")


def test_an_invalid_trigger_is_refused_before_it_is_stored(kit: Kit) -> None:
    result = command("schedule", "add", "triggers.x", "--task", "triggers.drop_everything", "--every", "5m", "-a", APP)
    assert result.returncode != 0
    assert "triggers.drop_everything" in result.stderr
    for rule in (Cron("0 25 * * *"), Cron("0 2 * * *", tz="Europe/Lactiber"), Every("0s")):
        with pytest.raises(InvalidSchedule):
            app.schedules.upsert("triggers.x", refresh_stock.job(plant="norte"), rule)
    assert app.schedules.list("triggers.*") == []
