"""Calls that are not allowed, missing, changed, or given wrong parameters: the job is dead, and nothing has run."""

from typing import Any

import psycopg
import pytest
from psycopg import conninfo

from sereno import Backoff, Sereno
from sereno.errors import ConfigurationError, InvalidArguments, Refused
from sereno.procedures.operations import revoke
from tests.facts import one
from tests.procedures.conftest import Allow, Login, allow_on, ended, reason, run

ONCE = Backoff(0)
BOOK = (
    "create procedure reporting.book(day date, factor integer default 1) language sql "
    "as 'insert into reporting.ran values (day)'"
)


@pytest.fixture
def book(connection: psycopg.Connection, login: Login) -> None:
    """A procedure that records when it runs."""
    connection.execute(f"create table reporting.ran (day date); grant insert on reporting.ran to {login.name}".encode())
    connection.execute(BOOK)


async def refused(app: Sereno, connection: psycopg.Connection, job: int) -> str:
    """Run a worker, and return why the job is dead; nothing has run, and it was tried once."""
    async with app.working():
        return await dead(connection, job)


async def dead(connection: psycopg.Connection, job: int) -> str:
    """Return why the job is dead, while a worker runs."""
    assert await ended(connection, job) == "dead"
    assert one(connection, "select count(*) from reporting.ran") == 0
    assert one(connection, "select attempt from sereno.history where id = %s", job) == 1
    return reason(connection, job)


@pytest.mark.slow
async def test_a_procedure_that_is_not_allowed_is_refused(
    reporting: Sereno, connection: psycopg.Connection, book: None
) -> None:
    job = reporting.procedure("reporting.book").enqueue(day="2026-11-01")
    text = await refused(reporting, connection, job.id)
    assert text == "reporting.book is not allowed on here: sereno procedure allow 'reporting.book'"


@pytest.mark.slow
async def test_a_revoked_procedure_is_refused(
    reporting: Sereno, connection: psycopg.Connection, book: None, allow: Allow
) -> None:
    await allow("reporting.book")
    job = reporting.procedure("reporting.book").enqueue(day="2026-11-01")
    reporting.database.run(revoke("here", "reporting.book", actor="maria"))
    assert "is not allowed" in await refused(reporting, connection, job.id)
    audited = connection.execute("select action, subject from sereno.audit order by id").fetchall()
    assert audited == [
        ("procedure.allow", "procedure reporting.book"),
        ("procedure.revoke", "procedure reporting.book"),
    ]


@pytest.mark.slow
async def test_a_missing_procedure_is_refused(
    reporting: Sereno, connection: psycopg.Connection, book: None, allow: Allow
) -> None:
    await allow("reporting.book")
    connection.execute("drop procedure reporting.book")
    job = reporting.procedure("reporting.book").enqueue(day="2026-11-01")
    assert "reporting.book no longer exists: it was procedure reporting.book(day date, factor integer = default)" in (
        await refused(reporting, connection, job.id)
    )


BODY = "language sql as 'insert into reporting.ran values (now()::date)'"


# Another procedure of the same name, and what the job says about it.
CHANGES = (
    (f"create procedure reporting.book(day text, factor integer default 1) {BODY}", "day text"),
    (f"create procedure reporting.book(date date, factor integer default 1) {BODY}", "date date"),
    (f"create procedure reporting.book(day date, factor integer) {BODY}", "factor integer)"),
    (f"create procedure reporting.book(day date, factor integer default 1, x text default '') {BODY}", "x text"),
    (f"create function reporting.book(day date, factor integer default 1) returns void {BODY}", "function"),
    (
        f"create procedure reporting.book(day date, factor integer default 1) security definer {BODY}",
        "with the rights of postgres",
    ),
)


