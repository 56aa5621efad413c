"""The doctor reports each problem with a remedy."""

import time

import psycopg
import pytest

from sereno.monitoring.doctor import DoctorCheck, doctor
from sereno.settings import Settings
from tests.manual_worker import ManualWorker


def _checks(manual: ManualWorker, *, settings: Settings | None = None, skew: float = 0.0) -> dict[str, DoctorCheck]:
    operation = doctor(settings or manual.app.settings, clock=lambda: time.time() + skew)
    found: dict[str, DoctorCheck] = {}
    for check in manual.app.database.run(operation):
        # Of two findings with one name the worse one counts.
        if check.name not in found or check.level != "ok":
            found[check.name] = check
    return found


def test_a_healthy_system_has_no_findings(manual: ManualWorker) -> None:
    manual.worker()
    checks = _checks(manual)
    assert {name: check.message for name, check in checks.items() if check.level != "ok"} == {}


def test_every_finding_has_a_remedy(manual: ManualWorker) -> None:
    manual.dead()
    manual.enqueue(queue="alone")
    checks = _checks(manual, skew=60)
    bad = [check for check in checks.values() if check.level != "ok"]
    assert len(bad) >= 4
    assert [check.name for check in bad if not check.remedy] == []


def test_missing_workers_and_unserved_queues_are_reported(manual: ManualWorker) -> None:
    manual.enqueue(queue="alone")
    checks = _checks(manual)
    assert checks["workers"].level == "warn"
    assert checks["queues"].level == "fail"
    assert "'alone'" in checks["queues"].message


def test_an_unknown_task_is_reported(manual: ManualWorker) -> None:
    manual.worker(tasks=["other"])
    manual.enqueue()
    check = _checks(manual)["tasks"]
    assert check.level == "fail"
    assert "'greet' (queue 'default')" in check.message


def test_a_missing_or_outdated_schema_is_reported(manual: ManualWorker) -> None:
    manual.connection.execute("delete from sereno.migrations where number = 3")
    assert _checks(manual)["schema"].level == "fail"
    manual.connection.execute("drop schema sereno cascade")
    check = _checks(manual)["schema"]
    assert check.level == "fail"
    assert "sereno migrate" in check.remedy


def test_asynchronous_commits_are_reported(manual: ManualWorker) -> None:
    name = manual.connection.info.dbname
    manual.connection.execute(f"alter database {name} set synchronous_commit = off")
    assert _checks(manual)["durability"].level == "warn"


def test_a_moved_clock_is_reported(manual: ManualWorker) -> None:
    manual.connection.execute("insert into sereno.clock (ahead) values ('1 hour')")
    assert _checks(manual)["time"].level == "warn"


def test_clock_skew_is_reported(manual: ManualWorker, subtests: pytest.Subtests) -> None:
    for skew in [-7230.0, 7230.0]:
        with subtests.test(skew=skew):
            check = _checks(manual, skew=skew)["clocks"]
            assert check.level == "warn"
            assert "is 2 h " in check.message


def test_an_expired_session_is_reported(manual: ManualWorker) -> None:
    manual.worker()
    manual.connection.execute("update sereno.sessions set lease_until = now() - interval '1 minute'")
    assert _checks(manual)["sessions"].level == "fail"


def test_an_old_transaction_is_reported(
    manual: ManualWorker, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sereno.monitoring.doctor.LONG_TRANSACTION", 0.0)
    with psycopg.connect(database_url, application_name="metabase") as other:
        other.execute("select 1")
        check = _checks(manual)["transactions"]
    assert check.level == "warn"
    assert "pg_terminate_backend" in check.remedy


def test_missing_and_late_history_partitions_are_reported(manual: ManualWorker) -> None:
    manual.connection.execute("insert into sereno.clock (ahead) values ('7 days')")
    manual.worker()
    assert "tomorrow" in _checks(manual)["history"].message
    manual.connection.execute("update sereno.clock set ahead = '30 days'")
    assert "today" in _checks(manual)["history"].message
    manual.connection.execute("delete from sereno.clock")
    job_id = manual.dead()
    manual.connection.execute(
        "update sereno.history set state = 'succeeded', finished_at = now() + interval '90 days' where id = %s",
        [job_id],
    )
    assert "default partition" in _checks(manual)["history"].message


def test_dead_jobs_are_reported(manual: ManualWorker) -> None:
    manual.dead()
    assert _checks(manual)["dead letters"].level == "warn"


def test_a_pooler_is_guessed_by_its_port(manual: ManualWorker) -> None:
    settings = Settings(database_url="postgresql://somewhere:6432/x")
    assert _checks(manual, settings=settings)["pooler"].level == "warn"
    settings = Settings(database_url="postgresql://somewhere:6432/x", transaction_pooler=True)
    assert _checks(manual, settings=settings)["pooler"].level == "ok"


def test_more_slots_than_the_server_has_connections_are_a_warning(manual: ManualWorker) -> None:
    manual.worker(queues={"default": 20})
    assert _checks(manual)["connections"].level == "ok"
    manual.worker(queues={"default": 10_000, "apart": 5})
    check = _checks(manual)["connections"]
    assert check.level == "warn"
    assert check.message.startswith("2 worker processes with 10025 slots may open 10041,")
    assert "max_connections" in check.remedy
    assert _checks(manual, settings=Settings(transaction_pooler=True))["connections"].level == "ok"
