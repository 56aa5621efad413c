"""Statistics and log lines from the end of a worker are written, exactly once."""

import asyncio
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.worker.session_stats import SessionStats
from tests.facts import auntil, is_gone, one, state, until
from tests.worker.isolation import isolated_tasks

# Statements that add statistics wait for a lock of the test.
BLOCK_STATISTICS = """
create function wait_here() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock_shared(7); return new; end $$;
create trigger wait_here before insert on sereno.minutes for each statement execute function wait_here();
select pg_advisory_lock(7)
"""
WAITING = """select count(*) from pg_locks join pg_database on pg_database.oid = database
             where datname = current_database() and locktype = 'advisory' and objid = 7 and not granted"""


async def test_a_stop_while_statistics_are_written_counts_nothing_twice(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def work() -> None: ...

    calls = 0
    write = SessionStats.write_figures

    async def counted(self: SessionStats) -> None:
        nonlocal calls
        calls += 1
        await write(self)

    monkeypatch.setattr(SessionStats, "write_figures", counted)
    app.override(heartbeat=0.1, lease=30.0)
    connection.execute(BLOCK_STATISTICS)
    job = await work.aenqueue()
    async with app.working() as worker:
        await auntil(lambda: state(connection, job.id) == "succeeded")
        await auntil(lambda: one(connection, WAITING))
        # The worker stops while the heartbeat is writing.
        before = calls
        worker.stop()
        await auntil(lambda: calls > before)
        connection.execute("select pg_advisory_unlock(7)")
    assert one(connection, "select sum(succeeded) from sereno.minutes") == 1


@pytest.mark.slow
async def test_the_last_lines_of_an_isolated_job_reach_the_central_log(
    app: Sereno, connection: psycopg.Connection
) -> None:
    """Lines are written once a second: the first is written, and the second still waits when the worker ends."""
    isolated_tasks.adopt(app)
    count = "select count(*) from sereno.logs where message = 'last line'"
    async with app.working():
        for number in (1, 2):
            (job,) = await app.aenqueue_many([isolated_tasks.logs_a_line.job()])
            await auntil(lambda: state(connection, job.id) == "succeeded")  # noqa: B023
            if number == 1:
                await auntil(lambda: one(connection, count) == 1)
    assert one(connection, count) == 2


@pytest.mark.slow
async def test_an_isolated_process_that_does_not_exit_is_killed(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It waits to write its last lines to a locked table."""
    monkeypatch.setattr("sereno.worker.isolation.pool.LAST_WRITE_TIMEOUT", -1.0)
    isolated_tasks.adopt(app)
    (job,) = await app.aenqueue_many([isolated_tasks.logs_a_line.job(str(tmp_path / "pid"))])
    with connection.transaction():
        connection.execute("lock table sereno.logs in access exclusive mode")
        async with asyncio.timeout(30), app.working():
            await auntil(lambda: state(connection, job.id) == "succeeded")
        # The line may still be written: the server continues the statement when the lock is free.
        until(lambda: is_gone(int((tmp_path / "pid").read_text())))
