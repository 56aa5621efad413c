"""Procedures that are not on the list do not run, and arguments of a trigger are only ever values."""

import asyncio
from datetime import date
from typing import Any

import pytest

from sereno import Every
from sereno.errors import InvalidArguments, Refused
from sereno.procedures import operations as procedures
from sereno.testing.kit import Kit
from triggers.app import app, call
from triggers.tests.conftest import RunSql, command, enqueue, job_of

pytestmark = pytest.mark.slow

HOSTILE = "x'); drop table triggers.readings; --"


@pytest.fixture(autouse=True)
def _milk(run_sql: RunSql) -> None:
    run_sql("insert into triggers.readings values ('norte', 'a', 10, '2020-01-01')")


def test_a_procedure_that_is_not_allowed_does_not_run(kit: Kit, run_sql: RunSql) -> None:
    """The procedure exists and is declared, and a trigger names it: the run is dead, with the command to allow it."""
    app.schedules.upsert("triggers.purge", job_of("purge_readings", before="2026-01-01"), Every("1h"), disable_after=1)
    kit.travel("1h")
    (dead,) = kit.drain().failed
    assert (dead.attempt, dead.reason) == (
        1,
        "triggers.purge_readings is not allowed on here: sereno procedure allow 'triggers.purge_readings'",
    )
    assert len(run_sql("select 1 from triggers.readings")) == 1


def test_the_login_needs_the_privilege_besides_the_allow_list(kit: Kit, run_sql: RunSql) -> None:
    """Write access to the allow-list does not grant the privilege to execute."""
    result = command("procedure", "allow", "triggers.purge_readings")
    assert result.returncode != 0
    assert "the login for procedures may not call triggers.purge_readings" in result.stderr
    board = procedures.ProcedureOperations(app.settings, lambda: app.url)
    for name in ("pg_catalog.pg_read_file", f"{app.settings.schema}.enqueue", 'triggers."x; drop table jobs; --"'):
        with pytest.raises(Refused):
            asyncio.run(board.resolve("here", name))
    assert len(run_sql("select 1 from sereno.procedures")) == 4


def test_another_procedure_under_an_allowed_name_does_not_run(kit: Kit, run_sql: RunSql) -> None:
    run_sql("drop procedure triggers.refresh_stock")
    run_sql("create procedure triggers.refresh_stock(plant text) language sql as 'delete from triggers.readings'")
    enqueue("refresh_stock", plant="norte")
    (dead,) = kit.drain().failed
    assert "has changed since it was allowed" in (dead.reason or "")
    assert len(run_sql("select 1 from triggers.readings")) == 1


def test_wrong_parameters_are_refused_before_the_call(kit: Kit, run_sql: RunSql, subtests: pytest.Subtests) -> None:
    rows: tuple[tuple[dict[str, Any], str], ...] = (
        ({"plant": "norte", "night": HOSTILE}, "invalid input syntax for type date"),
        ({"plant": "norte", "night": {"$gt": ""}}, "night"),
        ({"plant": "norte", "night": "2026-11-01", HOSTILE: 1}, "drop table"),
        ({"plant": "norte", "night": "2026-11-01", "job": 7}, "job"),
        ({"plant": "norte"}, "night"),
    )
    for params, why in rows:
        with subtests.test(params=repr(params)):
            enqueue("close_day", **params)
            (dead,) = kit.drain().failed
            assert (dead.attempt, (dead.reason or "").partition(":")[0]) == (1, "wrong parameters")
            assert why in (dead.reason or "")
    assert run_sql("select 1 from triggers.closed_days") == []


def test_a_row_with_an_impossible_number_or_key_is_refused(kit: Kit, subtests: pytest.Subtests) -> None:
    """It is checked when a trigger is added, so that it does not fail at night."""
    right: dict[str, Any] = {"schema": "triggers", "procedure": "close_day", "concurrency_key": "norte"}
    wrong: tuple[dict[str, Any], ...] = (
        {"concurrency_key": ["norte"]},
        {"concurrency_key": None},
        {"max_retries": -1},
        {"max_retries": 101},
        {"max_retries": "5"},
        {"backoff_seconds": 0},
        {"timeout_seconds": 0},
        {"timeout_seconds": 8 * 86400},
        {"params": [1]},
        {"lease": 30},
    )
    for change in wrong:
        with subtests.test(change=repr(change)), pytest.raises(InvalidArguments):
            call.job(**{**right, **change})
    call.job(**right)


def test_hostile_text_is_passed_as_a_value(kit: Kit, run_sql: RunSql) -> None:
    enqueue("close_day", HOSTILE, plant=HOSTILE, night="2026-11-01")
    assert not kit.drain().failed
    assert run_sql("select plant, day from triggers.closed_days") == [(HOSTILE, date(2026, 10, 31))]
    assert len(run_sql("select 1 from triggers.readings")) == 1


def test_a_procedure_cannot_reach_what_its_login_cannot(kit: Kit, run_sql: RunSql) -> None:
    """The body of a procedure is untrusted: it has only the privileges of the login."""
    run_sql(
        "create or replace procedure triggers.refresh_stock(plant text, planned_at timestamptz) language plpgsql as "
        "$$ begin reset role; delete from triggers.readings; end $$"
    )
    enqueue("refresh_stock", plant="norte")
    kit.drain()
    assert run_sql("select error_message from sereno.attempts")[0][0].startswith("permission denied for table readings")
    assert len(run_sql("select 1 from triggers.readings")) == 1
