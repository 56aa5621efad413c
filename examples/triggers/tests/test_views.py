"""The tables of the original design as views: its columns and its words, for reports and runbooks."""

import asyncio
import inspect
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from sereno import Daily, Every
from sereno.testing.kit import Kit
from triggers.app import app, call
from triggers.install import add_first_triggers
from triggers.tests.conftest import RunSql, job_of

pytestmark = pytest.mark.slow

# As the runbooks write them: PostgreSQL folds the case of names that are not quoted.
TRIGGERS = (
    "select TriggerId, ProcedureSchema, ProcedureName, ParamsJson, ScheduleType, RunAtUtc, IntervalSeconds, "
    "AlignToClock, CronExpression, TimeZoneId, IsEnabled, NextRunAtUtc, LastRunAtUtc, LastStatus, CurrentRetryCount, "
    "MaxRetries, LockedUntilUtc, ConcurrencyKey "
    "from triggers.event_triggers where IsEnabled = 1 and NextRunAtUtc > %s"
)
RUNS = (
    "select RunId, TriggerId, PlannedAtUtc, Attempt, StartedAtUtc, FinishedAtUtc, Status, ErrorMessage, WorkerId "
    "from triggers.event_trigger_runs where ProcedureName = 'settle_month' order by Attempt"
)


def rows(run_sql: RunSql, columns: str) -> dict[str, tuple[Any, ...]]:
    """Return columns of the triggers by their names without the prefix."""
    query = "select split_part(TriggerName, '.', 2), (COLUMNS) from triggers.event_triggers"
    found = run_sql(query.replace("(COLUMNS)", columns))
    return {name: tuple(values) for name, *values in found}


def test_triggers_are_read_in_the_words_of_the_original_design(kit: Kit, run_sql: RunSql) -> None:
    asyncio.run(add_first_triggers(app))
    app.schedules.upsert("triggers.daily", job_of("close_day", plant="sur"), Daily("03:05"))
    assert len(run_sql(TRIGGERS, kit.now())) == 5
    (month,) = [name for name in rows(run_sql, "TriggerId") if name.startswith("settle:")]
    rule = "ScheduleType, IntervalSeconds, AlignToClock, IntervalBase, CronExpression, TimeZoneId"
    assert rows(run_sql, rule) == {
        "stock:norte": (2, 300, 1, "NextRunAtUtc", None, None),
        "recount:norte": (2, 6 * 3600, 0, "LastRunAtUtc", None, None),
        "close:norte": (3, None, 0, None, "30 2 * * *", "Europe/Madrid"),
        "daily": (3, None, 0, None, "5 3 * * *", "UTC"),
        month: (1, None, 0, None, None, None),
    }
    assert rows(run_sql, "ProcedureSchema || '.' || ProcedureName, ParamsJson ->> 'plant'")["close:norte"] == (
        "triggers.close_day",
        "norte",
    )
    how = "IsEnabled, IsAllowed, MaxRetries, BackoffSeconds, TimeoutSeconds, ConcurrencyKey, RunAtUtc is not null"
    found = rows(run_sql, how)
    assert found["stock:norte"] == (1, 1, 2, 60, None, "norte", False)
    assert found["recount:norte"] == (1, 1, 5, 60, 4 * 3600, "norte", False)
    assert found[month] == (1, 1, 28, 60, None, None, True)
    allowed = run_sql("select SchemaName, ProcedureName, FilledIn, TimeoutSeconds from triggers.allowed_procedures")
    assert ("triggers", "close_day", {"job": "job"}, 600) in allowed
    assert len(allowed) == 4


def test_the_defaults_of_the_views_are_those_of_the_task(kit: Kit, run_sql: RunSql) -> None:
    parameters = inspect.signature(call.definition.function).parameters
    wanted = tuple(parameters[name].default for name in ("max_retries", "backoff_seconds"))
    assert run_sql("select MaxRetries, BackoffSeconds from triggers.trigger_defaults") == [wanted]


def test_the_state_of_a_trigger_and_its_runs_are_shown(kit: Kit, run_sql: RunSql) -> None:
    """It has never run, fails, waits for a retry, succeeds; another is disabled because it is not on the list."""
    state = "IsEnabled, IsAllowed, LastStatus, CurrentRetryCount, NextRetryAtUtc is not null, LockedUntilUtc"
    app.schedules.upsert("triggers.settle", job_of("settle_month", month="2026-10-01"), Every("1d"), disable_after=1)
    app.schedules.upsert("triggers.purge", job_of("purge_readings", before="2026-01-01"), Every("1d"), disable_after=1)
    assert rows(run_sql, state)["settle"] == (1, 1, None, 0, False, None)
    kit.travel("1d")
    kit.drain()
    kit.drain()
    shown = rows(run_sql, state)
    assert shown["settle"] == (1, 1, "Failed", 1, True, None)
    assert shown["purge"] == (0, 0, "Failed", 0, False, None)
    assert "is not allowed" in rows(run_sql, "Note")["purge"][0]
    run_sql("insert into triggers.prices values ('2026-10-01', 48)")
    kit.travel_to_next()
    kit.drain()
    kit.drain()
    assert rows(run_sql, state)["settle"] == (1, 1, "Success", 0, False, None)
    runs = run_sql(RUNS)
    assert [(run[3], run[6]) for run in runs] == [(1, "Failed"), (2, "Success")]
    assert "there is no price" in runs[0][7]
    assert all(run[4] <= run[5] and run[5] - run[4] < timedelta(hours=1) and run[8] for run in runs)
    # Runs of a trigger that was deleted stay.
    app.schedules.delete("triggers.settle")
    assert len(run_sql(RUNS)) == 2


def test_a_reader_needs_no_other_privilege_than_select(kit: Kit, run_sql: RunSql, login: str) -> None:
    app.schedules.upsert("triggers.stock", job_of("refresh_stock", plant="norte"), Every("1d"))
    kit.travel("1d")
    kit.drain()
    views = ("event_triggers", "event_trigger_runs", "allowed_procedures")
    with psycopg.connect(app.settings.procedure_url or "", autocommit=True) as reader:
        for view in views:
            query = sql.SQL("select count(*) from triggers.{}").format(sql.Identifier(view))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(query)
            run_sql(f"grant select on triggers.{view} to {login}")
            assert (reader.execute(query).fetchone() or (0,))[0] > 0
