"""The doctor and the alerts report carriers that are away, full, late or without their replicas."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.carriers.operations import set_share
from sereno.jobs.carried import CarriedQueue
from sereno.jobs.pauses import pause
from sereno.monitoring.alerts.condition import AlertCondition
from sereno.monitoring.alerts.current_conditions import current_conditions
from sereno.monitoring.doctor import DoctorCheck, doctor
from sereno.settings import Settings
from tests.carriers.report_steps import CLICKS, add_batch, report, report_failure
from tests.facts import advance
from tests.jobs.job_steps import do, session
from tests.monitoring.verify_steps import undone

DIRECT = CarriedQueue("clicks", CLICKS.carrier, direct=True)


def checks(connection: psycopg.Connection) -> list[DoctorCheck]:
    return [check for check in do(connection, doctor(Settings())) if check.name in ("carriers", "relay")]


def conditions(connection: psycopg.Connection, app: Sereno) -> dict[str, AlertCondition]:
    found = do(connection, current_conditions(app.settings))
    return {each.kind: each for each in found if each.kind.startswith(("carrier", "relay"))}


def test_an_installation_without_carriers_has_no_check(connection: psycopg.Connection, app: Sereno) -> None:
    assert checks(connection) == []
    assert conditions(connection, app) == {}


def test_a_healthy_carrier_is_reported_as_such(connection: psycopg.Connection, app: Sereno) -> None:
    report(connection, pending_messages=3, oldest=5.0)
    (check,) = checks(connection)
    assert (check.level, check.message) == ("ok", "1 carried queue, all reachable and on time")
    assert conditions(connection, app) == {}


def _shared_out(connection: psycopg.Connection) -> None:
    do(connection, set_share("clicks", 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "change", "level", "words"),
    [
        ({"current_replicas": 2}, None, "warn", "2 of 3 replicas of queue 'clicks' are up to date"),
        ({"bytes": 85, "max_bytes": 100}, None, "warn", "the stream of queue 'clicks' is 85% full"),
        ({"bytes": 96, "max_bytes": 100}, None, "fail", "the stream of queue 'clicks' is 96% full"),
        ({"held_messages": 20, "redelivered_messages": 11}, None, "warn", "11 of 20 held messages of queue 'clicks'"),
        ({"pending_messages": 4}, _shared_out, "warn", "4 messages are left there"),
    ],
)
def test_each_problem_of_a_stream_has_a_check(
    connection: psycopg.Connection,
    fields: dict[str, Any],
    change: Callable[[psycopg.Connection], None] | None,
    level: str,
    words: str,
) -> None:
    report(connection, **fields)
    if change is not None:
        change(connection)
    (check,) = checks(connection)
    assert (check.name, check.level, words in check.message) == ("carriers", level, True), check
    assert check.remedy


def test_an_unreachable_carrier_is_reported(connection: psycopg.Connection, app: Sereno) -> None:
    report(connection)
    advance(connection, 60)
    report_failure(connection)
    (check,) = checks(connection)
    assert (check.level, "is away for 1 m" in check.message) == ("fail", True)
    assert "sereno queue carry clicks --to postgres --recover" in check.remedy
    away = conditions(connection, app)["carrier.away"]
    assert (away.level, away.remedy, away.since is not None) == ("warn", "sereno queue show clicks", True)
    assert away.words == "The carrier of the queue clicks is away: jetstream at a:4222 did not answer"
    # Direct jobs of the queue are refused, or messages wait there.
    report_failure(connection, DIRECT)
    assert conditions(connection, app)["carrier.away"].level == "bad"


def test_a_carrier_without_reports_is_a_warning(connection: psycopg.Connection, app: Sereno) -> None:
    report(connection, pending_messages=2)
    advance(connection, 60)
    (check,) = checks(connection)
    assert (check.level, "has reported for 1 m; 2 messages were left" in check.message) == ("warn", True)
    assert check.remedy == "Start one: sereno worker -q clicks"
    assert conditions(connection, app) == {}


def test_messages_that_are_not_published_are_reported(connection: psycopg.Connection, app: Sereno) -> None:
    session(connection, queues={"clicks": 1}, lease=3600)
    add_batch(connection, 11, 12)
    report(connection)
    assert [check.level for check in checks(connection)] == ["ok"]
    advance(connection, 120)
    report(connection)
    (check,) = checks(connection)
    assert (check.name, check.level) == ("relay", "fail")
    # Seconds may follow.
    assert check.message.startswith("2 jobs of queue 'clicks' wait in PostgreSQL to be published, for 2 m")
    late = conditions(connection, app)["relay.late"]
    assert late.level == "bad"
    assert late.words.startswith("2 jobs of the queue clicks wait to be published, for 2 m")


def test_a_late_or_incomplete_stream_raises_alerts(connection: psycopg.Connection, app: Sereno) -> None:
    report(connection, pending_messages=3, oldest=120.0, current_replicas=1, bytes=99, max_bytes=100)
    found = conditions(connection, app)
    assert {kind: each.level for kind, each in found.items()} == {
        "carrier.late": "warn",
        "carrier.replicas": "warn",
        "carrier.full": "bad",
    }
    assert found["carrier.late"].words == "The carried queue clicks is late: about 3 jobs, the oldest waits for 2 m."
    assert found["carrier.replicas"].words == "The carrier of the queue clicks has 1 of 3 replicas."
    with undone(connection):
        do(connection, pause("queue", "clicks"))
        assert "carrier.late" not in conditions(connection, app)
    advance(connection, 5)
    report(connection, pending_messages=3, oldest=1200.0)
    assert {kind: each.level for kind, each in conditions(connection, app).items()} == {"carrier.late": "bad"}
