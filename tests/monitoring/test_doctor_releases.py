"""The doctor reports jobs that no live release can run, and workers without a key."""

import psycopg

from sereno.monitoring.doctor import DoctorCheck, doctor
from sereno.settings import Settings
from tests.jobs.job_steps import do
from tests.jobs.test_requirements import NEW, capable, demanding


def _checks(connection: psycopg.Connection) -> dict[str, DoctorCheck]:
    return {check.name: check for check in do(connection, doctor(Settings()))}


def test_jobs_of_a_version_that_no_worker_has_are_reported(connection: psycopg.Connection) -> None:
    capable(connection, None)
    demanding(connection)
    check = _checks(connection)["releases"]
    assert check.level == "fail"
    assert "jobs of task 'work' (queue 'default') wait for a worker with version 2 of task work" in check.message
    assert "live workers have version 1" in check.message
    assert check.remedy
    capable(connection, NEW)
    assert _checks(connection)["releases"].level == "ok"


def test_a_missing_key_is_named(connection: psycopg.Connection) -> None:
    capable(connection, {"versions": {}, "keys": ["2026a"], "encrypting": ["work"]})
    demanding(connection, b'{"key":"2026b"}')
    check = _checks(connection)["releases"]
    assert (check.level, "the encryption key 2026b; live workers have the keys 2026a" in check.message) == (
        "fail",
        True,
    )


def test_an_encrypting_task_without_a_key_is_reported(connection: psycopg.Connection) -> None:
    capable(connection, {"versions": {}, "keys": ["a"], "encrypting": ["charge"]})
    assert "encryption" not in _checks(connection)
    capable(connection, {"versions": {}, "keys": [], "encrypting": ["charge"]})
    check = _checks(connection)["encryption"]
    assert (check.level, "'charge'" in check.message, "sereno key new" in check.remedy) == ("fail", True, True)