@pytest.mark.slow
async def test_a_changed_procedure_is_refused(
    reporting: Sereno, connection: psycopg.Connection, book: None, allow: Allow, subtests: pytest.Subtests
) -> None:
    await allow("reporting.book")
    task = reporting.procedure("reporting.book")
    async with reporting.working():
        for change, words in CHANGES:
            with subtests.test(words=words):
                connection.execute(f"drop routine reporting.book; {change}".encode())
                text = await dead(connection, task.enqueue(day="2026-11-01").id)
                assert "reporting.book has changed since it was allowed" in text
                assert words in text.partition("it is now")[2]


@pytest.mark.slow
async def test_a_changed_body_stays_allowed(
    reporting: Sereno, connection: psycopg.Connection, book: None, allow: Allow
) -> None:
    await allow("reporting.book")
    connection.execute(
        "create or replace procedure reporting.book(day date, factor integer default 1) language sql "
        "as 'insert into reporting.ran values (day), (day)'"
    )
    job = reporting.procedure("reporting.book").enqueue(day="2026-11-01")
    assert await run(reporting, connection, job.id) == "succeeded"
    assert one(connection, "select count(*) from reporting.ran") == 2


# Parameters that do not fit, and what the job says.
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "day (date) is missing"),
    ({"dai": "2026-11-01"}, "there is no parameter 'dai'; day (date) is missing. It takes day date, factor"),
    ({"day": "2026-11-01", "x": 1}, "there is no parameter 'x'"),
    ({"day": "2026-13-01"}, "a parameter does not fit"),
    ({"day": "01/11/2026"}, "a parameter does not fit"),
    ({"day": ["2026-11-01"]}, "day: a list is not a date"),
    ({"day": {"y": 2026}}, "day: an object is not a date"),
    ({"day": "2026-11-01", "factor": "many"}, 'invalid input syntax for type integer: "many"'),
    ({"day": "2026-11-01", "factor": 2**31}, "out of range"),
    ({"day": "2026-11-01", "factor": 1.5}, "invalid input syntax"),
    ({"day": "2026-11-01'); drop table reporting.ran; --"}, "a parameter does not fit"),
    ({"day": "2026-11-01", "factor => 1); drop table reporting.ran; --": 1}, "there is no parameter"),
)


@pytest.mark.slow
async def test_wrong_parameters_are_refused(
    reporting: Sereno, connection: psycopg.Connection, book: None, allow: Allow, subtests: pytest.Subtests
) -> None:
    await allow("reporting.book")
    task = reporting.procedure("reporting.book")
    async with reporting.working():
        for params, words in WRONG:
            with subtests.test(params=repr(params)):
                text = await dead(connection, task.enqueue(**params).id)
                assert text.startswith("wrong parameters: reporting.book: ")
                assert words in text


async def test_parameters_are_given_by_name(reporting: Sereno) -> None:
    task = reporting.procedure("reporting.book")
    with pytest.raises(InvalidArguments, match="by name"):
        task.enqueue("2026-11-01")
    with pytest.raises(InvalidArguments, match="NaN"):
        task.enqueue(day=float("nan"))
    with pytest.raises(InvalidArguments, match="NUL"):
        task.enqueue(day="a\x00b")
    with pytest.raises(InvalidArguments, match="bytes of parameters"):
        task.enqueue(day="x" * 2_000_000)
    with pytest.raises(ConfigurationError, match="needs a context"):
        task(day="2026-11-01")


@pytest.mark.slow
async def test_overloads_are_distinguished(
    reporting: Sereno, connection: psycopg.Connection, book: None, allow: Allow
) -> None:
    connection.execute(f"create procedure reporting.book(day text) {BODY}")
    with pytest.raises(Refused, match="exists 2 times, and choose one with --params") as several:
        await allow("reporting.book")
    assert "procedure reporting.book --params 'day date, factor integer'" in str(several.value)
    with pytest.raises(Refused, match="none of them matches"):
        await allow("reporting.book", params="day timestamp")
    assert str((await allow("reporting.book", params="day text")).signature) == "procedure reporting.book(day text)"
    assert (await allow("reporting.book", params="DATE,integer")).signature.params == "day date, factor integer"


