"""Jobs with requirements by SQL: `sereno.enqueue` states them, and a session that has them gets the jobs."""

from typing import Any

import psycopg
import pytest

from sereno.jobs.limits.limit import Limit
from tests.facts import one
from tests.jobs.job_steps import Connection, take
from tests.jobs.limits.lane_steps import keys, put, set_limit
from tests.jobs.public_sql.sql_worker import SqlWorker
from tests.jobs.test_requirements import NEW, capable

BOTH = '{"version": 2, "key": "b"}'


def made(connection: Connection, requires: str | None, **options: Any) -> int:
    named = "".join(f", {name} => %({name})s" for name in options)
    given = {"requires": requires, **options}
    statement = f"select sereno.enqueue('work', requires => %(requires)s{named})"
    return int(connection.execute(statement.encode(), given).fetchall()[0][0])


def test_only_a_session_with_the_version_and_the_key_gets_a_job(connection: Connection) -> None:
    table: list[tuple[str, dict[str, Any], bool]] = [
        ('{"version": 2}', {}, False),
        ('{"version": 2}', {"task_versions": '{"work": 1}'}, False),
        ('{"version": 2}', {"task_versions": '{"work": 2}'}, True),
        ('{"version": 2}', {"task_versions": '{"work": 3}'}, True),
        ('{"key": "b"}', {"keys": ["a"]}, False),
        ('{"key": "b"}', {"keys": ["a", "b"]}, True),
        (BOTH, {"task_versions": '{"work": 2}'}, False),
        (BOTH, {"task_versions": '{"work": 2}', "keys": ["b"], "release": "7"}, True),
        ("{}", {}, True),
    ]
    wrong = []
    for requires, options, expected in table:
        job = made(connection, requires)
        claimed = [each.id for each in SqlWorker(connection, **options).claim()]
        if claimed != ([job] if expected else []):
            wrong.append((requires, options, claimed))
        connection.execute("delete from sereno.jobs")
    assert wrong == []


def test_a_session_with_the_version_gets_jobs_under_limits_and_in_order(connection: Connection) -> None:
    set_limit(connection, "each", Limit(5))
    jobs = [*put(connection, keys(("each", "a"))), *put(connection, keys(order="o"))]
    connection.execute("update sereno.jobs set requires = '{\"version\": 2}'")
    assert SqlWorker(connection).claim() == []
    assert sorted(job.id for job in SqlWorker(connection, task_versions='{"work": 2}').claim()) == sorted(jobs)


def test_a_python_worker_meets_the_requirements_of_a_job_that_sql_made(connection: Connection) -> None:
    job = made(connection, '{"version": 2}')
    keyed = made(connection, '{"version": 2}', unique_key="one")
    assert take(connection, capable(connection, None)) == []
    assert [each.id for each in take(connection, capable(connection, NEW))] == [job, keyed]


def test_a_session_stores_what_it_has(connection: Connection) -> None:
    session = SqlWorker(connection, task_versions='{"work": 2}', keys=["b"], release="2026-11-18").session
    row = connection.execute("select release, capabilities from sereno.sessions where id = %s", [session]).fetchone()
    assert row == ("2026-11-18", {"versions": {"work": 2}, "keys": ["b"], "encrypting": []})
    plain = SqlWorker(connection).session
    assert one(connection, "select capabilities from sereno.sessions where id = %s", plain) is None


def test_invalid_requirements_and_capabilities_are_refused(connection: Connection) -> None:
    for requires in (
        "[]",
        "2",
        '{"version": 0}',
        '{"version": "new"}',
        '{"version": null}',
        '{"key": 1}',
        '{"gpu": 1}',
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot meet the requirements"):
            made(connection, requires)
    refused: list[dict[str, Any]] = [
        {"task_versions": "[]"},
        {"task_versions": '{"work": 0}'},
        {"task_versions": '{"other": 2}'},
        {"keys": [None]},
        {"keys": ["k"] * 101},
        {"release": ""},
    ]
    for options in refused:
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            SqlWorker(connection, **options)
    assert one(connection, "select (select count(*) from sereno.jobs) + (select count(*) from sereno.sessions)") == 0
