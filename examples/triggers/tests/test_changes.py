"""Triggers and procedures are added, changed and removed while the worker runs: rows, not code."""

import asyncio
import json

import pytest

from sereno import Cron, Every, InvalidSchedule
from sereno.procedures.operations import ProcedureOperations, allow
from sereno.testing.kit import Kit
from triggers.app import app, call
from triggers.demo import APP
from triggers.tests.conftest import PATIENCE, RunSql, command, job_of, jobs_of, real_worker

pytestmark = pytest.mark.slow

WEIGH = """
create table triggers.weights (plant text, kilos integer);
grant insert on triggers.weights to {login};
create procedure triggers.weigh(plant text, kilos integer default 1000) language sql
    as 'insert into triggers.weights values (plant, kilos)';
revoke execute on procedure triggers.weigh from public;
grant execute on procedure triggers.weigh to {login};
"""


def sereno(*words: str) -> None:
    """Run `sereno …`."""
    result = command(*words)
    assert result.returncode == 0, result.stderr


def row(procedure: str, concurrency_key: str, **params: object) -> str:
    """Return the arguments of a trigger as an operator writes them."""
    return json.dumps(
        {"schema": "triggers", "procedure": procedure, "params": params, "concurrency_key": concurrency_key}
    )


def add(key: str, args: str) -> None:
    """Add or change a trigger that fires every second."""
    rule = ("--every", "1s", "--count-from", "clock", "--disable-after", "1")
    sereno("schedule", "add", key, "--task", "triggers.call", "--args", args, *rule, "-a", APP)


def test_a_trigger_is_added_changed_paused_and_removed_without_a_deployment(kit: Kit, run_sql: RunSql) -> None:
    with real_worker(kit) as worker:
        worker.until(lambda: run_sql("select 1 from sereno.sessions where state = 'alive'"), PATIENCE)
        add("triggers.stock:sur", row("refresh_stock", "sur", plant="sur"))
        worker.until(lambda: run_sql("select 1 from triggers.stock where plant = 'sur'"), PATIENCE)
        add("triggers.stock:sur", row("refresh_stock", "este", plant="este"))
        worker.until(lambda: run_sql("select 1 from triggers.stock where plant = 'este'"), PATIENCE)
        sereno("schedule", "pause", "triggers.stock:sur", "--note", "the tank is cleaned")
        paused = app.schedules.get("triggers.stock:sur")
        assert (paused.state, paused.next_run_at, paused.note) == ("paused", None, "the tank is cleaned")
        sereno("schedule", "resume", "triggers.stock:sur")
        worker.until(lambda: app.schedules.get("triggers.stock:sur").fired > paused.fired, PATIENCE)
        sereno("schedule", "delete", "triggers.stock:sur")
    assert run_sql("select 1 from triggers.event_triggers where TriggerName = 'triggers.stock:sur'") == []
    # The actions are in the audit log, and the runs stay in the history.
    actions = {action for (action,) in run_sql("select action from sereno.audit where action like 'schedule.%%'")}
    assert {"schedule.pause", "schedule.resume", "schedule.delete"} <= actions
    assert run_sql("select 1 from triggers.event_trigger_runs where Status = 'Success'")


def test_a_new_procedure_needs_rows_only(kit: Kit, run_sql: RunSql, login: str) -> None:
    """No line of code and no restart: the worker has been running since before the procedure existed."""
    with real_worker(kit) as worker:
        ((session,),) = worker.until(lambda: run_sql("select id from sereno.sessions where state = 'alive'"), PATIENCE)
        run_sql(WEIGH.replace("{login}", login))
        add("triggers.weigh:norte", row("weigh", "{key}", plant="norte"))
        worker.until(lambda: app.schedules.get("triggers.weigh:norte").state == "disabled", PATIENCE)
        assert "is not allowed" in (jobs_of(kit, "weigh")[0].reason or "")
        assert run_sql("select 1 from triggers.weights") == []
        sereno("procedure", "allow", "triggers.weigh", "--timeout", "1m")
        sereno("schedule", "resume", "triggers.weigh:norte")
        worker.until(lambda: run_sql("select 1 from triggers.weights where kilos = 1000"), PATIENCE)
        # Another row for the same procedure.
        add("triggers.weigh:sur", row("weigh", "{key}", plant="sur", kilos=7))
        worker.until(lambda: run_sql("select 1 from triggers.weights where (plant, kilos) = ('sur', 7)"), PATIENCE)
        sereno("procedure", "revoke", "triggers.weigh")
        worker.until(lambda: app.schedules.get("triggers.weigh:sur").state == "disabled", PATIENCE)
        assert run_sql("select id from sereno.sessions where state = 'alive'") == [(session,)]


def test_a_trigger_can_name_another_database(kit: Kit, run_sql: RunSql) -> None:
    """The allow-list is one for all databases, and says for which one."""
    app.override(procedure_targets={"books": app.settings.procedure_url})
    schedule = call.job("triggers", "refresh_stock", "norte", {"plant": "norte"}, target="books")
    app.schedules.upsert("triggers.stock:books", schedule, Every("1h"))
    assert run_sql("select TargetName, IsAllowed from triggers.event_triggers") == [("books", 0)]
    kit.travel("1h")
    (dead,) = kit.drain().failed
    assert "triggers.refresh_stock is not allowed on books" in (dead.reason or "")
    catalogue = ProcedureOperations(app.settings, lambda: app.url)
    signature = asyncio.run(catalogue.resolve("books", "triggers.refresh_stock"))
    app.database.run(allow("books", signature, given={"planned_at": "planned_at"}))
    assert run_sql("select TargetName, IsAllowed from triggers.event_triggers") == [("books", 1)]
    kit.travel("1h")
    assert not kit.drain().failed
    assert run_sql("select plant from triggers.stock") == [("norte",)]


def test_an_invalid_trigger_is_refused_before_it_is_stored(kit: Kit) -> None:
    for args, why in (
        (row("refresh_stock", "")[:-1] + ', "lease": 30}', "lease"),
        ('{"schema": "triggers"}', "procedure"),
    ):
        words = ("schedule", "add", "triggers.x", "--task", "triggers.call", "--every", "5m", "--args", args, "-a", APP)
        result = command(*words)
        assert result.returncode != 0
        assert why in result.stderr
    for rule in (Cron("0 25 * * *"), Cron("0 2 * * *", tz="Europe/Lactiber"), Every("0s")):
        with pytest.raises(InvalidSchedule):
            app.schedules.upsert("triggers.x", job_of("refresh_stock", plant="norte"), rule)
    assert app.schedules.list("triggers.*") == []