@pytest.mark.slow
async def test_a_later_overload_is_not_called_instead(
    reporting: Sereno, connection: psycopg.Connection, book: None, allow: Allow
) -> None:
    """The database prefers an overload without defaults: one added later would run instead of the allowed one."""
    await allow("reporting.book")
    connection.execute(
        "create table reporting.trap (n integer); grant insert on reporting.trap to public;"
        "create procedure reporting.book(day date) language sql as 'insert into reporting.trap values (1)'"
    )
    task = reporting.procedure("reporting.book")
    short = task.enqueue(day="2026-11-01")
    text = await refused(reporting, connection, short.id)
    assert "factor (integer) cannot be left out, because there are overloads of this name" in text
    whole = task.enqueue(day="2026-11-01", factor=1)
    assert await run(reporting, connection, whole.id) == "succeeded"
    assert one(connection, "select count(*) from reporting.ran") == 1
    assert one(connection, "select count(*) from reporting.trap") == 0


@pytest.mark.slow
async def test_signatures_that_no_job_can_call_are_refused(
    connection: psycopg.Connection, allow: Allow, subtests: pytest.Subtests
) -> None:
    for declared, words in (
        ("function reporting.x(date) returns void language sql as ''", "a parameter without a name"),
        ("function reporting.x(a anyelement) returns void language sql as ''", "the type anyelement"),
        ("function reporting.x() returns record language sql as 'select 1, 2'", "record has no columns"),
        ("function reporting.x() returns trigger language plpgsql as 'begin return null; end'", "trigger has no"),
    ):
        with subtests.test(words=words):
            connection.execute(f"create {declared}".encode())
            with pytest.raises(Refused, match=words):
                await allow("reporting.x")
            connection.execute("drop function reporting.x")


async def test_aggregates_and_window_functions_are_not_procedures(connection: psycopg.Connection, allow: Allow) -> None:
    connection.execute("create aggregate reporting.total(integer) (sfunc = int4pl, stype = integer)")
    with pytest.raises(Refused, match=r"there is no function or procedure reporting\.total"):
        await allow("reporting.total")


async def test_procedures_of_the_database_and_of_sereno_are_refused(allow: Allow, subtests: pytest.Subtests) -> None:
    for name in (
        "pg_catalog.pg_read_file", "pg_catalog.pg_terminate_backend", "information_schema._pg_expandarray",
        "pg_temp.x", "pg_toast.x", "sereno.enqueue", "sereno_archive.x", '"PG_CATALOG".lower',
    ):  # fmt: skip
        with subtests.test(name=name), pytest.raises(Refused, match="belongs to the database or to sereno"):
            await allow(name)


@pytest.mark.slow
async def test_a_login_without_execute_is_refused(
    reporting: Sereno, connection: psycopg.Connection, book: None, allow: Allow, login: Login
) -> None:
    connection.execute("revoke execute on procedure reporting.book from public")
    with pytest.raises(Refused, match="may not call"):
        await allow("reporting.book")
    connection.execute(f"grant execute on procedure reporting.book to {login.name}")
    await allow("reporting.book")
    connection.execute(f"revoke execute on procedure reporting.book from {login.name}")
    job = reporting.procedure("reporting.book", retry=ONCE).enqueue(day="2026-11-01")
    assert "permission denied for procedure book" in await refused(reporting, connection, job.id)


# Logins


@pytest.mark.slow
async def test_without_a_login_for_procedures_nothing_is_called(
    app: Sereno, connection: psycopg.Connection, book: None
) -> None:
    with pytest.raises(ConfigurationError, match="SERENO_PROCEDURE_URL"):
        await allow_on(app, "reporting.book")
    app.override(procedures_as_worker=True)
    await allow_on(app, "reporting.book")
    app.override(procedures_as_worker=False)
    job = app.procedure("reporting.book", retry=ONCE).enqueue(day="2026-11-01")
    assert "the worker's own is never used" in await refused(app, connection, job.id)


