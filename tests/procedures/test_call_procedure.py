"""`app.call_procedure`: a task of one's own calls the procedure that its arguments name, if it is on the allow-list."""

from typing import Any

import psycopg
import pytest

from sereno import Backoff, Context, Sereno
from sereno.jobs.task_handle import Task
from sereno.procedures.operations import revoke
from tests.facts import one
from tests.procedures.conftest import Allow, ended, reason, result, run


def caller(app: Sereno) -> Task[..., list[Any]]:
    """Return a task that calls what its arguments name, and returns the rows."""

    @app.task(retry=Backoff(0))
    async def call(
        ctx: Context,
        schema: str,
        name: str,
        params: dict[str, Any],
        timeout: str | float | None = None,
    ) -> list[Any]:
        found = await app.call_procedure(ctx, (schema, name), params, timeout=timeout)
        return found.rows

    made: Task[..., list[Any]] = call
    return made


async def test_a_procedure_is_called_by_the_name_in_the_arguments(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    """One that is allowed while the worker runs, and has a name that needs quotes; `job` is filled from the job."""
    call = caller(reporting)
    connection.execute(
        'create function reporting."Close Day"(day date, job bigint) returns bigint language sql '
        "as 'select job * extract(day from day)::bigint'"
    )
    async with reporting.working():
        early = await call.aenqueue("reporting", "Close Day", {"day": "2026-11-02"})
        assert await ended(connection, early.id) == "dead"
        assert '"Close Day" is not allowed on here' in reason(connection, early.id)
        await allow('reporting."Close Day"', given={"job": "job"})
        job = await call.aenqueue("reporting", "Close Day", {"day": "2026-11-02"})
        assert await job.aresult() == [job.id * 2]
        assert result(connection, job.id)["rows"] == [job.id * 2]
        reporting.database.run(revoke("here", 'reporting."Close Day"', actor="maria"))
        late = await call.aenqueue("reporting", "Close Day", {"day": "2026-11-02"})
        assert await ended(connection, late.id) == "dead"


@pytest.mark.slow
async def test_a_wrong_call_makes_the_job_dead(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, subtests: pytest.Subtests
) -> None:
    call = caller(reporting)
    connection.execute("create function reporting.twice(n integer) returns integer language sql as 'select n * 2'")
    await allow("reporting.twice")
    rows: tuple[tuple[tuple[Any, ...], str], ...] = (
        (("reporting", "twice", {}), "wrong parameters: reporting.twice: n (integer) is missing"),
        (("reporting", "twice", {"n": "x"}), 'invalid input syntax for type integer: "x"'),
        (("reporting", "", {"n": 1}), "is not a name of a procedure"),
        (('reporting"; select 1; --', "twice", {"n": 1}), "is not allowed"),
        (("pg_catalog", "pg_ls_dir", {"n": 1}), "is not allowed"),
        (("reporting", "twice", {"n": 1}, 0), "wrong call: timeout must be more than 0"),
        (("reporting", "twice", {"n": 1}, "soon"), "is not a duration"),
    )
    jobs = [(await call.aenqueue(*given)).id for given, _ in rows]
    async with reporting.working():
        for job, (given, why) in zip(jobs, rows, strict=True):
            with subtests.test(given=repr(given)):
                assert await ended(connection, job) == "dead"
                assert why in reason(connection, job)
    assert one(connection, "select count(*) from sereno.procedure_runs") == 0


@pytest.mark.slow
async def test_a_timeout_of_the_call_is_never_longer_than_that_of_the_list(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow
) -> None:
    call = caller(reporting)
    connection.execute("create function reporting.sleeps() returns void language sql as 'select pg_sleep(3600)'")
    await allow("reporting.sleeps", timeout="2h")
    shorter = await call.aenqueue("reporting", "sleeps", {}, "200ms")
    assert await run(reporting, connection, shorter.id) == "dead"
    await allow("reporting.sleeps", timeout="200ms")
    longer = await call.aenqueue("reporting", "sleeps", {}, "2h")
    assert await run(reporting, connection, longer.id) == "dead"
    for job in (shorter, longer):
        assert "statement timeout" in reason(connection, job.id)
