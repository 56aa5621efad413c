"""The doctor checks limits: unknown ones, closed ones, blocked orders and unread wake-ups."""

from typing import Any

import psycopg
import pytest

from sereno import Rate, Sereno
from sereno.database.statement import run
from sereno.error_text import describe
from sereno.jobs.attempt import Settlement
from sereno.jobs.limits import store as limits
from sereno.monitoring.doctor import MANY_WAKES, DoctorCheck, doctor
from tests.jobs.job_steps import do
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit

Connection = psycopg.Connection[Any]


def found(connection: Connection, app: Sereno) -> dict[str, DoctorCheck]:
    return {check.name: check for check in run(connection, doctor(app.settings))}


@pytest.fixture
def claimer(connection: Connection) -> Claimer:
    return Claimer(connection)


def test_healthy_limits_have_no_findings(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    set_limit(connection, "l", Rate(1, per="1h"))
    put(connection, keys(("l", "k"), order="o", blocks=True), 3)
    claimer.take()
    do(connection, limits.close("l", "elsewhere", 7200))
    checks = found(connection, app)
    assert checks["limits"].level == "ok"
    assert not {"orders", "wake-ups"} & set(checks)


def test_an_undeclared_limit_is_reported(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    put(connection, keys(("lost", "k")))
    claimer.take()
    check = found(connection, app)["limits"]
    assert check.level == "fail"
    assert "'lost'" in check.message
    assert "sereno limit set lost" in check.remedy


def test_a_limit_closed_for_long_is_reported(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    set_limit(connection, "ifood", Rate(100))
    put(connection, keys(("ifood", "k")))
    do(connection, limits.close("ifood", "k", 60))
    claimer.take()
    assert found(connection, app)["limits"].level == "ok"
    do(connection, limits.close("ifood", "k", 7200))
    check = found(connection, app)["limits"]
    assert check.level == "warn"
    assert "sereno limit open ifood" in check.remedy


def test_an_order_blocked_by_a_dead_job_is_reported(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    head, _ = put(connection, keys(order="acct", blocks=True), 2)
    claimer.wake()
    claimer.finish(claimer.claim().jobs, Settlement("dead", reason="failed", error=describe(OSError("x")), failed=1))
    check = found(connection, app)["orders"]
    assert check.level == "warn"
    assert f"sereno job retry {head}" in check.remedy
    connection.execute("delete from sereno.jobs")
    assert "orders" not in found(connection, app)


@pytest.mark.slow
def test_unread_wake_ups_are_reported(app: Sereno, connection: Connection) -> None:
    connection.execute(
        "insert into sereno.lane_wakes (lane, queue, priority, ready_seq) "
        "select 1, 'default', 5, n from generate_series(1, %s) as n",
        [MANY_WAKES + 1],
    )
    assert found(connection, app)["wake-ups"].level == "warn"
    connection.execute("delete from sereno.lane_wakes where ready_seq = 1")
    assert "wake-ups" not in found(connection, app)