@pytest.mark.slow
async def test_the_workers_own_login_is_used_only_if_configured(
    app: Sereno, connection: psycopg.Connection, book: None
) -> None:
    app.override(procedures_as_worker=True)
    await allow_on(app, "reporting.book")
    job = app.procedure("reporting.book").enqueue(day="2026-11-01")
    assert await run(app, connection, job.id) == "succeeded"


# What makes the login more than a caller of procedures, how it is undone, and what the job says.
EXTRA_PRIVILEGES = (
    ("alter role {login} superuser", "alter role {login} nosuperuser", "is a superuser"),
    ("alter role {login} createrole", "alter role {login} nocreaterole", "may do more than call procedures"),
    ("alter role {login} bypassrls", "alter role {login} nobypassrls", "may do more than call procedures"),
    ("grant pg_read_all_data to {login}", "revoke pg_read_all_data from {login}", "can access the table"),
    (
        "grant pg_execute_server_program to {login}",
        "revoke pg_execute_server_program from {login}",
        "can act as 'pg_execute_server_program'",
    ),
    ("grant postgres to {login}", "revoke postgres from {login}", "can become the superuser 'postgres'"),
    (
        "alter role {login} noinherit; grant postgres to {login}",
        "alter role {login} inherit; revoke postgres from {login}",
        "can become the superuser 'postgres'",
    ),
    (
        "grant select on sereno.jobs to {login}",
        "revoke select on sereno.jobs from {login}",
        "can access the table sereno.jobs of sereno",
    ),
    (
        "grant select (id) on sereno.jobs to {login}",
        "revoke select (id) on sereno.jobs from {login}",
        "can access the table sereno.jobs of sereno",
    ),
    (
        "grant insert on sereno.procedures to public",
        "revoke insert on sereno.procedures from public",
        "can access the table sereno.procedures of sereno",
    ),
    (
        "grant truncate on sereno.history to {login}",
        "revoke truncate on sereno.history from {login}",
        "can access the table sereno.history of sereno",
    ),
    (
        "grant create on schema sereno to {login}",
        "revoke create on schema sereno from {login}",
        "can access the table sereno.",
    ),
    (
        "alter table sereno.audit owner to {login}",
        "alter table sereno.audit owner to postgres",
        "can access the table sereno.audit of sereno",
    ),
)


@pytest.mark.slow
async def test_a_login_with_more_privileges_is_refused(
    reporting: Sereno,
    connection: psycopg.Connection,
    book: None,
    allow: Allow,
    login: Login,
    subtests: pytest.Subtests,
) -> None:
    await allow("reporting.book")
    task = reporting.procedure("reporting.book", retry=ONCE)
    async with reporting.working():
        for grant, undo, words in EXTRA_PRIVILEGES:
            with subtests.test(grant=grant):
                connection.execute(grant.format(login=login.name).encode())
                try:
                    text = await dead(connection, task.enqueue(day="2026-11-01").id)
                finally:
                    connection.execute(undo.format(login=login.name).encode())
                assert text.startswith(f"failed 1 times the login '{login.name}' ")
                assert words in text
                assert "create role reports login" in text
        # All of it is undone: the login can call again.
        assert await ended(connection, task.enqueue(day="2026-11-01").id) == "succeeded"


@pytest.mark.slow
async def test_an_unreachable_address_is_retried(
    database_url: str, connection: psycopg.Connection, book: None, allow: Allow, login: Login
) -> None:
    await allow("reporting.book")
    app = Sereno(database_url, procedure_url=conninfo.make_conninfo(login.url, port=1))
    job = app.procedure("reporting.book", retry=Backoff(1, delays=[0], jitter=0)).enqueue(day="2026-11-01")
    assert await run(app, connection, job.id) == "dead"
    assert one(connection, "select failures from sereno.history where id = %s", job.id) == 2
    text = reason(connection, job.id)
    assert "no connection to PostgreSQL" in text
    assert "only-for-procedures" not in text
    assert one(connection, "select count(*) from reporting.ran") == 0
    await app.aclose()
