"""Declared schedules: written at start, disabled when no longer declared; other schedules are not touched."""

from datetime import datetime, timedelta

import pytest

from sereno import ConfigurationError, Cron, Daily, Every, InvalidSchedule, Once, Sereno
from sereno.app import module_name
from tests.facts import advance, auntil, one
from tests.schedules.schedule_steps import Connection, Deploy


def states(app: Sereno) -> dict[str, str]:
    return {row.key: row.state for row in app.schedules.list()}


def test_declared_schedules_are_written_at_start(app: Sereno, connection: Connection) -> None:
    @app.cycle(Every("2m"))
    def poll() -> None: ...

    @app.schedule(Cron("30 9 * * 1-5", tz="Europe/Riga"), key="morning", arguments={"name": "{date}"}, missed="skip")
    @app.task
    def greet(name: str) -> None: ...

    assert one(connection, "select count(*) from sereno.schedules") == 0
    written, left = app.schedules.synchronise()
    assert [(schedule.key, schedule.what) for schedule in written] == [(poll.name, "created"), ("morning", "created")]
    assert left == []
    row = app.schedules.get("morning")
    assert (row.task, row.args, row.missed, row.overlap) == (greet.name, {"name": "{date}"}, "skip", "skip")
    assert row.declared_by == app.service
    assert row.changed_by == f"code of {app.service}"
    again, _ = app.schedules.synchronise()
    assert {schedule.what for schedule in again} == {"unchanged"}


def test_a_restart_does_not_move_the_next_instant(deploy: Deploy, connection: Connection) -> None:
    """An hourly schedule of a service that restarts every ten minutes still fires every hour."""
    deploy("k").schedules.synchronise()
    planned = one(connection, "select next_run_at from sereno.schedules")
    for _ in range(5):
        advance(connection, 600)
        deploy("k").schedules.synchronise()
        assert one(connection, "select next_run_at from sereno.schedules") == planned
    changed, _ = deploy("k", missed="skip").schedules.synchronise()
    assert changed[0].what == "changed"
    assert changed[0].next_run_at == planned, "a changed policy does not change the rule"
    moved, _ = deploy("k", every="2h").schedules.synchronise()
    assert moved[0].next_run_at is not None
    assert moved[0].next_run_at > planned


def test_an_undeclared_schedule_is_disabled_and_enabled_when_declared_again(
    deploy: Deploy, connection: Connection
) -> None:
    app = deploy("stays", "leaves")
    app.schedules.synchronise()
    _, left = deploy("stays").schedules.synchronise()
    assert left == ["leaves"]
    assert states(app) == {"leaves": "disabled", "stays": "enabled"}
    row = app.schedules.get("leaves")
    assert (row.next_run_at, row.note) == (None, "left the code")
    assert deploy("stays").schedules.synchronise()[1] == [], "the disabled schedule is reported once"
    advance(connection, 10 * 3600)
    assert app.schedules.tick().fires == 1

    back, _ = deploy("stays", "leaves").schedules.synchronise()
    assert {schedule.key: schedule.what for schedule in back} == {"stays": "unchanged", "leaves": "changed"}
    row = app.schedules.get("leaves")
    assert (row.state, row.note) == ("enabled", None)
    assert row.next_run_at is not None
    assert row.next_run_at > one(connection, "select sereno.now()"), (
        "instants that passed while it was disabled are not caught up"
    )


def test_code_without_any_schedule_disables_the_last_one(deploy: Deploy) -> None:
    app = deploy("k")
    app.schedules.synchronise()
    assert deploy().schedules.synchronise() == ([], ["k"])
    assert states(app) == {"k": "disabled"}


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("stop", ["pause", "disable"])
def test_a_declaration_does_not_resume_a_schedule_that_an_operator_stopped(
    deploy: Deploy, stop: str, changed: bool
) -> None:
    app = deploy("k")
    app.schedules.synchronise()
    getattr(app.schedules, stop)("k", note="the supplier is closed", actor="ada")
    deploy("k", every="2h" if changed else "1h").schedules.synchronise()
    row = app.schedules.get("k")
    assert (row.state, row.next_run_at) == (f"{stop}d", None)
    assert row.note == "the supplier is closed"
    assert row.rule["interval"] == (7200 if changed else 3600)


@pytest.mark.parametrize("changed", [False, True])
def test_a_declaration_does_not_end_a_timed_pause(deploy: Deploy, connection: Connection, changed: bool) -> None:
    app = deploy("k")
    app.schedules.synchronise()
    until: datetime = one(connection, "select sereno.now()") + timedelta(days=3)
    app.schedules.pause("k", until=until, note="holidays")
    deploy("k", every="2h" if changed else "1h").schedules.synchronise()
    row = app.schedules.get("k")
    assert (row.paused_until, row.next_run_at, row.note) == (until, until, "holidays")


def test_two_services_do_not_disable_each_others_schedules(deploy: Deploy) -> None:
    a, b = deploy("a1", "a2", service="a"), deploy("b1", service="b")
    for app in (a, b, a, b):
        app.schedules.synchronise()
    assert states(a) == {"a1": "enabled", "a2": "enabled", "b1": "enabled"}
    deploy("a1", service="a").schedules.synchronise()
    assert states(a) == {"a1": "enabled", "a2": "disabled", "b1": "enabled"}
    deploy(service="b").schedules.synchronise()
    assert states(a) == {"a1": "enabled", "a2": "disabled", "b1": "disabled"}


def test_a_schedule_made_at_run_time_is_not_disabled(deploy: Deploy) -> None:
    app = deploy("declared")
    app.schedules.synchronise()

    @app.task
    def other() -> None: ...

    app.schedules.upsert("made", other.job(), Every("1h"))
    deploy().schedules.synchronise()
    assert states(app) == {"declared": "disabled", "made": "enabled"}


def test_a_past_once_does_not_prevent_a_start(database_url: str, connection: Connection) -> None:
    at: datetime = one(connection, "select sereno.now()") + timedelta(hours=1)
    app = Sereno(database_url)

    @app.schedule(Once(at))
    def launch() -> None: ...

    app.schedules.synchronise()
    advance(connection, 3601)
    assert app.schedules.tick().fires == 1
    for _ in range(2):
        app.schedules.synchronise()
        advance(connection, 3600)
        assert app.schedules.tick().fires == 0
    assert app.schedules.get(launch.name).state == "finished"
    app.close()


@pytest.mark.slow
async def test_a_worker_writes_declarations_before_it_claims_jobs(app: Sereno, connection: Connection) -> None:
    @app.cycle(Every("200ms"))
    async def beat() -> None: ...

    async with app.working():
        await auntil(lambda: app.schedules.get(beat.name).succeeded >= 2)


def test_invalid_declarations_are_refused_when_declared(app: Sereno) -> None:
    with pytest.raises(InvalidSchedule, match="61"):

        @app.schedule(Cron("61 * * * *"))
        def wrong() -> None: ...

    with pytest.raises(ConfigurationError, match="cannot overlap itself"):
        app.cycle(Every("1m"), overlap="allow")

    @app.cycle(Every("1m"), key="k")
    def first() -> None: ...

    with pytest.raises(ConfigurationError, match="declared twice"):

        @app.cycle(Daily("03:00"), key="k")
        def second() -> None: ...


def test_a_service_is_named_after_its_module_by_default(app: Sereno, database_url: str) -> None:
    assert app.service == "tests.conftest"
    assert Sereno(database_url, service="shop").service == "shop"
    assert module_name({"__name__": "__main__", "__file__": "/srv/shop/jobs.py"}) == "jobs"
