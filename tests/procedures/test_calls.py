"""A procedure as a task: allowed, called with typed parameters, its result in the job's history."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import Backoff, Once, Sereno
from sereno.database.driver import adrive
from sereno.jobs import operations as jobs
from sereno.jobs.filters import JobFilter
from sereno.procedures.result import MOST_NOTICES, MOST_ROWS
from tests.facts import advance, auntil, one, state
from tests.procedures.conftest import Allow, Login, reason, result, run, run_all

ONCE = Backoff(0)
CALLS = (
    "select count(*) from pg_stat_activity where application_name = 'sereno procedure' and datname = current_database()"
)


async def called(
    app: Sereno, connection: psycopg.Connection, allow: Allow, name: str, params: dict[str, Any], **options: Any
) -> int:
    """Return the job, which has succeeded."""
    await allow(name, **options)
    job = await app.procedure(name).aenqueue(**params)
    assert await run(app, connection, job.id) == "succeeded", reason(connection, job.id)
    return job.id


@pytest.mark.slow
async def test_a_function_is_called_and_its_result_stored(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute(
        "create function reporting.close_day(day date, factor numeric default 2) returns numeric language sql "
        "as 'select extract(day from day) * factor'"
    )
    job = await called(reporting, connection, allow, "reporting.close_day", {"day": "2026-11-21"})
    assert result(connection, job) == {"rows": [42], "row_count": 1, "notices": []}
    detail = await reporting.database.arun(jobs.show(job))
    (step,) = detail.steps
    assert (step.name, step.attempt, step.result["rows"]) == ("result", 1, [42])


@pytest.mark.slow
async def test_a_procedure_can_commit_and_returns_its_outputs(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, login: Login
) -> None:
    connection.execute(
        "create table reporting.days (day date);"
        f"grant insert, select on reporting.days to {login.name};"
        "create procedure reporting.fill(first date, days integer, inout note text, out total bigint) language plpgsql "
        "as $$ begin for i in 1..days loop insert into days values (first + i); commit; end loop; "
        "select count(*) into total from days; note := note || '!'; end $$"
    )
    params = {"first": "2026-11-01", "days": 3, "note": "done"}
    job = await called(reporting, connection, allow, "reporting.fill", params)
    assert result(connection, job)["rows"] == [{"note": "done!", "total": 3}]
    assert one(connection, "select count(distinct xmin::text) from reporting.days") == 3, (
        "each day is committed separately"
    )


# Type of the parameter and of the result, value of the job, result.
VALUES: tuple[tuple[str, Any, Any], ...] = (
    ("integer", 7, 7),
    ("integer", "7", 7),
    ("bigint", 2**60, str(2**60)),
    ("boolean", True, True),
    ("numeric", "12.50", 12.5),
    ("text", 'a "quoted" % text \\ é', 'a "quoted" % text \\ é'),
    ("text", "", ""),
    ("text", None, None),
    ("character", "several letters", "several letters"),
    ("date", "2026-02-28", "2026-02-28"),
    ("timestamptz", "2026-11-01T03:00:00+02:00", "2026-11-01T01:00:00+00:00"),
    ("interval", "1 day 02:00", "1 day 02:00:00"),
    ("uuid", "7d444840-9dc0-11d1-b245-5ffdce74fad2", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
    ("jsonb", {"a": [1, None, {"b": "c"}]}, {"a": [1, None, {"b": "c"}]}),
    ("json", [1, 2], [1, 2]),
    ("integer[]", [1, None, 3], [1, None, 3]),
    ("text[]", ["a,b", '"', "null"], ["a,b", '"', "null"]),
    ("date[]", [], []),
    ("int4range", "[1,5)", "[1,5)"),
    ("reporting.mood", "calm", "calm"),
    ("reporting.positive", 5, 5),
    ("reporting.point_of", {"x": 1, "y": [2, 3]}, {"x": 1, "y": [2, 3]}),
    ("reporting.mood[]", ["calm", "angry"], ["calm", "angry"]),
    ('reporting."Odd %s Type"', "calm", "calm"),
)  # fmt: skip


@pytest.mark.slow
async def test_json_is_converted_to_the_parameters_type(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, subtests: pytest.Subtests
) -> None:
    connection.execute(
        "create type reporting.mood as enum ('calm', 'angry');"
        "create domain reporting.positive as integer check (value > 0);"
        "create type reporting.point_of as (x integer, y integer[]);"
        'create domain reporting."Odd %s Type" as text'
    )
    jobs = []
    for number, (type_, given, _) in enumerate(VALUES):
        name = f"reporting.echo_{number}"
        connection.execute(
            f"create function {name}(value {type_}) returns {type_} language sql as 'select $1'".encode()
        )
        await allow(name)
        jobs.append((await reporting.procedure(name, retry=ONCE).aenqueue(value=given)).id)
    states = await run_all(reporting, connection, jobs)
    for (type_, given, expected), job, ended in zip(VALUES, jobs, states, strict=True):
        with subtests.test(type_=type_, given=repr(given)):
            assert ended == "succeeded", reason(connection, job)
            (row,) = result(connection, job)["rows"]
            if type_ == "timestamptz":
                assert datetime.fromisoformat(row) == datetime.fromisoformat(expected)
            else:
                assert row == expected


async def test_a_variadic_parameter_takes_a_list(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute(
        "create function reporting.joined(glue text, variadic parts text[]) returns text language sql "
        "as 'select array_to_string(parts, glue)'"
    )
    job = await called(reporting, connection, allow, "reporting.joined", {"glue": "-", "parts": ["a", "b", "c"]})
    assert result(connection, job)["rows"] == ["a-b-c"]


@pytest.mark.slow
async def test_all_rows_are_counted_and_the_first_stored(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute(
        "create function reporting.many(n integer) returns table (number integer, words text) language sql "
        "as $$ select g, repeat('x', g % 3) from generate_series(1, n) as g $$;"
        "create function reporting.large() returns setof text language sql "
        "as $$ select repeat('x', 100000) union all select 'small' $$;"
        "create function reporting.nothing() returns void language sql as ''"
    )
    job = await called(reporting, connection, allow, "reporting.many", {"n": 25_000})
    found = result(connection, job)
    assert found["row_count"] == 25_000
    assert found["rows"][0] == {"number": 1, "words": "x"}
    assert len(found["rows"]) == MOST_ROWS
    assert found["rows_left_out"] == 25_000 - MOST_ROWS
    job = await called(reporting, connection, allow, "reporting.large", {})
    assert result(connection, job)["rows"] == ["(too long to be stored)", "small"]
    job = await called(reporting, connection, allow, "reporting.nothing", {})
    assert result(connection, job) == {"rows": [], "row_count": None, "notices": []}


@pytest.mark.slow
async def test_notices_are_logged_and_stored(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, caplog: pytest.LogCaptureFixture
) -> None:
    connection.execute(
        "create function reporting.talks(n integer) returns void language plpgsql as $$ begin "
        "raise warning 'mind the gap'; for i in 1..n loop raise notice 'step % of %', i, n; end loop; end $$"
    )
    caplog.set_level(logging.INFO, "sereno")
    job = await called(reporting, connection, allow, "reporting.talks", {"n": 500})
    found = result(connection, job)
    assert found["notices"][:2] == ["WARNING: mind the gap", "NOTICE: step 1 of 500"]
    assert (len(found["notices"]), found["notices_left_out"]) == (MOST_NOTICES, 501 - MOST_NOTICES)
    notices = [record for record in caplog.records if getattr(record, "event", "") == "procedure.notice"]
    assert [record.levelname for record in notices[:2]] == ["WARNING", "INFO"]
    assert len(notices) == MOST_NOTICES + 1
    assert notices[0].sereno_fields["job_id"] == job  # type: ignore[attr-defined]  # added by the log of the job


@pytest.mark.slow
async def test_a_parameter_can_be_a_fact_of_the_job(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute(
        "create function reporting.facts(run bigint, try integer, who text, planned timestamptz, x text) "
        "returns jsonb language sql as $$ select to_jsonb(array[run::text, try::text, who, planned::text, x]) $$"
    )
    given = {"run": "job", "try": "attempt", "who": "tenant", "planned": "planned_at"}
    await allow("reporting.facts", given=given)
    task = reporting.procedure("reporting.facts", tenant="r42")
    job = task.enqueue(x="mine")
    assert await run(reporting, connection, job.id) == "succeeded", reason(connection, job.id)
    assert result(connection, job.id)["rows"] == [[str(job.id), "1", "r42", None, "mine"]]
    lies = task.enqueue(x="mine", who="r43")
    assert await run(reporting, connection, lies.id) == "dead"
    assert "who is filled with the job's tenant and cannot be set" in reason(connection, lies.id)


@pytest.mark.slow
async def test_a_schedule_calls_it_for_its_instant(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute(
        "create function reporting.close_day(day date, planned timestamptz) returns text language sql "
        "as $$ select day || ' ' || (planned at time zone 'UTC')::date $$"
    )
    await allow("reporting.close_day", given={"planned": "planned_at"})
    task = reporting.procedure("reporting.close_day", queue="reports")
    at = datetime.now(UTC) + timedelta(hours=1)
    await reporting.schedules.aupsert("close", task.job(day="{fire:%Y-%m-%d}"), when=Once(at))
    async with reporting.working():
        advance(connection, 3700)
        await auntil(lambda: one(connection, "select count(*) from sereno.history where state = 'succeeded'"))
    job = one(connection, "select id from sereno.history where task = 'procedure.reporting.close_day'")
    day = at.strftime("%Y-%m-%d")
    assert result(connection, job)["rows"] == [f"{day} {day}"]
    assert one(connection, "select queue from sereno.history where id = %s", job) == "reports"


@pytest.mark.slow
async def test_limit_keys_can_use_its_parameters(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute("create function reporting.close(shop text) returns text language sql as 'select $1'")
    await allow("reporting.close")
    job = reporting.procedure("reporting.close", order_key="{shop}").enqueue(shop="r42")
    assert one(connection, "select keys ->> 'order' from sereno.jobs where id = %s", job.id) == "r42"
    assert await run(reporting, connection, job.id) == "succeeded"


@pytest.mark.slow
async def test_an_error_inside_is_retried_by_the_tasks_policy(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute(
        "create function reporting.fails() returns void language plpgsql "
        "as $$ begin raise exception 'the books do not balance' using errcode = 'RB001'; end $$"
    )
    await allow("reporting.fails")
    task = reporting.procedure("reporting.fails", retry=Backoff(2, delays=[0], jitter=0))
    job = task.enqueue()
    assert await run(reporting, connection, job.id) == "dead"
    assert one(connection, "select failures from sereno.history where id = %s", job.id) == 3
    assert "the books do not balance" in reason(connection, job.id)
    assert one(connection, "select count(*) from sereno.procedure_runs") == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "procedure"])
async def test_the_statement_timeout_applies(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, kind: str
) -> None:
    """A function that changes the timeout itself has no effect."""
    returns = "returns void" if kind == "function" else ""
    connection.execute(
        f"create {kind} reporting.sleeps() {returns} language plpgsql "
        "as $$ begin perform set_config('statement_timeout', '0', false); perform pg_sleep(3600); end $$"
    )
    await allow("reporting.sleeps", timeout="200ms")
    job = reporting.procedure("reporting.sleeps", retry=ONCE).enqueue()
    assert await run(reporting, connection, job.id) == "dead"
    assert "statement timeout" in reason(connection, job.id)


@pytest.mark.slow
async def test_the_lock_timeout_applies(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, login: Login, database_url: str
) -> None:
    connection.execute(
        f"create table reporting.books (n integer); grant select on reporting.books to {login.name};"
        "create function reporting.reads() returns bigint language sql as 'select count(*) from reporting.books'"
    )
    await allow("reporting.reads", lock_timeout="100ms")
    job = reporting.procedure("reporting.reads", retry=ONCE).enqueue()
    with psycopg.connect(database_url) as other:
        other.execute("lock table reporting.books")
        assert await run(reporting, connection, job.id) == "dead"
    assert "lock timeout" in reason(connection, job.id)


@pytest.mark.slow
async def test_cancelling_the_job_cancels_the_statement(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute(
        "create function reporting.sleeps() returns void language plpgsql as $$ begin perform pg_sleep(3600); end $$"
    )
    await allow("reporting.sleeps", timeout="2h")
    job = reporting.procedure("reporting.sleeps").enqueue()
    async with reporting.working():
        await auntil(lambda: one(connection, f"{CALLS} and state = 'active'"))
        await adrive(jobs.cancel(JobFilter(ids=[job.id])), reporting.database.arun)
        await auntil(lambda: state(connection, job.id) == "cancelled")
        await auntil(lambda: one(connection, CALLS) == 0)


@pytest.mark.slow
async def test_a_stopping_worker_releases_the_job(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute("create function reporting.sleeps() returns void language sql as 'select pg_sleep(3600)'")
    await allow("reporting.sleeps", timeout="2h")
    job = reporting.procedure("reporting.sleeps").enqueue()
    reporting.override(grace=0.1)
    async with reporting.working():
        await auntil(lambda: one(connection, f"{CALLS} and state = 'active'"))
    assert state(connection, job.id) == "ready"
    await auntil(lambda: one(connection, CALLS) == 0)


@pytest.mark.slow
async def test_a_call_may_run_longer_than_the_lease(
    database_url: str, connection: psycopg.Connection, allow: Allow, login: Login
) -> None:
    """The heartbeat continues, and no other worker runs it a second time."""
    app = Sereno(database_url, procedure_url=login.url, lease=3600, heartbeat=0.5)
    connection.execute(
        f"create table reporting.release (n integer); grant select on reporting.release to {login.name};"
        "create function reporting.waits() returns text language plpgsql as $$ begin "
        "while not exists (select from reporting.release) loop perform pg_sleep(0.05); end loop; return 'done'; end $$"
    )
    await allow("reporting.waits")
    job = app.procedure("reporting.waits").enqueue()
    connection.execute("insert into sereno.clock (ahead) values (interval '0')")
    lease = "select lease_until from sereno.sessions where state = 'alive'"

    async def fifty_minutes_pass() -> None:
        """Move the clock: only the heartbeat extends the lease."""
        before = one(connection, lease)
        connection.execute("update sereno.clock set ahead = ahead + interval '50 minutes'")
        await auntil(lambda: one(connection, lease) >= before + timedelta(minutes=50))

    async with app.working():
        await auntil(lambda: one(connection, f"{CALLS} and state = 'active'"))
        await fifty_minutes_pass()
        await fifty_minutes_pass()
        connection.execute("insert into reporting.release values (1)")
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert one(connection, "select attempt from sereno.history where id = %s", job.id) == 1
    await app.aclose()


@pytest.mark.slow
async def test_results_are_deleted_with_their_retention_and_their_jobs(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    connection.execute("create function reporting.one() returns integer language sql as 'select 1'")
    first = await called(reporting, connection, allow, "reporting.one", {})
    advance(connection, 31 * 86400)
    task = reporting.registry.find("procedure.reporting.one")
    second = reporting.enqueue_many([reporting.new_job(task.name, b"{}")])[0]
    assert await run(reporting, connection, second.id) == "succeeded"
    assert connection.execute("select job_id from sereno.procedure_runs").fetchall() == [(second.id,)]
    assert first != second.id
    await adrive(jobs.delete(JobFilter(ids=[second.id])), reporting.database.arun)
    assert one(connection, "select count(*) from sereno.procedure_runs") == 0


@pytest.mark.slow
async def test_a_result_that_cannot_be_stored_does_not_repeat_the_call(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, caplog: pytest.LogCaptureFixture
) -> None:
    connection.execute("create function reporting.one() returns integer language sql as 'select 1'")
    await allow("reporting.one")
    connection.execute("alter table sereno.procedure_runs rename to procedure_runs_elsewhere")
    job = reporting.procedure("reporting.one").enqueue()
    assert await run(reporting, connection, job.id) == "succeeded"
    assert one(connection, "select attempt from sereno.history where id = %s", job.id) == 1
    assert "procedure.result_lost" in [getattr(record, "event", "") for record in caplog.records]


@pytest.mark.slow
async def test_many_calls_run_concurrently(reporting: Sereno, connection: psycopg.Connection, allow: Allow) -> None:
    connection.execute("create function reporting.twice(n integer) returns integer language sql as 'select n * 2'")
    await allow("reporting.twice")
    task = reporting.procedure("reporting.twice")
    made = await reporting.aenqueue_many([task.job(n=n) for n in range(50)])
    async with reporting.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history where state = 'succeeded'") == 50)
    brought = {
        job: found["rows"][0] for job, found in connection.execute("select job_id, result from sereno.procedure_runs")
    }
    assert [brought[job.id] for job in made] == [n * 2 for n in range(50)]
