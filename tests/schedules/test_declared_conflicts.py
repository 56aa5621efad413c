"""Declarations in conflict with stored rows: a row without a note, a tenant's row, a refused row."""

import threading
from typing import Any

import psycopg
import pytest

from sereno import Every, Sereno
from sereno.database.statement import run
from sereno.monitoring.doctor import doctor
from tests.facts import advance, auntil, one, until
from tests.schedules.schedule_steps import Connection, Deploy


@pytest.fixture
def other(app: Sereno) -> Any:
    @app.task(name="other")
    def other() -> None: ...

    return other


def problems(connection: Connection, app: Sereno) -> list[str]:
    return [check.message for check in run(connection, doctor(app.settings)) if check.name == "declarations"]


@pytest.mark.parametrize("note", [pytest.param(None, marks=pytest.mark.slow), "closed"])
def test_a_changed_declaration_of_a_disabled_schedule_is_written(deploy: Deploy, note: str | None) -> None:
    app = deploy("k")
    app.schedules.synchronise()
    app.schedules.disable("k", **({} if note is None else {"note": note}))
    changed, _ = deploy("k", every="2h").schedules.synchronise()
    row = app.schedules.get("k")
    assert (changed[0].what, row.state, row.next_run_at, row.note) == ("changed", "disabled", None, note)
    assert row.rule["interval"] == 7200


def test_a_rule_changed_with_sql_is_planned_again(app: Sereno, connection: Connection) -> None:
    for hour in ("3", "4"):
        connection.execute("select sereno.schedule('k', 'work', cron => %s)", [f"0 {hour} * * *"])
        assert one(connection, "select planned from sereno.schedules") is False
        app.schedules.tick()
        assert one(connection, "select extract(hour from next_run_at at time zone 'UTC') from sereno.schedules") == int(
            hour
        )


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["pause", "disable", None])
def test_a_declaration_never_adopts_a_tenants_schedule(
    deploy: Deploy, app: Sereno, other: Any, connection: Connection, stop: str | None
) -> None:
    app.schedules.upsert("k", other.job(), Every("3h"), tenant="acme")
    if stop:
        getattr(app.schedules, stop)("k")
    theirs = app.schedules.get("k")
    written, _ = deploy("k").schedules.synchronise()
    assert [(made.key, made.what, made.state) for made in written] == [("k", "created", "enabled")]
    mine, moved = app.schedules.get("k"), app.schedules.get("k@acme")
    assert (mine.tenant, mine.declared_by, mine.task) == (None, "shop", "task_of_k")
    assert (moved.id, moved.tenant, moved.state, moved.task) == (theirs.id, "acme", theirs.state, "other")
    assert (moved.next_run_at, moved.declared_by) == (theirs.next_run_at, None)
    assert one(connection, "select subject from sereno.audit where action = 'schedule.rename'") == "schedule k"
    advance(connection, 3700)
    assert app.schedules.tick().fires == 1
    assert one(connection, "select task from sereno.jobs") == "task_of_k"
    again, _ = deploy("k").schedules.synchronise()
    assert again[0].what == "unchanged"


def test_a_tenant_cannot_block_a_declaration_by_taking_names(deploy: Deploy, app: Sereno, other: Any) -> None:
    for key in ("k", "k@acme", "z" * 500):
        app.schedules.upsert(key, other.job(), Every("3h"), tenant="acme")
    written, _ = deploy("k", "z" * 500).schedules.synchronise()
    assert [made.what for made in written] == ["created", "created"]
    theirs = [row.key for row in app.schedules.list(tenant="acme")]
    assert len(theirs) == 3
    assert theirs[0] == "k@acme"
    assert theirs[1].startswith("k@acme-")
    assert theirs[2] == "z" * 240 + "@acme"


def test_the_applications_own_schedule_is_adopted(deploy: Deploy, app: Sereno, other: Any) -> None:
    """A schedule that was made at run time without a tenant, or for the tenant of the declaration."""
    app.schedules.upsert("k", other.job(), Every("3h"))
    assert deploy("k").schedules.synchronise()[0][0].what == "changed"
    app.schedules.upsert("of_acme", other.job(), Every("3h"), tenant="acme")
    assert deploy("of_acme", tenant="acme").schedules.synchronise()[0][0].what == "changed"
    assert sorted(row.key for row in app.schedules.list()) == ["k", "of_acme"]
    moved, _ = deploy("of_acme", tenant="globex").schedules.synchronise()
    assert moved[0].what == "changed", "a declaration may give its own schedule to another tenant"


def test_an_invalid_declaration_is_reported_and_the_others_are_written(
    deploy: Deploy, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    app = deploy("a", "bad", "leaves", "z")
    connection.execute("alter table sereno.schedules add constraint odd check (key <> 'bad')")
    written, _ = app.schedules.synchronise()
    assert [made.key for made in written] == ["a", "leaves", "z"]
    assert [record.message for record in caplog.records if getattr(record, "event", "") == "schedule.refused"]
    (problem,) = problems(connection, app)
    assert "bad (shop): " in problem
    assert "odd" in problem
    assert "Failing row" not in problem, "the stored row is unchanged"

    _, left = deploy("a", "bad", "z").schedules.synchronise()
    assert left == ["leaves"], "a schedule that is no longer declared is disabled nevertheless"
    connection.execute("alter table sereno.schedules drop constraint odd")
    deploy("a", "bad", "z").schedules.synchronise()
    assert problems(connection, app) == []
    assert app.schedules.get("bad").state == "enabled"


@pytest.mark.slow
async def test_a_worker_starts_despite_an_invalid_declaration(app: Sereno, connection: Connection) -> None:
    @app.cycle(Every("200ms"), key="good")
    async def good() -> None: ...

    @app.cycle(Every("200ms"), key="bad")
    async def bad() -> None: ...

    connection.execute("alter table sereno.schedules add constraint odd check (key <> 'bad')")
    async with app.working():
        await auntil(lambda: app.schedules.get("good").succeeded >= 1)


def test_a_tenants_schedule_created_at_the_same_moment_is_renamed(
    deploy: Deploy, app: Sereno, other: Any, connection: Connection, database_url: str
) -> None:
    """Its row is committed while the declaration waits for it: the declaration finds it taken and tries again."""
    declaring = deploy("k")
    declaring.schedules.list()
    with psycopg.connect(database_url) as theirs:
        app.schedules.upsert("k", other.job(), Every("3h"), tenant="acme", connection=theirs)
        thread = threading.Thread(target=declaring.schedules.synchronise)
        thread.start()
        waiting = (
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        until(lambda: one(connection, waiting) == 1)
        theirs.commit()
        thread.join()
    assert {row.key: row.tenant for row in app.schedules.list()} == {"k": None, "k@acme": "acme"}
