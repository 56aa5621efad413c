"""The doctor names what is wrong, and what helps."""

import time

import psycopg
import pytest

from sereno.monitoring.doctor import Check, doctor
from sereno.settings import Settings
from tests.operations.conftest import House


def _checks(house: House, *, settings: Settings | None = None, skew: float = 0.0) -> dict[str, Check]:
    operation = doctor(settings or house.app.settings, clock=lambda: time.time() + skew)
    found: dict[str, Check] = {}
    for check in house.app.database.run(operation):
        # Of two findings under one name the worse one counts.
        if check.name not in found or check.level != "ok":
            found[check.name] = check
    return found


def test_a_healthy_house(house: House) -> None:
    house.worker()
    checks = _checks(house)
    assert {name: check.message for name, check in checks.items() if check.level != "ok"} == {}


def test_every_finding_says_what_helps(house: House) -> None:
    house.dead()
    house.enqueue(queue="alone")
    checks = _checks(house, skew=60)
    bad = [check for check in checks.values() if check.level != "ok"]
    assert len(bad) >= 4
    assert [check.name for check in bad if not check.remedy] == []


def test_no_worker_and_unserved_queues(house: House) -> None:
    house.enqueue(queue="alone")
    checks = _checks(house)
    assert checks["workers"].level == "warn"
    assert checks["queues"].level == "fail"
    assert "'alone'" in checks["queues"].message


def test_a_task_that_nobody_knows_is_named(house: House) -> None:
    house.worker(tasks=["other"])
    house.enqueue()
    check = _checks(house)["tasks"]
    assert check.level == "fail"
    assert "'greet' (queue 'default')" in check.message


def test_the_schema_is_missing_or_behind(house: House) -> None:
    house.connection.execute("delete from sereno.migrations where number = 3")
    assert _checks(house)["schema"].level == "fail"
    house.connection.execute("drop schema sereno cascade")
    check = _checks(house)["schema"]
    assert check.level == "fail"
    assert "sereno migrate" in check.remedy


def test_commits_that_are_not_durable(house: House) -> None:
    name = house.connection.info.dbname
    house.connection.execute(f"alter database {name} set synchronous_commit = off")
    assert _checks(house)["durability"].level == "warn"


def test_a_moved_clock(house: House) -> None:
    house.connection.execute("insert into sereno.clock (ahead) values ('1 hour')")
    assert _checks(house)["time"].level == "warn"


@pytest.mark.parametrize("skew", [-7230.0, 7230.0])
def test_clocks_that_differ(house: House, skew: float) -> None:
    check = _checks(house, skew=skew)["clocks"]
    assert check.level == "warn"
    assert "is 2 h " in check.message


def test_a_session_that_nobody_buried(house: House) -> None:
    house.worker()
    house.connection.execute("update sereno.sessions set lease_until = now() - interval '1 minute'")
    assert _checks(house)["sessions"].level == "fail"


def test_an_old_transaction_is_named(house: House, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sereno.monitoring.doctor.LONG_TRANSACTION", 0.0)
    with psycopg.connect(database_url, application_name="metabase") as other:
        other.execute("select 1")
        check = _checks(house)["transactions"]
    assert check.level == "warn"
    assert "pg_terminate_backend" in check.remedy


def test_history_partitions_that_are_missing_or_were_late(house: House) -> None:
    house.connection.execute("insert into sereno.clock (ahead) values ('7 days')")
    house.worker()
    assert "tomorrow" in _checks(house)["history"].message
    house.connection.execute("update sereno.clock set ahead = '30 days'")
    assert "today" in _checks(house)["history"].message
    house.connection.execute("delete from sereno.clock")
    job_id = house.dead()
    house.connection.execute(
        "update sereno.history set state = 'succeeded', finished_at = now() + interval '90 days' where id = %s",
        [job_id],
    )
    assert "default partition" in _checks(house)["history"].message


def test_dead_letters_are_worth_a_word(house: House) -> None:
    house.dead()
    assert _checks(house)["dead letters"].level == "warn"


def test_a_pooler_is_guessed_by_its_port(house: House) -> None:
    settings = Settings(database_url="postgresql://somewhere:6432/x")
    assert _checks(house, settings=settings)["pooler"].level == "warn"
    settings = Settings(database_url="postgresql://somewhere:6432/x", transaction_pooler=True)
    assert _checks(house, settings=settings)["pooler"].level == "ok"


def test_more_slots_than_the_server_has_connections_are_a_warning(house: House) -> None:
    house.worker(queues={"default": 20})
    assert _checks(house)["connections"].level == "ok"
    house.worker(queues={"default": 10_000, "apart": 5})
    check = _checks(house)["connections"]
    assert check.level == "warn"
    assert check.message.startswith("2 worker processes with 10025 slots may open 10041,")
    assert "max_connections" in check.remedy
    assert _checks(house, settings=Settings(transaction_pooler=True))["connections"].level == "ok"
