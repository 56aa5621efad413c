"""pg_cron: the table cron.job as version 1.6 has it, and as older ones had it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.schedules.importers import ImportedSchedule, from_object, read
from tests.facts import advance, one
from tests.schedules.importers.fires import fires

TABLE = """
create schema cron;
create sequence cron.jobid_seq;
create table cron.job (
    jobid bigint primary key default nextval('cron.jobid_seq'),
    schedule text not null,
    command text not null,
    nodename text not null default 'localhost',
    nodeport int not null default 5432,
    database text not null default current_database(),
    username text not null default current_user,
    active boolean not null default true,
    jobname text,
    unique (jobname, username)
)
"""
START = datetime(datetime.now(UTC).year + 1, 5, 3, 6, 0, 30, tzinfo=UTC)


@pytest.fixture
def cron(connection: psycopg.Connection) -> psycopg.Connection:
    connection.execute(TABLE)
    return connection


def job(connection: psycopg.Connection, schedule: str, **values: Any) -> ImportedSchedule:
    """Replace the jobs by one. Return it as it is imported."""
    connection.execute("delete from cron.job")
    values = {"command": "vacuum", "jobname": "nightly"} | values | {"schedule": schedule}
    names, places = ", ".join(values), ", ".join(f"%({name})s" for name in values)
    connection.execute(f"insert into cron.job ({names}) values ({places})".encode(), values)
    (found,) = read("pg-cron", connection)
    return found


def test_the_options_of_a_job_are_imported(cron: psycopg.Connection) -> None:
    command = "delete from events where at < now() - interval '1 week'; -- 100 %"
    found = job(cron, "30 3 * * 6", command=command)
    assert found == ImportedSchedule(
        key="pg-cron:nightly",
        schedule={
            "key": "pg-cron:nightly",
            "task": "run_sql",
            "args": {"command": command},
            "when": {"kind": "cron", "expression": "30 3 * * 6"},
            "missed": "skip",
            "overlap": "queue_one",
        },
        problem=None,
        enabled=True,
        note=None,
    )


def test_an_imported_schedule_fires_at_the_same_times(cron: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for schedule, expression, first in [
        ("0 10 * * *", "0 10 * * *", ["05-03 10:00", "05-04 10:00"]),
        ("*/30 6-7 * * *", "*/30 6-7 * * *", ["05-03 06:30", "05-03 07:00"]),
        ("0 12 $ * *", "0 12 L * *", ["05-31 12:00", "06-30 12:00"]),
        ("  0\t12  $ apr *\n", "0 12 L APR *", ["04-30 12:00", "04-30 12:00"]),
        ("0 0 1 Jan,Jul *", "0 0 1 JAN,JUL *", ["07-01 00:00", "01-01 00:00"]),
        ("0 0 13 * 5", "0 0 13 * 5", None),
        ("@monthly", "0 0 1 * *", ["06-01 00:00", "07-01 00:00"]),
        ("@weekly", "0 0 * * 0", None),
    ]:
        with subtests.test(schedule=schedule):
            found = job(cron, schedule)
            assert found.schedule is not None, found.problem
            assert found.schedule["when"] == {"kind": "cron", "expression": expression}
            if first is not None:
                assert [f"{at:%m-%d %H:%M}" for at in fires(found, START, 2)] == first


def test_either_day_is_enough_as_in_cron(cron: psycopg.Connection) -> None:
    found = fires(job(cron, "0 0 13 * 5"), START, 50)
    assert all(at.day == 13 or at.isoweekday() == 5 for at in found)
    assert any(at.day == 13 and at.isoweekday() != 5 for at in found)


def test_seconds_are_an_interval(cron: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for schedule, seconds in [("30 seconds", 30), ("1 second", 1), (" 5  SECONDS ", 5)]:
        with subtests.test(schedule=schedule):
            found = job(cron, schedule)
            assert found.schedule is not None
            assert found.schedule["when"] == {"kind": "every", "interval": seconds}
            assert fires(found, START, 2) == [START + timedelta(seconds=seconds * number) for number in (1, 2)]


def test_the_zone_of_the_server_is_the_zone_of_its_jobs(cron: psycopg.Connection) -> None:
    cron.execute("set cron.timezone = 'Europe/Riga'")
    found = job(cron, "30 3 * * *")
    assert found.schedule is not None
    assert found.schedule["when"]["tz"] == "Europe/Riga"
    assert "pg_cron omits a time that the clock skips" in str(found.note)
    assert "pg_cron runs a repeated time on both passes" in str(found.note)
    cron.execute("set cron.timezone = 'GMT'")
    (found,) = read("pg-cron", cron)
    assert found.schedule is not None
    assert "tz" not in found.schedule["when"]


NOT_IMPORTABLE: list[tuple[str, dict[str, Any], str]] = [
    ("@reboot", {}, "@reboot is not a time"),
    ("@Restart ", {}, "@Restart is not a time"),
    ("0 0 * * fri-sun", {}, "runs backwards"),
    ("60 seconds", {}, "is not a cron expression"),
    ("99 99 * * *", {}, "minute 99 is out of range"),
    ("", {}, "it has 0 fields"),
    ("0 0 30 2 *", {}, "never matches"),
    ("0 3 * * *", {"command": "select '{key}'::text[]"}, "create it by hand"),
]


def test_a_job_that_cannot_be_imported_is_refused_with_a_reason(
    cron: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for schedule, values, text in NOT_IMPORTABLE:
        with subtests.test(schedule=schedule, values=values):
            found = job(cron, schedule, **values)
            assert found.schedule is None
            assert text in str(found.problem)
            assert "\n" not in str(found.problem)


def test_a_sixth_field_is_ignored_with_a_note(cron: psycopg.Connection) -> None:
    found = job(cron, "0 3 * * * *")
    assert found.schedule is not None
    assert found.schedule["when"]["expression"] == "0 3 * * *"
    assert "pg_cron reads the first five fields" in str(found.note)


def test_unnamed_jobs_and_jobs_with_the_same_name_get_unique_keys(cron: psycopg.Connection) -> None:
    cron.execute(
        """
        insert into cron.job (jobid, schedule, command, jobname, username, active, database) values
            (1, '0 3 * * *', 'a', null, 'ada', true, current_database()),
            (2, '0 3 * * *', 'b', 'same', 'ada', false, current_database()),
            (3, '0 3 * * *', 'c', 'same', 'bob', true, 'elsewhere'),
            (4, '0 3 * * *', 'd', '1', 'bob', true, current_database())
        """
    )
    found = read("pg-cron", cron)
    assert [(each.key, each.enabled) for each in found] == [
        ("pg-cron:1:1", True),
        ("pg-cron:same:2", False),
        ("pg-cron:same:3", True),
        ("pg-cron:1:4", True),
    ]
    assert found[1].note == "was not active in pg_cron; it runs as 'ada': your task must connect as that role"
    assert "it runs in the database 'elsewhere': your task must connect there" in str(found[2].note)


def test_tables_of_older_versions_are_read(cron: psycopg.Connection) -> None:
    cron.execute("alter table cron.job drop column jobname, drop column active")
    cron.execute("insert into cron.job (schedule, command) values ('0 3 * * *', 'vacuum')")
    (found,) = read("pg-cron", cron)
    assert (found.key, found.enabled, found.problem) == ("pg-cron:1", True, None)


def test_an_imported_job_fires(cron: psycopg.Connection, app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def maintenance(command: str) -> None: ...

    found = job(cron, "30 seconds")
    assert found.schedule is not None
    app.schedules.upsert_many([from_object(found.schedule | {"task": "maintenance"}, app.new_job)])
    advance(connection, 31)
    assert app.schedules.tick().fires == 1
    assert one(connection, "select args ->> 'command' from sereno.jobs") == "vacuum"
