"""The doctor checks schedules: a live scheduler, its delay, and parked schedules."""

import psycopg

from sereno import Every, Sereno
from sereno.database.statement import run
from sereno.monitoring.doctor import DoctorCheck, doctor
from tests.facts import advance


def found(connection: psycopg.Connection, app: Sereno) -> dict[str, DoctorCheck]:
    return {check.name: check for check in run(connection, doctor(app.settings))}


def test_no_schedules_are_no_problem(app: Sereno, connection: psycopg.Connection) -> None:
    checks = found(connection, app)
    assert checks["scheduler"].level == "ok"
    assert "schedules" not in checks


def test_schedules_without_a_scheduler_are_a_failure(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    app.schedules.upsert("k", work.job(), Every("1h"))
    assert found(connection, app)["scheduler"].level == "fail"
    assert "sereno scheduler" in found(connection, app)["scheduler"].remedy


def test_schedules_of_the_engine_are_not_missed(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(name="sereno.sweep")
    def work() -> None: ...

    app.schedules.upsert("own", work.job(), Every("1m"))
    advance(connection, 3600)
    assert found(connection, app)["scheduler"].level == "ok"


def test_a_slow_scheduler_and_a_parked_schedule_are_reported(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    app.schedules.upsert("k", work.job(), Every("1h"))
    connection.execute("select sereno.schedule('bad', 'work', cron => 'x * * * *')")
    app.schedules.tick()
    advance(connection, 3700)
    connection.execute(
        "insert into sereno.leases (name, holder, since, until) "
        "values ('scheduler', 'host:1:abc', sereno.now(), sereno.now() + interval '1 minute')"
    )
    checks = found(connection, app)
    assert (checks["scheduler"].level, checks["schedules"].level) == ("warn", "warn")
    assert "'bad'" in checks["schedules"].message
